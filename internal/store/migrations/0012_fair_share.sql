-- The rank of a job's message is the number of its line: 16 times its tenant's number, and 9 - priority.
UPDATE messages SET rank = tenant * 16 + rank WHERE rank < 16 AND lane / 4 IN (SELECT no FROM queues WHERE kind = 'jobs');

-- None of a paused tenant's jobs is delivered.
ALTER TABLE tenants ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tenants_paused ON tenants (no) WHERE paused <> 0;
