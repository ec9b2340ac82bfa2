package events

import "github.com/forebayhq/forebay/internal/db/driver"

// SQLKeepFirstStart gives the first "started" event of a job that is redriven a row of its own.
// The row of the message, from which it follows, is changed then.
var SQLKeepFirstStart = driver.Only(driver.BatchForm(`
INSERT INTO events (seq, number, type, at, status, generation, attempt)
SELECT seq, 2, 'started', started_at, 'running', 1, 1 FROM messages
WHERE seq = ?1 AND generation = 1 AND (subqueue + 0) % 4 >= 2 AND started_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events WHERE seq = ?1 AND number = 2)`, `
INSERT INTO events (seq, number, type, at, status, generation, attempt)
SELECT m.seq, 2, 'started', m.started_at, 'running', 1, 1 FROM %s JOIN messages m ON m.seq = ANY (ARRAY[p1])
WHERE m.generation = 1 AND (m.subqueue + 0) %% 4 >= 2 AND m.started_at IS NOT NULL AND (SELECT count(*) FROM events e WHERE e.seq = m.seq AND e.number = 2) = 0`),
	driver.Rows{Table: "events", Of: "job", By: 1}, driver.Rows{Table: "messages", Of: "job", By: 1})
