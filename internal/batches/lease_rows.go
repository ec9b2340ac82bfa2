package batches

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/files"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

// leaseFor is how long a process has a batch without renewing that.
const leaseFor = 10 * time.Second

// errLeaseLost says that another process works on the batch, or that its state has changed.
// Nothing was changed.
var errLeaseLost = forebay.Errorf(forebay.CodeLockLost, "the lease on this batch is lost")

const (
	sqlDue     = "SELECT no, tenant, leased_until FROM batches WHERE due_at <= ? ORDER BY due_at LIMIT 10000"
	sqlNextDue = "SELECT due_at FROM batches WHERE due_at > ? ORDER BY due_at LIMIT 1"
	sqlLease   = `
UPDATE batches SET lease = lease + 1, leased_until = ?1, due_at = ?1 WHERE no = ?2 AND coalesce(due_at, ?3 + 1) <= ?3 AND leased_until <= ?3`
	sqlRenew   = "UPDATE batches SET leased_until = ? WHERE no = ? AND lease = ?"
	sqlRelease = `
UPDATE batches SET leased_until = 0, due_at = CASE WHEN due_at IS NULL OR due_at < ?1 THEN due_at ELSE ?1 END WHERE no = ?2 AND lease = ?3`
)

// DueBatch is a batch that has something to do.
type DueBatch struct{ No, Tenant int64 }

// inTurns orders batches so that each tenant's first come before any tenant's second.
func inTurns(due []DueBatch) {
	turns, of := map[DueBatch]int{}, map[int64]int{}
	for _, d := range due {
		turns[d] = of[d.Tenant]
		of[d.Tenant]++
	}
	slices.SortStableFunc(due, func(a, b DueBatch) int { return cmp.Compare(turns[a], turns[b]) })
}

// Due returns the batches that nobody works on and that have something to do, and after what time
// another one will have, or may have lost its process. Tenants take turns, so that many batches of
// one do not put off another's.
func (s *Store) Due(ctx context.Context) (list []DueBatch, next time.Duration, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		list, next = nil, lookEvery
		now := c.Now()
		err := c.Prep(sqlDue).Int(now).Each(func(r driver.Row) error {
			if left := r.Int(2) - now; left > 0 {
				next = min(next, driver.FromMillisDuration(left))
				return nil
			}
			list = append(list, DueBatch{r.Int(0), r.Int(1)})
			return nil
		})
		if err != nil {
			return err
		}
		inTurns(list)
		_, err = c.Prep(sqlNextDue).Int(now).One(func(r driver.Row) { next = min(next, driver.FromMillisDuration(r.Int(0)-now)) })
		return err
	})
	return list, next, err
}

// Lease takes a batch that is due. ok is false if another process was faster.
func (s *Store) Lease(ctx context.Context, no int64) (b Batch, ok bool, err error) {
	b, err = db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (b Batch, err error) {
		n, err := t.Prep(sqlLease).Int(t.Now + leaseFor.Milliseconds()).Int(no).Int(t.Now).Count()
		if err != nil || n == 0 {
			return b, err
		}
		_, err = t.Prep(sqlBatchNo).Int(no).One(func(r driver.Row) { b = readBatch(r) })
		return b, err
	})
	return b, b.No != 0, err
}

// Renew prolongs a lease, or returns errLeaseLost.
func (s *Store) Renew(ctx context.Context, b *Batch) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		n, err := t.Prep(sqlRenew).Int(t.Now + leaseFor.Milliseconds()).Int(b.No).Int(b.Lease).Count()
		if err == nil && n == 0 {
			err = errLeaseLost
		}
		return struct{}{}, err
	})
	return err
}

// Release gives a batch back that is due again after a time, or earlier if that was said
// meanwhile.
func (s *Store) Release(ctx context.Context, b *Batch, after time.Duration) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
		t.due = true // perhaps
		return struct{}{}, t.Prep(sqlRelease).Int(t.Now + after.Milliseconds()).Int(b.No).Int(b.Lease).Exec()
	})
	return err
}

// held reads a batch anew. It returns errLeaseLost if the caller's lease is over or the batch is
// in another state than the caller believes.
func (t *tx) held(b *Batch) (now Batch, err error) {
	found, err := t.Prep(sqlBatchNo).Int(b.No).One(func(r driver.Row) { now = readBatch(r) })
	if err == nil && (!found || now.Lease != b.Lease || now.State != b.State) {
		err = errLeaseLost
	}
	return now, err
}

// working is an operation on a batch that the caller has leased.
func working(b *Batch, rows int) db.Op {
	return db.Op{Stage: db.StageChange, Party: b.Tenant, Rows: rows, Asks: func() []driver.Prefetch {
		return []driver.Prefetch{driver.NewPrefetch(sqlBatchNo, batchRow(b.No)).Int(b.No)}
	}}
}

// Begin ends the validation of a batch: its lines may run.
func (s *Store) Begin(ctx context.Context, b *Batch, model string, total int64) error {
	return s.work(ctx, b, working(b, 1), func(t *tx, now Batch) error {
		t.tell(now.Tenant, now.ID, InProgress)
		return t.Prep("UPDATE batches SET state = 'in_progress', in_progress_at = ?, model = ?, total = ? WHERE no = ?").
			Int(t.Now).Text(model).Int(total).Int(b.No).Exec()
	})
}

// tell tells whoever listens that a batch has another state. Its end is told as it is published.
func (t *tx) tell(tenant int64, id string, state State) {
	feed.Tell(t.Tx, forebay.FeedBatch, tenant, id, state)
}

// work runs f in a transaction if the caller still has the batch in the state that it believes.
func (s *Store) work(ctx context.Context, b *Batch, o db.Op, f func(*tx, Batch) error) error {
	_, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (struct{}, error) {
		now, err := t.held(b)
		if err == nil {
			err = f(t, now)
		}
		return struct{}{}, err
	})
	return err
}

// Fail ends a batch whose input is not valid.
func (s *Store) Fail(ctx context.Context, b *Batch, errors []byte) error {
	return s.work(ctx, b, working(b, 2), func(t *tx, now Batch) error {
		now.State, now.Errors = Failed, errors
		if err := t.Prep("UPDATE batches SET errors = ? WHERE no = ?").Blob(errors).Int(b.No).Exec(); err != nil {
			return err
		}
		return t.end(now)
	})
}

// Finalize stops new lines. The batch ends as said once the output is written.
func (s *Store) Finalize(ctx context.Context, b *Batch, as State) error {
	return s.work(ctx, b, working(b, 1), func(t *tx, now Batch) error {
		t.tell(now.Tenant, now.ID, Finalizing)
		return t.Prep("UPDATE batches SET state = 'finalizing', finalizing_at = ?, ends_as = ? WHERE no = ?").Int(t.Now).Text(string(as)).Int(b.No).Exec()
	})
}

// Output is what a batch has written. A file without an id is none.
type Output struct {
	Answers, Errors files.File
	Usage           []byte // JSON
	Lost            int64  // answers that storage has lost: their lines have failed
}

// End makes the files of a batch and ends it.
func (s *Store) End(ctx context.Context, b *Batch, out Output) error {
	return s.work(ctx, b, working(b, 4), func(t *tx, now Batch) error {
		for _, f := range []*files.File{&out.Answers, &out.Errors} {
			if f.ID == "" {
				continue
			}
			f.Stamp(t.Tx, b.OutputTTL)
			if err := f.Insert(t.Tx, files.Origin{}); err != nil {
				return err
			}
		}
		now.State, now.OutputFile, now.ErrorFile, now.Usage = now.EndsAs, out.Answers.ID, out.Errors.ID, out.Usage
		now.Completed, now.Failed = now.Completed-out.Lost, now.Failed+out.Lost
		if now.State == Completed { // also a line whose job somebody has cancelled
			now.Failed = now.Total - now.Completed
		}
		err := t.Prep("UPDATE batches SET output_file = ?, error_file = ?, usage = ?, completed = ?, failed = ? WHERE no = ?").
			TextOrNull(now.OutputFile).TextOrNull(now.ErrorFile).Blob(now.Usage).Int(now.Completed).Int(now.Failed).Int(b.No).Exec()
		if err != nil {
			return err
		}
		return t.end(now)
	})
}

// end ends a batch in the state that it says.
func (t *tx) end(b Batch) error {
	err := t.Prep("UPDATE batches SET state = ?, ended_at = ?, due_at = ? WHERE no = ?").Text(string(b.State)).Int(t.Now).Int(t.Now).Int(b.No).Exec()
	if err == nil {
		err = files.Unuse(t.Tx, b.InputFile)
	}
	if err == nil && t.store.ended != nil {
		at := driver.FromMillis(t.Now)
		b.EndedAt = &at
		err = t.store.ended(t.Tx, b)
	}
	return err
}

// Line is a line of a batch that becomes a job.
type Line struct {
	Number   int64 // of the file, from 1
	CustomID string
	End      int64 // bytes of the file up to its end
	Job      jobs.NewJob
}

var sqlInsertLine = "INSERT INTO batch_lines (batch, line, custom_id, seq) VALUES (?, ?, ?, ?)"

// Feed makes jobs of the lines that follow those which became jobs before.
func (s *Store) Feed(ctx context.Context, b *Batch, lines []Line) error {
	o := working(b, 2*len(lines)+1)
	o.Stage, o.Numbers, o.Local, o.Interleaves = db.StageSubmit, len(lines), true, true
	for i := range lines {
		o.Size += len(lines[i].Job.Input) + len(lines[i].CustomID)
	}
	err := s.work(ctx, b, o, func(t *tx, now Batch) error {
		if now.Fed != b.Fed {
			return errLeaseLost
		}
		list := jobs.Key.Of(t.Tx)
		for i := range lines {
			made, err := list.Submit(&lines[i].Job)
			if err == nil {
				err = made.Err // of the first: they have the same deadline and nothing else is refused
			}
			if err == nil {
				err = t.Prep(sqlInsertLine).Int(b.No).Int(lines[i].Number).Text(lines[i].CustomID).Int(made.Seq).Exec()
			}
			if err != nil {
				return err
			}
		}
		return t.Prep("UPDATE batches SET fed = fed + ?, fed_bytes = ? WHERE no = ?").Int(int64(len(lines))).Int(lines[len(lines)-1].End).Int(b.No).Exec()
	})
	if err == nil {
		b.Fed, b.FedBytes = b.Fed+int64(len(lines)), lines[len(lines)-1].End
	}
	return err
}

const (
	// Lines whose jobs wait, and those whose jobs run as well.
	sqlWaitingLines = `
SELECT l.line, l.seq FROM batch_lines l JOIN messages m ON m.seq = l.seq
WHERE l.batch = ? AND l.line > ? AND l.outcome = 0 AND (m.lock_token IS NULL OR ? > 0) ORDER BY l.line LIMIT ? + 0`
	// linesAtOnce is how many jobs one transaction cancels or raises.
	linesAtOnce = 50
)

// waiting returns some lines after one whose jobs wait, or run too, by their jobs.
func (s *Store) waiting(ctx context.Context, b *Batch, after int64, running bool) (seqs []int64, last int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		seqs, last = nil, after
		return c.Prep(sqlWaitingLines).Int(b.No).Int(after).Int(driver.BoolInt(running)).Int(linesAtOnce).Each(func(r driver.Row) error {
			last, seqs = r.Int(0), append(seqs, r.Int(1))
			return nil
		})
	})
	return seqs, last, err
}

// touching is an operation on jobs of a batch.
func touching(b *Batch, seqs []int64) db.Op {
	o := working(b, len(seqs))
	for _, seq := range seqs {
		o.Touches = append(o.Touches, queue.MessageRow(seq))
	}
	return o
}

// CancelLines cancels the jobs of lines that wait, and of those that run if running says so. It
// returns the tokens of locks that it voided.
func (s *Store) CancelLines(ctx context.Context, b *Batch, running bool) (voided []int64, err error) {
	for after := int64(0); ; {
		var seqs []int64
		if seqs, after, err = s.waiting(ctx, b, after, running); err != nil || len(seqs) == 0 {
			return voided, err
		}
		var tokens []int64 // the transaction may still write it when the caller has given up
		err = s.work(ctx, b, touching(b, seqs), func(t *tx, _ Batch) error {
			cancelled, err := jobs.Key.Of(t.Tx).CancelAll(seqs)
			tokens = nil // of an earlier try
			for _, c := range cancelled {
				if c.Token != 0 {
					tokens = append(tokens, c.Token)
				}
			}
			return err
		})
		if err != nil {
			return voided, err
		}
		voided = append(voided, tokens...)
	}
}

// Raise gives the lines that wait, and those to come, that priority.
func (s *Store) Raise(ctx context.Context, b *Batch, priority int) error {
	for after := int64(0); ; {
		seqs, last, err := s.waiting(ctx, b, after, false)
		if err != nil {
			return err
		}
		err = s.work(ctx, b, touching(b, seqs), func(t *tx, _ Batch) error {
			if len(seqs) == 0 { // only now, so that a process that dies before does it again
				return t.Prep("UPDATE batches SET priority = ? WHERE no = ?").Int(int64(priority)).Int(b.No).Exec()
			}
			return t.raise(seqs, priority)
		})
		if err != nil {
			return err
		}
		if after = last; len(seqs) == 0 {
			b.Priority = priority
			return nil
		}
	}
}

const (
	sqlForgetLines = "DELETE FROM batch_lines WHERE batch = ?1 AND line > ?2 AND line <= ?3"
	sqlForget      = "DELETE FROM batches WHERE no = ?"
	sqlKeep        = "UPDATE batches SET due_at = ? WHERE no = ?"
)

// forgetAtOnce is how many lines one transaction forgets.
const forgetAtOnce = 500

// Forget removes the lines of a batch that is over, and the batch itself once it was kept for so
// long. It returns after what time that is. 0: it is kept for ever, and never due again.
func (s *Store) Forget(ctx context.Context, b *Batch, keep time.Duration) (next time.Duration, err error) {
	for more := true; more; {
		first := int64(-1)
		err := s.Read(ctx, func(c driver.Conn) error {
			_, err := c.Prep(sqlFirstLine).Int(b.No).One(func(r driver.Row) { first = r.Int(0) })
			return err
		})
		if err != nil {
			return 0, err
		}
		more = first >= 0
		var due time.Duration // the transaction may still write it when the caller has given up
		err = s.work(ctx, b, working(b, forgetAtOnce), func(t *tx, now Batch) error {
			if more {
				return t.Prep(sqlForgetLines).Int(b.No).Int(first - 1).Int(first - 1 + forgetAtOnce).Exec()
			}
			until := int64(0)
			if keep > 0 && now.EndedAt != nil {
				until = now.EndedAt.Add(keep).UnixMilli()
				if until <= t.Now {
					return t.Prep(sqlForget).Int(b.No).Exec()
				}
				due = driver.FromMillisDuration(until - t.Now)
			}
			return t.Prep(sqlKeep).IntOrNull(until).Int(b.No).Exec()
		})
		if err != nil {
			return 0, err
		}
		next = due
	}
	return next, nil
}

const (
	sqlFirstLine = "SELECT line FROM batch_lines WHERE batch = ? ORDER BY line LIMIT 1"
	sqlLastLine  = "SELECT line FROM batch_lines WHERE batch = ? ORDER BY line DESC LIMIT 1"
)

// lastLine is the number of the latest line that became a job.
func (s *Store) lastLine(ctx context.Context, b *Batch) (line int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sqlLastLine).Int(b.No).One(func(r driver.Row) { line = r.Int(0) })
		return err
	})
	return line, err
}
