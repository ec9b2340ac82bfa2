package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// OrchestrationHistory returns the events of each turn, in order.
func (s *OrchestrationStore) OrchestrationHistory(ctx context.Context, no int64) (turns []Payload, err error) {
	err = s.read(ctx, func(c conn) error {
		turns = nil
		return c.prep("SELECT events, coalesce(events_blob, '') FROM orchestration_history WHERE instance = ? ORDER BY turn").int(no).
			each(func(r row) error { turns = append(turns, payloadAt(r, 0, 1)); return nil })
	})
	return turns, err
}

const sqlOrchestrationStart = `
SELECT 1, events, coalesce(events_blob, '') FROM (SELECT events, events_blob FROM orchestration_history WHERE instance = ?1 ORDER BY turn LIMIT 1) h
UNION ALL SELECT 0, event, coalesce(event_blob, '') FROM (SELECT event, event_blob FROM orchestration_inbox WHERE instance = ?1 ORDER BY no LIMIT 1) i`

// OrchestrationStart returns the events of an instance's first turn, or the event that waits for it.
func (s *OrchestrationStore) OrchestrationStart(ctx context.Context, no int64) (turn, waiting *Payload, err error) {
	err = s.read(ctx, func(c conn) error {
		turn, waiting = nil, nil
		return c.prep(sqlOrchestrationStart).int(no).each(func(r row) error {
			p := payloadAt(r, 1, 2)
			if r.int(0) != 0 {
				turn = &p
			} else {
				waiting = &p
			}
			return nil
		})
	})
	return turn, waiting, err
}

const sqlActivityAttempts = `
SELECT a.event_id, a.number, a.started_at, a.finished_at, a.outcome, a.error_type, a.error, a.retry_delay, a.run, coalesce(p.name, '')
FROM orchestration_attempts a LEFT JOIN orchestration_pools p ON p.no = a.pool WHERE a.instance = ? ORDER BY a.run, a.event_id, a.number`

// ActivityAttempts returns the attempts of an instance's activities: those of its current execution, and the newest of the ones before.
func (s *OrchestrationStore) ActivityAttempts(ctx context.Context, no int64) (attempts []forebay.ActivityAttempt, err error) {
	err = s.read(ctx, func(c conn) error {
		attempts = nil
		return c.prep(sqlActivityAttempts).int(no).each(func(r row) error {
			a := forebay.ActivityAttempt{EventID: int(r.int(0)), Number: int(r.int(1)), StartedAt: fromMillis(r.int(2)), FinishedAt: fromMillis(r.int(3)),
				Outcome: r.text(4), ErrorType: r.text(5), ErrorMessage: string(r.blob(6)), Run: int(r.int(8)), Name: r.text(9)}
			if !r.isNull(7) {
				seconds := (time.Duration(r.int(7)) * time.Millisecond).Seconds()
				a.RetryDelaySeconds = &seconds
			}
			attempts = append(attempts, a)
			return nil
		})
	})
	return attempts, err
}

// PurgeOrchestration deletes an instance with its history. One that is not over is deleted only by force.
func (s *OrchestrationStore) PurgeOrchestration(ctx context.Context, tenant int64, id string, force bool, audit Audit) error {
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageChange}, func(t *orchestrateTx) (struct{}, error) {
		o, err := t.existing(tenant, id)
		if err == nil && !o.over && !force {
			err = forebay.Errorf(forebay.CodeConflict, "the instance %s is not over", id)
		}
		if err != nil {
			return struct{}{}, err
		}
		t.changed(o.no)
		if err := t.purgeOrchestration(o.no); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}

// PurgeOver deletes those of the instances that are over, in one transaction, and returns how many those were.
func (s *OrchestrationStore) PurgeOver(ctx context.Context, tenant int64, ids []string, audit Audit) (purged int, err error) {
	return transactIn(ctx, orchestrateKey, s.writer, op{stage: stageChange}, func(t *orchestrateTx) (purged int, err error) {
		for _, id := range ids {
			o, err := t.orchestrationOf(tenant, id)
			if err != nil {
				return 0, err
			}
			if !o.over { // it was restarted since
				continue
			}
			t.changed(o.no)
			if err := t.purgeOrchestration(o.no); err != nil {
				return 0, err
			}
			purged++
		}
		if purged == 0 {
			return 0, nil
		}
		return purged, auditIn(t.tx, audit)
	})
}

func (t *orchestrateTx) purgeOrchestration(no int64) error {
	if err := t.freeBlobs(no, sqlFreeAll); err != nil {
		return err
	}
	if err := t.prep("DELETE FROM orchestrations WHERE no = ?").int(no).exec(); err != nil {
		return err
	}
	return t.removeRows(no, "orchestration_turns", "orchestration_history", "orchestration_inbox", "orchestration_activities", "orchestration_attempts")
}

// removeRows removes what tables have of an instance.
func (t *orchestrateTx) removeRows(instance int64, tables ...string) error {
	for _, table := range tables {
		if err := t.prep("DELETE FROM " + table + " WHERE instance = ?").int(instance).exec(); err != nil {
			return err
		}
	}
	return nil
}

// PurgeOrchestrations deletes instances that ended before a time, some at once. It goes on above a number and returns that of the
// last one that it looked at; there are no more when that is the same.
func (s *OrchestrationStore) PurgeOrchestrations(ctx context.Context, before time.Time, above int64) (purged int, last int64, err error) {
	type step struct {
		purged int
		last   int64
	}
	found, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageChange}, func(t *orchestrateTx) (step, error) {
		st := step{last: above}
		var over []int64
		err := t.prep("SELECT no, created_at, CASE WHEN status IS NOT NULL AND completed_at < ? THEN 1 ELSE 0 END FROM orchestrations WHERE no > ? ORDER BY no LIMIT ? + 0").
			int(before.UnixMilli()).int(above).int(purgedAtOnce).each(func(r row) error {
			// One that a clock that was ahead has made says nothing of those that come after it.
			if at := r.int(1); at >= before.UnixMilli() && at <= t.now {
				return errStop
			}
			if st.last = r.int(0); r.int(2) == 1 {
				over = append(over, st.last)
			}
			return nil
		})
		if unlessStopped(err) != nil {
			return st, err
		}
		for _, no := range over {
			if err := t.purgeOrchestration(no); err != nil {
				return st, err
			}
		}
		st.purged = len(over)
		return st, nil
	})
	return found.purged, found.last, err
}

// Rewound is an instance that goes on from before it failed.
type Rewound struct {
	Tenant    int64
	ID        string
	No        int64
	Name      string
	Execution string
	Events    int
	History   Payload
	Event     []byte   // that makes it go on
	Audit     Audit    // of who asked for it
	Awaits    []string // instances whose answers it will get, for they are not over
}

// ErrChanged is that an instance is not any more as it was read.
var ErrChanged = forebay.Errorf(forebay.CodeConflict, "the instance has changed in the meantime")

// RewindOrchestrations replaces the histories of instances that failed and makes them ready, all in one transaction: one that answers
// another must not do so before that one can be answered. It returns ErrChanged if one of them has changed since its history was
// read, or does not await any more what it is said to.
func (s *OrchestrationStore) RewindOrchestrations(ctx context.Context, all []Rewound) error {
	size := 0
	for i := range all {
		size += len(all[i].History.inline())
	}
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageSettle, numbers: len(all), size: size, local: true}, func(t *orchestrateTx) (struct{}, error) {
		for i := range all {
			if err := t.rewindable(&all[i]); err != nil {
				return struct{}{}, err
			}
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

func (t *orchestrateTx) rewindable(r *Rewound) error {
	found, err := t.prep("SELECT no FROM orchestrations WHERE no = ? AND status = ? AND execution = ?").
		int(r.No).text(string(forebay.OrchestrationFailed)).text(r.Execution).one(func(row) {})
	if err == nil && !found {
		return ErrChanged
	}
	for _, id := range r.Awaits {
		o, err := t.orchestrationOf(r.Tenant, id)
		if err != nil {
			return err
		}
		if o.no == 0 || o.over {
			return ErrChanged
		}
	}
	return err
}

func (t *orchestrateTx) rewind(r *Rewound) error {
	if err := t.freeBlobs(r.No, sqlFreeOutcome); err != nil {
		return err
	}
	err := t.prep("UPDATE orchestrations SET status = NULL, completed_at = NULL, output = NULL, output_blob = NULL, failure = NULL WHERE no = ?").int(r.No).exec()
	if err != nil {
		return err
	}
	pool, err := t.poolOf(r.Tenant, WorkTurn, r.Name)
	if err != nil {
		return err
	}
	if err := t.removeRows(r.No, "orchestration_history"); err != nil {
		return err
	}
	if err := t.addHistory(r.No, 0, r.Events, r.History); err != nil {
		return err
	}
	// The number of turns goes on far above those before, so that no memory of them is taken for true.
	err = t.prep(`INSERT INTO orchestration_turns (instance, pool, visible, number, events, run, status, updated_at, blobs)
		VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(run), 0) + 1 FROM orchestration_attempts WHERE instance = ?), ?, ?, 1)`).
		int(r.No).int(pool).int(t.now).int(t.now).int(int64(r.Events)).int(r.No).text(string(forebay.OrchestrationRunning)).int(t.now).exec()
	if err != nil {
		return err
	}
	t.workReady(pool, t.now)
	t.changed(r.No)
	if err := t.addEvent(r.No, t.now, false, Inline(r.Event)); err != nil {
		return err
	}
	return auditIn(t.tx, r.Audit)
}
