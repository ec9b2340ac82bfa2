-- All times are Unix milliseconds, all money nano-dollars. A lane is queues.no * 4 + 0 (main),
-- 1 (retry), 2 (dead-letter) or 3 (quarantine).

CREATE TABLE tenants (
  no         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE queues (
  no         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  paused     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
) STRICT;

-- The record of a job as it was submitted: written once.
CREATE TABLE jobs (
  seq            INTEGER PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  tenant         INTEGER NOT NULL,
  queue          INTEGER NOT NULL,
  task           TEXT NOT NULL,
  priority       INTEGER NOT NULL,
  max_attempts   INTEGER NOT NULL,
  max_cost       INTEGER,
  created_at     INTEGER NOT NULL,
  scheduled_at   INTEGER,
  deadline       INTEGER,
  correlation_id TEXT,
  traceparent    TEXT,
  metadata       BLOB,
  input          BLOB,
  input_blob     TEXT,
  input_size     INTEGER NOT NULL
) STRICT;
-- sqlite:
CREATE INDEX jobs_tenant ON jobs (tenant); -- and, within it, seq, as in every index
-- postgresql:
CREATE INDEX jobs_tenant ON jobs (tenant, seq);
-- all:
CREATE INDEX jobs_correlation ON jobs (tenant, correlation_id, seq) WHERE correlation_id IS NOT NULL;

-- The hot rows: one for each job that is not over, and one for each that is set aside. "visible" is
-- when it may be delivered next: a schedule, a retry delay and the end of a lock are all just that.
CREATE TABLE messages (
  seq        INTEGER PRIMARY KEY,
  lane       INTEGER NOT NULL,
  rank       INTEGER NOT NULL,           -- 9 - priority
  visible    INTEGER NOT NULL,
  token      INTEGER,                    -- of the current lock; NULL: not locked
  locked_at  INTEGER,
  deliveries INTEGER NOT NULL DEFAULT 0,
  generation INTEGER NOT NULL DEFAULT 1,
  attempt    INTEGER NOT NULL DEFAULT 0, -- charged in this generation
  number     INTEGER NOT NULL DEFAULT 0, -- of the latest attempt in this generation
  announced  INTEGER NOT NULL DEFAULT 0, -- the latest attempt number whose start an event tells
  version    INTEGER NOT NULL DEFAULT 1, -- number of the latest event
  size       INTEGER NOT NULL,           -- bytes of input
  tenant     INTEGER NOT NULL DEFAULT 0,
  deadline   INTEGER,
  started_at INTEGER,                    -- of this generation
  waiting    TEXT,
  last_error BLOB,
  reason     TEXT                        -- why it was set aside
) STRICT;
-- sqlite:
CREATE INDEX messages_ready ON messages (lane, rank, visible);
-- postgresql:
CREATE INDEX messages_ready ON messages (lane, rank, visible, seq);
-- all:
CREATE INDEX messages_deadline ON messages (deadline) WHERE deadline IS NOT NULL AND token IS NULL;
CREATE INDEX messages_locked_deadline ON messages (deadline, visible) WHERE deadline IS NOT NULL AND token IS NOT NULL;
CREATE INDEX messages_set_aside ON messages (lane, seq) WHERE lane % 4 >= 2;

-- How the latest generation of a job ended.
CREATE TABLE outcomes (
  seq           INTEGER PRIMARY KEY,
  status        TEXT NOT NULL,
  generation    INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  version       INTEGER NOT NULL,
  started_at    INTEGER,
  completed_at  INTEGER NOT NULL,
  result        BLOB,
  result_blob   TEXT,
  result_size   INTEGER NOT NULL DEFAULT 0,
  error_class   TEXT,
  error_code    TEXT,
  error_message BLOB
) STRICT;
CREATE INDEX outcomes_unhappy ON outcomes (seq) WHERE status <> 'succeeded';

CREATE TABLE attempts (
  seq           INTEGER NOT NULL,
  generation    INTEGER NOT NULL,
  number        INTEGER NOT NULL,
  deployment    TEXT NOT NULL,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  outcome       TEXT NOT NULL,
  error_class   TEXT,
  error_code    TEXT,
  error_message BLOB,
  input_tokens  INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  cost          INTEGER NOT NULL DEFAULT 0,
  retry_delay   INTEGER,
  PRIMARY KEY (seq, generation, number)
) STRICT, WITHOUT ROWID;

-- What happened to a job, but for the events of every job that goes well: "accepted", number 1, follows from
-- jobs, "started" of the first attempt, if its number is 2, from messages or outcomes, and "succeeded" from outcomes.
CREATE TABLE events (
  seq         INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  type        TEXT NOT NULL,
  at          INTEGER NOT NULL,
  status      TEXT NOT NULL,
  generation  INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  error_class TEXT,
  error_code  TEXT,
  retry_delay INTEGER,
  PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

-- In order of insertion, so that forgetting the old ones reads only those.
CREATE TABLE idempotency (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  key        TEXT NOT NULL,
  body_hash  BLOB NOT NULL,
  seq        INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  UNIQUE (tenant, key)
) STRICT;

CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  hash       BLOB NOT NULL UNIQUE,
  tenant     TEXT NOT NULL,
  scopes     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- What operators did.
CREATE TABLE audit (
  no     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;

-- One row, which a health check writes to see whether the disk takes writes.
CREATE TABLE probes (
  no INTEGER PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT;

-- postgresql:
-- On SQLite the one writer counts. Numbers are taken within transactions that exclude each other, so
-- that a higher one never appears before a lower one.
CREATE SEQUENCE seqs;
ALTER TABLE messages SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
