package bus

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
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

	sqlDeadMessages = `SELECT b.seq, ` + deadState + `, b.dead_letter_reason, m.size FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.subqueue = ?1 AND b.seq > ?3 AND b.seq <= ?5 ORDER BY b.seq LIMIT ?4 + 0`
	sqlDeadMessage = `SELECT b.seq, ` + deadState + `, b.dead_letter_reason, m.size FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.seq = ?3 AND b.subqueue + 0 = ?1`
	sqlLastDead    = `SELECT seq FROM bodies WHERE subqueue = ? ORDER BY seq DESC LIMIT 1 + 0`
)

// Count counts the selected messages, up to the selection's limit. The step's Done is their
// number.
func (s DeadLetterStore) Count(ctx context.Context, q MessageQueue, sel DeadMessages) (step DeadStep, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		var dead []sized
		dead, step, err = deadMessages(c, q.Subqueue(true), sel, c.Now())
		step.Done = len(dead)
		return err
	})
	return step, err
}

// Purge deletes selected messages of the queue's dead-letter subqueue, as many as one step
// takes.
func (s DeadLetterStore) Purge(ctx context.Context, q MessageQueue, sel DeadMessages) (DeadStep, error) {
	return s.each(ctx, "purge", q, sel, nil, deadChange{do: func(t *Tx, _ MessageQueue, seq int64) error { return t.DeleteMessage(seq) }})
}

// Redrive sends selected messages of the queue's dead-letter subqueue back to the queue, as
// many as one step takes. Each gets a new number, a delivery count of 0 and a new time to live.
// edit, if not nil, changes its content.
func (s DeadLetterStore) Redrive(ctx context.Context, q MessageQueue, sel DeadMessages, edit func(*MessageContent) error) (DeadStep, error) {
	var changed map[string]any
	if edit != nil {
		changed = map[string]any{"edited": true}
	}
	foresee := func(t *Tx, q MessageQueue, dead []sized) error { return t.forwarding.foreseeAll(q, dead) }
	return s.each(ctx, "redrive", q, sel, changed, deadChange{foresee, func(t *Tx, q MessageQueue, seq int64) error {
		a, err := t.forwarding.arrival(seq)
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
	}})
}

// deadChange is what is done to each selected message.
type deadChange struct {
	foresee func(*Tx, MessageQueue, []sized) error // reads ahead what do needs; nil: nothing
	do      func(*Tx, MessageQueue, int64) error
}

// each does one step. also is added to the detail of its audit entry.
func (s DeadLetterStore) each(ctx context.Context, verb string, q MessageQueue, sel DeadMessages, also map[string]any, change deadChange) (DeadStep, error) {
	o := db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: sel.Limit, Local: true, Interleaves: true}
	if s.Writer.Shared() { // elsewhere it can wait for the next transaction
		o.Hints = audit.Appends{}
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{entity.Prefetch(q.No)} }
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (step DeadStep, err error) {
		now, found, err := t.MessageQueue(q.No)
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil {
			return step, err
		}
		dead, step, err := deadMessages(t.Conn, now.Subqueue(true), sel, t.Now)
		if err == nil && change.foresee != nil {
			err = change.foresee(t, now, dead)
		}
		if err != nil {
			return step, err
		}
		err = t.Alone(func() error { // for what a transaction makes is counted
			return change.apply(t, now, dead, sel, &step)
		})
		if err != nil || step.Done == 0 {
			return step, err
		}
		detail := map[string]any{"messages": step.Done, "dead_letters": true}
		maps.Copy(detail, also)
		if len(sel.Numbers) > 0 {
			detail["sequence_numbers"] = sel.Numbers
		}
		if sel.Reason != "" {
			detail["reason"] = sel.Reason
		}
		return step, audit.Append(t.Tx, now.Act(ctx, verb, detail))
	})
}

// apply changes the messages, as many as the transaction takes.
func (change deadChange) apply(t *Tx, q MessageQueue, dead []sized, sel DeadMessages, step *DeadStep) error {
	for _, m := range dead {
		// Where operations wait for answers together, others may have filled the transaction.
		if (step.Done > 0 || t.W.Shared()) && !t.takesMore() {
			if step.More = true; step.Done == 0 {
				step.After = sel.After
			}
			return nil
		}
		if !t.forwarding.takes(m.seq) {
			continue
		}
		if err := change.do(t, q, m.seq); err != nil {
			delete(t.forwarding.taken, m.seq) // it may be refused, and the transaction goes on
			return err
		}
		step.Done++
		if len(sel.Numbers) == 0 {
			step.After = m.seq
		}
	}
	if len(sel.Numbers) == 0 && !step.More {
		step.After = step.Until
	}
	return nil
}

// deadMessages finds the selected messages in the order of their numbers. One step scans at most
// oldestAtOnce messages.
func deadMessages(c driver.Conn, subqueue queue.Subqueue, sel DeadMessages, at int64) (dead []sized, step DeadStep, err error) {
	step.Until = sel.Until
	take := func(r driver.Row) {
		if r.Int(1) != 0 && (sel.Reason == "" || r.Text(2) == sel.Reason) {
			dead = append(dead, sized{r.Int(0), r.Int(3)})
		}
	}
	if len(sel.Numbers) > 0 {
		numbers := slices.Compact(slices.Sorted(slices.Values(sel.Numbers)))
		asks := make([]driver.Prefetch, len(numbers))
		for i, seq := range numbers {
			asks[i] = driver.NewPrefetch(sqlDeadMessage, queue.MessageRow(seq)).Int(int64(subqueue)).Int(at).Int(seq)
		}
		if err := c.Prefetch(asks); err != nil {
			return nil, step, err
		}
		for _, seq := range numbers {
			if _, err := c.Prep(sqlDeadMessage).Int(int64(subqueue)).Int(at).Int(seq).One(take); err != nil {
				return nil, step, err
			}
		}
		return dead, step, nil
	}
	scanned := 0
	row := func(r driver.Row) error {
		if len(dead) == sel.Limit {
			step.More = true
			return driver.ErrStop
		}
		scanned++
		step.After = r.Int(0)
		take(r)
		return nil
	}
	find := func(st driver.Statement, until int64) driver.Statement {
		return st.Int(int64(subqueue)).Int(at).Int(sel.After).Int(oldestAtOnce).Int(until)
	}
	last := driver.PipelineQuery{SQL: sqlLastDead, Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(subqueue)) },
		OnRow: func(r driver.Row) { step.Until = r.Int(0) }}
	step.After = sel.After
	switch {
	case step.Until == 0 && c.Arrays(): // both in one round trip
		err = c.RunPipeline([]driver.PipelineQuery{last, {SQL: sqlDeadMessages, Bind: func(st driver.Statement) driver.Statement { return find(st, math.MaxInt64) },
			OnRow: func(r driver.Row) {
				if !step.More {
					_ = row(r)
				}
			}}})
	case step.Until == 0:
		err = last.Run(c)
	}
	if err != nil || step.Until == 0 {
		step.After = 0
		return nil, step, err
	}
	if sel.Until != 0 || !c.Arrays() {
		err = find(c.Prep(sqlDeadMessages), step.Until).Each(row)
	}
	step.More = step.More || scanned == oldestAtOnce
	return dead, step, driver.UnlessStopped(err)
}
