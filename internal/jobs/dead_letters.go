package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// DeadLetter is a job in a dead-letter or quarantine subqueue.
type DeadLetter = record.DeadLetter

// DeadLetterQuery selects dead-lettered or quarantined jobs of one tenant, newest first.
type DeadLetterQuery = record.DeadLetterQuery

// DeadLetters returns the jobs that the query selects.
func (s *Store) DeadLetters(ctx context.Context, q DeadLetterQuery) (found []DeadLetter, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = record.DeadLetters(c, q)
		return err
	})
	return found, err
}

// Redrive is one job to send back as its next generation.
type Redrive struct {
	Seq        int64
	Generation int64 // the one that is set aside; 0: whichever it is
	Delay      time.Duration
	Edit       *RedriveEdit
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

var sqlRedrive = driver.PrefetchForm(`
UPDATE messages SET subqueue = subqueue - subqueue % 4, visible_at = ?1, generation = generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
WHERE seq = ?2 AND (subqueue + 0) % 4 >= 2 AND (?3 = 0 OR generation = ?3) RETURNING subqueue, flow, generation, version, tenant,
  (SELECT j.session_id FROM jobs j WHERE j.seq = messages.seq)`, `
UPDATE messages m SET subqueue = m.subqueue - m.subqueue % 4, visible_at = x.p1, generation = m.generation + 1, attempt = 0, number = 0, announced = 0, deliveries = 0,
  version = m.version + 1, started_at = NULL, reason = NULL, last_error = NULL, waiting = NULL
FROM %s WHERE m.seq = ANY (ARRAY[x.p2]) AND (m.subqueue + 0) % 4 >= 2 AND (x.p3 = 0 OR m.generation = x.p3)
RETURNING x.p1, x.p2, x.p3, m.subqueue, m.flow, m.generation, m.version, m.tenant, (SELECT j.session_id FROM jobs j WHERE j.seq = m.seq)`)

var sqlForgetOutcome = driver.BatchForm("DELETE FROM outcomes WHERE seq = ?", "DELETE FROM outcomes o USING %s WHERE o.seq = ANY (ARRAY[p1])")

// Redrive sends jobs back to the main subqueue of their queue and reports which were still
// dead-lettered or quarantined, in the generation that is named. A job follows exactly one of
// several redrives at once. The audit row is written in the same transaction.
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
	if err := t.Prep(events.SQLKeepFirstStart).Int(j.Seq).Exec(); err != nil {
		return false, err
	}
	if t.Arrays() {
		redrive := driver.NewPrefetch(sqlRedrive, queue.MessageRow(j.Seq)).Int(visible).Int(j.Seq).Int(j.Generation)
		if err := t.Prefetch([]driver.Prefetch{redrive.Changing()}); err != nil {
			return false, err
		}
	}
	var its jobSession
	found, err := t.Prep(sqlRedrive).Int(visible).Int(j.Seq).Int(j.Generation).One(func(r driver.Row) {
		subqueue := queue.Subqueue(r.Int(0))
		t.Due(subqueue, r.Int(1), visible)
		e.generation, e.number, e.tenant, e.queue = int(r.Int(2)), r.Int(3), r.Int(4), subqueue.Queue()
		its = jobSession{r.Int(4), subqueue.Queue(), r.Text(5)}
	})
	if err != nil || !found {
		return false, err
	}
	if err := t.Prep(sqlForgetOutcome).Int(j.Seq).Exec(); err != nil {
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

const sqlRemoveDeadLetter = "DELETE FROM messages WHERE seq = ? AND (subqueue + 0) % 4 >= 2"

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
