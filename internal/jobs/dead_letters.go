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

// RedriveEdit replaces parts of the job.
type RedriveEdit = record.Edit

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
	if err := t.Prep(events.SQLKeepFirstStart).Int(j.Seq).Exec(); err != nil {
		return false, err
	}
	redrive := driver.NewPrefetch(record.SQLRedrive, queue.MessageRow(j.Seq)).Int(visible).Int(j.Seq).Int(j.Generation)
	if t.Arrays() {
		if err := t.Prefetch([]driver.Prefetch{redrive.Changing()}); err != nil {
			return false, err
		}
	}
	m := record.Message{Seq: j.Seq}
	found, err := t.Ask(redrive).One(func(r driver.Row) {
		m.Subqueue, m.Flow, m.Generation, m.Version, m.Tenant, m.SessionID = queue.Subqueue(r.Int(0)), r.Int(1), int(r.Int(2)), r.Int(3), r.Int(4), r.Text(5)
	})
	if err != nil || !found {
		return false, err
	}
	return true, t.redriven(m, j)
}

// SendBack redrives a job at once whose message was read, is set aside and has not changed since.
func (t *Tx) SendBack(m record.Message) error {
	err := t.Prep(events.SQLKeepFirstStart).Int(m.Seq).Exec()
	if err == nil {
		err = t.Prep(record.SQLSendBack).Int(t.Now).Int(m.Seq).Exec()
	}
	if err != nil {
		return err
	}
	m.Subqueue, m.Generation, m.Version = queue.SubqueueOf(m.Subqueue.Queue(), queue.SubqueueMain), m.Generation+1, m.Version+1
	return t.redriven(m, Redrive{Seq: m.Seq})
}

// redriven follows a redrive that has left the message like that.
func (t *Tx) redriven(m record.Message, j Redrive) error {
	visible := t.Now + j.Delay.Milliseconds()
	t.Due(m.Subqueue, m.Flow, visible)
	if err := t.Prep(sqlForgetOutcome).Int(m.Seq).Exec(); err != nil {
		return err
	}
	if err := j.Edit.Apply(t.Conn, m.Seq); err != nil {
		return err
	}
	if m.SessionID != "" {
		t.rejoining = append(t.rejoining, rejoining{m.Seq, jobSession{m.Tenant, m.Subqueue.Queue(), m.SessionID}, visible})
	}
	for _, f := range t.w.store.redriven {
		if err := f(t.Tx, m.Seq); err != nil {
			return err
		}
	}
	e := event{seq: m.Seq, kind: forebay.EventRedriven, status: forebay.StatusQueued, generation: m.Generation, number: m.Version, tenant: m.Tenant, queue: m.Subqueue.Queue()}
	if j.Delay > 0 {
		e.status = forebay.StatusScheduled
	}
	return t.event(e)
}

// Purge is one job to remove for good.
type Purge struct {
	Seq        int64
	Generation int64 // the one that is set aside; 0: whichever it is
}

const sqlRemoveDeadLetter = "DELETE FROM messages WHERE seq = ?1 AND (subqueue + 0) % 4 >= 2 AND (?2 = 0 OR generation = ?2)"

// PurgeDeadLetters removes jobs from their dead-letter or quarantine subqueue for good and
// returns how many were there, in the generation that is named. The job records stay, failed.
func (s *Store) PurgeDeadLetters(ctx context.Context, jobs []Purge, entry audit.Act) (purged int, err error) {
	seqs := make([]int64, len(jobs))
	for i := range jobs {
		seqs[i] = jobs[i].Seq
	}
	return db.TransactIn(ctx, Key, s.Writer, changingDeadLetters(seqs), func(t *Tx) (int, error) {
		purged := 0
		err := t.Interleave(len(seqs), func(i int) error {
			t.Changed(seqs[i])
			rows, err := t.Prep(sqlRemoveDeadLetter).Int(seqs[i]).Int(jobs[i].Generation).Count()
			purged += rows
			return err
		})
		if err != nil {
			return 0, err
		}
		return purged, audit.Append(t.Tx, entry)
	})
}
