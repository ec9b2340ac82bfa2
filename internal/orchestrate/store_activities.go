package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/queue"
)

// NewActivity is an activity that an orchestrator has scheduled.
type NewActivity struct {
	EventID int
	Name    string
	Event   Payload
	Policy  []byte // the encoded retry policy; nil: none
}

// ActivityItem is a claimed activity work item: the right to execute one attempt.
type ActivityItem struct {
	Instance    int64
	Tenant      int64
	ID          string // of the instance
	EventID     int
	Name        string
	Event       Payload
	Policy      []byte
	Number      int    // of this attempt
	Failures    int    // before it
	Lost        int    // earlier attempts whose locks ended without an outcome
	KeyID       string // the API key whose budget its job counts against; "": none
	ScheduledAt time.Time
	StartedAt   time.Time
	Token       int64
	run         int64
	queue       int64
}

// ClaimActivities waits until an activity is ready and returns up to Max.
func (s *Store) ClaimActivities(ctx context.Context, req ClaimRequest) ([]ActivityItem, error) {
	c, err := s.claimItems(ctx, workqueues.Activities, req)
	if err != nil {
		return nil, err
	}
	return c.activities, nil
}

// newActivity stores an activity. If a claim waits for it, the activity is locked for that claim
// at once.
func (t *tx) newActivity(item *OrchestrationItem, run int64, a *NewActivity) error {
	workQueue, err := t.workItems().queueOf(item.Tenant, workqueues.Activities, a.Name)
	if err != nil {
		return err
	}
	sql := statements.InsertActivity
	if a.Event.Blob != "" {
		sql = statements.InsertLargeActivity
	}
	visible, token, number := t.Now, int64(0), int64(0)
	if c := t.workItems().claimFor(workQueue); c != nil {
		visible, token, number = t.Now+c.Lock.Milliseconds(), queue.NewToken(), 1
		c.activities = append(c.activities, ActivityItem{Instance: item.Instance, Tenant: item.Tenant, ID: item.ID, EventID: a.EventID, Name: a.Name,
			Event: a.Event, Policy: a.Policy, KeyID: item.keyID, Number: 1, ScheduledAt: driver.FromMillis(t.Now), StartedAt: driver.FromMillis(t.Now),
			Token: token, queue: workQueue, run: run})
		t.w.queues.Sooner(t.w.queues.Find(workQueue), visible)
		t.w.floors.Note(workQueue, visible, t.Now)
	} else {
		t.workItems().ready(workQueue, visible)
	}
	st := t.Prep(sql).Int(item.Instance).Int(int64(a.EventID)).Int(run).Int(workQueue).Int(visible).IntOrNull(token).Int(number).Int(t.Now)
	if token != 0 {
		st = st.Int(t.Now)
	} else {
		st = st.IntOrNull(0)
	}
	if a.Event.Blob == "" {
		return st.Blob(a.Policy).Blob(a.Event.Bytes).Exec()
	}
	if err := st.Blob(a.Policy).Blob([]byte{}).Text(a.Event.Blob).Exec(); err != nil {
		return err
	}
	return t.keepBlob(item.Instance, a.Event)
}

func (t workItemTx) takeActivities(p *workqueues.Queue, c *claim, most int) (taken int, err error) {
	until := t.Now + c.Lock.Milliseconds()
	var found []ActivityItem
	var lost []ActivityItem // attempts
	err = t.Prep(statements.ReadyActivities).Int(p.No).Int(t.w.floors.Ready(p.No, t.Now)).Int(t.Now).Int(int64(most)).Each(func(r driver.Row) error {
		a := ActivityItem{Instance: r.Int(0), Tenant: r.Int(1), ID: r.Text(2), EventID: int(r.Int(3)), Name: p.Name, Event: payloadAt(r, 4, 14), Policy: r.Blob(5),
			Number: int(r.Int(6)), Failures: int(r.Int(7)), Lost: int(r.Int(8)), ScheduledAt: driver.FromMillis(r.Int(9)), Token: r.Int(10), run: r.Int(12), KeyID: r.Text(13), queue: p.No}
		if a.Token != 0 {
			a.StartedAt = driver.FromMillis(r.Int(11))
			lost = append(lost, a)
			a.Lost++
		}
		a.Number++
		a.StartedAt, a.Token = driver.FromMillis(t.Now), queue.NewToken()
		found = append(found, a)
		t.w.floors.Taken(p.No, r.Int(15))
		return nil
	})
	if err != nil {
		return 0, err
	}
	t.w.floors.Note(p.No, until, t.Now)
	t.lostAttempts += len(lost)
	for i := range lost {
		if err := t.activityAttempt(&lost[i], ActivityOutcome{Outcome: ActivityLost}); err != nil {
			return 0, err
		}
	}
	for _, a := range found {
		err := t.Prep(statements.LockActivity).Int(until).Int(a.Token).Int(int64(a.Number)).Int(int64(a.Lost)).Int(t.Now).Int(a.Instance).Int(int64(a.EventID)).Exec()
		if err != nil {
			return 0, err
		}
	}
	c.activities = append(c.activities, found...)
	return len(found), nil
}

// The outcomes of an attempt of an activity.
const (
	ActivitySucceeded = "succeeded"
	ActivityFailed    = "failed"  // without a further retry
	ActivityRetried   = "retried" // failed, with a further retry
	ActivityLost      = "lost"    // its lock ended without an outcome
	ActivityDropped   = "cut_off" // its instance ended or continued as new before
)

// ActivityOutcome is how an attempt ended.
type ActivityOutcome struct {
	Outcome   string
	ErrorType string
	Error     string
	Event     Payload       // the final outcome, for the instance
	Delay     time.Duration // before the next attempt, if it is retried
}

// SettleActivity stores the outcome of an attempt. The final outcome goes to the inbox of the
// instance; otherwise the activity is ready again after the delay. It returns
// forebay.ErrLockLost, and changes nothing, if the lock is lost.
func (s *Store) SettleActivity(ctx context.Context, a *ActivityItem, o ActivityOutcome) error {
	what := db.Op{Stage: db.StageSettle, Numbers: 1, Size: len(o.Event.inline()), Local: true, Interleaves: true}
	if o.Outcome != ActivityRetried {
		what.Asks = func() []driver.Prefetch { return []driver.Prefetch{a.prefetchEnd()} }
	}
	_, err := db.TransactIn(ctx, key, s.Writer, what, func(t *tx) (struct{}, error) {
		return struct{}{}, t.settleActivity(a, o)
	})
	return err
}

func (t *tx) settleActivity(a *ActivityItem, o ActivityOutcome) error {
	if o.Outcome == ActivityRetried {
		at := t.Now + o.Delay.Milliseconds()
		err := t.Prep("UPDATE orchestration_activities SET visible_at = ?, lock_token = NULL, failures = failures + 1 WHERE instance = ? AND event_id = ? AND lock_token = ?").
			Int(at).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
		if err != nil {
			return err
		}
		t.workItems().ready(a.queue, at)
		return t.activityAttempt(a, o)
	}
	instanceQueue, err := t.endActivity(a)
	if err != nil {
		return err
	}
	if err := t.freePayload(a.Event); err != nil {
		return err
	}
	if err := t.activityAttempt(a, o); err != nil {
		return err
	}
	if err := t.addEvent(a.Instance, t.Now, true, o.Event); err != nil {
		return err
	}
	return t.wakeInstance(a.Instance, instanceQueue)
}

// endActivity removes an activity if its lock still holds, and returns the queue of its
// instance. 0: the queue was not read. For SQLite it is cheaper to look it up once for all
// activities of a transaction.
func (t *tx) endActivity(a *ActivityItem) (instanceQueue int64, err error) {
	if !t.w.Shared() {
		return 0, t.Prep(statements.EndActivity).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
	}
	found, err := t.Prep(statements.EndActivity).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).One(func(r driver.Row) { instanceQueue = r.Int(0) })
	if err == nil && !found {
		err = forebay.ErrLockLost
	}
	return instanceQueue, err
}

func (t *tx) activityAttempt(a *ActivityItem, o ActivityOutcome) error {
	started := a.StartedAt.UnixMilli()
	st := t.Prep(statements.ActivityAttempt).Int(a.Instance).Int(int64(a.EventID)).Int(a.run).Int(int64(a.Number)).IntOrNull(a.queue).Int(started).Int(max(started, t.Now)).
		Text(o.Outcome).TextOrNull(jobs.Bounded(o.ErrorType))
	if o.Error == "" {
		st = st.Null(driver.KindBytes)
	} else {
		st = st.Blob([]byte(o.Error)[:min(len(o.Error), forebay.MaxErrorMessageBytes)])
	}
	if o.Outcome == ActivityRetried {
		st = st.Int(o.Delay.Milliseconds())
	} else {
		st = st.IntOrNull(0)
	}
	return st.Exec()
}

// dropActivities removes the activities of an instance. Attempts under way, also jobs, are
// recorded as dropped.
func (t *tx) dropActivities(instance int64) error {
	if err := t.Prep(statements.DropActivities).Int(t.Now).Text(ActivityDropped).Int(instance).Exec(); err != nil {
		return err
	}
	return t.removeRows(instance, "orchestration_activities")
}

// Attempts of earlier executions are kept up to a number, the newest ones. Pruning reads all
// attempts, so it happens only once in so many executions.
const (
	maxEarlierAttempts = 1000
	pruneAttemptsEvery = 16
)

// AbandonActivity returns an activity without an outcome to its queue, ready after the delay.
// The attempt counts as lost if it may have begun. Otherwise it leaves no trace.
func (s *Store) AbandonActivity(ctx context.Context, a *ActivityItem, delay time.Duration, begun bool) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageSettle, Numbers: 1, Local: true, Interleaves: true}, func(t *tx) (struct{}, error) {
		number, lost := a.Number-1, a.Lost
		if begun {
			number, lost = a.Number, a.Lost+1
		}
		at := t.Now + delay.Milliseconds()
		err := t.Prep("UPDATE orchestration_activities SET visible_at = ?, lock_token = NULL, number = ?, lost = ? WHERE instance = ? AND event_id = ? AND lock_token = ?").
			Int(at).Int(int64(number)).Int(int64(lost)).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token).Fenced()
		if err != nil {
			return struct{}{}, err
		}
		t.workItems().ready(a.queue, at)
		if begun {
			t.lostAttempts++
			err = t.activityAttempt(a, ActivityOutcome{Outcome: ActivityLost})
		}
		return struct{}{}, err
	})
	return err
}

// RenewItems extends the locks of work items to now + lock. It returns the tokens of lost locks.
func (s *Store) RenewItems(ctx context.Context, orchestrations []*OrchestrationItem, activities []*ActivityItem, lock time.Duration) (lost map[int64]bool, err error) {
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageSettle, Numbers: 1, Local: true, Interleaves: true}, func(t *tx) (map[int64]bool, error) {
		lost := map[int64]bool{}
		for _, item := range orchestrations {
			lost[item.Token] = true
		}
		for _, a := range activities {
			lost[a.Token] = true
		}
		renew := t.workItems().renew
		if t.w.Shared() {
			renew = t.workItems().renewShared
		}
		return lost, renew(orchestrations, activities, t.Now+lock.Milliseconds(), func(token int64) { delete(lost, token) })
	})
}

// renew calls held with the token of each lock that still holds.
func (t workItemTx) renew(orchestrations []*OrchestrationItem, activities []*ActivityItem, until int64, held func(token int64)) error {
	renew := func(token int64, st driver.Statement) error {
		rows, err := st.Count()
		if rows > 0 {
			held(token)
		}
		return err
	}
	for _, item := range orchestrations {
		err := renew(item.Token, t.Prep("UPDATE orchestration_items SET visible_at = ? WHERE instance = ? AND lock_token = ?").Int(until).Int(item.Instance).Int(item.Token))
		if err != nil {
			return err
		}
	}
	for _, a := range activities {
		err := renew(a.Token, t.Prep("UPDATE orchestration_activities SET visible_at = ? WHERE instance = ? AND event_id = ? AND lock_token = ?").
			Int(until).Int(a.Instance).Int(int64(a.EventID)).Int(a.Token))
		if err != nil {
			return err
		}
	}
	return nil
}
