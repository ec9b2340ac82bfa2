-- A sum is kept in parts, and states of deployments change their place. So no key has many versions
-- while somebody keeps an old snapshot.
-- postgresql:
ALTER TABLE attempt_hours ADD COLUMN part BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempt_hours DROP CONSTRAINT attempt_hours_pkey,
  ADD PRIMARY KEY (tenant, hour, task, deployment, number, outcome, error_class, error_code, part);
ALTER TABLE usage_days ADD COLUMN part BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_days DROP CONSTRAINT usage_days_pkey, ADD PRIMARY KEY (tenant, detail, day, task, deployment, part);
ALTER TABLE deployment_states ADD COLUMN place BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deployment_states DROP CONSTRAINT deployment_states_pkey, ADD PRIMARY KEY (name, place, identity);
-- sqlite:
ALTER TABLE attempt_hours RENAME TO old_hours;
CREATE TABLE attempt_hours (
  tenant         INTEGER NOT NULL,
  hour           INTEGER NOT NULL,
  task           TEXT NOT NULL,
  deployment     TEXT NOT NULL,
  number         INTEGER NOT NULL,
  outcome        TEXT NOT NULL,
  error_class    TEXT NOT NULL,
  error_code     TEXT NOT NULL,
  part           INTEGER NOT NULL DEFAULT 0,
  attempts       INTEGER NOT NULL,
  retries        INTEGER NOT NULL,
  input_tokens   INTEGER NOT NULL DEFAULT 0,
  output_tokens  INTEGER NOT NULL DEFAULT 0,
  assumed_tokens INTEGER NOT NULL DEFAULT 0,
  cost           INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, hour, task, deployment, number, outcome, error_class, error_code, part)
) STRICT, WITHOUT ROWID;
INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries,
  input_tokens, output_tokens, assumed_tokens, cost)
SELECT tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries,
  input_tokens, output_tokens, assumed_tokens, cost FROM old_hours;
DROP TABLE old_hours;
ALTER TABLE usage_days RENAME TO old_days;
CREATE TABLE usage_days (
  tenant         INTEGER NOT NULL,
  detail         INTEGER NOT NULL,
  day            INTEGER NOT NULL,
  task           TEXT NOT NULL,
  deployment     TEXT NOT NULL,
  part           INTEGER NOT NULL DEFAULT 0,
  attempts       INTEGER NOT NULL,
  succeeded      INTEGER NOT NULL,
  failed         INTEGER NOT NULL,
  throttled      INTEGER NOT NULL,
  input_tokens   INTEGER NOT NULL,
  output_tokens  INTEGER NOT NULL,
  assumed_tokens INTEGER NOT NULL,
  cost           INTEGER NOT NULL,
  PRIMARY KEY (tenant, detail, day, task, deployment, part)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_days (tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens,
  assumed_tokens, cost)
SELECT tenant, detail, day, task, deployment, attempts, succeeded, failed, throttled, input_tokens, output_tokens,
  assumed_tokens, cost FROM old_days;
DROP TABLE old_days;
ALTER TABLE deployment_states RENAME TO old_states;
CREATE TABLE deployment_states (
  name     TEXT NOT NULL,
  identity TEXT NOT NULL,
  since    INTEGER NOT NULL,
  state    BLOB NOT NULL,
  place    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, place, identity)
) STRICT, WITHOUT ROWID;
INSERT INTO deployment_states (name, identity, since, state) SELECT name, identity, since, state FROM old_states;
DROP TABLE old_states;
-- all:
