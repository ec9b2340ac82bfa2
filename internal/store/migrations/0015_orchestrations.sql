-- What waits is kept in pools: the turns of all orchestrations with one name, and all activities with
-- one name, of a tenant. A process takes from the pools whose code it has. What suspends or terminates an
-- instance moves it to a pool from which every process takes.
CREATE TABLE orchestration_pools (
  no     INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  kind   INTEGER NOT NULL,            -- 0: turns, 1: activities, 2: turns that need no code
  name   TEXT NOT NULL,
  UNIQUE (tenant, kind, name)
) STRICT;

-- The record of an instance: written when it is made, when it continues as new and when it ends.
CREATE TABLE orchestrations (
  no           INTEGER PRIMARY KEY,
  tenant       INTEGER NOT NULL,
  id           TEXT NOT NULL,
  execution    TEXT NOT NULL,         -- a new one each time it continues as new or is restarted
  name         TEXT NOT NULL,
  version      TEXT,
  parent       INTEGER,               -- the instance that called it
  status       TEXT,                  -- how it ended; NULL: it has not
  created_at   INTEGER NOT NULL,
  started_at   INTEGER,               -- known once it has ended
  completed_at INTEGER,
  input        BLOB,
  output       BLOB,
  failure      BLOB,                  -- JSON
  custom       BLOB,                  -- its custom status when it ended
  UNIQUE (tenant, id)
) STRICT;
-- sqlite:
CREATE INDEX orchestrations_tenant ON orchestrations (tenant);
CREATE INDEX orchestrations_unhappy ON orchestrations (tenant, status) WHERE status <> 'Completed';
CREATE INDEX orchestrations_open ON orchestrations (tenant) WHERE status IS NULL;
-- postgresql:
CREATE INDEX orchestrations_tenant ON orchestrations (tenant, no);
CREATE INDEX orchestrations_unhappy ON orchestrations (tenant, status, no) WHERE status <> 'Completed';
CREATE INDEX orchestrations_open ON orchestrations (tenant, no) WHERE status IS NULL;
-- all:
CREATE INDEX orchestrations_parent ON orchestrations (parent) WHERE parent IS NOT NULL;

-- The hot row of an instance that has not ended. "visible" is when its next turn can be taken: when an
-- event is there for it, or when the lock ends; 2^62: nothing is known to happen.
CREATE TABLE orchestration_turns (
  instance   INTEGER PRIMARY KEY,
  pool       INTEGER NOT NULL,
  visible    INTEGER NOT NULL,
  token      INTEGER,                 -- of the current lock; NULL: not locked
  deliveries INTEGER NOT NULL DEFAULT 0, -- of this turn that came to nothing
  number     INTEGER NOT NULL DEFAULT 0, -- of turns that are over
  events     INTEGER NOT NULL DEFAULT 0, -- in its history
  run        INTEGER NOT NULL DEFAULT 0, -- how often it was rewound
  status     TEXT NOT NULL,
  started_at INTEGER,
  updated_at INTEGER NOT NULL,
  custom     BLOB
) STRICT;
-- sqlite:
CREATE INDEX orchestration_turns_ready ON orchestration_turns (pool, visible);
-- postgresql:
CREATE INDEX orchestration_turns_ready ON orchestration_turns (pool, visible, instance);
-- all:

-- The history: one row for the events of each turn, each event after its length as a varint.
CREATE TABLE orchestration_history (
  instance INTEGER NOT NULL,
  turn     INTEGER NOT NULL,
  count    INTEGER NOT NULL,
  events   BLOB NOT NULL,
  PRIMARY KEY (instance, turn)
) STRICT, WITHOUT ROWID;

-- Events that an instance has not seen yet. A timer is an event that is not visible yet.
CREATE TABLE orchestration_inbox (
  instance INTEGER NOT NULL,
  no       INTEGER NOT NULL,
  visible  INTEGER NOT NULL,
  answer   INTEGER NOT NULL,          -- 1: to something that this execution asked for
  event    BLOB,
  event_id INTEGER,                   -- without an event: what the job answers
  job      TEXT,                      -- and the job
  PRIMARY KEY (instance, no)
) STRICT, WITHOUT ROWID;

-- Activities that have no final outcome yet.
CREATE TABLE orchestration_activities (
  instance     INTEGER NOT NULL,
  event_id     INTEGER NOT NULL,      -- of the event that scheduled it
  run          INTEGER NOT NULL,
  pool         INTEGER NOT NULL,
  turns        INTEGER NOT NULL,      -- the pool of the instance
  visible      INTEGER NOT NULL,
  token        INTEGER,
  number       INTEGER NOT NULL DEFAULT 0, -- of the latest attempt
  failures     INTEGER NOT NULL DEFAULT 0, -- attempts that failed
  lost         INTEGER NOT NULL DEFAULT 0, -- attempts that nobody heard of again
  scheduled_at INTEGER NOT NULL,
  started_at   INTEGER,               -- the latest attempt
  job          INTEGER,               -- that it waits for
  policy       BLOB,                  -- JSON; NULL: it is not retried
  event        BLOB NOT NULL,
  PRIMARY KEY (instance, event_id)
) STRICT, WITHOUT ROWID;
-- sqlite:
CREATE INDEX orchestration_activities_ready ON orchestration_activities (pool, visible);
-- postgresql:
CREATE INDEX orchestration_activities_ready ON orchestration_activities (pool, visible, instance, event_id);
-- all:
CREATE INDEX orchestration_activities_job ON orchestration_activities (job) WHERE job IS NOT NULL;

-- Every attempt of an activity of the current execution.
CREATE TABLE orchestration_attempts (
  instance    INTEGER NOT NULL,
  event_id    INTEGER NOT NULL,
  run         INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  outcome     TEXT NOT NULL,          -- succeeded, failed, retried, lost
  error_type  TEXT,
  error       BLOB,
  retry_delay INTEGER,
  PRIMARY KEY (instance, event_id, run, number)
) STRICT, WITHOUT ROWID;

-- postgresql:
ALTER TABLE orchestration_turns SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE orchestration_activities SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE orchestration_inbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
