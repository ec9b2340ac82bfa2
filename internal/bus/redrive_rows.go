package bus

import (
	"context"
	"maps"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// DeadMessages selects messages of a dead-letter subqueue: those with these numbers or, without
// numbers, those with the reason, or all. It leaves out locked and deferred messages.
type DeadMessages struct {
	Numbers []int64
	Reason  string // "": any
	After   int64  // only higher numbers
	Until   int64  // only numbers up to this one; 0: up to the highest there is
	Limit   int    // of one step
}

// DeadStep is the result of one step over dead messages.
type DeadStep struct {
	Done  int
	After int64 // the next step takes higher numbers
	Until int64 // the last step ends here: later dead letters are left out
	More  bool
}

const (
	deadState = `CASE WHEN m.subqueue = b.subqueue AND (m.lock_token IS NULL OR m.visible_at <= ?2) THEN 1 ELSE 0 END`

	sqlDeadMessages = `SELECT b.seq, ` + deadState + `, b.dead_letter_reason FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.subqueue = ?1 AND b.seq > ?3 AND b.seq <= ?5 ORDER BY b.seq LIMIT ?4 + 0`
	sqlDeadMessage = `SELECT b.seq, ` + deadState + `, b.dead_letter_reason FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.seq = ?3 AND b.subqueue + 0 = ?1`
	sqlLastDead    = `SELECT seq FROM bodies WHERE subqueue = ? ORDER BY seq DESC LIMIT 1 + 0`
)

// Count counts the selected messages, up to the selection's limit. The step's Done is their
// number.
func (s DeadLetterStore) Count(ctx context.Context, q MessageQueue, sel DeadMessages) (step DeadStep, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		var seqs []int64
		seqs, step, err = deadMessages(c, q.Subqueue(true), sel, c.Now())
		step.Done = len(seqs)
		return err
	})
	return step, err
}

// Purge deletes selected messages of the queue's dead-letter subqueue, as many as one step
// takes.
func (s DeadLetterStore) Purge(ctx context.Context, q MessageQueue, sel DeadMessages) (DeadStep, error) {
	return s.each(ctx, "purge", q, sel, nil, func(t *Tx, _ MessageQueue, seq int64) error { return t.DeleteMessage(seq) })
}

// Redrive sends selected messages of the queue's dead-letter subqueue back to the queue, as
// many as one step takes. Each gets a new number, a delivery count of 0 and a new time to live.
// edit, if not nil, changes its content.
func (s DeadLetterStore) Redrive(ctx context.Context, q MessageQueue, sel DeadMessages, edit func(*MessageContent) error) (DeadStep, error) {
	var changed map[string]any
	if edit != nil {
		changed = map[string]any{"edited": true}
	}
	return s.each(ctx, "redrive", q, sel, changed, func(t *Tx, q MessageQueue, seq int64) error {
		a, err := arrivalOf(t.Conn, seq, t.Now)
		if err == nil && edit != nil {
			a.share = nil
			err = edit(a.MessageContent) // before any write: a refused operation is not rolled back
		}
		if err == nil {
			err = t.DeleteMessage(seq)
		}
		if err == nil {
			err = t.arrivals.keepShare(&a)
		}
		if err != nil {
			return err
		}
		a.why, a.source, a.hops = DeadLettering{}, "", 0
		t.copied.Add(1, a.Size()) // ends a transaction of large messages sooner
		number, err := t.Queue.NewSeq()
		if err != nil {
			return err
		}
		return t.arrivals.enter(q, number, a)
	})
}

// each does one step. also is added to the detail of its audit entry.
func (s DeadLetterStore) each(ctx context.Context, verb string, q MessageQueue, sel DeadMessages, also map[string]any, do func(*Tx, MessageQueue, int64) error) (DeadStep, error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: sel.Limit}, func(t *Tx) (step DeadStep, err error) {
		now, found, err := t.MessageQueue(q.No)
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil {
			return step, err
		}
		seqs, step, err := deadMessages(t.Conn, now.Subqueue(true), sel, t.Now)
		if err != nil {
			return step, err
		}
		for _, seq := range seqs {
			if step.Done > 0 && !t.takesMore() {
				step.More = true
				break
			}
			if err := do(t, now, seq); err != nil {
				return step, err
			}
			step.Done++
			if len(sel.Numbers) == 0 {
				step.After = seq
			}
		}
		if step.Done == len(seqs) && len(sel.Numbers) == 0 && !step.More {
			step.After = step.Until
		}
		if step.Done == 0 {
			return step, nil
		}
		detail := map[string]any{"messages": step.Done, "dead_letters": true}
		maps.Copy(detail, also)
		if len(sel.Numbers) > 0 {
			detail["sequence_numbers"] = sel.Numbers
		}
		if sel.Reason != "" {
			detail["reason"] = sel.Reason
		}
		return step, audit.Append(t.Tx, entityAudit(ctx, verb, now, detail))
	})
}

// deadMessages finds the selected messages in the order of their numbers. One step scans at most
// oldestAtOnce messages.
func deadMessages(c driver.Conn, subqueue queue.Subqueue, sel DeadMessages, at int64) (seqs []int64, step DeadStep, err error) {
	step.Until = sel.Until
	take := func(r driver.Row) {
		if r.Int(1) != 0 && (sel.Reason == "" || r.Text(2) == sel.Reason) {
			seqs = append(seqs, r.Int(0))
		}
	}
	if len(sel.Numbers) > 0 {
		for _, seq := range slices.Compact(slices.Sorted(slices.Values(sel.Numbers))) {
			if _, err := c.Prep(sqlDeadMessage).Int(int64(subqueue)).Int(at).Int(seq).One(take); err != nil {
				return nil, step, err
			}
		}
		return seqs, step, nil
	}
	if step.Until == 0 {
		if _, err := c.Prep(sqlLastDead).Int(int64(subqueue)).One(func(r driver.Row) { step.Until = r.Int(0) }); err != nil || step.Until == 0 {
			return nil, step, err
		}
	}
	scanned := 0
	step.After = sel.After
	err = c.Prep(sqlDeadMessages).Int(int64(subqueue)).Int(at).Int(sel.After).Int(oldestAtOnce).Int(step.Until).Each(func(r driver.Row) error {
		if len(seqs) == sel.Limit {
			step.More = true
			return driver.ErrStop
		}
		scanned++
		step.After = r.Int(0)
		take(r)
		return nil
	})
	step.More = step.More || scanned == oldestAtOnce
	return seqs, step, driver.UnlessStopped(err)
}
