-- A webhook is fed by a subscription of its tenant's topic of job events.
CREATE TABLE webhooks (
  tenant          INTEGER NOT NULL,
  name            TEXT NOT NULL,
  queue           INTEGER NOT NULL UNIQUE, -- the subscription
  url             TEXT NOT NULL,
  event_types     TEXT NOT NULL,           -- separated by spaces; none: all
  concurrency     INTEGER NOT NULL,
  secrets         BLOB NOT NULL,           -- JSON, the current one first
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  disabled_at     INTEGER,
  disabled_reason TEXT,
  tries           INTEGER NOT NULL DEFAULT 0, -- so far
  delivered_at    INTEGER,
  failing_since   INTEGER,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- The latest tries of each webhook.
CREATE TABLE webhook_tries (
  queue      INTEGER NOT NULL,
  no         INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  at         INTEGER NOT NULL,
  number     INTEGER NOT NULL, -- of the message's tries, from 1
  status     INTEGER,
  failure    TEXT,
  detail     TEXT,
  duration   INTEGER NOT NULL, -- milliseconds
  outcome    TEXT NOT NULL,
  next_at    INTEGER,
  PRIMARY KEY (queue, no)
) STRICT, WITHOUT ROWID;
