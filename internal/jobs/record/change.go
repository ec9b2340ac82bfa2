package record

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Message is a job's message with what has to be known of the job to cancel it or to send it back.
// A domain that owns jobs reads many of them with one statement.
type Message struct {
	Seq                         int64 // 0: there is none
	Subqueue                    queue.Subqueue
	Flow, Tenant, Version       int64
	Token                       int64 // 0: it is not locked
	Visible, LockedAt, Started  int64
	Generation, Attempt, Number int
	Held                        int64 // budgets that hold something for its call; 0: none does
	ID, Task                    string
	SessionID, Correlation      string
	Reply                       []byte
}

// MessageColumns are of messages m and jobs j.
const MessageColumns = `m.seq, m.lock_token, m.visible_at, m.locked_at, m.subqueue, m.flow, m.generation, m.attempt, m.number, m.version, m.started_at, m.tenant,
  j.task, j.session_id, j.correlation_id, j.id, j.reply,
  CASE WHEN m.lock_token IS NULL THEN 0 ELSE (SELECT count(*) FROM budget_holds h WHERE h.seq = m.seq AND h.lost = 0) END`

// ReadMessage reads MessageColumns, which begin with that column.
func ReadMessage(r driver.Row, first int) (m Message) {
	n := func(i int) int64 { return r.Int(first + i) }
	m.Seq, m.Token, m.Visible, m.LockedAt, m.Subqueue, m.Flow = n(0), n(1), n(2), n(3), queue.Subqueue(n(4)), n(5)
	m.Generation, m.Attempt, m.Number, m.Version, m.Started, m.Tenant = int(n(6)), int(n(7)), int(n(8)), n(9), n(10), n(11)
	m.Task, m.SessionID, m.Correlation, m.ID, m.Reply, m.Held = r.Text(first+12), r.Text(first+13), r.Text(first+14), r.Text(first+15), r.Blob(first+16), n(17)
	return m
}

// IsSetAside reports whether it is a dead letter or in quarantine.
func (m *Message) IsSetAside() bool {
	return m.Seq != 0 && m.Subqueue.Kind() >= queue.SubqueueDeadLetter
}

// SQLSendBack sends a message that is set aside back to the main subqueue of its queue, for its
// next generation. It takes the time at which it is visible, and the job.
var SQLSendBack = driver.Only(driver.BatchForm(`
UPDATE messages SET subqueue = subqueue - subqueue % 4, visible_at = ?, generation = generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL WHERE seq = ?`, `
UPDATE messages m SET subqueue = m.subqueue - m.subqueue %% 4, visible_at = p1, generation = m.generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = m.version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL FROM %s WHERE m.seq = ANY (ARRAY[p2])`),
	driver.Rows{Table: "messages", Of: "job", By: 2})

// SQLRedrive is SQLSendBack for a job of which nothing is known yet. Its third parameter is the
// generation that is set aside; 0: whichever it is.
var SQLRedrive = driver.PrefetchForm(`
UPDATE messages SET subqueue = subqueue - subqueue % 4, visible_at = ?1, generation = generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
WHERE seq = ?2 AND (subqueue + 0) % 4 >= 2 AND (?3 = 0 OR generation = ?3) RETURNING subqueue, flow, generation, version, tenant,
  (SELECT j.session_id FROM jobs j WHERE j.seq = messages.seq)`, `
UPDATE messages m SET subqueue = m.subqueue - m.subqueue % 4, visible_at = x.p1, generation = m.generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = m.version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
FROM %s WHERE m.seq = ANY (ARRAY[x.p2]) AND (m.subqueue + 0) % 4 >= 2 AND (x.p3 = 0 OR m.generation = x.p3)
RETURNING x.p1, x.p2, x.p3, m.subqueue, m.flow, m.generation, m.version, m.tenant, (SELECT j.session_id FROM jobs j WHERE j.seq = m.seq)`)

// SQLRetry moves a message that its lock holds to another subqueue after a failed attempt. It
// takes the subqueue, the time at which it is visible, how many attempts that counts, the error,
// the job and the token.
var SQLRetry = driver.BatchForm(`
UPDATE messages SET subqueue = ?, visible_at = ?, lock_token = NULL, locked_at = NULL, attempt = attempt + ?, version = version + 2,
  waiting = 'schedule', last_error = ?, deliveries = 0 WHERE seq = ? AND lock_token = ?`, `
UPDATE messages m SET subqueue = p1, visible_at = p2, lock_token = NULL, locked_at = NULL, attempt = attempt + p3, version = version + 2,
  waiting = 'schedule', last_error = p4, deliveries = 0 FROM %s WHERE m.seq = ANY (ARRAY[p5]) AND m.lock_token = p6`)

// SQLThrottle puts a message back that its lock holds, after a call that the provider turned away.
// It takes the time at which it is visible, what it waits for, the error, the job and the token.
var SQLThrottle = driver.BatchForm(`
UPDATE messages SET visible_at = ?, lock_token = NULL, locked_at = NULL, deliveries = deliveries - 1, version = version + 1,
  waiting = ?, last_error = ? WHERE seq = ? AND lock_token = ?`, `
UPDATE messages m SET visible_at = p1, lock_token = NULL, locked_at = NULL, deliveries = deliveries - 1, version = version + 1,
  waiting = p2, last_error = p3 FROM %s WHERE m.seq = ANY (ARRAY[p4]) AND m.lock_token = p5`)

// SQLRelease puts a message back that its lock holds, as if it had not been delivered. It takes
// the time at which it is visible, what it waits for, the job and the token.
var SQLRelease = driver.BatchForm(`
UPDATE messages SET visible_at = ?, lock_token = NULL, locked_at = NULL, deliveries = deliveries - 1, number = number - 1,
  waiting = ? WHERE seq = ? AND lock_token = ?`, `
UPDATE messages m SET visible_at = p1, lock_token = NULL, locked_at = NULL, deliveries = deliveries - 1, number = number - 1,
  waiting = p2 FROM %s WHERE m.seq = ANY (ARRAY[p3]) AND m.lock_token = p4`)

// SQLInterrupt is SQLRelease for a call that was made. In the place of what the message waits for
// it takes by how many its deliveries fall.
var SQLInterrupt = driver.BatchForm(`
UPDATE messages SET visible_at = ?, lock_token = NULL, locked_at = NULL, deliveries = deliveries - ?, waiting = NULL WHERE seq = ? AND lock_token = ?`, `
UPDATE messages m SET visible_at = p1, lock_token = NULL, locked_at = NULL, deliveries = deliveries - p2, waiting = NULL FROM %s
WHERE m.seq = ANY (ARRAY[p3]) AND m.lock_token = p4`)

// Edit replaces parts of a job. Zero fields stay as they are.
type Edit struct {
	Task            string
	MaxAttempts     int
	Input           []byte
	InputBlob       string
	InputSize       int64 // 0: the input stays
	MaxOutputTokens int64 // these are set if the task or the input changes
	Estimate        []byte
}

// Apply changes the job. An edit that is nil changes nothing.
func (e *Edit) Apply(c driver.Conn, seq int64) error {
	if e == nil {
		return nil
	}
	if e.Task != "" {
		if err := c.Prep("UPDATE jobs SET task = ? WHERE seq = ?").Text(e.Task).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.MaxAttempts > 0 {
		if err := c.Prep("UPDATE jobs SET max_attempts = ? WHERE seq = ?").Int(int64(e.MaxAttempts)).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.Task != "" || e.InputSize > 0 {
		if err := c.Prep("UPDATE jobs SET max_output_tokens = ?, estimate = ? WHERE seq = ?").IntOrNull(e.MaxOutputTokens).Blob(e.Estimate).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.InputSize == 0 {
		return nil
	}
	if err := c.Prep("UPDATE jobs SET input = ?, input_blob = ?, input_size = ? WHERE seq = ?").
		Blob(e.Input).TextOrNull(e.InputBlob).Int(e.InputSize).Int(seq).Exec(); err != nil {
		return err
	}
	return c.Prep("UPDATE messages SET size = ? WHERE seq = ?").Int(e.InputSize).Int(seq).Exec()
}
