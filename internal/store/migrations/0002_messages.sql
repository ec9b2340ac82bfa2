-- A queue is for jobs, as configured, or for plain messages, as its tenant made it: then its name is
-- "<tenant>/<name>". One that is being deleted keeps its row until its messages are gone.
ALTER TABLE queues ADD COLUMN kind TEXT NOT NULL DEFAULT 'jobs'; -- jobs, messages, deleting
-- Only of queues of messages:
ALTER TABLE queues ADD COLUMN tenant INTEGER;
ALTER TABLE queues ADD COLUMN lock INTEGER;           -- milliseconds
ALTER TABLE queues ADD COLUMN max_deliveries INTEGER;
CREATE INDEX queues_tenant ON queues (tenant, name) WHERE tenant IS NOT NULL;

-- What plain messages carry. Their hot rows are in messages: the lanes 0 and 2 of their queue hold the
-- active messages of the queue and of its dead-letter subqueue, 1 and 3 the deferred ones.
CREATE TABLE bodies (
  seq                     INTEGER PRIMARY KEY,
  lane                    INTEGER NOT NULL,  -- 0 or 2 of the queue, also while it is deferred
  enqueued_at             INTEGER NOT NULL,
  message_id              TEXT NOT NULL,
  correlation_id          TEXT,
  subject                 TEXT,
  to_                     TEXT,
  reply_to                TEXT,
  content_type            TEXT,
  properties              BLOB,              -- JSON
  is_text                 INTEGER NOT NULL,  -- the body was sent as text
  body                    BLOB,
  dead_letter_reason      TEXT,
  dead_letter_description TEXT
) STRICT;
-- sqlite:
CREATE INDEX bodies_lane ON bodies (lane);
-- postgresql:
CREATE INDEX bodies_lane ON bodies (lane, seq);
-- all:

-- Numbers that must never be given twice, though no row may remember them: every number below the
-- value may have been given.
CREATE TABLE counters (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
