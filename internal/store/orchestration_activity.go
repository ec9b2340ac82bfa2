package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// NewActivity is an activity that a turn has scheduled.
type NewActivity struct {
	EventID int
	Name    string
	Event   Payload
	Policy  []byte // how it is retried; nil: it is not
}

// Activity is the right to carry an activity out.
type Activity struct {
	Instance    int64
	Tenant      int64
	ID          string // of the instance
	EventID     int
	Name        string
	Event       Payload
	Policy      []byte
	Number      int    // of this attempt
	Failures    int    // before it
	Lost        int    // attempts before it that nobody heard of again
	KeyID       string // the API key whose budget pays for its job as well; "": none
	ScheduledAt time.Time
	StartedAt   time.Time
	Token       int64
	run         int64
	pool        int64
}

// ClaimActivities waits until an activity is ready and returns up to Max.
func (s *OrchestrationStore) ClaimActivities(ctx context.Context, req WorkRequest) ([]Activity, error) {
	c, err := s.claimWork(ctx, WorkActivity, req)
	if err != nil {
		return nil, err
	}
	return c.activities, nil
}

const sqlInsertActivity = `
INSERT INTO orchestration_activities (instance, event_id, run, pool, turns, visible, token, number, scheduled_at, started_at, policy, event)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

const sqlInsertLargeActivity = `
INSERT INTO orchestration_activities (instance, event_id, run, pool, turns, visible, token, number, scheduled_at, started_at, policy, event, event_blob)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// newActivity stores an activity, under a lock if a claim waits for it.
func (t *orchestrateTx) newActivity(turn *Turn, run, turns int64, a *NewActivity) error {
	pool, err := t.poolOf(turn.Tenant, WorkActivity, a.Name)
	if err != nil {
		return err
	}
	sql := sqlInsertActivity
	if a.Event.Blob != "" {
		sql = sqlInsertLargeActivity
	}
	visible, token, number := t.now, int64(0), int64(0)
	if c := t.handOver(pool); c != nil {
		visible, token, number = t.now+c.Lock.Milliseconds(), newToken(), 1
		c.activities = append(c.activities, Activity{Instance: turn.Instance, Tenant: turn.Tenant, ID: turn.ID, EventID: a.EventID, Name: a.Name,
			Event: a.Event, Policy: a.Policy, KeyID: turn.keyID, Number: 1, ScheduledAt: fromMillis(t.now), StartedAt: fromMillis(t.now),
			Token: token, pool: pool, run: run})
		p := t.w.pools[pool]
		p.due = min(p.due, visible)
	} else {
		t.workReady(pool, visible)
	}
	st := t.prep(sql).int(turn.Instance).int(int64(a.EventID)).int(run).int(pool).int(turns).int(visible).intOrNull(token).int(number).int(t.now)
	if token != 0 {
		st = st.int(t.now)
	} else {
		st = st.intOrNull(0)
	}
	if a.Event.Blob == "" {
		return st.blob(a.Policy).blob(a.Event.Bytes).exec()
	}
	if err := st.blob(a.Policy).blob([]byte{}).text(a.Event.Blob).exec(); err != nil {
		return err
	}
	return t.keepBlob(turn.Instance, a.Event)
}

const sqlReadyActivities = `
SELECT a.instance, o.tenant, o.id, a.event_id, a.event, a.policy, a.number, a.failures, a.lost, a.scheduled_at, coalesce(a.token, 0), coalesce(a.started_at, 0), a.run, coalesce(o.key_id, ''), coalesce(a.event_blob, '')
FROM (SELECT * FROM orchestration_activities WHERE pool = ? AND visible <= ? ORDER BY visible LIMIT ? + 0) a
  CROSS JOIN orchestrations o ON o.no = a.instance`

const sqlLockActivity = `
UPDATE orchestration_activities SET visible = ?, token = ?, number = ?, lost = ?, started_at = ? WHERE instance = ? AND event_id = ?`

func (t *orchestrateTx) takeActivities(p *workPool, c *workClaim, most int) (taken int, err error) {
	first, until := len(c.activities), t.now+c.Lock.Milliseconds()
	var lost []Activity // attempts
	err = t.prep(sqlReadyActivities).int(p.No).int(t.now).int(int64(most)).each(func(r row) error {
		a := Activity{Instance: r.int(0), Tenant: r.int(1), ID: r.text(2), EventID: int(r.int(3)), Name: p.Name, Event: payloadAt(r, 4, 14), Policy: r.blob(5),
			Number: int(r.int(6)), Failures: int(r.int(7)), Lost: int(r.int(8)), ScheduledAt: fromMillis(r.int(9)), Token: r.int(10), run: r.int(12), KeyID: r.text(13), pool: p.No}
		if a.Token != 0 {
			a.StartedAt = fromMillis(r.int(11))
			lost = append(lost, a)
			a.Lost++
		}
		a.Number++
		a.StartedAt, a.Token = fromMillis(t.now), newToken()
		c.activities = append(c.activities, a)
		taken++
		return nil
	})
	if err != nil {
		return 0, err
	}
	t.lost += len(lost)
	for i := range lost {
		if err := t.activityAttempt(&lost[i], ActivityOutcome{Outcome: ActivityLost}); err != nil {
			return 0, err
		}
	}
	for _, a := range c.activities[first:] {
		err := t.prep(sqlLockActivity).int(until).int(a.Token).int(int64(a.Number)).int(int64(a.Lost)).int(t.now).int(a.Instance).int(int64(a.EventID)).exec()
		if err != nil {
			return 0, err
		}
	}
	return taken, nil
}

// The outcomes of an attempt of an activity.
const (
	ActivitySucceeded = "succeeded"
	ActivityFailed    = "failed"  // for good
	ActivityRetried   = "retried" // it failed, and is tried again
	ActivityLost      = "lost"    // nobody heard of it again
	ActivityCutOff    = "cut_off" // its instance ended, or continued as new, before it did
)

// ActivityOutcome is how an attempt ended.
type ActivityOutcome struct {
	Outcome   string
	ErrorType string
	Error     string
	Event     Payload       // the final outcome, for the instance
	Delay     time.Duration // before the next attempt, if it is retried
}

// SettleActivity records an attempt. If it was the last one its instance gets the event, else it is ready again after the delay.
// It returns forebay.ErrLockLost, and changes nothing, when another has the activity or nobody waits for it any more.
func (s *OrchestrationStore) SettleActivity(ctx context.Context, a *Activity, o ActivityOutcome) error {
	what := op{stage: stageSettle, numbers: 1, size: len(o.Event.inline()), local: true}
	if o.Outcome != ActivityRetried {
		what.asks = a.askEnd()
	}
	_, err := transactIn(ctx, orchestrateKey, s.writer, what, func(t *orchestrateTx) (struct{}, error) {
		return struct{}{}, t.settleActivity(a, o)
	})
	return err
}

func (t *orchestrateTx) settleActivity(a *Activity, o ActivityOutcome) error {
	if o.Outcome == ActivityRetried {
		at := t.now + o.Delay.Milliseconds()
		err := t.prep("UPDATE orchestration_activities SET visible = ?, token = NULL, failures = failures + 1 WHERE instance = ? AND event_id = ? AND token = ?").
			int(at).int(a.Instance).int(int64(a.EventID)).int(a.Token).fenced()
		if err != nil {
			return err
		}
		t.workReady(a.pool, at)
		return t.activityAttempt(a, o)
	}
	turns, err := t.endActivity(a)
	if err != nil {
		return err
	}
	if err := t.freePayload(a.Event); err != nil {
		return err
	}
	if err := t.activityAttempt(a, o); err != nil {
		return err
	}
	if err := t.addEvent(a.Instance, t.now, true, o.Event); err != nil {
		return err
	}
	return t.wakeInstance(a.Instance, turns)
}

// endActivity removes an activity if its lock still holds it, and returns the pool of its instance; 0: it was not asked for, since that
// would take SQLite longer than to look it up once for all that a transaction ends of an instance.
func (t *orchestrateTx) endActivity(a *Activity) (turns int64, err error) {
	found, err := t.prep(sqlEndActivity).int(a.Instance).int(int64(a.EventID)).int(a.Token).one(func(r row) { turns = r.int(0) })
	if err == nil && !found {
		err = forebay.ErrLockLost
	}
	return turns, err
}

const sqlActivityAttempt = `
INSERT INTO orchestration_attempts (instance, event_id, run, number, pool, started_at, finished_at, outcome, error_type, error, retry_delay)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (t *orchestrateTx) activityAttempt(a *Activity, o ActivityOutcome) error {
	started := a.StartedAt.UnixMilli()
	st := t.prep(sqlActivityAttempt).int(a.Instance).int(int64(a.EventID)).int(a.run).int(int64(a.Number)).intOrNull(a.pool).int(started).int(max(started, t.now)).
		text(o.Outcome).textOrNull(bounded(o.ErrorType))
	if o.Error == "" {
		st = st.null(kindBytes)
	} else {
		st = st.blob([]byte(o.Error)[:min(len(o.Error), forebay.MaxErrorMessageBytes)])
	}
	if o.Outcome == ActivityRetried {
		st = st.int(o.Delay.Milliseconds())
	} else {
		st = st.intOrNull(0)
	}
	return st.exec()
}

const sqlCutOff = `
INSERT INTO orchestration_attempts (instance, event_id, run, number, pool, started_at, finished_at, outcome)
SELECT instance, event_id, run, number, pool, started_at, CASE WHEN started_at > ?1 THEN started_at ELSE ?1 END, ?2
FROM orchestration_activities WHERE instance = ?3 AND (token IS NOT NULL OR job IS NOT NULL)`

// cutOff removes the activities of an instance. The attempts that are under way, by whoever holds them or as a job, go on record.
func (t *orchestrateTx) cutOff(instance int64) error {
	if err := t.prep(sqlCutOff).int(t.now).text(ActivityCutOff).int(instance).exec(); err != nil {
		return err
	}
	return t.removeRows(instance, "orchestration_activities")
}

// Attempts of the executions before an instance continued as new: so many are kept, the newest ones. The others are looked for once in so many
// executions, since it takes reading all.
const (
	maxEarlierAttempts = 1000
	dropAttemptsEvery  = 16
)

const sqlDropAttempts = `
DELETE FROM orchestration_attempts WHERE instance = ?1 AND finished_at < (
  SELECT finished_at FROM orchestration_attempts WHERE instance = ?1 ORDER BY finished_at DESC LIMIT 1 OFFSET ?2 + 0)`

// AbandonActivity puts an activity back whose attempt came to nothing; it is ready again after the delay. The attempt counts as
// lost if it may have begun, and otherwise leaves no trace.
func (s *OrchestrationStore) AbandonActivity(ctx context.Context, a *Activity, delay time.Duration, begun bool) error {
	_, err := transactIn(ctx, orchestrateKey, s.writer, op{stage: stageSettle, numbers: 1, local: true}, func(t *orchestrateTx) (struct{}, error) {
		number, lost := a.Number-1, a.Lost
		if begun {
			number, lost = a.Number, a.Lost+1
		}
		at := t.now + delay.Milliseconds()
		err := t.prep("UPDATE orchestration_activities SET visible = ?, token = NULL, number = ?, lost = ? WHERE instance = ? AND event_id = ? AND token = ?").
			int(at).int(int64(number)).int(int64(lost)).int(a.Instance).int(int64(a.EventID)).int(a.Token).fenced()
		if err != nil {
			return struct{}{}, err
		}
		t.workReady(a.pool, at)
		if begun {
			t.lost++
			err = t.activityAttempt(a, ActivityOutcome{Outcome: ActivityLost})
		}
		return struct{}{}, err
	})
	return err
}

// RenewWork extends the locks of turns and activities to now + lock and returns the tokens of those that were lost.
func (s *OrchestrationStore) RenewWork(ctx context.Context, turns []*Turn, activities []*Activity, lock time.Duration) (lost map[int64]bool, err error) {
	return transactIn(ctx, orchestrateKey, s.writer, op{stage: stageSettle, numbers: 1, local: true}, func(t *orchestrateTx) (map[int64]bool, error) {
		lost := map[int64]bool{}
		for _, turn := range turns {
			lost[turn.Token] = true
		}
		for _, a := range activities {
			lost[a.Token] = true
		}
		renew := t.renewWork
		if t.w.shared() {
			renew = t.renewWorkShared
		}
		return lost, renew(turns, activities, t.now+lock.Milliseconds(), func(token int64) { delete(lost, token) })
	})
}

// renewWork calls held with the token of each lock that still holds.
func (t *orchestrateTx) renewWork(turns []*Turn, activities []*Activity, until int64, held func(token int64)) error {
	renew := func(token int64, st statement) error {
		rows, err := st.count()
		if rows > 0 {
			held(token)
		}
		return err
	}
	for _, turn := range turns {
		err := renew(turn.Token, t.prep("UPDATE orchestration_turns SET visible = ? WHERE instance = ? AND token = ?").int(until).int(turn.Instance).int(turn.Token))
		if err != nil {
			return err
		}
	}
	for _, a := range activities {
		err := renew(a.Token, t.prep("UPDATE orchestration_activities SET visible = ? WHERE instance = ? AND event_id = ? AND token = ?").
			int(until).int(a.Instance).int(int64(a.EventID)).int(a.Token))
		if err != nil {
			return err
		}
	}
	return nil
}
