package bus

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// SessionLock is one receiver's lock on a session. The token is new each time the session is
// accepted.
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

// The visible time of a session's message only says whether it is free or held. How long it is
// held is in the session's row.
const (
	sessionFree = 0
	sessionHeld = 1 << 62
)

// subqueueSessions is where receivers wait for a session. Nobody waits in the subqueue of
// deferred messages, so it is free for this.
const subqueueSessions = queue.SubqueueRetry

// row names the session.
func (l SessionLock) row() driver.RowName { return driver.RowName{Of: "sessions", No: l.No} }

// operation is what is known of what the holder of the lock does with the session.
func (l SessionLock) operation(q MessageQueue) db.Op {
	return db.Op{Stage: db.StageSettle, Local: true, Interleaves: true, Asks: func() []driver.Prefetch { return []driver.Prefetch{l.prefetch(q)} }}
}

// prefetch is what sessionTx.held asks.
func (l SessionLock) prefetch(q MessageQueue) driver.Prefetch {
	return driver.NewPrefetch(sqlSessionLock, l.row()).Int(l.No).Int(q.No).Int(l.Token)
}

const sqlSessionState = "SELECT state FROM sessions WHERE no = ?"

const sqlSessionLock = `
SELECT s.locked_until, (SELECT CASE q.kind WHEN 'deleting' THEN 4 ELSE q.status END FROM queues q WHERE q.no = s.queue) FROM sessions s WHERE s.no = ? AND s.queue + 0 = ? AND s.lock_token = ?`

// subqueue is where a receiver waits for messages of its session. Its negative number belongs to
// no queue.
func (l SessionLock) subqueue() queue.Subqueue { return queue.Subqueue(-l.No) }

// any reports whether the statement finds a row.
func (t *Tx) any(sql string, args ...int64) (bool, error) {
	st := t.Prep(sql)
	for _, v := range args {
		st = st.Int(v)
	}
	return st.One(func(driver.Row) {})
}

// updateSessionDue is updateDue for receivers that wait for a session, or for messages of their
// session.
func (w *Participant) updateSessionDue(t *Tx, subqueue queue.Subqueue, foundEmpty bool) (refusal, err error) {
	delete(w.DueAt, subqueue)
	if !foundEmpty {
		return nil, nil
	}
	if !subqueue.IsOfQueue() { // the receiver gets an error when the lock ends
		if until, known := t.sessions.until[int64(-subqueue)]; known {
			w.DueAt[subqueue] = until
			return nil, nil
		}
		_, err = t.Prep("SELECT locked_until FROM sessions WHERE no = ? AND locked_until IS NOT NULL").Int(int64(-subqueue)).
			One(func(r driver.Row) { w.DueAt[subqueue] = r.Int(0) })
		return nil, err
	}
	next, after := int64(0), w.floors.Next(subqueue, t.Now)
	err = t.RunPipeline([]driver.PipelineQuery{entity.AskRefusal(subqueue.Queue(), &refusal),
		{SQL: "SELECT visible_at FROM sessions WHERE queue = ? AND visible_at > ? ORDER BY visible_at LIMIT 1",
			Bind:  func(st driver.Statement) driver.Statement { return st.Int(subqueue.Queue()).Int(after) },
			OnRow: func(r driver.Row) { next = r.Int(0) }}})
	if err != nil || refusal != nil { // a change of the status has it scanned
		return refusal, err
	}
	if w.floors.Empty(subqueue, t.Now, next); next > 0 {
		w.DueAt[subqueue] = next
	}
	return nil, nil
}

// held returns when a session's lock ends, or forebay.ErrSessionLockLost. It records that
// the queue is in use.
func (t *sessionTx) held(q MessageQueue, l SessionLock) (until int64, err error) {
	until, _, err = t.heldIn(q, l)
	return until, err
}

// heldToReceive is held for a receiver of messages, whom the queue's status may refuse.
func (t *sessionTx) heldToReceive(q MessageQueue, l SessionLock) (until int64, err error) {
	until, status, err := t.heldIn(q, l)
	if err == nil {
		err = entity.RefusalOf(status)
	}
	return until, err
}

// heldIn is held, with the status of the queue.
func (t *sessionTx) heldIn(q MessageQueue, l SessionLock) (until, status int64, err error) {
	if until, status, err = t.lockEnd(q, l); err != nil {
		return 0, 0, err
	}
	return until, status, t.used(q)
}

// lockEnd is heldIn without the record.
func (t *sessionTx) lockEnd(q MessageQueue, l SessionLock) (until, status int64, err error) {
	_, err = t.Prep(sqlSessionLock).Int(l.No).Int(q.No).Int(l.Token).One(func(r driver.Row) { until, status = r.Int(0), r.Int(1) })
	if err == nil && until <= t.Now {
		err = forebay.ErrSessionLockLost
	}
	return until, status, err
}

// Renew extends a session's lock, and those on its messages, by the queue's lock duration
// from now and returns when it will end.
func (s SessionStore) Renew(ctx context.Context, q MessageQueue, l SessionLock) (until time.Time, err error) {
	return db.TransactIn(ctx, Key, s.Writer, l.operation(q), func(t *Tx) (time.Time, error) {
		if _, err := t.sessions.held(q, l); err != nil {
			return until, err
		}
		until := t.Now + q.Lock.Milliseconds()
		return driver.FromMillis(until), t.Prep("UPDATE sessions SET locked_until = ?1, visible_at = ?1 WHERE no = ?2").Int(until).Int(l.No).Exec()
	})
}

const sqlCloseSession = "SELECT " + entity.SQLSessionContents + " FROM sessions s WHERE s.no = ?3 AND s.queue + 0 = ?4 AND s.lock_token = ?5 AND s.locked_until > ?6"

// Close ends a session's lock. The messages that its receiver holds are free again, as if
// never delivered.
func (s SessionStore) Close(ctx context.Context, q MessageQueue, l SessionLock) (err error) {
	// After what settles its messages, some of which it gives back. sessionTx.release heeds messages
	// that are sent to the session meanwhile.
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Touches: []driver.RowName{l.row()}}
	for more := true; more && err == nil; {
		held := l
		l, err = db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (SessionLock, error) { return t.sessions.close(q, held) })
		more = l.Token != 0
	}
	return err
}

// sqlSessionHolder finds the lock of whoever has the session of an id.
const sqlSessionHolder = "SELECT no, lock_token FROM sessions WHERE queue = ? AND id = ? AND locked_until > ?"

// Holder returns the lock on a session by its id. found is false if no receiver has it.
func (s SessionStore) Holder(ctx context.Context, q MessageQueue, id string) (l SessionLock, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlSessionHolder).Int(q.No).Text(id).Int(c.Now()).One(func(r driver.Row) { l = SessionLock{r.Int(0), r.Int(1)} })
		return err
	})
	return l, found, err
}

// close returns the lock to go on with if more was held than one transaction frees. It is a new
// one, so that the receiver gets nothing in between, and nobody else does.
func (t *sessionTx) close(q MessageQueue, l SessionLock) (rest SessionLock, err error) {
	var has entity.SessionContents
	var held heldMessages
	locked, subqueue := false, q.Subqueue(false)
	heldQuery := held.of(q, l.No)
	heldQuery.Skip = func() bool { return !has.Held }
	err = t.RunPipeline([]driver.PipelineQuery{{SQL: sqlCloseSession, Bind: func(st driver.Statement) driver.Statement {
		return st.Int(int64(subqueue)).Int(int64(subqueue.Deferred())).Int(l.No).Int(q.No).Int(l.Token).Int(t.Now)
	}, OnRow: func(r driver.Row) { locked, has = true, entity.ReadContents(r) }}, heldQuery})
	if err == nil && !locked {
		err = forebay.ErrSessionLockLost
	}
	if err == nil {
		err = t.used(q)
	}
	if err == nil {
		err = t.giveBack(held, q, l.No, &has, 1)
	}
	if err != nil {
		return rest, err
	}
	t.wake(q.No, l.No)
	if has.Held {
		more := Session{SessionLock: l}
		err = t.lock(q, &more)
		return more.SessionLock, err
	}
	return rest, t.release(l.No, has)
}

// State returns what the receivers of a session last set, nil if nothing.
func (s SessionStore) State(ctx context.Context, q MessageQueue, l SessionLock) (state []byte, err error) {
	o := l.operation(q)
	o.Asks = func() []driver.Prefetch {
		return []driver.Prefetch{l.prefetch(q), driver.NewPrefetch(sqlSessionState, l.row()).Int(l.No)}
	}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (state []byte, err error) {
		if _, err := t.sessions.held(q, l); err != nil {
			return nil, err
		}
		_, err = t.Prep(sqlSessionState).Int(l.No).One(func(r driver.Row) { state = r.Blob(0) })
		return state, err
	})
}

// SetState stores the state of a session for this receiver and later ones; nil clears it.
func (s SessionStore) SetState(ctx context.Context, q MessageQueue, l SessionLock, state []byte) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, l.operation(q), func(t *Tx) (struct{}, error) {
		if _, err := t.sessions.held(q, l); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.sessions.setState(l, state)
	})
	return err
}

func (t *sessionTx) setState(l SessionLock, state []byte) error {
	return t.Prep("UPDATE sessions SET state = ? WHERE no = ?").Blob(state).Int(l.No).Exec()
}
