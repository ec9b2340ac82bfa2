-- The whole schema, as a new database gets it. It is written for SQLite and translated for PostgreSQL;
-- lines between "-- sqlite:" or "-- postgresql:" and "-- all:" are for that one alone. A later change of
-- a table stands here, and as a script beside this file for the databases that exist.
--
-- Times are Unix milliseconds, money is nano-dollars, durations are milliseconds. "no" is a row's own
-- number; a column that is named like a table holds such a number of it. "seq" is the number of a job
-- or of a plain message: both are counted together. A time of 2^62 means never. "lock_token" numbers a lock.
-- Columns that end in "_blob" are keys in blob storage. Flags are 1 for yes and 0 for no.
--
-- On SQLite every index ends with the number of its row. On PostgreSQL a number that only completes an
-- order stands as an expression, (seq + 0): while the planner believes a table to be empty it takes any
-- index with the bare column for as good as the primary key. Of several indexes that it takes for
-- equally good it uses the one that was made last. So keys are made last there, at the end.

-- Tenants, API keys, the audit log.

-- A tenant: whom jobs, queues, documents and orchestrations belong to.
CREATE TABLE tenants (
  no                     INTEGER PRIMARY KEY,
  name                   TEXT NOT NULL UNIQUE,
  created_at             INTEGER NOT NULL,
  paused                 INTEGER NOT NULL DEFAULT 0, -- 1: none of its jobs is delivered
  concurrency            INTEGER, -- most calls for its jobs at once; NULL: as many as there are workers
  configured_concurrency INTEGER, -- what the configuration last said of that; NULL: nothing
  limits                 TEXT,    -- JSON, what an operator has set
  configured_limits      TEXT     -- JSON, what the configuration last said of them
) STRICT;
CREATE INDEX tenants_paused ON tenants (no) WHERE paused <> 0;
CREATE INDEX tenants_capped ON tenants (no) WHERE concurrency IS NOT NULL;

-- API keys. A key belongs to one tenant. One that was revoked keeps its row.
CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  hash       BLOB NOT NULL UNIQUE, -- of the secret, which is not stored
  tenant     TEXT NOT NULL,        -- its name
  scopes     TEXT NOT NULL,        -- separated by spaces
  created_at INTEGER NOT NULL,
  expires_at INTEGER,              -- NULL: never
  revoked_at INTEGER,              -- NULL: it was not revoked
  entities   TEXT,                 -- that it is bound to, separated by spaces; NULL: all
  hmac_state BLOB                  -- of HMAC-SHA256 with the secret: after the inner and the outer pad; NULL: it signs no tokens
) STRICT, WITHOUT ROWID;

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
-- When API keys were used last, to the minute. A key without a row was never used.
CREATE TABLE key_uses (
  id      TEXT PRIMARY KEY,
  used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit log: a hash chain that is only appended to.
CREATE TABLE audit (
  no     INTEGER PRIMARY KEY, -- 1, 2, 3, …
  at     INTEGER NOT NULL,
  tenant TEXT NOT NULL,       -- its name; '': no tenant's
  actor  TEXT NOT NULL,       -- who did it
  action TEXT NOT NULL,
  target TEXT NOT NULL,       -- what it was done to
  detail TEXT NOT NULL,
  prev   BLOB NOT NULL,       -- hash of the row before; zeros in the first
  hash   BLOB NOT NULL        -- SHA-256 of prev and the row
) STRICT;

-- The entries of the audit log that are not events of jobs, with the columns that filters use. There may
-- be any number of events. An index of the log itself would make each of them half as dear again to write.
CREATE TABLE audit_acts (
  no     INTEGER PRIMARY KEY, -- of the entry in audit
  tenant TEXT NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL
) STRICT;

-- sqlite:
CREATE TRIGGER audit_append BEFORE INSERT ON audit
WHEN NEW.no IS NOT (SELECT coalesce(max(no), 0) + 1 FROM audit)
  OR NEW.prev IS NOT coalesce((SELECT hash FROM audit ORDER BY no DESC LIMIT 1), zeroblob(32))
  OR length(NEW.hash) <> 32
BEGIN SELECT RAISE(ABORT, 'the audit log is a chain'); END;

CREATE TRIGGER audit_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_acts_update BEFORE UPDATE ON audit_acts
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_acts_delete BEFORE DELETE ON audit_acts
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;
-- postgresql:
CREATE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_no bigint;
  last_hash bytea;
BEGIN
  SELECT no, hash INTO last_no, last_hash FROM audit ORDER BY no DESC LIMIT 1;
  IF NOT FOUND THEN
    last_no := 0;
    last_hash := decode(repeat('00', 32), 'hex');
  END IF;
  IF NEW.no IS DISTINCT FROM last_no + 1 OR NEW.prev IS DISTINCT FROM last_hash OR length(NEW.hash) <> 32 THEN
    RAISE EXCEPTION 'the audit log is a chain';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER audit_append BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_append();

CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is only appended to';
END $$;
CREATE TRIGGER audit_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_acts FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
-- all:

-- One row, which a health check writes to see whether the disk takes writes.
CREATE TABLE probes (
  no INTEGER PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT;

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

-- Numbers that must never be given twice, even when no row has them any more.
CREATE TABLE counters (
  name  TEXT PRIMARY KEY, -- what is counted
  value INTEGER NOT NULL -- every number below it may have been given
) STRICT, WITHOUT ROWID;

-- postgresql:
-- Numbers of jobs and messages. On SQLite the one writer counts. Numbers are taken within transactions
-- that exclude each other, so that a higher one never appears before a lower one.
CREATE SEQUENCE seqs;
-- all:

-- Queues, and the hot rows of what waits in them.

-- A queue is for jobs, as configured, or for plain messages, as its tenant made it: then its name is
-- "<tenant>/<name>". A topic is a queue of messages that hands what becomes active in it to its
-- subscriptions. These are queues of messages too, named "<tenant>/<topic>/subscriptions/<name>".
CREATE TABLE queues (
  no                        INTEGER PRIMARY KEY,
  name                      TEXT NOT NULL UNIQUE,
  kind                      TEXT NOT NULL DEFAULT 'jobs', -- jobs, messages; deleting, until its messages are gone
  paused                    INTEGER NOT NULL DEFAULT 0,
  created_at                INTEGER NOT NULL,
  -- Only of queues of messages:
  tenant                    INTEGER,
  lock                      INTEGER, -- a duration
  max_deliveries            INTEGER,
  default_ttl               INTEGER, -- NULL: none
  dead_letter_expired       INTEGER NOT NULL DEFAULT 0,
  duplicate_window          INTEGER, -- a duration; NULL: no detection
  requires_session          INTEGER NOT NULL DEFAULT 0,
  forward_to                TEXT,    -- a name in this table
  forward_dead_letters_to   TEXT,    -- a name in this table
  idle                      INTEGER, -- the queue is deleted after so long without use
  delete_at                 INTEGER, -- when that is, as far as is known
  due_at                    INTEGER, -- when messages are to be purged or forwarded
  is_topic                  INTEGER NOT NULL DEFAULT 0,
  topic                     INTEGER, -- of a subscription: its topic
  version                   INTEGER, -- of a topic: never used before, with each change of it, its subscriptions or their rules
  dead_letter_filter_errors INTEGER NOT NULL DEFAULT 0,
  status                    INTEGER NOT NULL DEFAULT 0, -- 1: nobody may send to it; 2: nobody may receive from it; 3: neither
  max_message               INTEGER, -- bytes of one message; NULL: what the server allows
  user_metadata             TEXT,    -- a note of its owner
  attributes                TEXT,    -- JSON that only Service Bus's management protocol reads and writes
  updated_at                INTEGER, -- when its settings last changed; NULL: never
  accessed_at               INTEGER  -- of its latest use, to the minute; NULL: it was not used since this is kept
) STRICT;
CREATE INDEX queues_tenant ON queues (tenant, name) WHERE tenant IS NOT NULL;
CREATE INDEX queues_folded ON queues (tenant, lower(name), name) WHERE tenant IS NOT NULL; -- whatever the case
CREATE INDEX queues_topic ON queues (topic, name) WHERE topic IS NOT NULL;
CREATE INDEX queues_delete ON queues (delete_at) WHERE delete_at IS NOT NULL;
CREATE INDEX queues_due ON queues (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX queues_paused ON queues (no) WHERE paused <> 0; -- each transaction asks whether any is

-- The hot rows: one for each job that is not over, for each that is set aside, and for each plain message.
--
-- subqueue: queues.no * 4 + 0 (main), 1 (retry), 2 (dead letters) or 3 (quarantine). Of a queue
-- of messages 0 and 2 hold the active messages of the queue and of its dead-letter subqueue, and 1 and 3
-- the deferred ones.
--
-- flow of a job: 1,024 times its tenant, 16 times the class of what it calls, and
-- 9 - priority. Of a plain message it is 0; 1 while it is scheduled; 2 while a topic makes many copies of
-- it; 16 and more: 16 + its session.
CREATE TABLE messages (
  seq        INTEGER PRIMARY KEY,
  subqueue   INTEGER NOT NULL,
  flow       INTEGER NOT NULL,
  visible_at INTEGER NOT NULL,           -- when it may be delivered: a schedule, a delay and the end of a lock are just that
  lock_token INTEGER,                    -- of the current lock; NULL: not locked
  locked_at  INTEGER,
  deliveries INTEGER NOT NULL DEFAULT 0,
  generation INTEGER NOT NULL DEFAULT 1, -- one more with each redrive
  attempt    INTEGER NOT NULL DEFAULT 0, -- charged in this generation
  number     INTEGER NOT NULL DEFAULT 0, -- of the latest attempt in this generation
  announced  INTEGER NOT NULL DEFAULT 0, -- the latest attempt number whose start an event tells
  version    INTEGER NOT NULL DEFAULT 1, -- number of the latest event
  size       INTEGER NOT NULL,           -- bytes of input
  tenant     INTEGER NOT NULL DEFAULT 0,
  deadline   INTEGER,                    -- a job that has not ended by then expires
  started_at INTEGER,                    -- of this generation
  waiting    TEXT,                       -- what for, where that is known
  last_error BLOB,                       -- "code: message" of the latest attempt that failed
  reason     TEXT,                       -- why it was set aside
  -- Of the latest lock of a job, known as far as there is one now:
  deployment TEXT,                       -- where its call goes; NULL: it calls none, or none that is known
  reserved   INTEGER,                    -- tokens that are reserved there for it
  process    INTEGER                     -- which has the lock; NULL: the only one
) STRICT;
-- sqlite:
CREATE INDEX messages_ready ON messages (subqueue, flow, visible_at);
-- postgresql:
CREATE INDEX messages_ready ON messages (subqueue, flow, visible_at, (seq + 0));
ALTER TABLE messages SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
-- all:
CREATE INDEX messages_deadline ON messages (deadline) WHERE deadline IS NOT NULL AND lock_token IS NULL;
CREATE INDEX messages_locked_deadline ON messages (deadline, visible_at) WHERE deadline IS NOT NULL AND lock_token IS NOT NULL;
CREATE INDEX messages_set_aside ON messages (subqueue, seq) WHERE subqueue % 4 >= 2;

-- Jobs.

-- A job as it was submitted: written once.
CREATE TABLE jobs (
  seq               INTEGER PRIMARY KEY,
  id                TEXT NOT NULL UNIQUE,
  tenant            INTEGER NOT NULL,
  queue             INTEGER NOT NULL,
  task              TEXT NOT NULL,
  priority          INTEGER NOT NULL,
  max_attempts      INTEGER NOT NULL,
  max_cost          INTEGER, -- of all attempts together; NULL, here and below: no limit
  max_total_tokens  INTEGER,
  max_output_tokens INTEGER, -- asked for by an input in blob storage, where a claim cannot look; NULL: nothing
  created_at        INTEGER NOT NULL,
  scheduled_at      INTEGER,
  deadline          INTEGER,
  session_id        TEXT,    -- jobs of one session run one after the other
  key_id            TEXT,    -- the API key that submitted it, if that had a budget
  correlation_id    TEXT,
  traceparent       TEXT,    -- as W3C Trace Context writes it
  metadata          BLOB,    -- JSON
  input_size        INTEGER NOT NULL,
  input_blob        TEXT,    -- key in blob storage of a large input
  input             BLOB,    -- JSON
  estimate          BLOB,    -- JSON: what else the call of an input in blob storage needs; NULL: what its size says
  reply             BLOB     -- JSON: where a message goes that says how it ended; NULL: nowhere
) STRICT;
-- sqlite:
CREATE INDEX jobs_tenant ON jobs (tenant);
CREATE INDEX jobs_correlation ON jobs (tenant, correlation_id, seq) WHERE correlation_id IS NOT NULL;
CREATE INDEX jobs_session ON jobs (tenant, session_id, seq) WHERE session_id IS NOT NULL;
-- postgresql:
CREATE INDEX jobs_tenant ON jobs (tenant, (seq + 0));
CREATE INDEX jobs_correlation ON jobs (tenant, correlation_id, (seq + 0)) WHERE correlation_id IS NOT NULL;
CREATE INDEX jobs_session ON jobs (tenant, session_id, (seq + 0)) WHERE session_id IS NOT NULL;
-- all:

-- The jobs of sessions that are not over, in their order. All but one of a session are held: their
-- "visible_at" is 2^62, and they wait for "session".
CREATE TABLE job_sessions (
  tenant     INTEGER NOT NULL,
  queue      INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  not_before INTEGER, -- when it may begin once it is its turn, if not as it was submitted: it was redriven with a delay
  PRIMARY KEY (tenant, queue, session_id, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX job_sessions_seq ON job_sessions (seq);

-- When the running job of a session is cancelled, its call may go on for a moment. The next job's turn
-- comes when the worker says that it is over, or when the lock would have ended.
CREATE TABLE job_session_holds (
  tenant     INTEGER NOT NULL,
  queue      INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  lock_token INTEGER NOT NULL, -- of the lock that the cancel voided
  ends_at    INTEGER NOT NULL,
  PRIMARY KEY (tenant, queue, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_session_holds_end ON job_session_holds (ends_at);

-- How the latest generation of a job ended.
CREATE TABLE outcomes (
  seq           INTEGER PRIMARY KEY,
  status        TEXT NOT NULL,
  generation    INTEGER NOT NULL,
  attempt       INTEGER NOT NULL, -- attempts charged in this generation
  version       INTEGER NOT NULL, -- number of the latest event
  started_at    INTEGER,          -- of this generation; NULL: it never started
  completed_at  INTEGER NOT NULL,
  error_class   TEXT,             -- NULL, here and below: no error
  error_code    TEXT,
  error_message BLOB,
  result_size   INTEGER NOT NULL DEFAULT 0,
  result_blob   TEXT, -- key in blob storage of a large result
  result        BLOB
) STRICT;
CREATE INDEX outcomes_unhappy ON outcomes (seq) WHERE status <> 'succeeded';

-- Attempts of jobs that have ended: one row each. A running attempt is in messages alone.
CREATE TABLE attempts (
  seq            INTEGER NOT NULL,
  generation     INTEGER NOT NULL,
  number         INTEGER NOT NULL, -- of the attempt in its generation, from 1
  deployment     TEXT NOT NULL,
  started_at     INTEGER NOT NULL,
  finished_at    INTEGER NOT NULL,
  outcome        TEXT NOT NULL,
  error_class    TEXT,
  error_code     TEXT,
  error_message  BLOB,
  input_tokens   INTEGER NOT NULL DEFAULT 0,
  output_tokens  INTEGER NOT NULL DEFAULT 0,
  assumed_tokens INTEGER, -- held for a call whose use nobody knows; nobody can say how many of them were input
  cost           INTEGER NOT NULL DEFAULT 0,
  retry_delay    INTEGER, -- until the next attempt; NULL: there is none
  PRIMARY KEY (seq, generation, number)
) STRICT, WITHOUT ROWID;

-- How many attempts ended in each hour, how, and what they used: what reports are made of. Rows of
-- attempts go with their jobs; these stay for some months. Tenant 0 is all tenants together.
CREATE TABLE attempt_hours (
  tenant         INTEGER NOT NULL,
  hour           INTEGER NOT NULL, -- finished_at / 3600000
  task           TEXT NOT NULL,
  deployment     TEXT NOT NULL,
  number         INTEGER NOT NULL, -- of the attempt in its generation; 100 stands for all above
  outcome        TEXT NOT NULL,
  error_class    TEXT NOT NULL,    -- '': no error
  error_code     TEXT NOT NULL,
  part           INTEGER NOT NULL DEFAULT 0, -- all parts of a sum are to be added up; SQLite begins none but 0
  attempts       INTEGER NOT NULL,
  retries        INTEGER NOT NULL, -- of these, calls of jobs that were retried before
  input_tokens   INTEGER NOT NULL DEFAULT 0,
  output_tokens  INTEGER NOT NULL DEFAULT 0,
  assumed_tokens INTEGER NOT NULL DEFAULT 0,
  cost           INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, hour, task, deployment, number, outcome, error_class, error_code, part)
) STRICT, WITHOUT ROWID;
-- postgresql:
-- A row of the hour that runs is changed by each transaction: room for its versions on its own page.
-- While somebody keeps an old snapshot no version goes, and who changes a row passes all. So after some
-- hundred changes a row of another part takes its place, and is added to that of part 0 later.
ALTER TABLE attempt_hours SET (fillfactor = 50);
-- all:

-- The same by the day of UTC, without how attempts ended in detail, so that reports of months read
-- few rows. Tenant 0 is all tenants together. A day has rows when it is over: the counter usage/days
-- says of which days and tenants.
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

-- Idempotency keys, in order of insertion, so that forgetting the old ones reads only those.
CREATE TABLE idempotency (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  key        TEXT NOT NULL,
  body_hash  BLOB NOT NULL,    -- of the request: another with the same key is refused
  seq        INTEGER NOT NULL, -- the job that was submitted with it
  created_at INTEGER NOT NULL,
  UNIQUE (tenant, key)
) STRICT;

-- Admission: quota, breakers, concurrency limits, budgets.

-- What all processes know together of a deployment: its quota, its breaker (internal/quota). It belongs to what
-- calls go to, not to the name alone: processes that are configured otherwise for one name have a row each.
CREATE TABLE deployment_states (
  name     TEXT NOT NULL,
  identity TEXT NOT NULL,    -- a digest of the provider, its endpoint and its model; '': nobody says
  since    INTEGER NOT NULL, -- when it began to be learned; 0: nobody knows
  state    BLOB NOT NULL,    -- as internal/quota encodes it
  place    INTEGER NOT NULL DEFAULT 0, -- the same in all rows of a name; on SQLite it stays
  PRIMARY KEY (name, place, identity)
) STRICT, WITHOUT ROWID;
-- postgresql:
-- Each claim reads and changes a row. Its old versions stay while somebody keeps an old snapshot. So after
-- some changes the rows of a name get a lower place, which a search comes upon before all old versions.
-- all:

-- What happened to deployments: a breaker that opened, a limit that was learned.
CREATE TABLE deployment_changes (
  no         INTEGER PRIMARY KEY,
  deployment TEXT NOT NULL,
  at         INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  until      INTEGER, -- when what happened ends; NULL: it does not end by itself
  quota      INTEGER, -- tokens per minute
  reason     TEXT     -- why a breaker was opened, where that was not for failures: the code of the error
) STRICT;

-- Calls that are under way for a tenant, or at a deployment, that takes only so many at once. A row
-- counts for as long as its lock holds the message, so nothing need be done for those that are lost.
CREATE TABLE slots (
  seq        INTEGER NOT NULL,
  lock_token INTEGER NOT NULL, -- of the lock under which the call runs
  holder     TEXT NOT NULL,    -- tenant/NUMBER or deployment/NAME
  PRIMARY KEY (seq, lock_token, holder)
) STRICT, WITHOUT ROWID;

-- What a tenant, or one of its API keys, may spend in a calendar day and a calendar month of UTC.
CREATE TABLE budgets (
  no             INTEGER PRIMARY KEY,
  tenant         INTEGER NOT NULL,
  key_id         TEXT NOT NULL, -- '': the tenant's own
  daily_tokens   INTEGER,       -- NULL, here and below: no limit
  daily_cost     INTEGER,
  monthly_tokens INTEGER,
  monthly_cost   INTEGER,
  updated_at     INTEGER NOT NULL,
  set_by         TEXT NOT NULL, -- who set it last: an actor, or "configuration"
  configured     TEXT,          -- what the configuration last said; NULL: nothing
  UNIQUE (tenant, key_id)
) STRICT;
CREATE INDEX budgets_key ON budgets (key_id);

-- What was used of a budget in a period, and what is held for calls that are not over.
CREATE TABLE spending (
  budget      INTEGER NOT NULL,
  period      INTEGER NOT NULL, -- 0: a day, 1: a month
  starts_at   INTEGER NOT NULL,
  tokens      INTEGER NOT NULL,
  cost        INTEGER NOT NULL,
  held_tokens INTEGER NOT NULL,
  held_cost   INTEGER NOT NULL,
  told        INTEGER NOT NULL, -- events that were sent, as bits: 1, that 80 % are used; 2, that it is exhausted
  PRIMARY KEY (budget, period, starts_at)
) STRICT, WITHOUT ROWID;

-- What a delivery may use at most. That of a lost delivery counts as used, until its use is known.
CREATE TABLE budget_holds (
  seq        INTEGER NOT NULL,
  lock_token INTEGER NOT NULL,
  budget     INTEGER NOT NULL,           -- 0: the cost limit of the job itself
  at         INTEGER NOT NULL,           -- its periods are those of this time
  tokens     INTEGER NOT NULL,
  cost       INTEGER NOT NULL,
  lost       INTEGER NOT NULL DEFAULT 0, -- 1: the delivery ended, and nobody said what it used
  PRIMARY KEY (seq, lock_token, budget)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_holds_budget ON budget_holds (budget);

-- Jobs that wait for a budget, and what they need of it. Their messages stay in their subqueues, but are not
-- visible until the period ends. What is not true any more of a row is seen by its message.
CREATE TABLE budget_waits (
  seq    INTEGER PRIMARY KEY,
  budget INTEGER NOT NULL,
  flow   INTEGER NOT NULL, -- as in messages
  key_id TEXT NOT NULL,    -- the API key that submitted it; '': none with a budget
  until  INTEGER NOT NULL, -- when the period ends
  tokens INTEGER NOT NULL,
  cost   INTEGER NOT NULL
) STRICT;
CREATE INDEX budget_waits_order ON budget_waits (budget, flow, seq);

-- Plain messages, topics, webhooks.

-- What plain messages carry. Their hot rows are in messages.
CREATE TABLE bodies (
  seq                     INTEGER PRIMARY KEY,
  subqueue                INTEGER NOT NULL, -- of the active messages, also while it is deferred
  enqueued_at             INTEGER NOT NULL,
  enqueued_seq            INTEGER, -- its first number, if that was another
  message_id              TEXT NOT NULL,
  correlation_id          TEXT,
  subject                 TEXT,
  to_                     TEXT,
  reply_to                TEXT,
  session_id              TEXT,
  reply_to_session_id     TEXT,
  partition_key           TEXT,
  content_type            TEXT,
  ttl                     INTEGER, -- a duration, as its sender asked
  scheduled_at            INTEGER, -- as its sender asked
  expires_at              INTEGER,
  due_at                  INTEGER, -- when it is to be activated or may have expired
  hops                    INTEGER NOT NULL DEFAULT 0, -- how often it was forwarded
  handed                  INTEGER, -- while a topic copies it: one more than the last subscription that has its copies
  copies                  INTEGER, -- how many copies there are of what it comes from, its own too
  dead_letter_source      TEXT,
  dead_letter_reason      TEXT,
  dead_letter_description TEXT,
  is_text                 INTEGER NOT NULL, -- 1: the body was sent as text
  shared                  INTEGER, -- the row of shared_bodies with the body; NULL: this row has it
  properties              BLOB,    -- JSON
  body                    BLOB,
  amqp                    BLOB     -- sections that came over AMQP, as sent; NULL: it came otherwise, or the shared row has them
) STRICT;
-- sqlite:
CREATE INDEX bodies_subqueue ON bodies (subqueue);
-- postgresql:
CREATE INDEX bodies_subqueue ON bodies (subqueue, (seq + 0));
-- all:
CREATE INDEX bodies_due ON bodies (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bodies_shared ON bodies (shared) WHERE shared IS NOT NULL;

-- What several copies of one message have in common is stored once, and removed with the last of them.
CREATE TABLE shared_bodies (
  no         INTEGER PRIMARY KEY, -- the number that the message had in the topic that made the copies
  body       BLOB NOT NULL,
  properties BLOB,                -- JSON, of the copies that have none in their own rows
  amqp       BLOB                 -- as in bodies
) STRICT;
-- sqlite:
CREATE TRIGGER bodies_deleted AFTER DELETE ON bodies WHEN old.shared IS NOT NULL BEGIN
  DELETE FROM shared_bodies WHERE no = old.shared AND NOT EXISTS (SELECT 1 FROM bodies WHERE shared = old.shared);
END;
-- postgresql:
CREATE FUNCTION bodies_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM shared_bodies WHERE no = OLD.shared AND NOT EXISTS (SELECT 1 FROM bodies WHERE shared = OLD.shared);
  RETURN NULL;
END $$;
CREATE TRIGGER bodies_deleted AFTER DELETE ON bodies FOR EACH ROW WHEN (OLD.shared IS NOT NULL) EXECUTE FUNCTION bodies_deleted();
-- all:

-- Message ids that a queue with duplicate detection has seen.
CREATE TABLE message_ids (
  queue     INTEGER NOT NULL,
  id        TEXT NOT NULL,
  seq       INTEGER NOT NULL, -- given to the message that came first
  forget_at INTEGER NOT NULL,
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_ids_forget ON message_ids (forget_at);

-- A session of messages has a row while it has messages, a state or a receiver. The "visible" of its
-- messages is 0 or, while a receiver holds one, 2^62.
CREATE TABLE sessions (
  no           INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL,
  id           TEXT NOT NULL,
  visible_at   INTEGER, -- when it may be accepted: since it has messages, or when the lock ends; NULL: nothing to receive
  lock_token   INTEGER, -- of the current lock; NULL: not locked
  locked_until INTEGER,
  state        BLOB,
  UNIQUE (queue, id)
) STRICT;
-- Many sessions become ready at the same time: finding the first of them must not read them all.
-- sqlite:
CREATE INDEX sessions_ready ON sessions (queue, visible_at) WHERE visible_at IS NOT NULL;
-- postgresql:
CREATE INDEX sessions_ready ON sessions (queue, visible_at, no) WHERE visible_at IS NOT NULL;
ALTER TABLE sessions SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
-- all:

-- The rules of subscriptions.
CREATE TABLE rules (
  queue      INTEGER NOT NULL, -- the subscription
  name       TEXT NOT NULL,
  is_sql     INTEGER NOT NULL, -- 1: it has a SQL filter
  settings   BLOB NOT NULL,    -- JSON
  created_at INTEGER NOT NULL,
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

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
  failing_since   INTEGER,                    -- NULL: it is not failing
  failures        INTEGER NOT NULL DEFAULT 0, -- in a row
  openings        INTEGER NOT NULL DEFAULT 0, -- of its endpoint's breaker, in a row
  paused_until    INTEGER,                    -- by that breaker
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
  status     INTEGER,          -- of HTTP
  failure    TEXT,
  detail     TEXT,
  duration   INTEGER NOT NULL,
  outcome    TEXT NOT NULL,
  next_at    INTEGER,          -- when it is tried again; NULL: it is not
  PRIMARY KEY (queue, no)
) STRICT, WITHOUT ROWID;

-- Deliveries of webhooks that are under way. A row counts for as long as its lock holds the message, so
-- nothing need be done for those that are lost.
CREATE TABLE webhook_deliveries (
  queue      INTEGER NOT NULL, -- of the webhook
  seq        INTEGER NOT NULL,
  lock_token INTEGER NOT NULL,
  probe      INTEGER NOT NULL, -- 1: it finds out whether the endpoint works again
  PRIMARY KEY (queue, seq)
) STRICT, WITHOUT ROWID;

-- Orchestrations. What is large of them is in blob storage, each value under a key of its own that belongs to
-- its row. The column beside such a key is NULL or empty.

-- Queues of work items: one for all orchestrations with one name, and one for all activities with one name,
-- of a tenant. A process takes from the queues whose code it has. What suspends or terminates an instance
-- moves it to a queue from which every process takes.
CREATE TABLE orchestration_queues (
  no     INTEGER PRIMARY KEY,
  tenant INTEGER NOT NULL,
  kind   INTEGER NOT NULL, -- 0: orchestrations, 1: activities, 2: orchestrations whose code need not run
  name   TEXT NOT NULL,
  UNIQUE (tenant, kind, name)
) STRICT;

-- The record of an instance: written when it is made, when it continues as new and when it ends.
CREATE TABLE orchestrations (
  no           INTEGER PRIMARY KEY,
  tenant       INTEGER NOT NULL,
  id           TEXT NOT NULL,
  execution    TEXT NOT NULL, -- a new one each time it continues as new or is restarted
  name         TEXT NOT NULL,
  version      TEXT,
  parent       INTEGER,       -- the instance that called it
  key_id       TEXT,          -- the API key whose budget pays for its jobs, beside its tenant's; NULL: none does
  status       TEXT,          -- how it ended; NULL: it has not
  created_at   INTEGER NOT NULL,
  started_at   INTEGER,       -- known once it has ended
  completed_at INTEGER,
  input_blob   TEXT,
  output_blob  TEXT,
  failure      BLOB,          -- JSON
  custom       BLOB,          -- its custom status when it ended
  input        BLOB,
  output       BLOB,
  UNIQUE (tenant, id)
) STRICT;
-- sqlite:
CREATE INDEX orchestrations_tenant ON orchestrations (tenant);
CREATE INDEX orchestrations_unhappy ON orchestrations (tenant, status) WHERE status <> 'Completed';
CREATE INDEX orchestrations_open ON orchestrations (tenant) WHERE status IS NULL;
-- postgresql:
CREATE INDEX orchestrations_tenant ON orchestrations (tenant, (no + 0));
CREATE INDEX orchestrations_unhappy ON orchestrations (tenant, status, (no + 0)) WHERE status <> 'Completed';
CREATE INDEX orchestrations_open ON orchestrations (tenant, (no + 0)) WHERE status IS NULL;
-- all:
CREATE INDEX orchestrations_parent ON orchestrations (parent) WHERE parent IS NOT NULL;

-- The work item of an instance that has not ended: its hot row.
CREATE TABLE orchestration_items (
  instance   INTEGER PRIMARY KEY,
  work_queue INTEGER NOT NULL,
  visible_at INTEGER NOT NULL,           -- when it can be claimed: an event is there for it, or the lock ends
  lock_token INTEGER,                    -- of the current lock; NULL: not locked
  deliveries INTEGER NOT NULL DEFAULT 0, -- that came to nothing since the last one that was completed
  number     INTEGER NOT NULL DEFAULT 0, -- of completed deliveries
  events     INTEGER NOT NULL DEFAULT 0, -- in its history
  run        INTEGER NOT NULL DEFAULT 0, -- how often it was rewound or continued as new
  status     TEXT NOT NULL,
  started_at INTEGER,
  updated_at INTEGER NOT NULL,
  blobs      INTEGER NOT NULL DEFAULT 0, -- 1: it has had values in blob storage; of others nobody looks for them
  custom     BLOB                        -- its custom status
) STRICT;
-- sqlite:
CREATE INDEX orchestration_items_ready ON orchestration_items (work_queue, visible_at);
-- postgresql:
CREATE INDEX orchestration_items_ready ON orchestration_items (work_queue, visible_at);
ALTER TABLE orchestration_items SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- all:

-- The history: one row for the events of each completed work item, each event after its length as a varint.
CREATE TABLE orchestration_history (
  instance    INTEGER NOT NULL,
  item        INTEGER NOT NULL, -- number of the delivery
  count       INTEGER NOT NULL, -- of events
  events_blob TEXT,
  events      BLOB NOT NULL,
  PRIMARY KEY (instance, item)
) STRICT, WITHOUT ROWID;

-- Events that an instance has not seen yet. A timer is an event that is not visible yet.
CREATE TABLE orchestration_inbox (
  instance   INTEGER NOT NULL,
  no         INTEGER NOT NULL,
  visible_at INTEGER NOT NULL,
  set_at     INTEGER, -- by which a timer is recognised that a clock that was ahead has set
  answer     INTEGER NOT NULL, -- 1: to something that this execution asked for
  event_id   INTEGER, -- without an event: what the job answers
  job        TEXT,    -- and the job
  event_blob TEXT,
  event      BLOB,
  PRIMARY KEY (instance, no)
) STRICT, WITHOUT ROWID;
-- postgresql:
ALTER TABLE orchestration_inbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- all:

-- Activities that have no final outcome yet.
CREATE TABLE orchestration_activities (
  instance     INTEGER NOT NULL,
  event_id     INTEGER NOT NULL,           -- of the event that scheduled it
  run          INTEGER NOT NULL,
  work_queue   INTEGER NOT NULL,
  visible_at   INTEGER NOT NULL,
  lock_token   INTEGER,
  number       INTEGER NOT NULL DEFAULT 0, -- of the latest attempt
  failures     INTEGER NOT NULL DEFAULT 0, -- attempts that failed
  lost         INTEGER NOT NULL DEFAULT 0, -- attempts that nobody heard of again
  scheduled_at INTEGER NOT NULL,
  started_at   INTEGER,                    -- the latest attempt
  job          INTEGER,                    -- that it waits for
  policy       BLOB,                       -- JSON; NULL: it is not retried
  event_blob   TEXT,
  event        BLOB NOT NULL,
  PRIMARY KEY (instance, event_id)
) STRICT, WITHOUT ROWID;
-- sqlite:
CREATE INDEX orchestration_activities_ready ON orchestration_activities (work_queue, visible_at);
-- postgresql:
CREATE INDEX orchestration_activities_ready ON orchestration_activities (work_queue, visible_at);
ALTER TABLE orchestration_activities SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- all:
CREATE INDEX orchestration_activities_job ON orchestration_activities (job) WHERE job IS NOT NULL;

-- Every attempt of an activity. Attempts outlive the execution that made them.
CREATE TABLE orchestration_attempts (
  instance    INTEGER NOT NULL,
  event_id    INTEGER NOT NULL,
  run         INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  work_queue  INTEGER,       -- says which activity it was when the history does not any more
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  outcome     TEXT NOT NULL, -- succeeded, failed, retried, lost
  error_type  TEXT,
  error       BLOB,
  retry_delay INTEGER,
  PRIMARY KEY (instance, event_id, run, number)
) STRICT, WITHOUT ROWID;

-- The keys in blob storage of all orchestrations, by which its sweep asks what is in use: an index of each table
-- would make every row dearer to write. Blobs whose rows are gone are removed a while later, so that a copy of
-- the database that is followed by one of the blob storage has all that it refers to.
CREATE TABLE orchestration_blobs (
  key      TEXT PRIMARY KEY,
  freed_at INTEGER -- NULL: its row is there
) STRICT, WITHOUT ROWID;
CREATE INDEX orchestration_blobs_freed ON orchestration_blobs (freed_at, key) WHERE freed_at IS NOT NULL;

-- Documents and search.

-- A document has an id that its tenant chose. Each upload of other content is a new revision. The
-- pipeline works on the latest one. Searches find the live one, which may be an earlier one.
CREATE TABLE documents (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  id         TEXT NOT NULL,
  latest     INTEGER NOT NULL, -- revision
  created_at INTEGER NOT NULL,
  UNIQUE (tenant, id)
) STRICT;
-- sqlite:
CREATE INDEX documents_tenant ON documents (tenant);
-- postgresql:
CREATE INDEX documents_tenant ON documents (tenant, (no + 0));
-- all:

-- A revision of a document: one content, and what its pipeline has made of it so far.
CREATE TABLE document_revisions (
  no           INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  tenant       INTEGER NOT NULL,
  document     INTEGER NOT NULL,
  hash         BLOB NOT NULL, -- SHA-256 of the content
  media_type   TEXT NOT NULL,
  charset      TEXT NOT NULL,
  name         TEXT NOT NULL, -- of the file; may be empty
  size         INTEGER NOT NULL,
  content_blob TEXT NOT NULL,
  metadata     BLOB,          -- JSON, the client's
  key_id       TEXT,          -- the API key whose budget pays as well
  uploaded_at  INTEGER NOT NULL,
  title        TEXT NOT NULL DEFAULT '',
  language     TEXT NOT NULL DEFAULT '',
  entities     BLOB,          -- JSON
  text_bytes   INTEGER NOT NULL DEFAULT 0,
  pages        INTEGER NOT NULL DEFAULT 0,
  tokens       INTEGER NOT NULL DEFAULT 0,
  chunks       INTEGER NOT NULL DEFAULT 0,
  embedded     INTEGER NOT NULL DEFAULT 0, -- chunks that have a vector
  splitter     INTEGER NOT NULL DEFAULT 0, -- who stores its chunks now: the latest who began
  split_at     INTEGER,       -- all chunks are there
  described_at INTEGER,       -- the metadata is there
  ready_at     INTEGER,
  live         INTEGER,       -- a number that counts up as revisions go live; NULL: no search finds it
  dropped      INTEGER NOT NULL DEFAULT 0 -- 1: to be removed
) STRICT;
CREATE INDEX document_revisions_live ON document_revisions (tenant, live) WHERE live IS NOT NULL;
CREATE INDEX document_revisions_order ON document_revisions (live) WHERE live IS NOT NULL;
CREATE INDEX document_revisions_document ON document_revisions (document);
CREATE INDEX document_revisions_dropped ON document_revisions (no) WHERE dropped = 1;

-- The jobs of a revision: one that cuts it into chunks, those that embed so many of these each, one that
-- describes it.
CREATE TABLE document_jobs (
  seq           INTEGER PRIMARY KEY,
  revision      INTEGER NOT NULL,
  branch        TEXT NOT NULL, -- which step of the pipeline it does
  first         INTEGER NOT NULL, -- chunk
  last          INTEGER NOT NULL,
  done          INTEGER NOT NULL DEFAULT 0, -- 1: what it had to do is done
  error_code    TEXT,             -- it has failed
  error_message BLOB
) STRICT;
CREATE INDEX document_jobs_revision ON document_jobs (revision);

-- The chunks of a revision: pieces of its text, which searches find.
CREATE TABLE chunks (
  no         INTEGER PRIMARY KEY,
  tenant     INTEGER NOT NULL,
  revision   INTEGER NOT NULL,
  number     INTEGER NOT NULL, -- in the revision, from 0
  start_byte INTEGER NOT NULL,
  end_byte   INTEGER NOT NULL,
  start_char INTEGER NOT NULL,
  end_char   INTEGER NOT NULL,
  page       INTEGER NOT NULL, -- 0: none
  tokens     INTEGER NOT NULL,
  headings   BLOB,             -- JSON
  text       TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunks_revision ON chunks (revision, number);

-- The vectors of chunks, of length 1: little-endian float32.
CREATE TABLE chunk_vectors (
  chunk  INTEGER PRIMARY KEY,
  vector BLOB NOT NULL
) STRICT;

-- Short codes of these vectors. They are in a table of their own, because a search reads all of them.
CREATE TABLE chunk_codes (
  revision INTEGER NOT NULL,
  chunk    INTEGER NOT NULL,
  code     BLOB NOT NULL, -- a short form of the vector, for a first comparison
  PRIMARY KEY (revision, chunk)
) STRICT, WITHOUT ROWID;

-- The dimension of a tenant's vectors, as long as it has documents.
CREATE TABLE document_indexes (
  tenant     INTEGER PRIMARY KEY,
  dimensions INTEGER NOT NULL
) STRICT;

-- The words of chunks: one index for all tenants. Each entry also has a word that names its tenant.
-- No text contains such a word itself.
-- sqlite:
CREATE VIRTUAL TABLE chunk_words USING fts5(tenant, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2');
CREATE TRIGGER chunks_inserted AFTER INSERT ON chunks BEGIN
  INSERT INTO chunk_words (rowid, tenant, text) VALUES (new.no, 't' || new.tenant, new.text);
END;
CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
  DELETE FROM chunk_words WHERE rowid = old.no;
END;
-- postgresql:
ALTER TABLE chunks ADD COLUMN words tsvector GENERATED ALWAYS AS
  (array_to_tsvector(ARRAY['#' || CAST(tenant AS TEXT)]) || to_tsvector('pg_catalog.simple', text)) STORED;
CREATE INDEX chunks_words ON chunks USING gin (words);
-- all:

-- OpenAI's Files and Batches.

-- A file of OpenAI's API. Its content is in blob storage.
CREATE TABLE files (
  no              INTEGER PRIMARY KEY,
  id              TEXT NOT NULL UNIQUE,
  tenant          INTEGER NOT NULL,
  purpose         TEXT NOT NULL,
  name            TEXT NOT NULL,
  size            INTEGER NOT NULL,
  content_blob    TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,                    -- NULL: never
  uses            INTEGER NOT NULL DEFAULT 0, -- batches that still read it
  deleted         INTEGER NOT NULL DEFAULT 0, -- 1: nobody finds it; it goes once no batch reads it
  idempotency_key TEXT,                       -- of the request that made it; NULL: none
  request_hash    TEXT                        -- of that request; NULL: a batch made it
) STRICT;
-- sqlite:
CREATE INDEX files_owner ON files (tenant);
-- postgresql:
CREATE INDEX files_owner ON files (tenant, (no + 0));
-- all:
CREATE INDEX files_tenant ON files (tenant, id) WHERE deleted = 0;
CREATE INDEX files_purpose ON files (tenant, purpose, id) WHERE deleted = 0;
CREATE INDEX files_expires ON files (expires_at) WHERE expires_at IS NOT NULL AND deleted = 0;
CREATE INDEX files_deleted ON files (no) WHERE deleted = 1;
CREATE INDEX files_key ON files (tenant, idempotency_key, created_at) WHERE idempotency_key IS NOT NULL;
CREATE INDEX files_request ON files (tenant, request_hash, created_at) WHERE request_hash IS NOT NULL;

-- A batch: the lines of a file, each of which becomes a job.
CREATE TABLE batches (
  no              INTEGER PRIMARY KEY,
  id              TEXT NOT NULL UNIQUE,
  tenant          INTEGER NOT NULL,
  endpoint        TEXT NOT NULL,              -- such as /v1/chat/completions
  model           TEXT NOT NULL DEFAULT '',   -- of the lines; '': they are not validated yet
  input_file      TEXT NOT NULL,              -- id
  completion_window TEXT NOT NULL,            -- such as 24h, as the client wrote it
  metadata        BLOB,                       -- JSON
  output_ttl      INTEGER,                    -- how long its output is kept; NULL: as long as configured
  key_id          TEXT,                       -- the API key whose budget pays as well
  idempotency_key TEXT,
  request_hash    TEXT NOT NULL,
  state           TEXT NOT NULL,
  ends_as         TEXT NOT NULL DEFAULT 'completed', -- the state after the output is written
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,           -- when its window closes
  in_progress_at  INTEGER,
  finalizing_at   INTEGER,
  cancelling_at   INTEGER,
  ended_at        INTEGER,                    -- completed, failed, expired or cancelled
  errors          BLOB,                       -- JSON: why it has failed
  total           INTEGER NOT NULL DEFAULT 0, -- lines
  fed             INTEGER NOT NULL DEFAULT 0, -- lines that became jobs
  fed_bytes       INTEGER NOT NULL DEFAULT 0, -- of the input, up to the end of the latest of these
  ended           INTEGER NOT NULL DEFAULT 0, -- of the lines that became jobs
  completed       INTEGER NOT NULL DEFAULT 0, -- of these, answered with success
  failed          INTEGER NOT NULL DEFAULT 0, -- of these, answered with an error
  priority        INTEGER NOT NULL DEFAULT 0, -- of jobs made now
  usage           BLOB,                       -- JSON
  output_file     TEXT,                       -- id; NULL: none
  error_file      TEXT,
  due_at          INTEGER,                    -- when there is something to do next; NULL: never again
  leased_until    INTEGER NOT NULL DEFAULT 0, -- until then one process works on it
  lease           INTEGER NOT NULL DEFAULT 0  -- numbers those who have worked on it
) STRICT;
CREATE INDEX batches_tenant ON batches (tenant, id);
CREATE INDEX batches_due ON batches (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX batches_open ON batches (tenant) WHERE ended_at IS NULL;
CREATE INDEX batches_key ON batches (tenant, idempotency_key, created_at) WHERE idempotency_key IS NOT NULL;
CREATE INDEX batches_request ON batches (tenant, request_hash, created_at);

-- The lines of batches that are not over, from when they become jobs. Retention keeps these jobs.
CREATE TABLE batch_lines (
  seq       INTEGER PRIMARY KEY,       -- job
  batch     INTEGER NOT NULL,
  line      INTEGER NOT NULL,          -- of the file, from 1
  custom_id TEXT NOT NULL,
  outcome   INTEGER NOT NULL DEFAULT 0 -- 1: success; 2: an error; 3: it never ran; 0: its job is not over
) STRICT;
CREATE UNIQUE INDEX batch_lines_line ON batch_lines (batch, line);

-- Responses of OpenAI's API.

-- A response that is kept. What clients see of it before it ends follows from the request.
CREATE TABLE responses (
  no            INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  tenant        INTEGER NOT NULL,
  seq           INTEGER,          -- the job that makes it; NULL: its client waited for it
  created_at    INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL, -- from then on it is gone, and to be removed; 0: it was deleted; below: only its key is left, until then
  ended_at      INTEGER,
  status        TEXT NOT NULL,
  model         TEXT NOT NULL,    -- of the configuration
  previous      TEXT NOT NULL,    -- id of the response that it goes on from; '': none
  repeat_key    TEXT,             -- SHA-256 of what a repeat of a background request has in common with it
  hash          TEXT,             -- SHA-256 of that request's body
  runner        INTEGER NOT NULL DEFAULT 0, -- who writes its events now: the latest who began
  events        INTEGER NOT NULL DEFAULT 0, -- how many it has, without the one that ends it
  places        INTEGER NOT NULL DEFAULT 0, -- how many items clients were told of
  events_size   INTEGER NOT NULL DEFAULT 0, -- bytes
  request_size  INTEGER NOT NULL,
  request_blob  TEXT,
  request       BLOB,             -- JSON, as it came
  object_size   INTEGER NOT NULL,
  object_blob   TEXT,
  object        BLOB,             -- JSON, as it ended; as it was made, if it has no answer
  error_code    TEXT,
  error_message BLOB
) STRICT;
-- sqlite:
CREATE INDEX responses_tenant ON responses (tenant);
-- postgresql:
CREATE INDEX responses_tenant ON responses (tenant, (no + 0));
-- all:
CREATE INDEX responses_expiry ON responses (expires_at);
CREATE UNIQUE INDEX responses_job ON responses (seq) WHERE seq IS NOT NULL;
CREATE INDEX responses_repeat ON responses (tenant, repeat_key, no) WHERE repeat_key IS NOT NULL;

-- Keys that all processes share.
CREATE TABLE secrets (
  name   TEXT PRIMARY KEY, -- what it is for
  secret BLOB NOT NULL
) STRICT;

-- The events of a background response, some in each row. One that tells of the response as a whole
-- is kept without it.
CREATE TABLE response_events (
  response INTEGER NOT NULL,
  first    INTEGER NOT NULL, -- sequence number of the first of them
  data     BLOB NOT NULL,    -- JSON, a line for each
  PRIMARY KEY (response, first)
) STRICT, WITHOUT ROWID;

-- postgresql:
ALTER TABLE jobs DROP CONSTRAINT jobs_id_key, ADD CONSTRAINT jobs_id_key UNIQUE (id);
ALTER TABLE budgets DROP CONSTRAINT budgets_tenant_key_id_key, ADD CONSTRAINT budgets_tenant_key_id_key UNIQUE (tenant, key_id);
ALTER TABLE orchestrations DROP CONSTRAINT orchestrations_tenant_id_key,
  ADD CONSTRAINT orchestrations_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE documents DROP CONSTRAINT documents_tenant_id_key, ADD CONSTRAINT documents_tenant_id_key UNIQUE (tenant, id);
ALTER TABLE document_revisions DROP CONSTRAINT document_revisions_id_key, ADD CONSTRAINT document_revisions_id_key UNIQUE (id);
ALTER TABLE files DROP CONSTRAINT files_id_key, ADD CONSTRAINT files_id_key UNIQUE (id);
ALTER TABLE batches DROP CONSTRAINT batches_id_key, ADD CONSTRAINT batches_id_key UNIQUE (id);
ALTER TABLE responses DROP CONSTRAINT responses_id_key, ADD CONSTRAINT responses_id_key UNIQUE (id);
-- all:
