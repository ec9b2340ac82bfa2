package orchestrate

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// OrchestrationHistory returns the events of an instance, a payload for each work item, in order.
func (s *Store) OrchestrationHistory(ctx context.Context, no int64) (orchestrations []Payload, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		orchestrations = nil
		return c.Prep("SELECT events, coalesce(events_blob, '') FROM orchestration_history WHERE instance = ? ORDER BY item").Int(no).
			Each(func(r driver.Row) error { orchestrations = append(orchestrations, payloadAt(r, 0, 1)); return nil })
	})
	return orchestrations, err
}

// outdated returns the numbers of the events that came while an instance failed and that have
// lost their meaning: all that its code does not await. A large one is one that it awaits.
func (s *Store) outdated(ctx context.Context, no int64) (events []int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		events = nil
		return c.Prep("SELECT no, event FROM orchestration_inbox WHERE instance = ? AND event_blob IS NULL").Int(no).Each(func(r driver.Row) error {
			if e, err := history.Decode(r.Blob(1)); err != nil || e.GetEventRaised() == nil {
				events = append(events, r.Int(0))
			}
			return nil
		})
	})
	return events, err
}

// sizeOf returns the bytes of rows of an instance, by the statement that adds them up.
func (s *Store) sizeOf(ctx context.Context, sql string, no int64) (bytes int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		_, err := c.Prep(sql).Int(no).One(func(r driver.Row) { bytes = r.Int(0) })
		return err
	})
	return bytes, err
}

// OrchestrationStart returns the events of an instance's first work item, or the inbox event
// that waits for it.
func (s *Store) OrchestrationStart(ctx context.Context, no int64) (item, waiting *Payload, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		item, waiting = nil, nil
		return c.Prep(statements.Start).Int(no).Each(func(r driver.Row) error {
			p := payloadAt(r, 1, 2)
			if r.Int(0) != 0 {
				item = &p
			} else {
				waiting = &p
			}
			return nil
		})
	})
	return item, waiting, err
}

// ActivityAttempts returns the attempts of an instance's activities: all of its current
// execution, and the newest of earlier ones.
func (s *Store) ActivityAttempts(ctx context.Context, no int64) (attempts []forebay.ActivityAttempt, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		attempts = nil
		return c.Prep(statements.Attempts).Int(no).Each(func(r driver.Row) error {
			a := forebay.ActivityAttempt{EventID: int(r.Int(0)), Number: int(r.Int(1)), StartedAt: driver.FromMillis(r.Int(2)), FinishedAt: driver.FromMillis(r.Int(3)),
				Outcome: r.Text(4), ErrorType: r.Text(5), ErrorMessage: string(r.Blob(6)), Run: int(r.Int(8)), Name: r.Text(9)}
			if !r.IsNull(7) {
				seconds := (time.Duration(r.Int(7)) * time.Millisecond).Seconds()
				a.RetryDelaySeconds = &seconds
			}
			attempts = append(attempts, a)
			return nil
		})
	})
	return attempts, err
}

// Forced is an instance that is deleted by force, and what its caller is told.
type Forced struct {
	No    int64 // 0: it is over
	Tells OrchestrationMessage
}

// PurgeOrchestration deletes an instance with its history. An open instance is deleted only by
// force. It returns the jobs that it awaited, or ErrChanged if force is not about it as it is now.
func (s *Store) PurgeOrchestration(ctx context.Context, tenant int64, id string, force *Forced, entry audit.Act) (orphans []string, err error) {
	o := purging(tenant, id)
	if force != nil { // a work item may be about to be completed, and the caller is changed
		o.Interleaves, o.Local, o.Numbers = false, false, 1
	}
	return db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (orphans []string, err error) {
		if t.dropCreated(tenant, id); force != nil {
			t.DropAllPrefetched() // either may have ended in this transaction
		}
		o, err := t.existing(tenant, id)
		switch {
		case err != nil || o.over:
		case force == nil:
			err = forebay.Errorf(forebay.CodeConflict, "the instance %s is not over", id)
		case force.No != o.no:
			err = ErrChanged
		default:
			orphans, err = t.jobsOf(o.no)
			err = errors.Join(err, force.tell(t, tenant))
		}
		if err != nil {
			return nil, err
		}
		t.Changed(o.no)
		if err := t.purge(o.no, id, !o.over); err != nil {
			return nil, err
		}
		return orphans, audit.Append(t.Tx, entry)
	})
}

// tell tells the caller, if it still awaits the instance.
func (f *Forced) tell(t *tx, tenant int64) error {
	o, err := t.orchestrationOf(tenant, f.Tells.To)
	if err != nil || o.no == 0 || o.over || o.ending || o.execution != f.Tells.Execution {
		return err
	}
	return t.signal(tenant, o, true, f.Tells.Event, NoEffect)
}

// purging describes to the writer that instances are deleted.
func purging(tenant int64, ids ...string) db.Op {
	return db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Hints: audit.Appends{}, Asks: func() (asks []driver.Prefetch) {
		for _, id := range ids {
			asks = append(asks, prefetchOrchestration(tenant, id))
		}
		return asks
	}}
}

// dropCreated drops what was prefetched of an instance if the transaction has created one with its
// id.
func (t *tx) dropCreated(tenant int64, id string) {
	if t.createdInstances[instanceKey{tenant, id}] > 0 {
		t.DropPrefetched(orchestrationRow(tenant, id))
	}
}

// PurgeEnded deletes those of the instances that have ended, in one transaction, and returns
// their number.
func (s *Store) PurgeEnded(ctx context.Context, tenant int64, ids []string, entry audit.Act) (purged int, err error) {
	return db.TransactIn(ctx, key, s.Writer, purging(tenant, ids...), func(t *tx) (purged int, err error) {
		err = t.Interleave(len(ids), func(i int) error {
			t.dropCreated(tenant, ids[i])
			o, err := t.orchestrationOf(tenant, ids[i])
			if err != nil || !o.over { // restarted since
				return err
			}
			purged++
			t.Changed(o.no)
			return t.purge(o.no, ids[i], false)
		})
		if err != nil || purged == 0 {
			return 0, err
		}
		return purged, audit.Append(t.Tx, entry)
	})
}

// purge deletes an instance. Of one that has ended, what was still to happen has gone already, but
// for the events of one that has failed.
func (t *tx) purge(no int64, id string, open bool) error {
	t.changed(no)
	free, tables := statements.FreeEnded, []string{"orchestration_history", "orchestration_attempts", "orchestration_inbox"}
	if open {
		free, tables = statements.FreeAll, append(tables, "orchestration_items", "orchestration_activities")
	}
	if err := t.freeBlobs(no, free); err != nil {
		return err
	}
	if err := t.Prep(statements.DeleteInstance).Int(no).Text(id).Exec(); err != nil {
		return err
	}
	return t.removeRows(no, tables...)
}

// removeRows deletes the rows of an instance from tables.
func (t *tx) removeRows(instance int64, tables ...string) error {
	for _, table := range tables {
		if err := t.Prep(statements.Removals[table]).Int(instance).Exec(); err != nil {
			return err
		}
	}
	return nil
}

// purgeScan is how many instances one transaction of a purge reads.
const purgeScan = 200

// PurgeOrchestrations deletes some instances that ended before a time. It looks at instances
// above a number and returns the last number it has seen. If that is the same, there are no
// more.
func (s *Store) PurgeOrchestrations(ctx context.Context, before time.Time, above int64) (purged int, last int64, err error) {
	type step struct {
		purged int
		last   int64
	}
	found, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (step, error) {
		st := step{last: above}
		type ended struct {
			no int64
			id string
		}
		var over []ended
		err := t.Prep("SELECT no, created_at, id, CASE WHEN status IS NOT NULL AND completed_at < ? THEN 1 ELSE 0 END FROM orchestrations WHERE no > ? ORDER BY no LIMIT ? + 0").
			Int(before.UnixMilli()).Int(above).Int(purgeScan).Each(func(r driver.Row) error {
			// An instance that was made while the clock was ahead does not bound the times of
			// later ones.
			if at := r.Int(1); at >= before.UnixMilli() && at <= t.Now {
				return driver.ErrStop
			}
			if st.last = r.Int(0); r.Int(3) == 1 {
				over = append(over, ended{st.last, r.Text(2)})
			}
			return nil
		})
		if driver.UnlessStopped(err) != nil {
			return st, err
		}
		for _, o := range over {
			if err := t.purge(o.no, o.id, false); err != nil {
				return st, err
			}
		}
		st.purged = len(over)
		return st, nil
	})
	return found.purged, found.last, err
}

// Rewound is an instance with its history before the failure.
type Rewound struct {
	Tenant    int64
	ID        string
	No        int64
	Name      string
	Execution string
	Events    int
	History   Payload
	Event     []byte    // wakes it
	Audit     audit.Act // of the caller
	FailedAt  time.Time
	Awaits    []Awaited
	Outdated  []int64 // unseen events
}

// Awaited is an open child whose answer a rewound instance will get.
type Awaited struct {
	ID string
	No int64
}

// ErrChanged is that an instance has changed since it was read.
var ErrChanged = forebay.Errorf(forebay.CodeConflict, "the instance has changed in the meantime")

// RewindOrchestrations replaces the histories of failed instances and makes these ready, in one
// transaction. A rewound child must not answer before its parent can be answered. It returns
// ErrChanged if an instance has changed since it was read, or if one that is awaited has ended.
func (s *Store) RewindOrchestrations(ctx context.Context, all []Rewound) error {
	size := 0
	for i := range all {
		size += len(all[i].History.inline())
	}
	o := db.Op{Stage: db.StageSettle, Numbers: len(all), Size: size, Local: true, Interleaves: true, Hints: audit.Appends{}, Asks: func() (asks []driver.Prefetch) {
		for i := range all {
			asks = append(asks, all[i].prefetches()...)
		}
		return asks
	}}
	_, err := db.TransactIn(ctx, key, s.Writer, o, func(t *tx) (struct{}, error) {
		if err := t.Interleave(len(all), func(i int) error { return t.rewindable(&all[i]) }); err != nil {
			return struct{}{}, err
		}
		for i := range all {
			if err := t.rewind(&all[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// An instance that was rewound meanwhile may have failed again, with more in its history.
const sqlStillFailed = "SELECT no FROM orchestrations WHERE no = ? AND status = ? AND execution = ? AND completed_at = ?"

// prefetches is what rewindable reads.
func (r *Rewound) prefetches() []driver.Prefetch {
	asks := []driver.Prefetch{driver.NewPrefetch(sqlStillFailed, orchestrationRow(r.Tenant, r.ID)).
		Int(r.No).Text(string(forebay.OrchestrationFailed)).Text(r.Execution).Int(r.FailedAt.UnixMilli())}
	for _, child := range r.Awaits {
		awaited := prefetchOrchestration(r.Tenant, child.ID)
		awaited.Shared = true
		asks = append(asks, awaited)
	}
	return asks
}

func (t *tx) rewindable(r *Rewound) error {
	found, err := t.Prep(sqlStillFailed).
		Int(r.No).Text(string(forebay.OrchestrationFailed)).Text(r.Execution).Int(r.FailedAt.UnixMilli()).One(func(driver.Row) {})
	if err == nil && !found {
		return ErrChanged
	}
	for _, child := range r.Awaits {
		o, err := t.orchestrationOf(r.Tenant, child.ID)
		if err != nil {
			return err
		}
		if o.no != child.No || o.over {
			return ErrChanged
		}
	}
	return err
}

func (t *tx) rewind(r *Rewound) error {
	if err := t.freeBlobs(r.No, statements.FreeOutcome); err != nil {
		return err
	}
	err := t.Prep(statements.ReopenInstance).Int(r.No).Exec()
	if err != nil {
		return err
	}
	workQueue, err := t.workItems().queueOf(r.Tenant, workqueues.Orchestrations, r.Name)
	if err != nil {
		return err
	}
	if err := t.removeRows(r.No, "orchestration_history"); err != nil {
		return err
	}
	for _, no := range r.Outdated {
		if err := t.Prep(statements.ForgetEvent).Int(r.No).Int(no).Exec(); err != nil {
			return err
		}
	}
	if err := t.addHistory(r.No, 0, r.Events, r.History); err != nil {
		return err
	}
	// The item number continues far above those before, so that no cached history of then is
	// taken for current.
	err = t.Prep(statements.ReopenItem).
		Int(r.No).Int(workQueue).Int(t.Now).Int(t.Now).Int(int64(r.Events)).Int(r.No).Text(string(forebay.OrchestrationRunning)).Int(t.Now).Exec()
	if err != nil {
		return err
	}
	t.workItems().ready(workQueue, t.Now)
	t.Changed(r.No)
	if err := t.addEvent(r.No, t.Now, false, Inline(r.Event)); err != nil {
		return err
	}
	return audit.Append(t.Tx, r.Audit)
}
