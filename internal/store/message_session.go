package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// SessionLock is the right of one receiver to a session. A token is new each time it is accepted.
type SessionLock struct {
	No    int64
	Token int64
}

// Session is a session as it was accepted.
type Session struct {
	SessionLock
	ID          string
	LockedUntil time.Time
	State       []byte
}

// A session's message is free or held; for how long it is held the session knows.
const (
	sessionFree = 0
	sessionHeld = 1 << 62
)

// subqueueSessions is where receivers wait for a session: nobody waits in the subqueue of deferred messages.
const subqueueSessions = SubqueueRetry

// subqueue is where a receiver waits for messages of its session. The number is no queue's.
func (l SessionLock) subqueue() Subqueue { return Subqueue(-l.No) }

// any reports whether the statement finds a row.
func (t *busTx) any(sql string, args ...int64) (bool, error) {
	st := t.prep(sql)
	for _, v := range args {
		st = st.int(v)
	}
	return st.one(func(row) {})
}

// updateSessionDue is updateDue for receivers that wait for a session, or for messages of theirs.
func (w *busPart) updateSessionDue(t *busTx, subqueue Subqueue, foundEmpty bool) error {
	delete(w.dueAt, subqueue)
	if !foundEmpty {
		return nil
	}
	sql, no := "SELECT visible FROM sessions WHERE queue = ? AND visible IS NOT NULL ORDER BY visible LIMIT 1", subqueue.Queue()
	if !subqueue.lasts() { // to be told when the lock ends
		if until, known := t.sessions.until[int64(-subqueue)]; known {
			w.dueAt[subqueue] = until
			return nil
		}
		sql, no = "SELECT locked_until FROM sessions WHERE no = ? AND locked_until IS NOT NULL", int64(-subqueue)
	}
	_, err := t.prep(sql).int(no).one(func(r row) { w.dueAt[subqueue] = r.int(0) })
	return err
}

// sessionHeld returns when a session's lock ends, or forebay.ErrSessionLockLost. Who asks uses the queue.
func (t *busTx) sessionHeld(q MessageQueue, l SessionLock) (until int64, err error) {
	found, err := t.prep("SELECT locked_until FROM sessions WHERE no = ? AND queue = ? AND token = ? AND locked_until > ?").
		int(l.No).int(q.No).int(l.Token).int(t.now).one(func(r row) { until = r.int(0) })
	if err == nil && !found {
		err = forebay.ErrSessionLockLost
	}
	if err != nil {
		return 0, err
	}
	return until, t.used(q)
}

// RenewSession extends a session's lock, and those on its messages, by the queue's lock duration from
// now and returns when it will end.
func (s *BusStore) RenewSession(ctx context.Context, q MessageQueue, l SessionLock) (until time.Time, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageSettle}, func(t *busTx) (time.Time, error) {
		if _, err := t.sessionHeld(q, l); err != nil {
			return until, err
		}
		until := t.now + q.Lock.Milliseconds()
		return fromMillis(until), t.prep("UPDATE sessions SET locked_until = ?1, visible = ?1 WHERE no = ?2").int(until).int(l.No).exec()
	})
}

const sqlCloseSession = "SELECT " + sqlSessionContents + " FROM sessions s WHERE s.no = ?3 AND s.queue = ?4 AND s.token = ?5 AND s.locked_until > ?6"

// CloseSession ends a session's lock. What its receiver holds is free again, as if it had not been
// delivered.
func (s *BusStore) CloseSession(ctx context.Context, q MessageQueue, l SessionLock) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		var has sessionContents
		locked, err := t.prepSession(sqlCloseSession, q).int(l.No).int(q.No).int(l.Token).int(t.now).one(func(r row) { has = readContents(r) })
		if err != nil {
			return err
		}
		if !locked {
			return forebay.ErrSessionLockLost
		}
		if err := t.used(q); err != nil {
			return err
		}
		if err := t.giveBackHeld(q, l.No, &has, 1); err != nil {
			return err
		}
		t.wakeSession(q.No, l.No)
		return t.releaseSession(l.No, has)
	})
}

// SessionState returns what the receivers of a session last set, nil if nothing.
func (s *BusStore) SessionState(ctx context.Context, q MessageQueue, l SessionLock) (state []byte, err error) {
	return transactIn(ctx, busKey, s.writer, op{stage: stageSettle}, func(t *busTx) (state []byte, err error) {
		if _, err := t.sessionHeld(q, l); err != nil {
			return nil, err
		}
		_, err = t.prep("SELECT state FROM sessions WHERE no = ?").int(l.No).one(func(r row) { state = r.blob(0) })
		return state, err
	})
}

// SetSessionState keeps state for the receivers of a session, those that come later too; nil clears it.
func (s *BusStore) SetSessionState(ctx context.Context, q MessageQueue, l SessionLock, state []byte) error {
	return s.settleMessage(ctx, func(t *busTx) error {
		if _, err := t.sessionHeld(q, l); err != nil {
			return err
		}
		return t.prep("UPDATE sessions SET state = ? WHERE no = ?").blob(state).int(l.No).exec()
	})
}
