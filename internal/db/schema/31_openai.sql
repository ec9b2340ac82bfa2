-- What the call of an input in blob storage needs: a claim cannot look there.
ALTER TABLE jobs ADD COLUMN estimate BLOB;

-- Files and batches of OpenAI's API.
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
CREATE INDEX files_owner ON files (tenant, no);
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
  expires_at    INTEGER NOT NULL, -- from then on it is gone, and to be removed; 0: it was deleted
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
CREATE INDEX responses_tenant ON responses (tenant, no);
-- all:
CREATE INDEX responses_expiry ON responses (expires_at);
CREATE UNIQUE INDEX responses_job ON responses (seq) WHERE seq IS NOT NULL;
CREATE INDEX responses_repeat ON responses (tenant, repeat_key, no) WHERE repeat_key IS NOT NULL;

-- The events of a background response, some in each row. One that tells of the response as a whole
-- is kept without it.
CREATE TABLE response_events (
  response INTEGER NOT NULL,
  first    INTEGER NOT NULL, -- sequence number of the first of them
  data     BLOB NOT NULL,    -- JSON, a line for each
  PRIMARY KEY (response, first)
) STRICT, WITHOUT ROWID;
