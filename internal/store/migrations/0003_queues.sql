-- The settings of a queue of messages; times in milliseconds, NULL: none.
ALTER TABLE queues ADD COLUMN default_ttl INTEGER;
ALTER TABLE queues ADD COLUMN dead_letter_expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN duplicate_window INTEGER;
ALTER TABLE queues ADD COLUMN requires_session INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN forward_to TEXT;              -- a name in this table, as are those below
ALTER TABLE queues ADD COLUMN forward_dead_letters_to TEXT;
ALTER TABLE queues ADD COLUMN idle INTEGER;                 -- deleted after so long without use
ALTER TABLE queues ADD COLUMN delete_at INTEGER;            -- when that is, as far as is known
ALTER TABLE queues ADD COLUMN due_at INTEGER;               -- when messages are to be purged or forwarded
CREATE INDEX queues_delete ON queues (delete_at) WHERE delete_at IS NOT NULL;
CREATE INDEX queues_due ON queues (due_at) WHERE due_at IS NOT NULL;

-- The rank of a plain message's hot row is 0; 1 while it is scheduled; in a queue that requires
-- sessions it is 16 + the number of its session, and "visible" is 0 or, while a receiver holds it, 2^62.
ALTER TABLE bodies ADD COLUMN session_id TEXT;
ALTER TABLE bodies ADD COLUMN reply_to_session_id TEXT;
ALTER TABLE bodies ADD COLUMN partition_key TEXT;
ALTER TABLE bodies ADD COLUMN ttl INTEGER;                  -- milliseconds, as its sender asked
ALTER TABLE bodies ADD COLUMN scheduled_at INTEGER;         -- as its sender asked
ALTER TABLE bodies ADD COLUMN expires_at INTEGER;
ALTER TABLE bodies ADD COLUMN due_at INTEGER;               -- when it is to be activated or may have expired
ALTER TABLE bodies ADD COLUMN enqueued_seq INTEGER;         -- its first number, if that was another
ALTER TABLE bodies ADD COLUMN hops INTEGER NOT NULL DEFAULT 0; -- how often it was forwarded
ALTER TABLE bodies ADD COLUMN dead_letter_source TEXT;
CREATE INDEX bodies_due ON bodies (due_at) WHERE due_at IS NOT NULL;

-- Message ids that a queue with duplicate detection has seen.
CREATE TABLE message_ids (
  queue     INTEGER NOT NULL,
  id        TEXT NOT NULL,
  seq       INTEGER NOT NULL,   -- given to the message that came first
  forget_at INTEGER NOT NULL,
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_ids_forget ON message_ids (forget_at);

-- A session has a row while it has messages, a state or a receiver. "visible" is when it may be
-- accepted next: since it has messages, or when the lock ends; NULL: it has nothing to receive.
CREATE TABLE sessions (
  no           INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL,
  id           TEXT NOT NULL,
  visible      INTEGER,
  token        INTEGER,         -- of the current lock; NULL: not locked
  locked_until INTEGER,
  state        BLOB,
  UNIQUE (queue, id)
) STRICT;
CREATE INDEX sessions_ready ON sessions (queue, visible) WHERE visible IS NOT NULL;
