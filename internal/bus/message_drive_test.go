package bus

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/queue"
	"pgregory.net/rapid"
)

// postDriver drives a broker and its model.
type postDriver struct {
	postOffice
	to       broker
	store    *storeBroker // nil: the broker is a client
	clock    int64        // the time of the model, see during
	watched  []int        // the queues that checks compare
	focus    []int        // the queues of this run: few, so that much happens in each
	held     []heldDelivery
	accepted []heldSession
	serials  int
	highest  int64
}

type heldDelivery struct {
	m        *modelMessage
	subqueue queue.Subqueue
	lock     queue.Lock
}

type heldSession struct {
	key   sessionKey
	epoch int
	lock  SessionLock
}

// clientPatience is how long a client waits for messages where there are none.
const clientPatience = 100 * time.Millisecond

// during does something at a time at which nothing else happens by itself until it is done. A
// client that waits in vain does so by the clock. The model's clock stands meanwhile.
func (d *postDriver) during(do func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		if d.to.Client {
			for next := d.nextEvent(); next > 0 && next <= d.clock+2*clientPatience.Milliseconds(); next = d.nextEvent() {
				d.passUntil(next)
				d.check(t)
			}
		}
		do(t)
		d.clock = d.to.Clock.Now()
	}
}

// nextEvent is when something in the model changes by time alone, 0 if nothing does.
func (d *postDriver) nextEvent() (next int64) {
	see := func(at int64) {
		if at > d.clock && (next == 0 || at < next) {
			next = at
		}
	}
	for _, m := range d.messages {
		if !m.gone {
			see(m.visible)
			see(m.expires)
		}
	}
	for _, s := range d.sessions {
		see(s.until)
	}
	return next
}

// passUntil lets time pass until then, and the model do what is due.
func (d *postDriver) passUntil(at int64) {
	d.to.Clock.Pass(time.Duration(at-d.clock) * time.Millisecond)
	d.clock = d.to.Clock.Now()
	d.tend()
}

func (d *postDriver) anyQueue(t *rapid.T) int { return rapid.SampledFrom(d.focus).Draw(t, "queue") }

// compose draws messages for a queue.
func (d *postDriver) compose(t *rapid.T, q int) (contents []MessageContent, sent []*modelMessage) {
	sessions := []string{"", "x", "y", "z"}
	if d.queues[q].RequiresSession {
		sessions = sessions[1:]
	}
	for range rapid.IntRange(1, 3).Draw(t, "messages") {
		d.serials++
		m := &modelMessage{
			serial: fmt.Sprint(d.serials), id: rapid.SampledFrom([]string{"i", "j", "k", fmt.Sprint("id", d.serials)}).Draw(t, "id"),
			session: rapid.SampledFrom(sessions).Draw(t, "session"), body: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "body"), properties: forebay.Properties{},
		}
		if !d.to.Client && rapid.Bool().Draw(t, "over AMQP") {
			m.amqp = rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "sections")
		}
		c := MessageContent{AMQP: m.amqp, MessageID: m.id, Subject: m.serial, SessionID: m.session, Body: m.body, Text: len(m.body) == 0}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			m.ttl = time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ttl")) * time.Millisecond
			c.TTL = m.ttl
		case 1:
			at := time.UnixMilli(d.now()).Add(time.Duration(rapid.IntRange(-1000, 20_000).Draw(t, "delay")) * time.Millisecond)
			m.scheduledAt, c.ScheduledAt = at.UnixMilli(), &at
		}
		m.size = c.Size()
		sent, contents = append(sent, m), append(contents, c)
	}
	return contents, sent
}

func (d *postDriver) send(t *rapid.T) {
	q := d.anyQueue(t)
	contents, sent := d.compose(t, q)
	seqs, err := d.to.Messages.Send(background, d.queues[q], contents)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	d.noteSent(t, q, sent, seqs, nil)
}

// noteSent takes what was sent into the model. Those that have a place in taken had their numbers
// before.
func (d *postDriver) noteSent(t *rapid.T, q int, sent []*modelMessage, seqs []int64, taken []int) {
	for i, m := range sent {
		d.messages = append(d.messages, m)
		before := d.arrive(m, q)
		switch {
		case seqs == nil: // a look at the queue tells
		case before != nil && before.hops == 0 && seqs[i] != before.first:
			t.Fatalf("a duplicate of %d was given the number %d", before.first, seqs[i])
		case before == nil && seqs[i] <= d.highest && (taken == nil || taken[i] == 0):
			t.Fatalf("sequence number %d after %d", seqs[i], d.highest)
		case before == nil:
			m.first = seqs[i]
		}
	}
}

func (d *postDriver) cancelScheduled(t *rapid.T) {
	if len(d.messages) == 0 {
		t.Skip("nothing sent")
	}
	m := d.messages[rapid.IntRange(0, len(d.messages)-1).Draw(t, "message")]
	if m.first == 0 {
		t.Skip("nobody knows its number")
	}
	cancelled, err := d.to.Messages.CancelScheduled(background, d.queues[m.queue], m.first)
	if err != nil || cancelled != (m.scheduled && !m.gone && m.seq == m.first) {
		t.Fatalf("cancelled %t (%v): %+v", cancelled, err, m)
	}
	m.gone = m.gone || cancelled
}

func (d *postDriver) receive(t *rapid.T) {
	q := d.anyQueue(t)
	req := ReceiveRequest{
		Queue: d.queues[q], DeadLetter: rapid.IntRange(0, 2).Draw(t, "where") == 0, Max: rapid.IntRange(1, 4).Draw(t, "max"), MaxBytes: 1 << 20,
		Wait: rapid.Bool().Draw(t, "wait"), Delete: rapid.IntRange(0, 5).Draw(t, "delete") == 0,
	}
	if req.Queue.RequiresSession || d.to.Client && !opens(req.Queue, false) {
		req.DeadLetter = true
	}
	expected := d.take(d.ready(q, req.DeadLetter, ""), req.Max)
	got, err := d.to.Messages.Receive(background, req, len(expected))
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	d.compare(t, got, expected, req, 0)
}

// opens reports whether a client can open a receiver without a session. The SDK needs one also for
// what its management node does.
func opens(q MessageQueue, deadLetter bool) bool {
	return deadLetter || !q.RequiresSession && q.ForwardTo == ""
}

// take delivers up to limit of the messages in the model; each that goes elsewhere makes room.
func (d *postDriver) take(ready []*modelMessage, limit int) (taken []*modelMessage) {
	for _, m := range ready {
		if len(taken) < limit && d.deliver(m) {
			taken = append(taken, m)
		}
	}
	return taken
}

// chooseDeferred draws messages and returns their numbers, and those that the receiver is to get.
func (d *postDriver) chooseDeferred(t *rapid.T, q int, deadLetter bool, session string, allowed bool) (seqs []int64, expected []*modelMessage) {
	for _, m := range slices.Clone(d.messages) {
		if m.seq == 0 || rapid.IntRange(0, 2).Draw(t, "skip") == 0 {
			continue
		}
		seqs = append(seqs, m.seq)
		mine := d.session(m) == nil || m.session == session
		if allowed && mine && !m.gone && m.deferred && m.queue == q && m.deadLetter == deadLetter && d.lockedUntil(m) == 0 && d.deliver(m) {
			expected = append(expected, m)
		}
	}
	return seqs, expected
}

func (d *postDriver) receiveDeferred(t *rapid.T) {
	q := d.anyQueue(t)
	req := ReceiveRequest{Queue: d.queues[q], DeadLetter: rapid.IntRange(0, 3).Draw(t, "where") == 0, MaxBytes: 1 << 20}
	if d.to.Client && !opens(req.Queue, req.DeadLetter) {
		t.Skip("a client cannot ask")
	}
	seqs, expected := d.chooseDeferred(t, q, req.DeadLetter, "", req.DeadLetter || !req.Queue.RequiresSession)
	got, err := d.to.Messages.ReceiveDeferred(background, req, seqs)
	if err != nil {
		t.Fatalf("receive deferred: %v", err)
	}
	d.compare(t, got, expected, req, 0)
}

// compare checks what was received, and notes its locks; until is when that of the session ends.
func (d *postDriver) compare(t *rapid.T, got []Message, expected []*modelMessage, req ReceiveRequest, until int64) {
	if len(got) != len(expected) {
		t.Fatalf("received %d messages, expected %d", len(got), len(expected))
	}
	if until == 0 {
		until = d.now() + testLock.Milliseconds()
	}
	for i, g := range got {
		m := expected[i]
		if g.Subject != m.serial || g.Seq != m.seq || g.Deliveries != d.deliveriesOf(m, true) || !bytes.Equal(g.Body, m.body) || g.SessionID != m.session {
			t.Fatalf("received %+v, expected %+v", g, m)
		}
		if !d.to.Client && (!bytes.Equal(g.AMQP, m.amqp) || g.Text != (len(m.body) == 0)) {
			t.Fatalf("received %+v, expected %+v", g, m)
		}
		if req.Delete {
			m.gone = true
			continue
		}
		if m.token, m.visible = g.Token, until; g.LockedUntil.UnixMilli() != until {
			t.Fatalf("locked until %v", g.LockedUntil)
		}
		if s := d.session(m); s != nil {
			m.epoch = s.epoch
		}
		d.held = append(d.held, heldDelivery{m, d.subqueue(m), g.Lock})
	}
}

// deliveriesOf is how many deliveries a message is said to have had. A client counts one more than
// there were before.
func (d *postDriver) deliveriesOf(m *modelMessage, received bool) int {
	if d.to.Client && (m.deadLetter || !received && d.lockedUntil(m) == 0) {
		return m.deliveries + 1
	}
	return m.deliveries
}

// chooseSettlement draws a way to end one of the deliveries, current, expired or stale, sometimes
// through the wrong queue. apply does it to the model.
func (d *postDriver) chooseSettlement(t *rapid.T, held []heldDelivery) (step Step, m *modelMessage, current bool, apply func()) {
	h := held[rapid.IntRange(0, len(held)-1).Draw(t, "delivery")]
	m = h.m
	step = Step{Queue: d.queues[m.queue], DeadLetters: h.subqueue.Kind() == queue.SubqueueDeadLetter, Lock: h.lock}
	if i := slices.IndexFunc(d.queues, func(q MessageQueue) bool { return q.No == h.subqueue.Queue() }); i >= 0 {
		step.Queue = d.queues[i]
	}
	if other := d.queues[(m.queue+1)%len(d.queues)]; rapid.IntRange(0, 15).Draw(t, "wrong") == 0 && (!d.to.Client || opens(other, step.DeadLetters)) {
		step.Queue = other
	}
	current = !m.gone && m.token == h.lock.Token && d.lockedUntil(m) > 0 && step.subqueue() == d.subqueue(m)
	change := func() { maps.Copy(m.properties, step.Changed) }
	changes := func() {
		if rapid.Bool().Draw(t, "change") {
			step.Changed = forebay.Properties{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"): rapid.SampledFrom([]any{"x", int64(1), 2.0, true}).Draw(t, "value")}
		}
	}
	step.Kind = rapid.SampledFrom(d.settlements(step.DeadLetters)).Draw(t, "how")
	switch step.Kind {
	case StepComplete:
		apply = func() { m.gone = true }
	case StepAbandon:
		changes()
		apply = func() {
			change()
			expired := !m.deferred && m.expires > 0 && m.expires <= d.now()
			if !m.deadLetter && !expired && m.deliveries >= testMaxDeliveries {
				d.deadLetter(m, forebay.ReasonMaxDeliveries)
				return
			}
			d.giveBack(m, true)
		}
	case StepDefer:
		changes()
		apply = func() { change(); m.deferred = true; d.giveBack(m, true) }
	case StepDeadLetter:
		changes()
		step.Why = DeadLettering{Reason: "r", Description: "d"}
		apply = func() { change(); d.deadLetter(m, "r") }
	case StepRelease:
		apply = func() { d.giveBack(m, false) }
	}
	return step, m, current, apply
}

// settlements are the ways to end a delivery. A client is refused to dead-letter a dead letter,
// and its SDK releases by itself what it does not want.
func (d *postDriver) settlements(deadLetters bool) []StepKind {
	kinds := []StepKind{StepComplete, StepAbandon, StepDefer, StepDeadLetter, StepRelease}
	switch {
	case d.to.Client && deadLetters:
		return kinds[:3]
	case d.to.Client:
		return kinds[:4]
	}
	return kinds
}

// settle ends a delivery in a random way.
func (d *postDriver) settle(t *rapid.T) {
	if len(d.held) == 0 {
		t.Skip("nothing held")
	}
	step, m, current, apply := d.chooseSettlement(t, d.held)
	if d.to.Client && step.Queue.RequiresSession && !step.DeadLetters && !current {
		t.Skip("a client accepts the session again by itself")
	}
	var err error
	switch rapid.IntRange(0, 5).Draw(t, "other") {
	case 0:
		if d.to.Client && step.Queue.RequiresSession && !step.DeadLetters {
			t.Skip("a client opens its connection anew after this error")
		}
		until, renewErr := d.to.Settle.Renew(background, &step, testLock)
		if err = renewErr; current && d.session(m) != nil {
			if forebay.CodeOf(err) != forebay.CodeNotSupported {
				t.Fatalf("renewed a message of a session: %v", err)
			}
			return
		}
		if err == nil && until.UnixMilli() != d.now()+testLock.Milliseconds() {
			t.Fatalf("renewed until %v", until)
		}
		apply = func() { m.visible = d.now() + testLock.Milliseconds() }
	case 1:
		if d.store == nil {
			t.Skip("only the server does this")
		}
		if err := d.store.undeliver(background, &step); err != nil {
			t.Fatalf("undeliver: %v", err)
		}
		if current {
			d.giveBack(m, false)
		}
		return
	default:
		err = d.to.Settle.Settle(background, &step)
	}
	if !current {
		if !errors.Is(err, forebay.ErrLockLost) {
			t.Fatalf("a lost lock settled message %d: %v", m.seq, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("settle %d: %v", m.seq, err)
	}
	apply()
}

func (d *postDriver) deleteBefore(t *rapid.T) {
	q, deadLetter := d.anyQueue(t), rapid.Bool().Draw(t, "where")
	before, limit := time.UnixMilli(d.now()).Add(-time.Duration(rapid.IntRange(0, 30_000).Draw(t, "age"))*time.Millisecond), rapid.IntRange(1, 3).Draw(t, "limit")
	want := 0
	for _, m := range d.messagesIn(q, deadLetter) {
		if want < limit && m.enqueued < before.UnixMilli() && !m.deferred && !m.scheduled && d.lockedUntil(m) == 0 {
			m.gone = true
			want++
		}
	}
	deleted, err := d.store.DeleteBefore(background, d.queues[q].Subqueue(deadLetter), before, limit)
	if err != nil || deleted != want {
		t.Fatalf("deleted %d messages (%v), expected %d", deleted, err, want)
	}
}

// passTime stops at every time at which something is due.
func (d *postDriver) passTime(t *rapid.T) {
	end := d.now() + rapid.Int64Range(1, 12_000).Draw(t, "ms")
	for d.now() < end {
		next := end
		for _, m := range d.messages {
			if due := d.due(m); due > d.now() {
				next = min(next, due)
			}
		}
		d.passUntil(next)
	}
}

// restart closes the database and opens it again: nothing changes, locks included.
func (d *postDriver) restart(t *rapid.T) { d.store.restart(t) }
