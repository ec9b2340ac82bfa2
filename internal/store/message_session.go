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

// laneSessions is where receivers wait for a session: nobody waits in the lane of deferred messages.
const laneSessions = LaneRetry

// lane is where a receiver waits for messages of its session. The number is no queue's.
func (l SessionLock) lane() Lane { return Lane(-l.No) }

// messageForSession returns the number of the session that gets a message, making it if need be.
func (t *tx) messageForSession(q MessageQueue, id string) (no int64, err error) {
	_, err = t.prep(`INSERT INTO sessions (queue, id, visible) VALUES (?, ?, ?)
ON CONFLICT (queue, id) DO UPDATE SET visible = coalesce(sessions.visible, excluded.visible) RETURNING no`).
		int(q.No).text(id).int(t.now).one(func(r row) { no = r.int(0) })
	t.wakeSession(q.No, no)
	return no, err
}

// wakeSession wakes who waits for a session of the queue, and who waits for messages of this one.
func (t *tx) wakeSession(queue, no int64) {
	t.ready[int64(LaneOf(queue, laneSessions))] = t.now
	t.ready[int64(SessionLock{No: no}.lane())] = t.now
}

const sqlNextSession = "SELECT no, id, state FROM sessions WHERE queue = ? AND visible <= ? ORDER BY visible, no LIMIT 1"

// acceptNext locks the session that has waited longest for a receiver.
func (t *tx) acceptNext(c *claim) error {
	q := c.receive.queue
	for range dueBatch {
		var s Session
		found, err := t.prep(sqlNextSession).int(q.No).int(t.now).one(func(r row) { s = Session{SessionLock: SessionLock{No: r.int(0)}, ID: r.text(1), State: r.blob(2)} })
		if err != nil || !found {
			return err
		}
		// Its messages may have expired or been deleted since.
		if active, err := t.freeSession(q, s.No, 0); err != nil || !active {
			if err != nil {
				return err
			}
			continue
		}
		if err := t.lockSession(q, &s); err != nil {
			return err
		}
		c.receive.accepted = &s
		return nil
	}
	return nil
}

func (t *tx) lockSession(q MessageQueue, s *Session) error {
	s.Token = newToken()
	s.LockedUntil = fromMillis(t.now).Add(q.Lock)
	until := s.LockedUntil.UnixMilli()
	return t.prep("UPDATE sessions SET token = ?, locked_until = ?, visible = ? WHERE no = ?").int(s.Token).int(until).int(until).int(s.No).exec()
}

const sqlHeldOfSession = `
SELECT m.seq, m.lane, b.expires_at FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.lane IN (?, ?) AND m.rank = ? AND m.visible = ?`

// freeSession ends a session's lock, if there is one: what its receiver held is free again, with so
// many deliveries less. It reports whether the session has messages to receive; one that has nothing
// at all is forgotten.
func (t *tx) freeSession(q MessageQueue, no int64, deliveries int) (active bool, err error) {
	rank, lane := firstSessionRank+no, q.Lane(false)
	var held []heldMessage
	err = t.prep(sqlHeldOfSession).int(int64(lane)).int(int64(lane.deferred())).int(rank).int(sessionHeld).each(func(r row) error {
		held = append(held, heldMessage{seq: r.int(0), lane: Lane(r.int(1)), expiresAt: r.int(2), rank: rank})
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, m := range held {
		if err := t.giveBack(m, deliveries); err != nil {
			return false, err
		}
	}
	if active, err = t.any("SELECT 1 FROM messages WHERE lane = ? AND rank = ? LIMIT 1", int64(lane), rank); err != nil {
		return false, err
	}
	if active {
		return true, t.prep("UPDATE sessions SET token = NULL, locked_until = NULL, visible = ? WHERE no = ?").int(t.now).int(no).exec()
	}
	deferred, err := t.any("SELECT 1 FROM messages WHERE lane = ? AND rank = ? LIMIT 1", int64(lane.deferred()), rank)
	if err != nil {
		return false, err
	}
	if err := t.prep("UPDATE sessions SET token = NULL, locked_until = NULL, visible = NULL WHERE no = ?").int(no).exec(); err != nil || deferred {
		return false, err
	}
	return false, t.prep("DELETE FROM sessions WHERE no = ? AND state IS NULL").int(no).exec()
}

// any reports whether the statement finds a row.
func (t *tx) any(sql string, args ...int64) (bool, error) {
	st := t.prep(sql)
	for _, v := range args {
		st = st.int(v)
	}
	return st.one(func(row) {})
}

// AcceptSession locks the session of that id, whether it has messages or not. It is
// forebay.ErrSessionLocked while another receiver has it.
func (s *Store) AcceptSession(ctx context.Context, q MessageQueue, id string) (Session, error) {
	return transact(ctx, s, stageChange, func(t *tx) (Session, error) {
		session, locked := Session{ID: id}, false
		find := func(r row) {
			session.No, session.State, locked = r.int(0), r.blob(1), r.int(2) > t.now
		}
		const sqlSession = "SELECT no, state, locked_until FROM sessions WHERE queue = ? AND id = ?"
		found, err := t.prep(sqlSession).int(q.No).text(id).one(find)
		if err != nil {
			return session, err
		}
		if locked {
			return session, forebay.ErrSessionLocked
		}
		if known, err := t.any(sqlQueueNo, q.No); err != nil {
			return session, err
		} else if !known {
			return session, errNoQueue
		}
		if found { // what the last receiver held, if its lock expired
			if _, err := t.freeSession(q, session.No, 0); err != nil {
				return session, err
			}
		}
		// It may be new, or just forgotten.
		if _, err = t.prep("INSERT INTO sessions (queue, id) VALUES (?, ?) ON CONFLICT (queue, id) DO UPDATE SET id = excluded.id RETURNING no").
			int(q.No).text(id).one(func(r row) { session.No = r.int(0) }); err != nil {
			return session, err
		}
		if err := t.used(q); err != nil {
			return session, err
		}
		return session, t.lockSession(q, &session)
	})
}

// AcceptNextSession locks the session that has waited longest for a receiver. If there is none it
// waits, as long as ctx allows, or returns nil.
func (s *Store) AcceptNextSession(ctx context.Context, q MessageQueue, wait bool) (*Session, error) {
	if err := s.Used(ctx, q); err != nil {
		return nil, err
	}
	c := &claim{
		ClaimRequest: ClaimRequest{Lane: LaneOf(q.No, laneSessions)},
		receive:      &receive{queue: q, wait: wait, accept: true},
		answer:       make(chan struct{}),
	}
	if err := s.await(ctx, c); err != nil {
		return nil, err
	}
	return c.receive.accepted, nil
}

// updateSessionDue is updateDue for receivers that wait for a session, or for messages of theirs.
func (w *writer) updateSessionDue(t *tx, lane int64, foundEmpty bool) error {
	delete(w.ranks, lane)
	delete(w.dueAt, lane)
	if !foundEmpty {
		return nil
	}
	sql, no := "SELECT visible FROM sessions WHERE queue = ? AND visible IS NOT NULL ORDER BY visible LIMIT 1", Lane(lane).Queue()
	if lane < 0 { // to be told when the lock ends
		sql, no = "SELECT locked_until FROM sessions WHERE no = ? AND locked_until IS NOT NULL", -lane
	}
	_, err := t.prep(sql).int(no).one(func(r row) { w.dueAt[lane] = r.int(0) })
	return err
}

// sessionHeld returns when a session's lock ends, or forebay.ErrSessionLockLost.
func (t *tx) sessionHeld(q MessageQueue, l SessionLock) (until int64, err error) {
	found, err := t.prep("SELECT locked_until FROM sessions WHERE no = ? AND queue = ? AND token = ? AND locked_until > ?").
		int(l.No).int(q.No).int(l.Token).int(t.now).one(func(r row) { until = r.int(0) })
	if err == nil && !found {
		err = forebay.ErrSessionLockLost
	}
	return until, err
}

// RenewSession extends a session's lock, and those on its messages, by the queue's lock duration from
// now and returns when it will end.
func (s *Store) RenewSession(ctx context.Context, q MessageQueue, l SessionLock) (until time.Time, err error) {
	return transact(ctx, s, stageSettle, func(t *tx) (time.Time, error) {
		if _, err := t.sessionHeld(q, l); err != nil {
			return until, err
		}
		until := t.now + q.Lock.Milliseconds()
		return fromMillis(until), t.prep("UPDATE sessions SET locked_until = ?1, visible = ?1 WHERE no = ?2").int(until).int(l.No).exec()
	})
}

// CloseSession ends a session's lock. What its receiver holds is free again, as if it had not been
// delivered.
func (s *Store) CloseSession(ctx context.Context, q MessageQueue, l SessionLock) error {
	return s.settleMessage(ctx, func(t *tx) error {
		if _, err := t.sessionHeld(q, l); err != nil {
			return err
		}
		_, err := t.freeSession(q, l.No, 1)
		t.wakeSession(q.No, l.No)
		return err
	})
}

// SessionState returns what the receivers of a session last set, nil if nothing.
func (s *Store) SessionState(ctx context.Context, q MessageQueue, l SessionLock) (state []byte, err error) {
	return transact(ctx, s, stageSettle, func(t *tx) (state []byte, err error) {
		if _, err := t.sessionHeld(q, l); err != nil {
			return nil, err
		}
		_, err = t.prep("SELECT state FROM sessions WHERE no = ?").int(l.No).one(func(r row) { state = r.blob(0) })
		return state, err
	})
}

// SetSessionState keeps state for the receivers of a session, those that come later too; nil clears it.
func (s *Store) SetSessionState(ctx context.Context, q MessageQueue, l SessionLock, state []byte) error {
	return s.settleMessage(ctx, func(t *tx) error {
		if _, err := t.sessionHeld(q, l); err != nil {
			return err
		}
		return t.prep("UPDATE sessions SET state = ? WHERE no = ?").blob(state).int(l.No).exec()
	})
}
