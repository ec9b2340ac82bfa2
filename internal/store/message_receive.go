package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/forebayhq/forebay"
)

// ReceiveRequest asks for messages of one queue or of its dead-letter subqueue.
type ReceiveRequest struct {
	Queue      MessageQueue
	DeadLetter bool
	Max        int   // messages, at least 1
	MaxBytes   int64 // together; the first message is delivered whatever its size
	Wait       bool  // for a first message, as long as ctx allows; else the answer may be empty
	Delete     bool  // each message is gone once it is received; else it is locked
}

// receive is the part of a claim that takes plain messages instead of jobs.
type receive struct {
	wait, delete bool
	messages     []Message
	bytes        int64 // of these
}

// Receive takes the messages that became ready first. Each delivery counts, except in the dead-letter
// subqueue; a message that has had all its deliveries goes there instead.
func (s *Store) Receive(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	c := &claim{
		ClaimRequest: ClaimRequest{Lane: req.Queue.Lane(req.DeadLetter), Max: req.Max, MaxBytes: req.MaxBytes, Lock: req.Queue.Lock,
			MaxDeliveries: req.Queue.MaxDeliveries},
		receive: &receive{wait: req.Wait, delete: req.Delete},
		answer:  make(chan struct{}),
	}
	if err := s.await(ctx, c); err != nil {
		return nil, err
	}
	return c.receive.messages, nil
}

// dismiss answers the receivers that do not wait and found nothing. err is why the last transaction
// failed, if it did: when that was an operation's fault, they are served by the next one.
func (w *writer) dismiss(err error) {
	if err != nil && w.isolates(err) {
		return
	}
	for _, c := range w.impatient {
		if !c.state.CompareAndSwap(claimWaiting, claimServing) {
			continue // served, or gone
		}
		c.err = w.conn.domainError(err)
		c.deliver()
		lane := int64(c.Lane)
		w.parked[lane] = slices.DeleteFunc(w.parked[lane], func(other *claim) bool { return other == c })
		if len(w.parked[lane]) == 0 {
			delete(w.parked, lane)
		}
	}
	clear(w.impatient)
	w.impatient = w.impatient[:0]
}

// dropGone returns the claims whose callers have not given up. Receivers that wait in vain come and
// go for as long as their queue is empty.
func dropGone(claims []*claim) []*claim {
	return slices.DeleteFunc(claims, func(c *claim) bool { return c.state.Load() == claimGone })
}

const sqlReadyMessages = messageColumns + `FROM messages m JOIN bodies b ON b.seq = m.seq
WHERE m.lane = ? AND m.rank = 0 AND m.visible <= ? ORDER BY m.visible, m.seq LIMIT ? + 0`

// serveMessages takes ready messages for one receiver.
func (w *writer) serveMessages(t *tx, c *claim) error {
	for {
		limit, taken, tooLarge := c.Max-len(c.receive.messages), len(c.receive.messages), false
		bytes := c.receive.bytes
		var found []Message
		err := t.prep(sqlReadyMessages).int(int64(c.Lane)).int(t.now).int(int64(limit)).each(func(r row) error {
			if bytes > 0 && bytes+r.int(5) > c.MaxBytes {
				tooLarge = true
				return errStop
			}
			bytes += r.int(5)
			found = append(found, readMessage(r, t.now))
			return nil
		})
		if err := unlessStopped(err); err != nil {
			return err
		}
		for i := range found {
			if err := t.takeMessage(&found[i], c); err != nil {
				return err
			}
		}
		// What was set aside instead frees its place for others.
		setAside := taken+len(found) > len(c.receive.messages)
		if !setAside || !tooLarge && len(found) < limit {
			return nil
		}
	}
}

func unlessStopped(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// takeMessage hands a message that nobody holds to the receiver, unless its deliveries have run out.
func (t *tx) takeMessage(m *Message, c *claim) error {
	inDeadLetter := c.Lane.Kind() == LaneDeadLetter
	if !inDeadLetter && m.Deliveries >= c.MaxDeliveries {
		if err := t.deadLetter(m.Seq, c.Lane, exceeded(c.MaxDeliveries)); err != nil {
			return err
		}
		// The lanes' due times of this transaction were collected before the claims were served.
		to := int64(LaneOf(c.Lane.Queue(), LaneDeadLetter))
		if at, ok := t.w.dueAt[to]; !ok || at > t.now {
			t.w.dueAt[to] = t.now
		}
		return nil
	}
	if !inDeadLetter {
		m.Deliveries++
	}
	if c.receive.delete {
		if err := t.deleteMessage(m.Seq); err != nil {
			return err
		}
	} else {
		m.Token = 1 + rand.Int64N(math.MaxInt64)
		until := fromMillis(t.now).Add(c.Lock)
		m.LockedUntil = &until
		err := t.prep("UPDATE messages SET visible = ?, token = ?, locked_at = ?, deliveries = ? WHERE seq = ?").
			int(until.UnixMilli()).int(m.Token).int(t.now).int(int64(m.Deliveries)).int(m.Seq).exec()
		if err != nil {
			return err
		}
	}
	c.receive.messages = append(c.receive.messages, *m)
	c.receive.bytes += m.Size()
	return nil
}

func exceeded(deliveries int) DeadLettering {
	return DeadLettering{Reason: forebay.ReasonMaxDeliveries,
		Description: fmt.Sprintf("delivered %d times, which is all its queue allows, and never completed", deliveries)}
}

const sqlDeferredMessage = messageColumns + `FROM messages m JOIN bodies b ON b.seq = m.seq
WHERE m.seq = ? AND m.lane = ? AND (m.token IS NULL OR m.visible <= ?)`

// ReceiveDeferred takes those of the messages that are deferred in the lane and not locked, in the
// order given.
func (s *Store) ReceiveDeferred(ctx context.Context, req ReceiveRequest, seqs []int64) ([]Message, error) {
	return transact(ctx, s, stageChange, func(t *tx) ([]Message, error) {
		c := &claim{
			ClaimRequest: ClaimRequest{Lane: req.Queue.Lane(req.DeadLetter), Lock: req.Queue.Lock, MaxDeliveries: req.Queue.MaxDeliveries},
			receive:      &receive{delete: req.Delete},
		}
		var bytes int64
		for _, seq := range seqs {
			var m Message
			found, err := t.prep(sqlDeferredMessage).int(seq).int(int64(c.Lane.deferred())).int(t.now).one(func(r row) {
				if bytes += r.int(5); bytes <= req.MaxBytes || bytes == r.int(5) {
					m = readMessage(r, t.now)
				}
			})
			if err != nil {
				return nil, err
			}
			if !found || m.Seq == 0 {
				continue
			}
			if err := t.takeMessage(&m, c); err != nil {
				return nil, err
			}
		}
		return c.receive.messages, nil
	})
}
