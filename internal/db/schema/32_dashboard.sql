-- Who has signed in to the dashboard: a row for each session until it ends.
CREATE TABLE signins (
  hash       BLOB PRIMARY KEY, -- of the cookie's value, which is not stored
  owner      TEXT NOT NULL,    -- the key's id, or the person's name
  key_id     TEXT,             -- the API key whose rights it has; NULL: an OpenID Connect provider vouches for a person
  name       TEXT NOT NULL,    -- of the person; '', here and below: the key knows
  tenant     TEXT NOT NULL,    -- its name
  scopes     TEXT NOT NULL,    -- separated by spaces
  created_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL, -- lately: written once a minute
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX signins_owner ON signins (owner, created_at);
CREATE INDEX signins_expires ON signins (expires_at);
-- Sums by the hour tell what attempts used, and sums of all tenants together are tenant 0.
ALTER TABLE attempt_hours ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_hours ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_hours ADD COLUMN assumed_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_hours ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;

-- What the attempts that are still there used. Of hours with many error codes it stands apart from
-- their numbers, in a row of no attempts.
INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries,
  input_tokens, output_tokens, assumed_tokens, cost)
SELECT j.tenant, a.finished_at / 3600000, j.task, a.deployment, CASE WHEN a.number > 100 THEN 100 ELSE a.number END, a.outcome,
  coalesce(a.error_class, ''), coalesce(a.error_code, ''), 0, 0,
  sum(a.input_tokens), sum(a.output_tokens), sum(coalesce(a.assumed_tokens, 0)), sum(a.cost)
FROM attempts a JOIN jobs j ON j.seq = a.seq
WHERE a.input_tokens > 0 OR a.output_tokens > 0 OR a.assumed_tokens > 0 OR a.cost > 0
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT (tenant, hour, task, deployment, number, outcome, error_class, error_code)
DO UPDATE SET input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
  assumed_tokens = excluded.assumed_tokens, cost = excluded.cost;
INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries,
  input_tokens, output_tokens, assumed_tokens, cost)
SELECT 0, hour, task, deployment, number, outcome, error_class, error_code, sum(attempts), sum(retries),
  sum(input_tokens), sum(output_tokens), sum(assumed_tokens), sum(cost)
FROM attempt_hours GROUP BY hour, task, deployment, number, outcome, error_class, error_code;

-- The same by the day of UTC, without how attempts ended in detail, so that reports of months read
-- few rows. Tenant 0 is all tenants together.
CREATE TABLE usage_days (
  tenant         INTEGER NOT NULL,
  detail         INTEGER NOT NULL, -- 1: a task and a deployment; 0: all of them together, and their names are ''
  day            INTEGER NOT NULL, -- hour / 24
  task           TEXT NOT NULL,
  deployment     TEXT NOT NULL,
  attempts       INTEGER NOT NULL,
  succeeded      INTEGER NOT NULL,
  failed         INTEGER NOT NULL, -- retried, failed, throttled or lost
  throttled      INTEGER NOT NULL,
  input_tokens   INTEGER NOT NULL,
  output_tokens  INTEGER NOT NULL,
  assumed_tokens INTEGER NOT NULL,
  cost           INTEGER NOT NULL,
  PRIMARY KEY (tenant, detail, day, task, deployment)
) STRICT, WITHOUT ROWID;
-- postgresql:
ALTER TABLE usage_days SET (fillfactor = 50);
-- all:

INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost)
SELECT tenant, 1, hour / 24, task, deployment, sum(attempts),
  sum(CASE WHEN outcome = 'succeeded' THEN attempts ELSE 0 END),
  sum(CASE WHEN outcome IN ('retried', 'failed', 'throttled', 'lost') THEN attempts ELSE 0 END),
  sum(CASE WHEN outcome = 'throttled' THEN attempts ELSE 0 END),
  sum(input_tokens), sum(output_tokens), sum(assumed_tokens), sum(cost)
FROM attempt_hours GROUP BY tenant, hour / 24, task, deployment;
INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens, assumed_tokens, cost)
SELECT tenant, 0, day, '', '', sum(attempts), sum(succeeded), sum(failed), sum(throttled), sum(input_tokens), sum(output_tokens), sum(assumed_tokens), sum(cost)
FROM usage_days WHERE detail = 1 GROUP BY tenant, day;

-- When API keys were used last, to the minute. A key without a row was never used.
CREATE TABLE key_uses (
  id      TEXT PRIMARY KEY,
  used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_session ON jobs (tenant, session_id, seq) WHERE session_id IS NOT NULL;
-- What operators see of what happens now.

-- Where the call of a locked job goes, what is reserved for it, and which process has it.
ALTER TABLE messages ADD COLUMN deployment TEXT;
ALTER TABLE messages ADD COLUMN reserved INTEGER;
ALTER TABLE messages ADD COLUMN process INTEGER;

-- The processes that share the database. Each writes its own row, every ten seconds and as it begins to
-- stop. One that has the database for itself has none.
CREATE TABLE processes (
  no         INTEGER PRIMARY KEY,
  id         TEXT NOT NULL UNIQUE,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  version    TEXT NOT NULL,
  role       TEXT NOT NULL,              -- what it does, as configured
  started_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,           -- when it wrote this
  draining   INTEGER NOT NULL DEFAULT 0, -- 1: it takes no more jobs
  queues     BLOB NOT NULL               -- JSON: its calls under way, and its places for them, by queue
) STRICT;
