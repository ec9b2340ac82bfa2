package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// DeadLetter is a job in a dead-letter or quarantine subqueue.
type DeadLetter struct {
	Seq           int64
	ID            string
	Task          string
	Reason        string
	Failure       Failure
	Generation    int
	Attempt       int
	Deliveries    int
	CorrelationID string
	CreatedAt     time.Time
	SetAsideAt    time.Time
	Input         []byte // only if the query reads it
	InputBlob     string
	InputSize     int64
	Metadata      []byte
	LastError     []byte
}

// DeadLetterQuery selects dead-lettered or quarantined jobs of one tenant, newest first.
type DeadLetterQuery struct {
	Subqueue queue.Subqueue
	Tenant   int64
	Filter   forebay.SetAsideFilter
	Below    int64 // only jobs with a lower sequence number; 0: from the newest
	Limit    int
	ReadBody bool
}

// A subqueue has few rows beside the live ones. They are read along its index.
const sqlDeadLetters = `
SELECT m.seq, j.id, j.task, m.reason, o.error_class, o.error_code, o.error_message, m.generation, m.attempt, m.deliveries,
  j.correlation_id, j.created_at, m.visible_at, CASE WHEN ?8 <> 0 THEN j.input END, j.input_blob, j.input_size, j.metadata, m.last_error
FROM messages m JOIN jobs j ON j.seq = m.seq LEFT JOIN outcomes o ON o.seq = m.seq
WHERE m.subqueue = ?1 AND m.subqueue % 4 >= 2 AND j.tenant = ?2 AND m.seq < ?3
  AND (?4 = '' OR j.task = ?4) AND (?5 = '' OR m.reason = ?5) AND (?6 = '' OR j.correlation_id = ?6)
  AND m.visible_at >= ?9 AND m.visible_at < ?10
  AND (?7 = '' OR j.id = ?7)
ORDER BY m.seq DESC LIMIT ?11 + 0`

// DeadLetters returns the jobs that the query selects.
func (s *Store) DeadLetters(ctx context.Context, q DeadLetterQuery) (rows []DeadLetter, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		rows, err = readDeadLetters(c, q)
		return err
	})
	return rows, err
}

func readDeadLetters(c driver.Conn, q DeadLetterQuery) (rows []DeadLetter, err error) {
	const endOfTime = 1 << 62
	below, before, after := int64(endOfTime), int64(endOfTime), int64(0)
	if q.Below > 0 {
		below = q.Below
	}
	if q.Filter.Before != nil {
		before = q.Filter.Before.UnixMilli()
	}
	if q.Filter.After != nil {
		after = q.Filter.After.UnixMilli()
	}
	body := int64(0)
	if q.ReadBody {
		body = 1
	}
	ids := q.Filter.JobIDs
	if len(ids) == 0 {
		ids = []string{""} // any
	}
	for _, id := range ids {
		err = c.Prep(sqlDeadLetters).Int(int64(q.Subqueue)).Int(q.Tenant).Int(below).
			Text(q.Filter.Task).Text(q.Filter.Reason).Text(q.Filter.CorrelationID).Text(id).Int(body).Int(after).Int(before).Int(int64(q.Limit)).
			Each(func(r driver.Row) error {
				rows = append(rows, DeadLetter{
					Seq: r.Int(0), ID: r.Text(1), Task: r.Text(2), Reason: r.Text(3),
					Failure:    Failure{Class: forebay.ErrorClass(r.Text(4)), Code: r.Text(5), Message: r.Blob(6)},
					Generation: int(r.Int(7)), Attempt: int(r.Int(8)), Deliveries: int(r.Int(9)),
					CorrelationID: r.Text(10), CreatedAt: driver.FromMillis(r.Int(11)), SetAsideAt: driver.FromMillis(r.Int(12)),
					Input: r.Blob(13), InputBlob: r.Text(14), InputSize: r.Int(15), Metadata: r.Blob(16), LastError: r.Blob(17),
				})
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b DeadLetter) int { return cmp.Compare(b.Seq, a.Seq) })
	return rows[:min(len(rows), q.Limit)], nil
}

// Redrive is one job to send back as its next generation.
type Redrive struct {
	Seq   int64
	Delay time.Duration
	Edit  *RedriveEdit
}

// RedriveEdit replaces parts of the job. Zero fields stay as they are.
type RedriveEdit struct {
	Task            string
	MaxAttempts     int
	Input           []byte
	InputBlob       string
	InputSize       int64 // 0: the input stays
	MaxOutputTokens int64 // these as in NewJob; set if the task or the input changes
	Estimate        []byte
}

const sqlRedrive = `
UPDATE messages SET subqueue = subqueue - subqueue % 4, visible_at = ?1, generation = generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
WHERE seq = ?2 AND subqueue % 4 >= 2 RETURNING subqueue, flow, generation, version, tenant,
  (SELECT j.session_id FROM jobs j WHERE j.seq = messages.seq)`

// The row that the first attempt's "started" event follows from goes with a redrive. So the event
// gets a row of its own.
const sqlKeepFirstStart = `
INSERT INTO events (seq, number, type, at, status, generation, attempt)
SELECT seq, 2, 'started', started_at, 'running', 1, 1 FROM messages
WHERE seq = ?1 AND generation = 1 AND subqueue % 4 >= 2 AND started_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events WHERE seq = ?1 AND number = 2)`

// Redrive sends jobs back to the main subqueue of their queue and reports which were still
// dead-lettered or quarantined. A job follows exactly one of several redrives at once. The audit
// row is written in the same transaction.
func (s *Store) Redrive(ctx context.Context, jobs []Redrive, entry audit.Act) (redriven []bool, err error) {
	seqs := make([]int64, len(jobs))
	for i := range jobs {
		seqs[i] = jobs[i].Seq
	}
	return db.TransactIn(ctx, Key, s.Writer, changingDeadLetters(seqs), func(t *Tx) ([]bool, error) {
		redriven := make([]bool, len(jobs))
		err := t.Interleave(len(jobs), func(i int) (err error) {
			redriven[i], err = t.Redrive(jobs[i])
			return err
		})
		if err != nil {
			return nil, err
		}
		return redriven, audit.Append(t.Tx, entry)
	})
}

// changingDeadLetters describes a change of these dead letters to the writer. Two changes of one
// job follow each other.
func changingDeadLetters(seqs []int64) db.Op {
	touched := make([]driver.RowName, len(seqs))
	for i, seq := range seqs {
		touched[i] = queue.MessageRow(seq)
	}
	return db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Hints: audit.Appends{}, Touches: touched}
}

func (t *Tx) Redrive(j Redrive) (bool, error) {
	visible := t.Now + j.Delay.Milliseconds()
	e := event{seq: j.Seq, kind: forebay.EventRedriven, status: forebay.StatusQueued}
	if j.Delay > 0 {
		e.status = forebay.StatusScheduled
	}
	if err := t.Prep(sqlKeepFirstStart).Int(j.Seq).Exec(); err != nil {
		return false, err
	}
	var its jobSession
	found, err := t.Prep(sqlRedrive).Int(visible).Int(j.Seq).One(func(r driver.Row) {
		subqueue := queue.Subqueue(r.Int(0))
		t.Due(subqueue, r.Int(1), visible)
		e.generation, e.number, e.tenant, e.queue = int(r.Int(2)), r.Int(3), r.Int(4), subqueue.Queue()
		its = jobSession{r.Int(4), subqueue.Queue(), r.Text(5)}
	})
	if err != nil || !found {
		return false, err
	}
	if err := t.Prep("DELETE FROM outcomes WHERE seq = ?").Int(j.Seq).Exec(); err != nil {
		return false, err
	}
	if err := t.edit(j.Seq, j.Edit); err != nil {
		return false, err
	}
	if its.id != "" {
		t.rejoining = append(t.rejoining, rejoining{j.Seq, its, visible})
	}
	for _, f := range t.w.store.redriven {
		if err := f(t.Tx, j.Seq); err != nil {
			return false, err
		}
	}
	return true, t.event(e)
}

func (t *Tx) edit(seq int64, e *RedriveEdit) error {
	if e == nil {
		return nil
	}
	if e.Task != "" {
		if err := t.Prep("UPDATE jobs SET task = ? WHERE seq = ?").Text(e.Task).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.MaxAttempts > 0 {
		if err := t.Prep("UPDATE jobs SET max_attempts = ? WHERE seq = ?").Int(int64(e.MaxAttempts)).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.Task != "" || e.InputSize > 0 {
		if err := t.Prep("UPDATE jobs SET max_output_tokens = ?, estimate = ? WHERE seq = ?").IntOrNull(e.MaxOutputTokens).Blob(e.Estimate).Int(seq).Exec(); err != nil {
			return err
		}
	}
	if e.InputSize == 0 {
		return nil
	}
	if err := t.Prep("UPDATE jobs SET input = ?, input_blob = ?, input_size = ? WHERE seq = ?").
		Blob(e.Input).TextOrNull(e.InputBlob).Int(e.InputSize).Int(seq).Exec(); err != nil {
		return err
	}
	return t.Prep("UPDATE messages SET size = ? WHERE seq = ?").Int(e.InputSize).Int(seq).Exec()
}

const sqlRemoveDeadLetter = "DELETE FROM messages WHERE seq = ? AND subqueue % 4 >= 2"

// PurgeDeadLetters removes jobs from their dead-letter or quarantine subqueue for good and
// returns how many were there. The job records stay, failed.
func (s *Store) PurgeDeadLetters(ctx context.Context, seqs []int64, entry audit.Act) (purged int, err error) {
	return db.TransactIn(ctx, Key, s.Writer, changingDeadLetters(seqs), func(t *Tx) (int, error) {
		purged := 0
		err := t.Interleave(len(seqs), func(i int) error {
			t.Changed(seqs[i])
			rows, err := t.Prep(sqlRemoveDeadLetter).Int(seqs[i]).Count()
			purged += rows
			return err
		})
		if err != nil {
			return 0, err
		}
		return purged, audit.Append(t.Tx, entry)
	})
}

// RemoveDeadLetter removes a job from its dead-letter or quarantine subqueue, if it is there.
func (t *Tx) RemoveDeadLetter(seq int64) error {
	t.Changed(seq)
	return t.Prep(sqlRemoveDeadLetter).Int(seq).Exec()
}
