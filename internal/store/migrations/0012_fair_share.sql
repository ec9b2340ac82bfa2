-- The rank of a job's message is the number of its line: 1,024 times its tenant's number,
-- 16 times the class of what it calls, which is 0 for those that are here already, and 9 - priority.
UPDATE messages SET rank = tenant * 1024 + rank WHERE rank < 16 AND lane / 4 IN (SELECT no FROM queues WHERE kind = 'jobs');

-- None of a paused tenant's jobs is delivered.
ALTER TABLE tenants ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tenants_paused ON tenants (no) WHERE paused <> 0;
