package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// OrchestrationHistory calls f for the events of each turn, in order.
func (s *Store) OrchestrationHistory(ctx context.Context, no int64, f func(events []byte) error) error {
	return s.read(ctx, func(c conn) error {
		return c.prep("SELECT events FROM orchestration_history WHERE instance = ? ORDER BY turn").int(no).
			each(func(r row) error { return f(r.blob(0)) })
	})
}

// ActivityAttempts returns the attempts of the activities of an instance's current execution.
func (s *Store) ActivityAttempts(ctx context.Context, no int64) (attempts []forebay.ActivityAttempt, err error) {
	err = s.read(ctx, func(c conn) error {
		attempts = nil
		return c.prep(`SELECT event_id, number, started_at, finished_at, outcome, error_type, error, retry_delay
			FROM orchestration_attempts WHERE instance = ? ORDER BY event_id, run, number`).int(no).each(func(r row) error {
			a := forebay.ActivityAttempt{EventID: int(r.int(0)), Number: int(r.int(1)), StartedAt: fromMillis(r.int(2)), FinishedAt: fromMillis(r.int(3)),
				Outcome: r.text(4), ErrorType: r.text(5), ErrorMessage: string(r.blob(6))}
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
func (s *Store) PurgeOrchestration(ctx context.Context, tenant int64, id string, force bool) error {
	_, err := transact(ctx, s, stageChange, func(t *tx) (struct{}, error) {
		o, err := t.orchestrationOf(tenant, id)
		switch {
		case err != nil:
			return struct{}{}, err
		case o.no == 0:
			return struct{}{}, noOrchestration(id)
		case !o.over && !force:
			return struct{}{}, forebay.Errorf(forebay.CodeConflict, "the instance %s is not over", id)
		}
		t.changed(o.no)
		return struct{}{}, t.purgeOrchestration(o.no)
	})
	return err
}

func (t *tx) purgeOrchestration(no int64) error {
	for _, sql := range []string{
		"DELETE FROM orchestrations WHERE no = ?",
		"DELETE FROM orchestration_turns WHERE instance = ?",
		"DELETE FROM orchestration_history WHERE instance = ?",
		"DELETE FROM orchestration_inbox WHERE instance = ?",
		"DELETE FROM orchestration_activities WHERE instance = ?",
		"DELETE FROM orchestration_attempts WHERE instance = ?",
	} {
		if err := t.prep(sql).int(no).exec(); err != nil {
			return err
		}
	}
	return nil
}

// PurgeOrchestrations deletes instances that ended before a time, some at once. It goes on above a number and returns that of the
// last one that it looked at; there are no more when that is the same.
func (s *Store) PurgeOrchestrations(ctx context.Context, before time.Time, above int64) (purged int, last int64, err error) {
	type step struct {
		purged int
		last   int64
	}
	found, err := transact(ctx, s, stageChange, func(t *tx) (step, error) {
		st := step{last: above}
		var over []int64
		err := t.prep("SELECT no, created_at, CASE WHEN status IS NOT NULL AND completed_at < ? THEN 1 ELSE 0 END FROM orchestrations WHERE no > ? ORDER BY no LIMIT ? + 0").
			int(before.UnixMilli()).int(above).int(purgedAtOnce).each(func(r row) error {
			if r.int(1) >= before.UnixMilli() {
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
	No        int64
	Name      string
	Execution string
	Events    int
	History   []byte
	Event     []byte // that makes it go on
}

// RewindOrchestration replaces the history of an instance that failed and makes it ready. It is refused if the instance has
// changed since its history was read.
func (s *Store) RewindOrchestration(ctx context.Context, r Rewound) error {
	_, err := perform(ctx, s, &request[struct{}]{at: stageSettle, new: 1, size: len(r.History), done: make(chan struct{}), run: func(t *tx) (struct{}, error) {
		return struct{}{}, t.rewind(r)
	}})
	return err
}

func (t *tx) rewind(r Rewound) error {
	rows, err := t.prep("UPDATE orchestrations SET status = NULL, completed_at = NULL, output = NULL, failure = NULL WHERE no = ? AND status = ? AND execution = ?").
		int(r.No).text(string(forebay.OrchestrationFailed)).text(r.Execution).count()
	if err != nil {
		return err
	}
	if rows == 0 {
		return forebay.Errorf(forebay.CodeConflict, "only an instance that has failed can be rewound")
	}
	pool, err := t.poolOf(r.Tenant, WorkTurn, r.Name)
	if err != nil {
		return err
	}
	if err := t.prep("DELETE FROM orchestration_history WHERE instance = ?").int(r.No).exec(); err != nil {
		return err
	}
	err = t.prep("INSERT INTO orchestration_history (instance, turn, count, events) VALUES (?, ?, ?, ?)").int(r.No).int(0).int(int64(r.Events)).blob(r.History).exec()
	if err != nil {
		return err
	}
	// The number of turns goes on far above those before, so that no memory of them is taken for true.
	err = t.prep(`INSERT INTO orchestration_turns (instance, pool, visible, number, events, run, status, updated_at)
		VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(run), 0) + 1 FROM orchestration_attempts WHERE instance = ?), ?, ?)`).
		int(r.No).int(pool).int(t.now).int(t.now).int(int64(r.Events)).int(r.No).text(string(forebay.OrchestrationRunning)).int(t.now).exec()
	if err != nil {
		return err
	}
	t.workReady(pool, t.now)
	t.changed(r.No)
	return t.addEvent(r.No, t.now, false, r.Event)
}
