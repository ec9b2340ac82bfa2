-- When a key was used last, and the jobs of a session.
ALTER TABLE api_keys ADD COLUMN used_at INTEGER;
CREATE INDEX jobs_session ON jobs (tenant, session_id, seq) WHERE session_id IS NOT NULL;
