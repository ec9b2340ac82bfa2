-- What is large of orchestrations is in blob storage, each value under a key of its own: it belongs to its row. The column beside such a key
-- is NULL or empty.
ALTER TABLE orchestrations ADD COLUMN input_blob TEXT;
ALTER TABLE orchestrations ADD COLUMN output_blob TEXT;
ALTER TABLE orchestration_history ADD COLUMN events_blob TEXT;
ALTER TABLE orchestration_inbox ADD COLUMN event_blob TEXT;
ALTER TABLE orchestration_activities ADD COLUMN event_blob TEXT;
-- Whether the instance has had any, so that of others nobody looks for what is to be removed.
ALTER TABLE orchestration_turns ADD COLUMN blobs INTEGER NOT NULL DEFAULT 0;
-- Blobs whose rows are gone. They are removed a while later, so that who copies the database first and the blob storage after it has all that the
-- database refers to.
CREATE TABLE orchestration_freed_blobs (
  key      TEXT PRIMARY KEY,
  freed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX orchestration_freed_blobs_at ON orchestration_freed_blobs (freed_at);
-- By which the sweep of the blob storage asks whether a key is in use.
CREATE INDEX orchestrations_input_blob ON orchestrations (input_blob) WHERE input_blob IS NOT NULL;
CREATE INDEX orchestrations_output_blob ON orchestrations (output_blob) WHERE output_blob IS NOT NULL;
CREATE INDEX orchestration_history_blob ON orchestration_history (events_blob) WHERE events_blob IS NOT NULL;
CREATE INDEX orchestration_inbox_blob ON orchestration_inbox (event_blob) WHERE event_blob IS NOT NULL;
CREATE INDEX orchestration_activities_blob ON orchestration_activities (event_blob) WHERE event_blob IS NOT NULL;
