package bus

import (
	"slices"

	"github.com/forebayhq/forebay"
	"pgregory.net/rapid"
)

// modelStep is a step of a commit and what it does to the model.
type modelStep struct {
	Step
	allowed bool
	apply   func()
	queue   int // of a send
	sent    []*modelMessage
	taken   []int // places in the order of numbers, of messages whose number was taken before; 0: none
}

// commit does several steps at once: sends, settlements, cancellations and states of sessions.
// One step that cannot be done refuses all.
func (d *postDriver) commit(t *rapid.T) {
	var steps []modelStep
	// Mostly deliveries that hold, each once: else no commit would be done.
	held := d.held
	if rapid.IntRange(0, 4).Draw(t, "any") > 0 {
		held = slices.DeleteFunc(slices.Clone(held), func(h heldDelivery) bool { return h.m.gone || h.m.token != h.lock.Token || d.lockedUntil(h.m) == 0 })
	}
	for range rapid.IntRange(1, 5).Draw(t, "steps") {
		switch kind := rapid.IntRange(0, 9).Draw(t, "step"); {
		case kind < 5 && len(held) > 0:
			step, m, current, apply := d.chooseSettlement(t, held)
			steps = append(steps, modelStep{Step: step, allowed: current, apply: apply})
			if rapid.IntRange(0, 9).Draw(t, "again") > 0 {
				held = slices.DeleteFunc(slices.Clone(held), func(h heldDelivery) bool { return h.m == m })
			}
		case kind == 5 && len(d.messages) > 0:
			these := slices.DeleteFunc(slices.Clone(d.messages), func(m *modelMessage) bool { return !m.scheduled })
			if len(these) == 0 {
				these = d.messages
			}
			m := these[rapid.IntRange(0, len(these)-1).Draw(t, "message")]
			steps = append(steps, modelStep{Step: Step{Kind: StepCancel, Queue: d.queues[m.queue], Seq: m.first},
				allowed: m.scheduled && !m.gone && m.seq == m.first, apply: func() { m.gone = true }})
		case kind == 6 && len(d.accepted) > 0:
			h := d.accepted[rapid.IntRange(max(0, len(d.accepted)-3), len(d.accepted)-1).Draw(t, "session")]
			s, state := d.sessions[h.key], rapid.SampledFrom([][]byte{nil, {}, {1}, {2, 3}}).Draw(t, "state")
			steps = append(steps, modelStep{Step: Step{Kind: StepState, Queue: d.queues[h.key.queue], Session: h.lock, State: state},
				allowed: s.epoch == h.epoch && !s.closed && s.until > d.now(), apply: func() { s.state = state }})
		default:
			steps = append(steps, d.chooseSend(t))
		}
	}
	if moved := slices.DeleteFunc(slices.Clone(steps), func(s modelStep) bool { return !s.mayMove() }); len(moved) > 1 {
		t.Skip("the order in which dead letters arrive elsewhere is not promised")
	}
	d.compareCommit(t, steps)
}

// mayMove reports whether a settlement may give the message a number in another queue.
func (s *modelStep) mayMove() bool {
	return s.Kind.settles() && s.Kind != StepComplete && s.Queue.ForwardDeadLettersTo != ""
}

// chooseSend draws a send, and takes numbers for some of the scheduled messages.
func (d *postDriver) chooseSend(t *rapid.T) modelStep {
	s := modelStep{allowed: true, queue: d.anyQueue(t)}
	s.Queue = d.queues[s.queue]
	s.Messages, s.sent = d.compose(t, s.queue)
	if rapid.IntRange(0, 2).Draw(t, "numbers") > 0 {
		return s
	}
	numbers, err := TakeNumbers(background, d.store.Store, s.Queue.Tenant, len(s.sent))
	if err != nil || len(numbers) != len(s.sent) {
		t.Fatalf("%d numbers: %v", len(numbers), err)
	}
	s.Numbers, s.taken = make([]Number, len(numbers)), make([]int, len(numbers))
	for i, n := range numbers {
		if n.Seq <= d.highest {
			t.Fatalf("took number %d after %d", n.Seq, d.highest)
		}
		if s.sent[i].scheduledAt > d.now() {
			d.arrivals++
			s.Numbers[i], s.taken[i] = n, d.arrivals
		}
	}
	return s
}

func (d *postDriver) compareCommit(t *rapid.T, steps []modelStep) {
	var all []Step
	named, allowed, twice := map[int64]bool{}, true, false
	for i := range steps {
		s := &steps[i]
		all = append(all, s.Step)
		allowed = allowed && s.allowed
		if row, known := s.row(); known {
			twice, named[row.No] = twice || named[row.No], true
		}
	}
	seqs, err := d.store.Commit(background, all)
	if !allowed || twice {
		code := forebay.CodeOf(err)
		if err == nil || !twice && !slices.Contains([]forebay.Code{forebay.CodeLockLost, forebay.CodeSessionLockLost, forebay.CodeNotFound}, code) || twice && code != forebay.CodeInvalidRequest {
			t.Fatalf("a commit that cannot be done: %v, %+v", err, all)
		}
		return
	}
	if err != nil {
		t.Fatalf("commit %+v: %v", all, err)
	}
	for i := range steps {
		if apply := steps[i].apply; apply != nil {
			apply()
		}
	}
	// Queues that keep their messages come before those that forward, each with all its messages.
	for _, forwards := range []bool{false, true} {
		var queues []int
		for i := range steps {
			if s := &steps[i]; s.sent != nil && !slices.Contains(queues, s.queue) && (s.Queue.ForwardTo != "") == forwards {
				queues = append(queues, s.queue)
			}
		}
		for _, q := range queues {
			for i := range steps {
				if s := &steps[i]; s.sent != nil && s.queue == q {
					d.noteSent(t, q, s.sent, seqs[i], s.taken)
					d.noteTaken(s)
				}
			}
		}
	}
}

// noteTaken gives scheduled messages the places of the numbers that were taken for them.
func (d *postDriver) noteTaken(s *modelStep) {
	for i, place := range s.taken {
		if m := s.sent[i]; place > 0 && m.scheduled && !m.gone {
			m.arrival, m.seq = place, s.Numbers[i].Seq
			d.highest = max(d.highest, m.seq)
		}
	}
}
