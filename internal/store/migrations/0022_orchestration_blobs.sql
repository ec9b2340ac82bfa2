-- What is large of orchestrations is in blob storage, each value under a key of its own: it belongs to its row. The column beside such a key
-- is NULL or empty.
ALTER TABLE orchestrations ADD COLUMN input_blob TEXT;
ALTER TABLE orchestrations ADD COLUMN output_blob TEXT;
ALTER TABLE orchestration_history ADD COLUMN events_blob TEXT;
ALTER TABLE orchestration_inbox ADD COLUMN event_blob TEXT;
ALTER TABLE orchestration_activities ADD COLUMN event_blob TEXT;
-- Whether the instance has had any, so that of others nobody looks for what is to be removed.
ALTER TABLE orchestration_turns ADD COLUMN blobs INTEGER NOT NULL DEFAULT 0;
-- All of these keys, by which the sweep of the blob storage asks what is in use. An index of each table would make every row dearer to write.
-- Blobs whose rows are gone are removed a while later, so that who copies the database first and the blob storage after it has all that the database
-- refers to.
CREATE TABLE orchestration_blobs (
  key      TEXT PRIMARY KEY,
  freed_at INTEGER                    -- NULL: its row is there
) STRICT, WITHOUT ROWID;
CREATE INDEX orchestration_blobs_freed ON orchestration_blobs (freed_at, key) WHERE freed_at IS NOT NULL;
