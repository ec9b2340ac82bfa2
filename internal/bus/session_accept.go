package bus

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// prepare begins a statement with entity.SQLSessionContents.
func (t *sessionTx) prepare(sql string, q MessageQueue) driver.Statement {
	subqueue := q.Subqueue(false)
	return t.Prep(sql).Int(int64(subqueue)).Int(int64(subqueue.Deferred()))
}

const sqlNextSessions = "SELECT " + entity.SQLSessionContents + `, s.no, s.id, s.state, s.visible_at
FROM sessions s WHERE s.queue = ?3 AND s.visible_at >= ?4 AND s.visible_at <= ?5 AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.no = ?3 AND (q.status >= 2 OR q.kind = 'deleting'))
ORDER BY s.visible_at, s.no LIMIT ?6 + 0`

// sessionTx creates, locks and releases sessions. It has what the transaction has read of them.
type sessionTx struct {
	*Tx
	found map[int64][]foundSession // in a queue, for the receivers that wait for one
	until map[int64]int64          // session → the end of its lock
	freed int                      // messages that receivers held

	known    map[messageName]*knownSession // not used where a statement is cheap
	byNumber map[int64]*knownSession
}

// lockEnds records the end of a session's lock.
func (t *sessionTx) lockEnds(no, at int64) {
	if t.until == nil {
		t.until = map[int64]int64{}
	}
	t.until[no] = at
}

type foundSession struct {
	Session
	has     entity.SessionContents
	visible int64
}

// maxSessionsRead is how many sessions, with their states, one statement reads.
const maxSessionsRead = 64

// next returns the session that has waited longest for a receiver. One statement serves all
// waiting receivers.
func (t *sessionTx) next(c *Receiver) (next foundSession, found bool, err error) {
	q, ahead := c.Queue, t.found[c.Queue.No]
	if len(ahead) == 0 {
		waiting := min(len(t.W.Waiters[c.Subqueue]), maxSessionsRead)
		err := t.prepare(sqlNextSessions, q).Int(q.No).Int(t.W.floors.Ready(c.Subqueue, t.Now)).Int(t.Now).Int(int64(waiting)).Each(func(r driver.Row) error {
			ahead = append(ahead, foundSession{Session{SessionLock: SessionLock{No: r.Int(3)}, ID: r.Text(4), State: r.Blob(5)}, entity.ReadContents(r), r.Int(6)})
			return nil
		})
		if err != nil || len(ahead) == 0 {
			return next, false, err
		}
	}
	if t.found == nil {
		t.found = map[int64][]foundSession{}
	}
	t.found[q.No] = ahead[1:]
	return ahead[0], true, nil
}

// acceptNext locks the session that has waited longest for a receiver.
func (t *sessionTx) acceptNext(c *Receiver) error {
	q := c.Queue
	for passed := 0; passed < dueBatch && t.freed < maxFreed; passed++ {
		s, found, err := t.next(c)
		if err != nil || !found {
			return err
		}
		if err := t.giveBackHeld(q, s.No, &s.has, 0); err != nil {
			return err
		}
		if s.has.Held { // it stays the first
			break
		}
		t.W.floors.Taken(c.Subqueue, s.visible)
		if !s.has.Active { // its messages have expired or were deleted
			if err := t.release(s.No, s.has); err != nil {
				return err
			}
			continue
		}
		if err := t.lock(q, &s.Session); err != nil {
			return err
		}
		c.accepted = &s.Session
		return nil
	}
	c.cut = true // there may be more behind these
	return nil
}

const sqlLockSession = "UPDATE sessions SET lock_token = ?, locked_until = ?, visible_at = ? WHERE no = ?"

func (t *sessionTx) lock(q MessageQueue, s *Session) error {
	s.Token = queue.NewToken()
	s.LockedUntil = driver.FromMillis(t.Now).Add(q.Lock)
	until := s.LockedUntil.UnixMilli()
	t.W.floors.Note(queue.SubqueueOf(q.No, subqueueSessions), until, t.Now)
	return t.Prep(sqlLockSession).Int(s.Token).Int(until).Int(until).Int(s.No).Exec()
}

const (
	// maxFreed is how many messages one transaction frees that a receiver held.
	maxFreed = dueBatch

	sqlHeldOfSession = `
SELECT m.seq, m.subqueue, b.expires_at FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.subqueue IN (?, ?) AND m.flow = ? AND m.visible_at = ? LIMIT ? + 0`
	sqlContentsOfSession = "SELECT " + entity.SQLSessionContents + " FROM sessions s WHERE s.no = ?3"
)

// giveBackHeld unlocks the messages that the receiver of a session held. It takes so many
// deliveries off their counts and updates has. If some are still held, nobody may accept the
// session yet.
func (t *sessionTx) giveBackHeld(q MessageQueue, no int64, has *entity.SessionContents, deliveries int) error {
	if !has.Held {
		return nil
	}
	var held heldMessages
	if err := held.of(q, no).Run(t.Conn); err != nil {
		return err
	}
	return t.giveBack(held, q, no, has, deliveries)
}

// heldMessages are what the receiver of a session holds.
type heldMessages []HeldMessage

// of reads what is held in that session of the queue, up to maxFreed messages.
func (h *heldMessages) of(q MessageQueue, no int64) driver.PipelineQuery {
	flow, subqueue := firstSessionFlow+no, q.Subqueue(false)
	return driver.PipelineQuery{SQL: sqlHeldOfSession, Bind: func(st driver.Statement) driver.Statement {
		return st.Int(int64(subqueue)).Int(int64(subqueue.Deferred())).Int(flow).Int(sessionHeld).Int(maxFreed)
	}, OnRow: func(r driver.Row) {
		*h = append(*h, HeldMessage{Seq: r.Int(0), Subqueue: queue.Subqueue(r.Int(1)), expiresAt: r.Int(2), flow: flow})
	}}
}

func (t *sessionTx) giveBack(held heldMessages, q MessageQueue, no int64, has *entity.SessionContents, deliveries int) error {
	has.Held = len(held) == maxFreed // there may be more
	t.freed += len(held)
	expired := false
	for _, m := range held {
		expired = expired || m.Expired(t.Now)
		if err := t.Deliveries.GiveBack(m, deliveries); err != nil {
			return err
		}
	}
	if !expired { // what was held counted as active, or deferred, before
		return nil
	}
	_, err := t.prepare(sqlContentsOfSession, q).Int(no).One(func(r driver.Row) { *has = entity.ReadContents(r) })
	return err
}

const sqlReleaseSession = "UPDATE sessions SET lock_token = NULL, locked_until = NULL, visible_at = ? WHERE no = ?"

// release ends a session's lock, if there is one. A session without messages and state is
// deleted.
func (t *sessionTx) release(no int64, has entity.SessionContents) error {
	var visible int64                  // none
	if s := t.byNumber[no]; s != nil { // a message may have come since the session was read
		has.Active = has.Active || s.arrived
		s.stored = has.Active
	}
	if has.Active {
		visible = t.Now
	}
	if err := t.Prep(sqlReleaseSession).IntOrNull(visible).Int(no).Exec(); err != nil || has.Active || has.Deferred {
		return err
	}
	return t.Prep("DELETE FROM sessions WHERE no = ? AND state IS NULL").Int(no).Exec()
}

// sqlAcceptNew makes a session, which a message may have made meanwhile.
const sqlAcceptNew = `INSERT INTO sessions (queue, id) VALUES (?, ?) ON CONFLICT (queue, id) DO UPDATE SET id = excluded.id RETURNING no`

const sqlNamedSession = "SELECT " + entity.SQLSessionContents + ", s.no, s.state, s.locked_until FROM sessions s WHERE s.queue = ?3 AND s.id = ?4"

// Accept locks the session of that id, whether it has messages or not. It returns
// forebay.ErrSessionLocked while another receiver has it.
func (s SessionStore) Accept(ctx context.Context, q MessageQueue, id string) (accepted Session, err error) {
	subqueue := q.Subqueue(false)
	// The messages that the last receiver held are not prefetched. Settlements prefetch some of
	// them, but they run earlier in the transaction.
	o := db.Op{Stage: db.StageChange, Local: true, Interleaves: true, Asks: func() []driver.Prefetch {
		return []driver.Prefetch{entity.Prefetch(q.No),
			driver.NewPrefetch(sqlNamedSession, driver.RowName{Of: "sessions", No: q.No, ID: id}).Int(int64(subqueue)).Int(int64(subqueue.Deferred())).Int(q.No).Text(id)}
	}}
	accept := func(t *Tx) (Session, error) {
		session, has, locked := Session{ID: id}, entity.SessionContents{}, false
		found, err := t.sessions.prepare(sqlNamedSession, q).Int(q.No).Text(id).One(func(r driver.Row) {
			has = entity.ReadContents(r)
			session.No, session.State, locked = r.Int(3), r.Blob(4), r.Int(5) > t.Now
		})
		if err != nil {
			return session, err
		}
		now, known, err := t.MessageQueue(q.No)
		switch {
		case err != nil:
			return session, err
		case !known:
			return session, entity.ErrNoQueue
		case !now.Status.Receives():
			return session, entity.ErrReceiveDisabled
		case locked:
			return session, forebay.ErrSessionLocked
		}
		if !found && t.W.Shared() {
			var known *knownSession
			if known, err = t.sessions.named(q.No, id); err == nil {
				session.No, err = known.no, t.sessions.store(known, q.No, id, 0)
			}
		} else if !found {
			_, err = t.Prep(sqlAcceptNew).Int(q.No).Text(id).One(func(r driver.Row) { session.No = r.Int(0) })
		} else { // the last receiver's messages, if its lock expired
			err = t.sessions.giveBackHeld(q, session.No, &has, 0)
		}
		if err != nil || has.Held {
			return session, err
		}
		if err = t.used(q); err == nil {
			err = t.sessions.lock(q, &session)
		}
		return session, err
	}
	for err == nil && accepted.Token == 0 {
		accepted, err = db.TransactIn(ctx, Key, s.Writer, o, accept)
	}
	return accepted, err
}

// AcceptNext locks the session that has waited longest for a receiver. If there is none,
// it waits as long as ctx allows, or returns nil without wait.
func (s SessionStore) AcceptNext(ctx context.Context, q MessageQueue, wait bool) (*Session, error) {
	if err := Used(ctx, s.Writer, q); err != nil {
		return nil, err
	}
	c := &Receiver{ReceiveRequest: ReceiveRequest{Queue: q, Wait: wait}, participant: Key.In(s.Writer), Subqueue: queue.SubqueueOf(q.No, subqueueSessions),
		accept: true, Waiter: queue.NewWaiter()}
	if err := queue.Await(ctx, s.Writer, c, &c.Waiter); err != nil {
		return nil, err
	}
	return c.accepted, nil
}
