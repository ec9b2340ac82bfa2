package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// SetAsideRow is a job in a dead-letter or quarantine subqueue.
type SetAsideRow struct {
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
	Input         []byte // only when one is read
	InputBlob     string
	InputSize     int64
	Metadata      []byte
	LastError     []byte
}

// SetAsideQuery selects set-aside jobs of one tenant, newest first.
type SetAsideQuery struct {
	Subqueue Subqueue
	Tenant   int64
	Filter   forebay.SetAsideFilter
	Below    int64 // only jobs with a lower sequence number; 0: from the newest
	Limit    int
	ReadBody bool
}

// The rows of one subqueue are few beside the live ones, and are read along the subqueue's index.
const sqlSetAsideRows = `
SELECT m.seq, j.id, j.task, m.reason, o.error_class, o.error_code, o.error_message, m.generation, m.attempt, m.deliveries,
  j.correlation_id, j.created_at, m.visible, CASE WHEN ?8 <> 0 THEN j.input END, j.input_blob, j.input_size, j.metadata, m.last_error
FROM messages m JOIN jobs j ON j.seq = m.seq LEFT JOIN outcomes o ON o.seq = m.seq
WHERE m.lane = ?1 AND m.lane % 4 >= 2 AND j.tenant = ?2 AND m.seq < ?3
  AND (?4 = '' OR j.task = ?4) AND (?5 = '' OR m.reason = ?5) AND (?6 = '' OR j.correlation_id = ?6)
  AND m.visible >= ?9 AND m.visible < ?10
  AND (?7 = '' OR j.id = ?7)
ORDER BY m.seq DESC LIMIT ?11 + 0`

// SetAsideRows returns the jobs that the query selects.
func (s *JobStore) SetAsideRows(ctx context.Context, q SetAsideQuery) (rows []SetAsideRow, err error) {
	err = s.read(ctx, func(c conn) error {
		rows, err = setAsideRows(c, q)
		return err
	})
	return rows, err
}

func setAsideRows(c conn, q SetAsideQuery) (rows []SetAsideRow, err error) {
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
		err = c.prep(sqlSetAsideRows).int(int64(q.Subqueue)).int(q.Tenant).int(below).
			text(q.Filter.Task).text(q.Filter.Reason).text(q.Filter.CorrelationID).text(id).int(body).int(after).int(before).int(int64(q.Limit)).
			each(func(r row) error {
				rows = append(rows, SetAsideRow{
					Seq: r.int(0), ID: r.text(1), Task: r.text(2), Reason: r.text(3),
					Failure:    Failure{Class: forebay.ErrorClass(r.text(4)), Code: r.text(5), Message: r.blob(6)},
					Generation: int(r.int(7)), Attempt: int(r.int(8)), Deliveries: int(r.int(9)),
					CorrelationID: r.text(10), CreatedAt: fromMillis(r.int(11)), SetAsideAt: fromMillis(r.int(12)),
					Input: r.blob(13), InputBlob: r.text(14), InputSize: r.int(15), Metadata: r.blob(16), LastError: r.blob(17),
				})
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b SetAsideRow) int { return cmp.Compare(b.Seq, a.Seq) })
	return rows[:min(len(rows), q.Limit)], nil
}

// Redrive is one job to send back as its next generation.
type Redrive struct {
	Seq   int64
	Delay time.Duration
	Edit  *RedriveEdit
}

// RedriveEdit replaces parts of the job; zero fields stay as they are.
type RedriveEdit struct {
	Task            string
	MaxAttempts     int
	Input           []byte
	InputBlob       string
	InputSize       int64 // 0: the input stays
	MaxOutputTokens int64 // as in NewJob; of the input that stays, where only the task is another
}

const sqlRedrive = `
UPDATE messages SET lane = lane - lane % 4, visible = ?1, generation = generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
WHERE seq = ?2 AND lane % 4 >= 2 RETURNING lane, rank, generation, version`

// What tells the start of the first attempt goes with a redrive.
const sqlKeepFirstStart = `
INSERT INTO events (seq, number, type, at, status, generation, attempt)
SELECT seq, 2, 'started', started_at, 'running', 1, 1 FROM messages
WHERE seq = ?1 AND generation = 1 AND lane % 4 >= 2 AND started_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events WHERE seq = ?1 AND number = 2)`

// Redrive sends set-aside jobs back to the main subqueue of their queue and reports which it found still
// set aside: of several redrives at once each job follows exactly one. The audit row is written in
// the same transaction.
func (s *JobStore) Redrive(ctx context.Context, jobs []Redrive, audit Audit) (redriven []bool, err error) {
	return transactIn(ctx, jobsKey, s.writer, op{stage: stageChange}, func(t *jobsTx) ([]bool, error) {
		redriven := make([]bool, len(jobs))
		for i, j := range jobs {
			moved, err := t.redrive(j)
			if err != nil {
				return nil, err
			}
			redriven[i] = moved
		}
		return redriven, auditIn(t.tx, audit)
	})
}

func (t *jobsTx) redrive(j Redrive) (bool, error) {
	visible := t.now + j.Delay.Milliseconds()
	e := event{seq: j.Seq, kind: forebay.EventRedriven, status: forebay.StatusQueued}
	if j.Delay > 0 {
		e.status = forebay.StatusScheduled
	}
	if err := t.prep(sqlKeepFirstStart).int(j.Seq).exec(); err != nil {
		return false, err
	}
	found, err := t.prep(sqlRedrive).int(visible).int(j.Seq).one(func(r row) {
		t.due(Subqueue(r.int(0)), r.int(1), visible)
		e.generation, e.number = int(r.int(2)), r.int(3)
	})
	if err != nil || !found {
		return false, err
	}
	if err := t.prep("DELETE FROM outcomes WHERE seq = ?").int(j.Seq).exec(); err != nil {
		return false, err
	}
	if err := t.edit(j.Seq, j.Edit); err != nil {
		return false, err
	}
	if err := t.rejoinSession(j.Seq, visible); err != nil {
		return false, err
	}
	for _, f := range t.w.store.redriven {
		if err == nil {
			err = f(t.tx, j.Seq)
		}
	}
	if err != nil {
		return false, err
	}
	return true, t.event(e)
}

func (t *jobsTx) edit(seq int64, e *RedriveEdit) error {
	if e == nil {
		return nil
	}
	if e.Task != "" {
		if err := t.prep("UPDATE jobs SET task = ? WHERE seq = ?").text(e.Task).int(seq).exec(); err != nil {
			return err
		}
	}
	if e.MaxAttempts > 0 {
		if err := t.prep("UPDATE jobs SET max_attempts = ? WHERE seq = ?").int(int64(e.MaxAttempts)).int(seq).exec(); err != nil {
			return err
		}
	}
	if e.Task != "" || e.InputSize > 0 {
		if err := t.prep("UPDATE jobs SET max_output_tokens = ? WHERE seq = ?").intOrNull(e.MaxOutputTokens).int(seq).exec(); err != nil {
			return err
		}
	}
	if e.InputSize == 0 {
		return nil
	}
	if err := t.prep("UPDATE jobs SET input = ?, input_blob = ?, input_size = ? WHERE seq = ?").
		blob(e.Input).textOrNull(e.InputBlob).int(e.InputSize).int(seq).exec(); err != nil {
		return err
	}
	return t.prep("UPDATE messages SET size = ? WHERE seq = ?").int(e.InputSize).int(seq).exec()
}

// Purge takes set-aside jobs out of their subqueue for good and reports how many it found there. The job
// records stay, failed.
func (s *JobStore) Purge(ctx context.Context, seqs []int64, audit Audit) (purged int, err error) {
	return transactIn(ctx, jobsKey, s.writer, op{stage: stageChange}, func(t *jobsTx) (int, error) {
		purged := 0
		for _, seq := range seqs {
			rows, err := t.purgeSetAside(seq)
			if err != nil {
				return 0, err
			}
			purged += rows
		}
		return purged, auditIn(t.tx, audit)
	})
}

func (t *jobsTx) purgeSetAside(seq int64) (purged int, err error) {
	t.changed(seq)
	return t.prep("DELETE FROM messages WHERE seq = ? AND lane % 4 >= 2").int(seq).count()
}
