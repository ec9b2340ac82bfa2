package webhook

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/queue"
)

// source is a Source in memory.
type source struct {
	mu       sync.Mutex
	waiting  []*queued
	arrived  chan struct{}
	outcomes map[string][]Outcome
	fail     func() error // of the next calls; nil: none
	received int
}

type queued struct {
	message Message
	count   int
	at      time.Time
}

func newSource(ids ...string) *source {
	q := &source{arrived: make(chan struct{}), outcomes: map[string][]Outcome{}}
	for _, id := range ids {
		q.put(&queued{message: Message{ID: id, Body: []byte("{}")}})
	}
	return q
}

func (q *source) put(m *queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, m)
	close(q.arrived)
	q.arrived = make(chan struct{})
}

func (q *source) failing() error {
	if q.fail == nil {
		return nil
	}
	return q.fail()
}

func (q *source) Receive(ctx context.Context) (Delivery, error) {
	for {
		q.mu.Lock()
		if err := q.failing(); err != nil {
			q.mu.Unlock()
			return Delivery{}, err
		}
		wait := time.Duration(1 << 60)
		for i, m := range q.waiting {
			if d := time.Until(m.at); d > 0 {
				wait = min(wait, d)
				continue
			}
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			m.count++
			q.received++
			q.mu.Unlock()
			return Delivery{Message: m.message, Count: m.count, Lock: queue.Lock{Seq: 1}}, nil
		}
		arrived := q.arrived
		q.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-arrived:
		case <-ctx.Done():
			timer.Stop()
			return Delivery{}, ctx.Err()
		}
		timer.Stop()
	}
}

func (q *source) Settle(_ context.Context, d Delivery, o Outcome) error {
	q.mu.Lock()
	err := q.failing()
	if err == nil {
		q.outcomes[d.ID] = append(q.outcomes[d.ID], o)
	}
	q.mu.Unlock()
	switch {
	case err != nil:
		return err
	case o.Verb == Retry:
		q.put(&queued{message: d.Message, count: d.Count, at: time.Now().Add(o.Delay)})
	case o.Verb == Release:
		q.put(&queued{message: d.Message, count: d.Count - 1})
	}
	return nil
}

// last returns how the latest delivery of a message ended.
func (q *source) last(id string) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	if all := q.outcomes[id]; len(all) > 0 {
		return all[len(all)-1]
	}
	return Outcome{}
}

// endpointStub is an endpoint that gives set answers, and records when it was called.
type endpointStub struct {
	mu     sync.Mutex
	calls  []time.Time
	ids    []string
	signed []string
	busy   int
	most   int
	answer func(call int, r *http.Request) (status int, header http.Header)
}

func (e *endpointStub) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	call := len(e.calls)
	e.calls = append(e.calls, time.Now())
	e.ids = append(e.ids, r.Header.Get(HeaderID))
	e.signed = append(e.signed, r.Header.Get(HeaderTimestamp)+" "+r.Header.Get(HeaderSignature))
	e.busy++
	e.most = max(e.most, e.busy)
	e.mu.Unlock()
	status, header := e.answer(call, r)
	e.mu.Lock()
	e.busy--
	e.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func (e *endpointStub) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

// sent returns when and with which ids it was called.
func (e *endpointStub) sent() (calls []time.Time, ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls), slices.Clone(e.ids)
}

func always(status int) func(int, *http.Request) (int, http.Header) {
	return func(int, *http.Request) (int, http.Header) { return status, nil }
}

// start runs a runner until stop is called, in a bubble.
func start(t *testing.T, q Source, stub *endpointStub, concurrency int) (r *Runner, stop func()) {
	t.Helper()
	e := endpointAt("https://8.8.8.8/hook")
	e.Concurrency = concurrency
	r = NewRunner(e, q, &Sender{transport: stub}, slog.New(slog.DiscardHandler), DefaultGrace)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	return r, func() { cancel(); <-done }
}
