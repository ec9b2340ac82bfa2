-- A topic is a queue of messages that hands what becomes active in it to its subscriptions, which are
-- queues of messages themselves, named "<tenant>/<topic>/subscriptions/<name>".
ALTER TABLE queues ADD COLUMN is_topic INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN topic INTEGER;                -- of a subscription: the number of its topic
ALTER TABLE queues ADD COLUMN version INTEGER;              -- of a topic: another, never used before, with each change of it, its subscriptions and their rules
ALTER TABLE queues ADD COLUMN dead_letter_filter_errors INTEGER NOT NULL DEFAULT 0;
CREATE INDEX queues_topic ON queues (topic, name) WHERE topic IS NOT NULL;

CREATE TABLE rules (
  queue      INTEGER NOT NULL,   -- the subscription
  name       TEXT NOT NULL,
  is_sql     INTEGER NOT NULL,   -- has a SQL filter
  settings   BLOB NOT NULL,      -- JSON
  created_at INTEGER NOT NULL,
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
