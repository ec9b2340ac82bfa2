-- When an event was put into the inbox, by which a timer is recognised that a clock that was ahead has set. NULL: the row is older than
-- this column.
ALTER TABLE orchestration_inbox ADD COLUMN set_at INTEGER;
