-- When API keys were used last, to the minute. A key without a row was never used.
CREATE TABLE key_uses (
  id      TEXT PRIMARY KEY,
  used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_session ON jobs (tenant, session_id, seq) WHERE session_id IS NOT NULL;
