package bus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
	"pgregory.net/rapid"
)

// postOffice is the model of queues of messages: what they must do, in memory and as simply as
// possible.
type postOffice struct {
	now      func() int64
	queues   []MessageQueue
	messages []*modelMessage
	sessions map[sessionKey]*modelSession
	seen     []map[string]modelID // by queue: message ids
	arrivals int
}

type modelMessage struct {
	serial     string // tells it from all others, whatever number it has
	seq        int64  // 0: not known yet
	first      int64  // the number it was given first
	arrival    int    // numbers are given in this order
	queue      int
	id         string
	session    string
	body, amqp []byte
	properties forebay.Properties
	size       int64 // as it was sent
	ttl        time.Duration

	deadLetter, deferred, scheduled, gone bool
	scheduledAt, expires                  int64 // 0: never
	enqueued, visible                     int64
	token                                 int64 // 0: free
	epoch                                 int   // of the session's lock under which it was delivered
	deliveries, hops                      int
	reason, source                        string
}

type sessionKey struct {
	queue int
	id    string
}

type modelSession struct {
	epoch  int
	lock   SessionLock
	until  int64
	state  []byte
	closed bool
}

type modelID struct {
	until int64
	first *modelMessage
}

func (p *postOffice) subqueue(m *modelMessage) queue.Subqueue {
	return p.queues[m.queue].Subqueue(m.deadLetter)
}

func (p *postOffice) session(m *modelMessage) *modelSession {
	if m.deadLetter || !p.queues[m.queue].RequiresSession {
		return nil
	}
	return p.sessions[sessionKey{m.queue, m.session}]
}

// lockedUntil is when the message's lock ends, 0 if it is free.
func (p *postOffice) lockedUntil(m *modelMessage) int64 {
	until := m.visible
	if s := p.session(m); s != nil {
		if m.epoch != s.epoch || s.closed {
			return 0
		}
		until = s.until
	}
	if m.token == 0 || until <= p.now() {
		return 0
	}
	return until
}

// arrive puts a message into a queue and reports whether it is there, or the one that it repeats.
func (p *postOffice) arrive(m *modelMessage, queue int) (duplicate *modelMessage) {
	q := p.queues[queue]
	m.queue, m.seq, m.enqueued, m.visible, m.expires = queue, 0, p.now(), p.now(), 0
	m.deadLetter, m.deferred, m.token, m.deliveries = false, false, 0, 0
	p.arrivals++
	m.arrival = p.arrivals
	if q.DuplicateWindow > 0 {
		if before, ok := p.seen[queue][m.id]; ok && before.until > p.now() {
			m.gone = true
			return before.first
		}
		p.seen[queue][m.id] = modelID{p.now() + q.DuplicateWindow.Milliseconds(), m}
	}
	if m.scheduledAt > p.now() {
		m.scheduled, m.visible = true, m.scheduledAt
		return nil
	}
	p.enter(m)
	return nil
}

func (p *postOffice) enter(m *modelMessage) {
	q := p.queues[m.queue]
	switch {
	case q.ForwardTo != "":
		p.transfer(m, q.ForwardTo)
		return
	case q.RequiresSession && m.session == "":
		p.deadLetter(m, forebay.ReasonNoSession)
		return
	}
	ttl := m.ttl
	if q.DefaultTTL > 0 && (ttl == 0 || ttl > q.DefaultTTL) {
		ttl = q.DefaultTTL
	}
	if ttl > 0 {
		m.expires = p.now() + ttl.Milliseconds()
	}
	if key := (sessionKey{m.queue, m.session}); q.RequiresSession && p.sessions[key] == nil {
		p.sessions[key] = &modelSession{}
	}
}

func (p *postOffice) transfer(m *modelMessage, to string) {
	target := slices.IndexFunc(p.queues, func(q MessageQueue) bool { return q.Name == to })
	switch {
	case m.hops == maxHops:
		p.bury(m, forebay.ReasonMaxHops)
	case target < 0:
		p.bury(m, forebay.ReasonNoTarget)
	default:
		m.hops++
		p.arrive(m, target)
	}
}

func (p *postOffice) deadLetter(m *modelMessage, reason string) {
	if to := p.queues[m.queue].ForwardDeadLettersTo; to != "" && !m.deadLetter {
		m.reason, m.source = reason, entity.NameOf(p.queues[m.queue].Name)
		p.transfer(m, to)
		return
	}
	p.bury(m, reason)
}

func (p *postOffice) bury(m *modelMessage, reason string) {
	m.deadLetter, m.deferred, m.visible, m.token, m.reason = true, false, p.now(), 0, reason
}

func (p *postOffice) expire(m *modelMessage) {
	if !p.queues[m.queue].DeadLetterExpired {
		m.gone = true
		return
	}
	p.deadLetter(m, forebay.ReasonExpired)
}

// deliver does what a delivery does before its lock and reports whether there is one.
func (p *postOffice) deliver(m *modelMessage) bool {
	switch {
	case m.deadLetter:
		return true
	case m.expires > 0 && m.expires <= p.now(): // it was deferred
		p.expire(m)
		return false
	case m.deliveries >= p.queues[m.queue].MaxDeliveries:
		p.deadLetter(m, forebay.ReasonMaxDeliveries)
		return false
	}
	m.deliveries++
	return true
}

// giveBack frees a locked message, unless its time ended meanwhile.
func (p *postOffice) giveBack(m *modelMessage, counted bool) {
	if m.token = 0; p.session(m) == nil {
		m.visible = m.enqueued
	}
	if !counted && !m.deadLetter {
		m.deliveries--
	}
	if !m.deadLetter && !m.deferred && m.expires > 0 && m.expires <= p.now() {
		p.expire(m)
	}
}

// tend does what happens by time alone, at each time something is due: activation, expiry and the
// end of a last delivery.
func (p *postOffice) tend() {
	for {
		var next *modelMessage
		var at int64
		for _, m := range p.messages {
			due := p.due(m)
			if due == 0 || due > p.now() {
				continue
			}
			if next == nil || cmp.Or(cmp.Compare(due, at), cmp.Compare(m.arrival, next.arrival)) < 0 {
				next, at = m, due
			}
		}
		if next == nil {
			return
		}
		if next.scheduled {
			p.arrivals++
			next.scheduled, next.seq, next.arrival, next.enqueued, next.visible = false, 0, p.arrivals, p.now(), p.now()
			p.enter(next)
			continue
		}
		if !next.deferred && next.expires > 0 && next.expires <= p.now() {
			p.expire(next)
		} else {
			p.deadLetter(next, forebay.ReasonMaxDeliveries)
		}
	}
}

func (p *postOffice) due(m *modelMessage) int64 {
	switch {
	case m.gone || m.deadLetter:
		return 0
	case m.scheduled:
		return m.scheduledAt
	case m.token != 0 && m.deliveries >= p.queues[m.queue].MaxDeliveries: // when its last lock ends
		if s := p.session(m); s != nil {
			return s.until
		}
		return m.visible
	case m.deferred || m.expires == 0:
		return 0
	}
	return max(m.expires, p.lockedUntil(m))
}

// ready returns the messages that a receiver may get, in their order. An empty session stands for
// a receiver without one.
func (p *postOffice) ready(queue int, deadLetter bool, session string) (ready []*modelMessage) {
	for _, m := range p.messages {
		if m.gone || m.queue != queue || m.deadLetter != deadLetter || m.deferred || m.scheduled || p.lockedUntil(m) > 0 {
			continue
		}
		if p.session(m) == nil && m.visible <= p.now() || p.session(m) != nil && m.session == session {
			ready = append(ready, m)
		}
	}
	slices.SortFunc(ready, func(a, b *modelMessage) int {
		if session != "" {
			return cmp.Compare(a.arrival, b.arrival)
		}
		return cmp.Or(cmp.Compare(a.visible, b.visible), cmp.Compare(a.arrival, b.arrival))
	})
	return ready
}

// messagesIn returns the messages in a queue or its dead-letter subqueue, in the order of their
// numbers.
func (p *postOffice) messagesIn(queue int, deadLetter bool) (messages []*modelMessage) {
	for _, m := range p.messages {
		if !m.gone && m.queue == queue && m.deadLetter == deadLetter {
			messages = append(messages, m)
		}
	}
	slices.SortFunc(messages, func(a, b *modelMessage) int { return cmp.Compare(a.arrival, b.arrival) })
	return messages
}

func (p *postOffice) counts(queue int) (c entity.Counts) {
	for _, m := range p.messagesIn(queue, false) {
		switch {
		case p.lockedUntil(m) > 0:
			c.Locked++
		case m.deferred:
			c.Deferred++
		case m.scheduled:
			c.Scheduled++
		default:
			c.Active++
		}
	}
	c.DeadLetter = int64(len(p.messagesIn(queue, true)))
	return c
}

// sizes are what the messages of a queue have at least and at most. Properties that a settlement
// has changed count once the message is stored anew.
func (p *postOffice) sizes(t *rapid.T, queue int) (least, most int64) {
	for _, m := range append(p.messagesIn(queue, false), p.messagesIn(queue, true)...) {
		changed, err := json.Marshal(m.properties)
		if err != nil {
			t.Fatal(err)
		}
		least, most = least+m.size, most+m.size+int64(len(changed))
	}
	return least, most
}

// check compares both subqueues of all queues, and their counts, with the model.
func (d *postDriver) check(t *rapid.T) {
	highest := d.highest
	for i, queue := range d.queues {
		if !slices.Contains(d.watched, i) {
			continue
		}
		for _, deadLetter := range []bool{false, true} {
			d.peek(t, queue.Subqueue(deadLetter), d.messagesIn(i, deadLetter), highest)
		}
		want := d.counts(i)
		got, err := d.to.Messages.MessageCounts(background, queue, entity.CountLimit)
		got.OldestActive = 0
		least, most := d.sizes(t, i)
		if !d.to.Client && (got.Size < least || got.Size > most) { // a client adds sections of its own
			t.Fatalf("%s has %d bytes, expected %d to %d", queue.Name, got.Size, least, most)
		}
		got.Size = 0
		if err != nil || got != want {
			t.Fatalf("%s counts %+v (%v), expected %+v", queue.Name, got, err, want)
		}
	}
}

// peek compares a subqueue with the messages that should be there. A number that is not known yet
// must be higher than all earlier ones.
func (d *postDriver) peek(t *rapid.T, subqueue queue.Subqueue, expected []*modelMessage, highest int64) {
	var got []Message
	for from := int64(1); from > 0; {
		page, next, _, err := d.to.Messages.Peek(background, PeekQuery{Subqueue: subqueue, From: from, Limit: 3, MaxBytes: 1 << 20, AtLeast: 1})
		if err != nil || len(page) > 3 {
			t.Fatalf("peek: %d messages, %v", len(page), err)
		}
		got, from = append(got, page...), next
	}
	if len(got) != len(expected) {
		t.Fatalf("peeked %d messages in subqueue %d, expected %d", len(got), subqueue, len(expected))
	}
	for i, g := range got {
		m := expected[i]
		if m.seq == 0 && g.Seq > highest {
			m.seq = g.Seq
			d.highest = max(d.highest, g.Seq)
		}
		if m.first == 0 && d.to.Client {
			m.first = g.EnqueuedSeq
		}
		state := forebay.MessageActive
		switch {
		case m.deferred:
			state = forebay.MessageDeferred
		case m.scheduled:
			state = forebay.MessageScheduled
		}
		if g.Subject != m.serial || g.Seq != m.seq || g.EnqueuedSeq != m.first || g.Deliveries != d.deliveriesOf(m, false) || g.State != state || g.Token != 0 ||
			g.DeadLetterReason != m.reason || g.DeadLetterSource != m.source || g.EnqueuedAt.UnixMilli() != m.enqueued {
			t.Fatalf("peeked %+v, expected %+v", g, m)
		}
		if !d.to.Client { // which is not told these
			d.peekMore(t, &g, m)
		}
		properties := forebay.Properties{}
		if g.Properties != nil {
			if err := json.Unmarshal(g.Properties, &properties); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(properties, m.properties) {
			t.Fatalf("message %d has %v, expected %v", m.seq, properties, m.properties)
		}
	}
}

// peekMore compares what the store says beyond what Service Bus does.
func (d *postDriver) peekMore(t *rapid.T, g *Message, m *modelMessage) {
	if until := d.lockedUntil(m); (g.LockedUntil != nil) != (until > 0) || until > 0 && g.LockedUntil.UnixMilli() != until {
		t.Fatalf("message %d is locked until %v, expected %d", g.Seq, g.LockedUntil, until)
	}
	if (g.ExpiresAt != nil) != (m.expires > 0) || m.expires > 0 && g.ExpiresAt.UnixMilli() != m.expires {
		t.Fatalf("message %d expires at %v, expected %d", g.Seq, g.ExpiresAt, m.expires)
	}
	if !bytes.Equal(g.AMQP, m.amqp) || (g.AMQP == nil) != (m.amqp == nil) {
		t.Fatalf("message %d has sections %x, expected %x", g.Seq, g.AMQP, m.amqp)
	}
}

// modelQueues are one of each kind, and two that forward to each other.
var modelQueues = []MessageQueue{
	{Name: "t/plain"},
	{Name: "t/expiring", DefaultTTL: 15 * time.Second, DeadLetterExpired: true},
	{Name: "t/unique", DuplicateWindow: 20 * time.Second},
	{Name: "t/sessions", RequiresSession: true, DeadLetterExpired: true},
	{Name: "t/to-sessions", ForwardTo: "t/sessions"},
	{Name: "t/caring", ForwardDeadLettersTo: "t/unique", DeadLetterExpired: true},
	{Name: "t/there"},
	{Name: "t/back", ForwardTo: "t/there", ForwardDeadLettersTo: "t/plain"},
	{Name: "t/there", ForwardTo: "t/back"},
}

// putModelQueues makes them for a tenant.
func putModelQueues(t *rapid.T, s *stores, name string) (queues []MessageQueue) {
	tenant, err := s.Queues.EnsureTenant(background, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range modelQueues {
		for _, named := range []*string{&q.Name, &q.ForwardTo, &q.ForwardDeadLettersTo} {
			if *named != "" {
				*named = name + "/" + entity.NameOf(*named)
			}
		}
		q.Tenant, q.Lock, q.MaxDeliveries = tenant, testLock, testMaxDeliveries
		stored, created, err := s.Bus.PutMessageQueue(background, q, 10)
		if err != nil {
			t.Fatalf("put %s: %v", q.Name, err)
		}
		if !created {
			queues[slices.IndexFunc(queues, func(other MessageQueue) bool { return other.Name == q.Name })] = stored
			continue
		}
		queues = append(queues, stored)
	}
	return queues
}

// drive does random operations on queues of all kinds, and compares the broker with the model.
func drive(t *rapid.T, to broker, store *storeBroker, queues []MessageQueue) {
	d := &postDriver{to: to, store: store, clock: to.Clock.Now(), postOffice: postOffice{queues: queues, sessions: map[sessionKey]*modelSession{}}}
	d.now = func() int64 { return d.clock }
	for i := range queues {
		d.seen, d.watched = append(d.seen, map[string]modelID{}), append(d.watched, i)
	}
	d.focus = rapid.SliceOfN(rapid.IntRange(0, len(queues)-1), 2, 2).Draw(t, "focus")
	actions := map[string]func(*rapid.T){
		"send": d.send, "send2": d.send, "receive": d.receive, "receive2": d.receive, "receive3": d.receive, "deferred": d.receiveDeferred,
		"settle": d.settle, "settle2": d.settle, "settle3": d.settle, "settle4": d.settle, "time": d.passTime, "time2": d.passTime,
		"cancel": d.cancelScheduled, "accept": d.acceptNext, "accept2": d.acceptNamed, "session": d.useSession, "session2": d.useSession,
	}
	if store != nil {
		maps.Copy(actions, map[string]func(*rapid.T){"restart": d.restart, "delete": d.deleteBefore, "commit": d.commit, "commit2": d.commit, "forget": d.forgetSessions})
	} else {
		d.watch()
	}
	for name, action := range actions {
		actions[name] = d.during(action)
	}
	actions[""] = d.check
	t.Repeat(actions)
}

// watch has the checks look only where messages of this run can be.
func (d *postDriver) watch() {
	d.watched = slices.Clone(d.focus)
	for i := 0; i < len(d.watched); i++ {
		q := d.queues[d.watched[i]]
		for _, to := range []string{q.ForwardTo, q.ForwardDeadLettersTo} {
			next := slices.IndexFunc(d.queues, func(q MessageQueue) bool { return q.Name == to })
			if next >= 0 && !slices.Contains(d.watched, next) {
				d.watched = append(d.watched, next)
			}
		}
	}
	slices.Sort(d.watched)
	d.watched = slices.Compact(d.watched)
}

// TestMessagesAgainstModel drives random operations on queues of all kinds and on the model and
// compares.
func TestMessagesAgainstModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		b := &storeBroker{engine: e}
		b.open(e.Open(t))
		defer func() { b.s.DB.Close() }()
		drive(t, b.broker(), b, putModelQueues(t, b.s, "t"))
	})
}
