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
  object_size   INTEGER NOT NULL DEFAULT 0,
  object_blob   TEXT,
  object        BLOB,             -- JSON, as it ended; NULL without a blob: it has no answer
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
