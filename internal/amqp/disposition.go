package amqp

import (
	"bytes"
	"slices"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// keptDispositions is the capacity of the largest list that a session keeps for the next ones.
const keptDispositions = 1024

// disposition is what is to be said of a delivery. Role is ours.
type disposition struct {
	role    wire.Role
	id      uint32
	state   wire.DeliveryState
	settled bool
}

// dispose has the writer tell a disposition. What comes until it does is told together.
func (s *Session) dispose(d disposition) {
	s.dispositions = append(s.dispositions, d)
	s.queue()
}

// flushDispositions encodes the dispositions, neighbours of equal state in one (§2.7.6).
func (s *Session) flushDispositions() {
	list := s.dispositions
	if len(list) == 0 {
		return
	}
	s.dispositions = nil // what cannot be encoded closes the connection, which comes here again
	whole := list
	base := list[0].id
	slices.SortStableFunc(list, func(a, b disposition) int {
		if a.role != b.role {
			if a.role == wire.RoleSender {
				return -1
			}
			return 1
		}
		return int(int32(a.id-base)) - int(int32(b.id-base))
	})
	for len(list) > 0 {
		first, n := list[0], 1
		for n < len(list) && list[n].id == first.id+uint32(n) && list[n].role == first.role && list[n].settled == first.settled && sameState(list[n].state, first.state) {
			n++
		}
		frame := wire.Disposition{Role: first.role, First: first.id, Last: ptr(first.id + uint32(n) - 1), Settled: first.settled, State: first.state}
		s.conn.send(s.channel, &frame)
		list = list[n:]
	}
	if clear(whole); cap(whole) <= keptDispositions {
		s.dispositions = whole[:0]
	}
}

// sameState says that two states are equal. It may miss some, of those that have content.
func sameState(a, b wire.DeliveryState) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case *wire.Accepted:
		_, ok := b.(*wire.Accepted)
		return ok
	case *wire.Released:
		_, ok := b.(*wire.Released)
		return ok
	case *wire.TransactionalState:
		b, ok := b.(*wire.TransactionalState)
		return ok && bytes.Equal(a.TxnID, b.TxnID) && sameState(a.Outcome, b.Outcome)
	}
	return false
}

// handleDisposition takes what the peer says of deliveries (§2.7.6). What it says of its own ones
// changes nothing: they are settled here first. The lock is held.
func (s *Session) handleDisposition(d *wire.Disposition) (reports []report) {
	if d.Role != wire.RoleReceiver {
		return nil
	}
	last := d.First
	if d.Last != nil {
		last = *d.Last
	}
	if int32(last-d.First) < 0 {
		s.fail(wire.ErrInvalidField, "last is before first in a disposition")
		return nil
	}
	if (terminal(d.State) || d.Settled) && inSequence(d.First, s.nextDelivery) < 0 {
		if inSequence(last, s.nextDelivery) >= 0 {
			last = s.nextDelivery - 1
		}
		for _, id := range s.unsettledBetween(d.First, last) {
			reports = s.settle(reports, id, d)
		}
		s.answerForgotten(d.First, last, d.Settled)
	}
	return reports
}

// answerForgotten answers what the peer says of forgotten deliveries, each once: then nothing is
// known of it any more.
func (s *Session) answerForgotten(first, last uint32, settled bool) {
	span := last - first
	kept := s.forgotten[:0]
	for _, id := range s.forgotten {
		switch {
		case id-first > span:
			kept = append(kept, id)
		case !settled:
			s.dispose(disposition{role: wire.RoleSender, id: id, state: &wire.Rejected{Error: newError(wire.ErrNotFound, "the delivery is too old")}, settled: true})
		}
	}
	s.conn.outbound.free(forgottenBytes * (len(s.forgotten) - len(kept)))
	s.forgotten = kept
}

// report is what one link is told.
type report struct {
	link        *Outgoing
	settlements []Settlement
}

// settle takes what the peer says of one delivery.
func (s *Session) settle(reports []report, id uint32, d *wire.Disposition) []report {
	delivery := s.unsettled[id]
	out, known := delivery.link, delivery.reported
	if !known {
		delivery.reported = true
		s.reported++
		s.conn.reported++
		out.reported++
	}
	switch {
	case d.Settled:
		s.dropSent(id, delivery)
	case out.options.Settled == nil:
		s.dropSent(id, delivery)
		s.dispose(disposition{role: wire.RoleSender, id: id, state: d.State, settled: true})
	}
	out.closes()
	if known || out.options.Settled == nil || d.Settled && repeats(d.State, delivery.told) {
		return reports
	}
	i := slices.IndexFunc(reports, func(r report) bool { return r.link == out })
	if i < 0 {
		i = len(reports)
		reports = append(reports, report{link: out})
	}
	reports[i].settlements = append(reports[i].settlements, Settlement{ID: id, Tag: delivery.tag, State: d.State, Settled: d.Settled})
	return reports
}

// repeats says that a peer which settles says nothing new: it was told that state, of the same
// transaction. The SDK for Java settles so what it was told.
func repeats(state, told wire.DeliveryState) bool {
	before, within := told.(*wire.TransactionalState)
	again, still := state.(*wire.TransactionalState)
	return within && (state == nil || still && bytes.Equal(again.TxnID, before.TxnID))
}

// terminal says that a state is an outcome, also of a transaction (§3.4, §4.5.8).
func terminal(state wire.DeliveryState) bool {
	switch state.(type) {
	case *wire.Accepted, *wire.Rejected, *wire.Released, *wire.Modified, *wire.TransactionalState:
		return true
	}
	return false
}

// unsettledBetween returns the ids of unsettled deliveries in a range, in order. A peer may name
// ids that were settled long ago.
func (s *Session) unsettledBetween(first, last uint32) (ids []uint32) {
	span := last - first
	if span <= uint32(2*len(s.unsettled)) {
		for i := uint32(0); i <= span; i++ {
			if id := first + i; s.unsettled[id] != nil {
				ids = append(ids, id)
			}
		}
	} else {
		for id := range s.unsettled {
			if id-first <= span {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, inSequence)
	return ids
}
