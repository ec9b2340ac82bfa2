package bus

import (
	"context"
	"maps"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Count counts the selected messages, up to the selection's limit. The step's Done is their
// number.
func (s DeadLetterStore) Count(ctx context.Context, q MessageQueue, sel dead.Selection) (step dead.Step, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		var found []dead.Letter
		found, step, err = dead.Find(c, q.Subqueue(true), sel, c.Now())
		step.Done = len(found)
		return err
	})
	return step, err
}

// Groups counts the queue's dead letters by reason.
func (s DeadLetterStore) Groups(ctx context.Context, q MessageQueue) (groups forebay.DeadMessageGroups, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		groups, err = dead.Count(c, q.Subqueue(true))
		return err
	})
	return groups, err
}

// GroupsOf counts the dead letters of several queues by queue and reason.
func (s DeadLetterStore) GroupsOf(ctx context.Context, queues []MessageQueue) (groups forebay.DeadMessageGroups, err error) {
	list := make([]dead.Of, len(queues))
	for i, q := range queues {
		list[i] = dead.Of{Name: entity.NameOf(q.Name), Subqueue: q.Subqueue(true)}
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		groups, err = dead.CountAll(c, list)
		return err
	})
	return groups, err
}

// Purge deletes selected messages of the queue's dead-letter subqueue, as many as one step
// takes.
func (s DeadLetterStore) Purge(ctx context.Context, q MessageQueue, sel dead.Selection) (dead.Step, error) {
	return s.each(ctx, "purge", q, sel, nil, deadChange{do: func(t *Tx, _ MessageQueue, seq int64, _ int) error { return t.DeleteMessage(seq) }})
}

// Redrive sends selected messages of the queue's dead-letter subqueue back to the queue, as
// many as one step takes. Each gets a new number, a delivery count of 0 and a new time to live.
// edit, if not nil, changes its content. With a pace they become active one after the other: until
// then they are scheduled messages of the queue.
func (s DeadLetterStore) Redrive(ctx context.Context, q MessageQueue, sel dead.Selection, pace dead.Pace, edit func(*MessageContent) error) (dead.Step, error) {
	changed := map[string]any{}
	if edit != nil {
		changed["edited"] = true
	}
	if pace.Every > 0 {
		changed["every"] = pace.Every.String()
	}
	foresee := func(t *Tx, q MessageQueue, list []sized) error { return t.forwarding.foreseeAll(q, list) }
	return s.each(ctx, "redrive", q, sel, changed, deadChange{foresee, pace, func(t *Tx, q MessageQueue, seq int64, before int) error {
		a, err := t.forwarding.arrival(seq)
		if err == nil && edit != nil {
			a.share = nil
			if err = edit(a.MessageContent); err == nil && q.MaxMessage > 0 { // before any write: a refused operation is not rolled back
				err = a.CheckSize("edit", q.MaxMessage)
			}
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
		if at := pace.At(t.Now, before); at > t.Now {
			due := driver.FromMillis(at)
			a.ScheduledAt = &due
			return t.arrivals.schedule(q, number, a)
		}
		return t.arrivals.enter(q, number, a)
	}})
}

// deadChange is what is done to each selected message.
type deadChange struct {
	foresee func(*Tx, MessageQueue, []sized) error // reads ahead what do needs; nil: nothing
	pace    dead.Pace
	do      func(t *Tx, q MessageQueue, seq int64, before int) error // before: how many the step has changed
}

// each does one step. also is added to the detail of its audit entry.
func (s DeadLetterStore) each(ctx context.Context, verb string, q MessageQueue, sel dead.Selection, also map[string]any, change deadChange) (dead.Step, error) {
	o := db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: sel.Limit, Local: true, Interleaves: true}
	if s.Writer.Shared() { // elsewhere it can wait for the next transaction
		o.Hints = audit.Appends{}
		o.Asks = func() []driver.Prefetch { return []driver.Prefetch{entity.Prefetch(q.No)} }
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (step dead.Step, err error) {
		now, found, err := t.MessageQueue(q.No)
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil {
			return step, err
		}
		letters, step, err := dead.Find(t.Conn, now.Subqueue(true), sel, t.Now)
		list := make([]sized, len(letters))
		for i, l := range letters {
			list[i] = sized{l.Seq, l.Size}
		}
		if err == nil && change.foresee != nil {
			err = change.foresee(t, now, list)
		}
		if err != nil {
			return step, err
		}
		err = t.Alone(func() error { // for what a transaction makes is counted
			return change.apply(t, now, list, sel, &step)
		})
		step.Next = driver.FromMillis(change.pace.At(t.Now, step.Done))
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
func (change deadChange) apply(t *Tx, q MessageQueue, list []sized, sel dead.Selection, step *dead.Step) error {
	for _, m := range list {
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
		if err := change.do(t, q, m.seq, step.Done); err != nil {
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
