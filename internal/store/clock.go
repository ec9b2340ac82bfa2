package store

import (
	"context"
	"fmt"
	"time"
)

// A clock that was ahead and is right again has left times behind that are too late: jobs that
// were to run at once wait until the clock gets there, and locks of the dead last that much
// longer. Once the writer sees the clock go back, or a process starts and finds the latest job
// made in the future, all that waits is looked through, a stretch at a time.
//
// A time is brought to the clock where what it was counted from is stored beside it and lies in
// the future, or where it is further away than such a time can be. To do so twice does no harm.
// Times that somebody has chosen stay: scheduled starts, deadlines, expiries of keys. Of
// deployments the state itself follows the clock (internal/quota).

// steppedBack is by how many milliseconds a clock must go back to be noticed. Less is waited out.
const steppedBack = 5 * 60 * 1000

// A transaction looks through clockStretch rows. Then the writer is left to others for clockRests
// times as long as that took.
const (
	clockStretch = 1000
	clockRests   = 3
	leastRest    = 5 * time.Millisecond
)

// Numbers in the statements below: 300000 is forebay.MaxLockDuration, 4611686018427387904 stands
// for the end of time, and records are mended that are more than a day, 86400000, ahead.
const (
	sqlMadeAhead = `
SELECT 1 FROM (SELECT created_at AS at FROM jobs ORDER BY seq DESC LIMIT 1) j WHERE j.at > ?1
UNION ALL SELECT 1 FROM (SELECT enqueued_at AS at FROM bodies ORDER BY seq DESC LIMIT 1) b WHERE b.at > ?1
UNION ALL SELECT 1 FROM (SELECT created_at AS at FROM orchestrations ORDER BY no DESC LIMIT 1) o WHERE o.at > ?1`

	latestEvent = "FROM events e WHERE e.seq = messages.seq AND e.number = messages.version"

	sqlBodyAhead = `
UPDATE bodies SET enqueued_at = ?1, expires_at = expires_at - (enqueued_at - ?1),
  due_at = CASE WHEN due_at = expires_at THEN due_at - (enqueued_at - ?1) ELSE due_at END
WHERE seq > ?2 AND seq <= ?3 AND enqueued_at > ?1`

	// A message that is not scheduled is looked at again when it expires or when its lock ends;
	// whoever looks finds out.
	sqlDueAhead = `
UPDATE bodies SET due_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND due_at > ?1 AND (expires_at IS NULL OR due_at <> expires_at)
  AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = bodies.seq AND m.rank <> 1)`

	// One that its sender was to hand out, or that was put off, is scheduled for no later than
	// that.
	sqlPutOffAhead = `
UPDATE bodies SET due_at = CASE WHEN scheduled_at > ?1 THEN scheduled_at ELSE ?1 END
WHERE seq > ?2 AND seq <= ?3 AND due_at > ?1 + 10000 AND (scheduled_at IS NULL OR due_at > scheduled_at)
  AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = bodies.seq AND m.rank = 1)`

	// Plain messages wait for nothing but their time, which has another rank, and for another try
	// of a webhook.
	sqlPlainAhead = `
UPDATE messages SET visible = ?1 WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND token IS NULL AND rank = 0
  AND EXISTS (SELECT 1 FROM bodies b WHERE b.seq = messages.seq)
  AND (lane NOT IN (SELECT w.queue * 4 FROM webhooks w)
    OR lane IN (SELECT w.queue * 4 FROM webhooks w WHERE EXISTS (SELECT 1 FROM webhook_tries d WHERE d.queue = w.queue AND d.at > ?1)))`

	// Jobs that are set aside: since when.
	sqlSetAsideAhead = "UPDATE messages SET visible = ?1 WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND token IS NULL AND lane % 4 >= 2"

	// A retry, or a pause, that the latest event tells the length of.
	sqlRetryAhead = `
UPDATE messages SET visible = ?1 + (SELECT e.retry_delay ` + latestEvent + `)
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND visible < 4611686018427387904 AND token IS NULL AND lane % 4 < 2
  AND EXISTS (SELECT 1 ` + latestEvent + ` AND e.at > ?1 AND messages.visible > ?1 + e.retry_delay)`

	// A redrive with a delay, which only its event tells.
	sqlRedriveAhead = `
UPDATE messages SET visible = ?1 + visible - (SELECT e.at ` + latestEvent + `)
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND visible < 4611686018427387904 AND token IS NULL AND lane % 4 < 2
  AND EXISTS (SELECT 1 ` + latestEvent + ` AND e.type = 'redriven' AND e.at > ?1 AND messages.visible >= e.at)`
	sqlNotBeforeAhead = `
UPDATE job_sessions SET not_before = ?1 + not_before - (SELECT e.at FROM messages m JOIN events e ON e.seq = m.seq AND e.number = m.version WHERE m.seq = job_sessions.seq)
WHERE seq > ?2 AND seq <= ?3 AND not_before > ?1
  AND EXISTS (SELECT 1 FROM messages m JOIN events e ON e.seq = m.seq AND e.number = m.version
    WHERE m.seq = job_sessions.seq AND e.type = 'redriven' AND e.at > ?1 AND job_sessions.not_before >= e.at)`
	sqlRedrivenAhead = `
UPDATE events SET at = ?1 WHERE type = 'redriven' AND at > ?1
  AND (seq, number) IN (SELECT m.seq, m.version FROM messages m WHERE m.seq > ?2 AND m.seq <= ?3)`

	// What nothing explains is ready: it was so when it was stored, or given back.
	sqlReadyAhead = `
UPDATE messages SET visible = ?1
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND visible < 4611686018427387904 AND token IS NULL AND lane % 4 < 2
  AND coalesce(waiting, '') <> 'budget' AND coalesce(waiting, '') <> 'session'
  AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = messages.seq AND (j.scheduled_at IS NULL OR j.scheduled_at <> messages.visible))
  AND NOT EXISTS (SELECT 1 ` + latestEvent + `
    AND (e.type = 'redriven' OR messages.visible <= ?1 + e.retry_delay OR messages.visible <= e.at + e.retry_delay))`

	// A budget has room again when a day or a month ends, and no other time.
	sqlBudgetAhead = `
UPDATE messages SET visible = ?1
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND visible <> ?4 AND visible <> ?5 AND token IS NULL AND waiting = 'budget'`

	// The turn of a session comes when the lock of a call that was cancelled would have ended.
	sqlSessionAhead = `
UPDATE messages SET visible = CASE WHEN coalesce((SELECT coalesce(s.not_before, j.scheduled_at) FROM job_sessions s JOIN jobs j ON j.seq = s.seq
    WHERE s.seq = messages.seq), 0) > ?1 + 300000
  THEN (SELECT coalesce(s.not_before, j.scheduled_at) FROM job_sessions s JOIN jobs j ON j.seq = s.seq WHERE s.seq = messages.seq)
  ELSE ?1 + 300000 END
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 + 300000 AND visible < 4611686018427387904 AND token IS NULL AND waiting = 'session'`

	sqlLockAhead = `
UPDATE messages SET visible = CASE WHEN visible < locked_at + 300000 THEN ?1 + visible - locked_at ELSE ?1 + 300000 END, locked_at = ?1
WHERE seq > ?2 AND seq <= ?3 AND token IS NOT NULL AND locked_at > ?1 AND visible > locked_at AND visible < 4611686018427387904`
	// It was renewed by a clock that was ahead.
	sqlRenewedAhead = `
UPDATE messages SET visible = ?1 + 300000
WHERE seq > ?2 AND seq <= ?3 AND token IS NOT NULL AND visible > ?1 + 300000 AND visible < 4611686018427387904`

	sqlStartedAhead = "UPDATE messages SET started_at = ?1 WHERE seq > ?2 AND seq <= ?3 AND started_at > ?1"

	sqlSessionsAhead = `
UPDATE sessions SET visible = CASE WHEN token IS NULL THEN ?1 ELSE ?1 + 300000 END,
  locked_until = CASE WHEN token IS NULL THEN NULL ELSE ?1 + 300000 END
WHERE no > ?2 AND no <= ?3 AND visible > ?1 + CASE WHEN token IS NULL THEN 0 ELSE 300000 END`

	// A timer keeps its length. What is not asked for by the execution itself may be its scheduled
	// start, which stays.
	sqlInboxAhead = `
UPDATE orchestration_inbox SET visible = CASE WHEN visible <= set_at THEN ?1 ELSE ?1 + visible - set_at END, set_at = ?1
WHERE instance > ?2 AND instance <= ?3 AND set_at > ?1 AND visible > ?1 AND (answer = 1 OR visible <= set_at)`
	sqlTurnsAhead = `
UPDATE orchestration_turns SET visible = CASE WHEN token IS NOT NULL THEN ?1 + 300000
  ELSE coalesce((SELECT min(i.visible) FROM orchestration_inbox i WHERE i.instance = orchestration_turns.instance), 4611686018427387904) END
WHERE instance > ?2 AND instance <= ?3 AND visible > ?1 + CASE WHEN token IS NULL THEN 0 ELSE 300000 END AND visible < 4611686018427387904`

	latestActivity = `FROM orchestration_attempts t WHERE t.instance = orchestration_activities.instance
    AND t.event_id = orchestration_activities.event_id AND t.run = orchestration_activities.run AND t.number = orchestration_activities.number`
	sqlActivityRetryAhead = `
UPDATE orchestration_activities SET visible = ?1 + (SELECT t.retry_delay ` + latestActivity + `)
WHERE instance > ?2 AND instance <= ?3 AND visible > ?1 AND visible < 4611686018427387904 AND token IS NULL
  AND EXISTS (SELECT 1 ` + latestActivity + ` AND t.finished_at > ?1 AND orchestration_activities.visible > ?1 + t.retry_delay)`
	sqlActivitiesAhead = `
UPDATE orchestration_activities SET visible = CASE WHEN token IS NULL THEN ?1 ELSE ?1 + 300000 END
WHERE instance > ?2 AND instance <= ?3 AND visible > ?1 + CASE WHEN token IS NULL THEN 0 ELSE 300000 END AND visible < 4611686018427387904
  AND (token IS NOT NULL OR NOT EXISTS (SELECT 1 ` + latestActivity + ` AND t.retry_delay IS NOT NULL
    AND (orchestration_activities.visible <= ?1 + t.retry_delay OR orchestration_activities.visible <= t.finished_at + t.retry_delay)))`

	// By these records are removed once they are old enough.
	sqlOutcomesAhead = `
UPDATE outcomes SET completed_at = ?1, started_at = CASE WHEN started_at > ?1 THEN ?1 ELSE started_at END
WHERE seq > ?2 AND seq <= ?3 AND completed_at > ?1 + 86400000`
	sqlInstancesAhead = `
UPDATE orchestrations SET completed_at = ?1, started_at = CASE WHEN started_at > ?1 THEN ?1 ELSE started_at END
WHERE no > ?2 AND no <= ?3 AND completed_at > ?1 + 86400000`
	sqlKeysAhead = "UPDATE idempotency SET created_at = ?1 WHERE no > ?2 AND no <= ?3 AND created_at > ?1 + 86400000"
)

// clockWalk is a table that is looked through by its number, and what is mended of it and of what
// belongs to its rows.
type clockWalk struct {
	table, number string
	statements    []string
}

// What somebody waits for comes first.
var clockWalks = []clockWalk{
	{"messages", "seq", []string{sqlBodyAhead, sqlDueAhead, sqlPutOffAhead, sqlPlainAhead, sqlSetAsideAhead, sqlRetryAhead, sqlRedriveAhead,
		sqlNotBeforeAhead, sqlRedrivenAhead, sqlReadyAhead, sqlBudgetAhead, sqlSessionAhead, sqlLockAhead, sqlRenewedAhead, sqlStartedAhead}},
	{"sessions", "no", []string{sqlSessionsAhead}},
	{"orchestration_turns", "instance", []string{sqlInboxAhead, sqlTurnsAhead, sqlActivityRetryAhead, sqlActivitiesAhead}},
	{"idempotency", "no", []string{sqlKeysAhead}},
	{"orchestrations", "no", []string{sqlInstancesAhead}},
	{"outcomes", "seq", []string{sqlOutcomesAhead}},
}

func (c clockWalk) stretch() string {
	return fmt.Sprintf("SELECT coalesce(max(n), 0) FROM (SELECT %[2]s AS n FROM %[1]s WHERE %[2]s > ? ORDER BY %[2]s LIMIT ? + 0) x", c.table, c.number)
}

// Of these there are few: one statement looks at all.
const (
	sqlHoldsAhead = "UPDATE job_session_holds SET ends_at = ?1 + 300000 WHERE ends_at > ?1 + 300000"
	sqlIdleAhead  = "UPDATE queues SET delete_at = ?1 + idle + idle / 60 WHERE delete_at > ?1 + idle + idle / 60"
	sqlTendAhead  = "UPDATE queues SET due_at = ?1 WHERE due_at > ?1"
	// 660000 is the longest pause of a webhook's breaker.
	sqlPausesAhead = `
UPDATE webhooks SET paused_until = CASE WHEN paused_until > ?1 + 660000 THEN ?1 ELSE paused_until END,
  failing_since = CASE WHEN failing_since > ?1 THEN ?1 ELSE failing_since END
WHERE paused_until > ?1 + 660000 OR failing_since > ?1`
)

// Message ids are remembered for the window of their queue.
const (
	sqlIDStretch = "SELECT max(id) FROM (SELECT id FROM message_ids WHERE queue = ? AND id > ? ORDER BY id LIMIT ? + 0) x"
	sqlIDsAhead  = "UPDATE message_ids SET forget_at = ?1 WHERE queue = ?2 AND id > ?3 AND id <= ?4 AND forget_at > ?1"

	sqlFreedAhead = `
UPDATE orchestration_blobs SET freed_at = ?1
WHERE key IN (SELECT key FROM orchestration_blobs WHERE freed_at > ?1 + 86400000 ORDER BY freed_at LIMIT ?2 + 0)`
)

// noticeClock takes in the database's time at the beginning of a transaction and tells when it
// went back.
func (w *writer) noticeClock(at int64) {
	if w.latest-at >= steppedBack && w.clockBack != nil {
		select {
		case w.clockBack <- struct{}{}:
		default: // told already
		}
	}
	w.latest = at
}

// keepClock mends what a clock that went back has left, until the store ends.
func (s *Store) keepClock(back <-chan struct{}, warn func(string)) {
	for {
		select {
		case <-back:
			warn("the database's clock has gone back; what waits for the time that it showed is brought to the time it shows now")
			if err := s.mendClock(s.health.ctx); err != nil && s.health.ctx.Err() == nil {
				warn("what a clock that was ahead has left could not be mended; it is at the next start")
			}
		case <-s.health.ctx.Done():
			return
		}
	}
}

// madeAhead reports whether the latest job or message was made in the future. Another process may
// have made one since this transaction began, so a little ahead is no sign of a clock that went
// back.
func (s *Store) madeAhead(ctx context.Context) (ahead bool, err error) {
	return transact(ctx, s, stageChange, func(t *tx) (bool, error) { return t.prep(sqlMadeAhead).int(t.now + steppedBack).one(func(row) {}) })
}

// mendClock brings all that waits to the clock.
func (s *Store) mendClock(ctx context.Context) (err error) {
	mend := func(f func(*tx) (int, error)) bool {
		began := time.Now()
		if _, err = transact(ctx, s, stageChange, f); err == nil {
			err = s.restAfter(ctx, began)
		}
		return err == nil
	}
	if !mend((*tx).mendFew) {
		return err
	}
	for _, walk := range clockWalks {
		for last := int64(0); ; {
			after := last
			if !mend(func(t *tx) (changed int, err error) {
				changed, last, err = t.mendStretch(walk, after)
				return changed, err
			}) {
				return err
			}
			if last == 0 {
				break
			}
		}
	}
	windows := map[int64]int64{}
	err = s.read(ctx, func(c conn) error {
		return c.prep("SELECT no, duplicate_window FROM queues WHERE duplicate_window IS NOT NULL").each(func(r row) error {
			windows[r.int(0)] = r.int(1)
			return nil
		})
	})
	for queue, window := range windows {
		for last, more := "", true; more && err == nil; {
			mend(func(t *tx) (changed int, err error) {
				changed, last, more, err = t.mendIDs(queue, window, last)
				return changed, err
			})
		}
	}
	for changed := clockStretch; changed == clockStretch && err == nil; {
		mend(func(t *tx) (int, error) {
			changed, err = t.prep(sqlFreedAhead).int(t.now).int(clockStretch).count()
			return changed, err
		})
	}
	return err
}

// restAfter leaves the writer to others after what began then.
func (s *Store) restAfter(ctx context.Context, began time.Time) error {
	select {
	case <-time.After(max(leastRest, clockRests*time.Since(began))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mendFew mends what there is little of, and what the writer has in memory.
func (t *tx) mendFew() (changed int, err error) {
	for _, sql := range []string{sqlHoldsAhead, sqlIdleAhead, sqlTendAhead, sqlPausesAhead} {
		n, err := t.prep(sql).int(t.now).count()
		if err != nil {
			return changed, err
		}
		changed += n
	}
	t.everybodyLooks()
	return changed, nil
}

// everybodyLooks has this process and the others look again, whatever they know of when to.
func (t *tx) everybodyLooks() {
	t.news.queues = true
	t.deadlineAt(t.now)
	t.after = append(t.after, func() {
		clear(t.w.blocked)
		clear(t.w.resting)
		t.w.lookAgain(true, true)
	})
}

// mendStretch mends the next rows above a number. It returns that of the last one; 0: there are no
// more.
func (t *tx) mendStretch(walk clockWalk, after int64) (changed int, last int64, err error) {
	if _, err := t.prep(walk.stretch()).int(after).int(clockStretch).one(func(r row) { last = r.int(0) }); err != nil || last == 0 {
		return 0, 0, err
	}
	for _, sql := range walk.statements {
		st := t.prep(sql).int(t.now).int(after).int(last)
		if sql == sqlBudgetAhead {
			for kind := range budgetPeriods {
				st = st.int(periodEnd(kind, t.now))
			}
		}
		n, err := st.count()
		if err != nil {
			return changed, last, err
		}
		changed += n
	}
	if changed > 0 {
		t.everybodyLooks()
	}
	return changed, last, nil
}

// mendIDs mends the message ids of a queue that come next after one.
func (t *tx) mendIDs(queue, window int64, after string) (changed int, last string, more bool, err error) {
	_, err = t.prep(sqlIDStretch).int(queue).text(after).int(clockStretch).one(func(r row) { last, more = r.text(0), !r.isNull(0) })
	if err != nil || !more {
		return 0, "", false, err
	}
	changed, err = t.prep(sqlIDsAhead).int(t.now + window).int(queue).text(after).text(last).count()
	t.deadlineAt(t.now)
	return changed, last, true, err
}
