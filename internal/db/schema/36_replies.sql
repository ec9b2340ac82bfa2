-- Jobs that are made of messages answer these.
ALTER TABLE jobs ADD COLUMN reply BLOB;
