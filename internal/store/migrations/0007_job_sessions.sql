-- The jobs of one session run one after the other, in the order of their numbers. All but one of those
-- that are not over are held: their "visible" is 2^62, and they wait for "session".
ALTER TABLE jobs ADD COLUMN session_id TEXT;
CREATE TABLE job_sessions (
  tenant     INTEGER NOT NULL,
  queue      INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  PRIMARY KEY (tenant, queue, session_id, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX job_sessions_seq ON job_sessions (seq);
