package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

// postOffice is the plain model of two queues of messages.
type postOffice struct {
	path     string
	s        *Store
	queues   []MessageQueue
	messages []*modelMessage
	held     []heldDelivery
	highest  int64
}

type modelMessage struct {
	seq        int64
	queue      int
	deadLetter bool
	deferred   bool
	body       []byte
	properties forebay.Properties
	reason     string
	enqueued   int64
	visible    int64
	token      int64 // 0: free
	deliveries int
	gone       bool
}

type heldDelivery struct {
	m    *modelMessage
	lane Lane
	lock Lock
}

func (p *postOffice) now() int64 { return time.Now().UnixMilli() }

func (p *postOffice) lane(m *modelMessage) Lane { return p.queues[m.queue].Lane(m.deadLetter) }

func (p *postOffice) send(t *rapid.T) {
	q := rapid.IntRange(0, 1).Draw(t, "queue")
	bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20), 1, 3).Draw(t, "bodies")
	var contents []MessageContent
	for i, body := range bodies {
		contents = append(contents, MessageContent{MessageID: fmt.Sprint(i), Subject: "s", Body: body, Text: len(body) == 0})
	}
	seqs, err := p.s.Send(context.Background(), p.queues[q], contents)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	for i, seq := range seqs {
		if seq <= p.highest {
			t.Fatalf("sequence number %d after %d", seq, p.highest)
		}
		p.highest = seq
		p.messages = append(p.messages, &modelMessage{seq: seq, queue: q, body: bodies[i], properties: forebay.Properties{}, enqueued: p.now(), visible: p.now()})
	}
}

// deliver does to the model what a delivery should do and reports whether there is one.
func (p *postOffice) deliver(m *modelMessage) bool {
	if m.deadLetter {
		return true
	}
	if m.deliveries >= testMaxDeliveries {
		p.setAside(m, forebay.ReasonMaxDeliveries)
		return false
	}
	m.deliveries++
	return true
}

func (p *postOffice) setAside(m *modelMessage, reason string) {
	m.deadLetter, m.deferred, m.visible, m.token, m.reason = true, false, p.now(), 0, reason
}

func (p *postOffice) receive(t *rapid.T) {
	q := rapid.IntRange(0, 1).Draw(t, "queue")
	req := ReceiveRequest{
		Queue: p.queues[q], DeadLetter: rapid.IntRange(0, 2).Draw(t, "where") == 0, Max: rapid.IntRange(1, 4).Draw(t, "max"), MaxBytes: 1 << 20,
		Wait: rapid.Bool().Draw(t, "wait"), Delete: rapid.IntRange(0, 5).Draw(t, "delete") == 0,
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got []Message
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = p.s.Receive(ctx, req)
	}()
	synctest.Wait()
	if !req.Wait {
		select {
		case <-done:
		default:
			t.Fatal("a receiver that does not wait waits")
		}
	}
	cancel() // whoever still waits now found nothing
	<-done
	if err != nil && (!req.Wait || !errors.Is(err, context.Canceled)) {
		t.Fatalf("receive: %v", err)
	}
	var ready []*modelMessage
	for _, m := range p.messages {
		if !m.gone && m.queue == q && m.deadLetter == req.DeadLetter && !m.deferred && m.visible <= p.now() {
			ready = append(ready, m)
		}
	}
	slices.SortFunc(ready, func(a, b *modelMessage) int {
		return cmp.Or(cmp.Compare(a.visible, b.visible), cmp.Compare(a.seq, b.seq))
	})
	var expected []*modelMessage
	for _, m := range ready {
		if len(expected) < req.Max && p.deliver(m) {
			expected = append(expected, m)
		}
	}
	p.compare(t, got, expected, req)
}

func (p *postOffice) receiveDeferred(t *rapid.T) {
	q := rapid.IntRange(0, 1).Draw(t, "queue")
	req := ReceiveRequest{Queue: p.queues[q], DeadLetter: rapid.IntRange(0, 3).Draw(t, "where") == 0, MaxBytes: 1 << 20}
	var seqs []int64
	var expected []*modelMessage
	for _, m := range p.messages {
		if rapid.IntRange(0, 2).Draw(t, "skip") == 0 {
			continue
		}
		seqs = append(seqs, m.seq)
		if !m.gone && m.deferred && m.queue == q && m.deadLetter == req.DeadLetter && (m.token == 0 || m.visible <= p.now()) && p.deliver(m) {
			expected = append(expected, m)
		}
	}
	got, err := p.s.ReceiveDeferred(context.Background(), req, seqs)
	if err != nil {
		t.Fatalf("receive deferred: %v", err)
	}
	p.compare(t, got, expected, req)
}

func (p *postOffice) compare(t *rapid.T, got []Message, expected []*modelMessage, req ReceiveRequest) {
	if len(got) != len(expected) {
		t.Fatalf("received %d messages, expected %d", len(got), len(expected))
	}
	for i, g := range got {
		m := expected[i]
		if g.Seq != m.seq || g.Deliveries != m.deliveries || !bytes.Equal(g.Body, m.body) || g.Text != (len(m.body) == 0) || g.Subject != "s" {
			t.Fatalf("received %+v, expected %+v", g, m)
		}
		if req.Delete {
			m.gone = true
			continue
		}
		m.token, m.visible = g.Token, p.now()+testLock.Milliseconds()
		if g.LockedUntil.UnixMilli() != m.visible {
			t.Fatalf("locked until %v", g.LockedUntil)
		}
		p.held = append(p.held, heldDelivery{m, p.lane(m), g.Lock})
	}
}

// settle ends a delivery, current, expired or stale, in a random way, sometimes through the wrong queue.
func (p *postOffice) settle(t *rapid.T) {
	if len(p.held) == 0 {
		t.Skip("nothing held")
	}
	h := p.held[rapid.IntRange(0, len(p.held)-1).Draw(t, "delivery")]
	m, lane, ctx := h.m, h.lane, context.Background()
	if rapid.IntRange(0, 9).Draw(t, "wrong") == 0 {
		lane += laneKinds
	}
	current := !m.gone && m.token == h.lock.Token && m.visible > p.now() && lane == p.lane(m)
	changed := forebay.Properties{}
	if rapid.Bool().Draw(t, "change") {
		changed[rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")] = rapid.SampledFrom([]any{"x", int64(1), 2.0, true}).Draw(t, "value")
	}
	var err error
	var apply func()
	free := func() { m.visible, m.token = m.enqueued, 0 }
	change := func() { maps.Copy(m.properties, changed) }
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 0:
		err = p.s.Complete(ctx, lane, h.lock)
		apply = func() { m.gone = true }
	case 1:
		err = p.s.Abandon(ctx, p.queues[m.queue], lane, h.lock, changed)
		apply = func() {
			change()
			if free(); !m.deadLetter && m.deliveries >= testMaxDeliveries {
				p.setAside(m, forebay.ReasonMaxDeliveries)
			}
		}
	case 2:
		err = p.s.Defer(ctx, lane, h.lock, changed)
		apply = func() { change(); free(); m.deferred = true }
	case 3:
		err = p.s.DeadLetter(ctx, lane, h.lock, DeadLettering{Reason: "r", Description: "d"}, changed)
		apply = func() { change(); p.setAside(m, "r") }
	case 4:
		until, renewErr := p.s.RenewMessage(ctx, lane, h.lock, testLock)
		if err = renewErr; err == nil && until.UnixMilli() != p.now()+testLock.Milliseconds() {
			t.Fatalf("renewed until %v", until)
		}
		apply = func() { m.visible = p.now() + testLock.Milliseconds() }
	case 5:
		if err := p.s.Undeliver(ctx, lane, []Lock{h.lock}); err != nil {
			t.Fatalf("undeliver: %v", err)
		}
		if current {
			if free(); !m.deadLetter {
				m.deliveries--
			}
		}
		return
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

func (p *postOffice) passTime(t *rapid.T) {
	<-time.After(time.Duration(rapid.Int64Range(1, 12_000).Draw(t, "ms")) * time.Millisecond)
}

// restart closes the database and opens it again: nothing changes, locks included.
func (p *postOffice) restart(t *rapid.T) {
	if err := p.s.Close(); err != nil {
		t.Fatal(err)
	}
	p.open(t)
}

func (p *postOffice) open(t *rapid.T) {
	var err error
	if p.s, err = Open(context.Background(), Options{Path: p.path, Serve: true}); err != nil {
		t.Fatal(err)
	}
}

// check compares both subqueues of both queues, and their counts, with the model.
func (p *postOffice) check(t *rapid.T) {
	for q, queue := range p.queues {
		var want MessageCounts
		for _, deadLetter := range []bool{false, true} {
			var expected []*modelMessage
			for _, m := range p.messages {
				if !m.gone && m.queue == q && m.deadLetter == deadLetter {
					expected = append(expected, m)
				}
			}
			for _, m := range expected {
				switch later := m.visible > p.now(); {
				case deadLetter:
					want.DeadLetter++
				case later && m.token != 0:
					want.Locked++
				case m.deferred:
					want.Deferred++
				default:
					want.Active++
				}
			}
			p.peek(t, queue.Lane(deadLetter), expected)
		}
		got, err := p.s.MessageCounts(context.Background(), queue)
		got.OldestActive = 0
		if err != nil || got != want {
			t.Fatalf("counts %+v (%v), expected %+v", got, err, want)
		}
	}
}

func (p *postOffice) peek(t *rapid.T, lane Lane, expected []*modelMessage) {
	var got []Message
	for from := int64(1); from > 0; {
		page, next, err := p.s.Peek(context.Background(), lane, from, 3, 1<<20)
		if err != nil || len(page) > 3 {
			t.Fatalf("peek: %d messages, %v", len(page), err)
		}
		got, from = append(got, page...), next
	}
	if len(got) != len(expected) {
		t.Fatalf("peeked %d messages, expected %d", len(got), len(expected))
	}
	for i, g := range got {
		m := expected[i]
		locked := m.token != 0 && m.visible > p.now()
		if g.Seq != m.seq || g.Deliveries != m.deliveries || (g.State == forebay.MessageDeferred) != m.deferred ||
			g.DeadLetterReason != m.reason || (g.LockedUntil != nil) != locked || g.Token != 0 {
			t.Fatalf("peeked %+v, expected %+v", g, m)
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

// TestMessagesAgainstModel drives random operations on two queues and on the model and compares.
func TestMessagesAgainstModel(t *testing.T) {
	dir, serial := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			serial++
			p := &postOffice{path: filepath.Join(dir, fmt.Sprintf("%d.db", serial))}
			p.open(t)
			defer func() { p.s.Close() }()
			tenant, err := p.s.EnsureTenant(context.Background(), "t")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"t/a", "t/b"} {
				q, created, err := p.s.PutMessageQueue(context.Background(), MessageQueue{Tenant: tenant, Name: name, Lock: testLock, MaxDeliveries: testMaxDeliveries}, 10)
				if err != nil || !created {
					t.Fatalf("put: %v %v", created, err)
				}
				p.queues = append(p.queues, q)
			}
			t.Repeat(map[string]func(*rapid.T){
				"send": p.send, "send2": p.send, "receive": p.receive, "receive2": p.receive, "receive3": p.receive, "deferred": p.receiveDeferred,
				"settle": p.settle, "settle2": p.settle, "settle3": p.settle, "settle4": p.settle, "time": p.passTime, "restart": p.restart, "": p.check,
			})
		})
	})
}
