-- The rank of a job's message is the number of its line: 16 times its tenant's number, and 9 - priority.
UPDATE messages SET rank = tenant * 16 + rank WHERE rank < 16 AND lane / 4 IN (SELECT no FROM queues WHERE kind = 'jobs');
