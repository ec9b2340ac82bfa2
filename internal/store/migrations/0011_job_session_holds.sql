-- When the running job of a session is cancelled, its call may go on for a moment. The next job's turn
-- comes when the worker says that it is over, or when the lock would have ended.
CREATE TABLE job_session_holds (
  tenant     INTEGER NOT NULL,
  queue      INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  token      INTEGER NOT NULL, -- of the lock that the cancel voided
  ends_at    INTEGER NOT NULL,
  PRIMARY KEY (tenant, queue, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_session_holds_end ON job_session_holds (ends_at);
-- When a job may begin once it is its turn, if not as it was submitted: it was redriven with a delay.
ALTER TABLE job_sessions ADD COLUMN not_before INTEGER;
