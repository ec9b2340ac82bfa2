package feed_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/stores"
)

var fixture = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, o db.Options) (*stores.Stores, error) { return stores.Open(ctx, o) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
}

// wire is a database whose signals go to another hub, in the test's hands.
type wire struct {
	*db.DB
	shared bool
	mu     sync.Mutex
	sent   []string
	full   bool // signals are dropped
}

func (w *wire) Shared() bool { return w.shared }

func (w *wire) Signal(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full || len(text) > 7900 {
		return false
	}
	w.sent = append(w.sent, text)
	return true
}

// carry hands the signals that were sent to other hubs.
func (w *wire) carry(to ...*feed.Hub) (n int) {
	w.mu.Lock()
	sent := w.sent
	w.sent = nil
	w.mu.Unlock()
	for _, text := range sent {
		for _, hub := range to {
			hub.Receive(text)
		}
	}
	return len(sent)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// submit stores jobs of a tenant, and returns their numbers.
func submit(t *testing.T, s *stores.Stores, tenant, name string, n int) (seqs []int64) {
	t.Helper()
	tenantID := must(s.Queues.EnsureTenant(t.Context(), tenant))(t)
	queueID := must(s.Queues.EnsureQueue(t.Context(), name))(t)
	list := make([]jobs.NewJob, n)
	for i := range list {
		list[i] = jobs.NewJob{ID: fmt.Sprintf("job_%s_%s_%d_%d", tenant, name, n, i), Tenant: tenantID, Queue: queueID, Task: "chat", Priority: 5, MaxAttempts: 3, Input: []byte(`1`), InputSize: 1}
	}
	for _, made := range must(s.Jobs.Submit(t.Context(), list))(t) {
		seqs = append(seqs, made.Seq)
	}
	return seqs
}

// take returns what a listener has after a round, each in a line.
func take(t *testing.T, h *feed.Hub, l *feed.Listener) (lines []string) {
	t.Helper()
	h.Round(t.Context())
	for _, item := range l.Take() {
		switch item.Kind {
		case forebay.FeedJob:
			lines = append(lines, strings.Join([]string{item.Job.JobID, string(item.Job.Type), string(item.Job.Status), item.Job.Tenant, item.Job.Queue, item.Job.Task}, " "))
		case forebay.FeedLost:
			lines = append(lines, fmt.Sprintf("lost %d", item.Lost.Count))
		case forebay.FeedSums:
			for _, c := range item.Sums.Counts {
				lines = append(lines, fmt.Sprintf("%s %s %d", c.Queue, c.Type, c.Count))
			}
		default:
			lines = append(lines, fmt.Sprintf("%s %s %s %s", item.Kind, item.Object.ID, item.Object.Type, item.Object.Tenant))
		}
	}
	return lines
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func listen(t *testing.T, h *feed.Hub, f feed.Filter) *feed.Listener {
	t.Helper()
	l := must(h.Listen("t", f))(t)
	t.Cleanup(l.Close)
	return l
}

// finish claims a job of a queue and ends it.
func finish(t *testing.T, s *stores.Stores, name string) {
	t.Helper()
	queueID := must(s.Queues.EnsureQueue(t.Context(), name))(t)
	locked := must(s.Jobs.Claim(t.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute}))(t)
	if err := s.Jobs.Succeed(t.Context(), &locked[0], jobs.AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte(`2`), Size: 1}); err != nil {
		t.Fatal(err)
	}
}

// A listener gets the events that its filter selects, once they are committed, and nothing that
// happened before it listened.
func TestListenersGetWhatTheyAskFor(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		hub := feed.NewHub(&wire{DB: s.DB}, "here")
		s.DB.OnTold(hub.Tell)
		submit(t, s, "acme", "before", 1)
		acme := must(s.Queues.EnsureTenant(t.Context(), "acme"))(t)
		all := listen(t, hub, feed.Filter{})
		own := listen(t, hub, feed.Filter{Tenant: acme})
		ended := listen(t, hub, feed.Filter{Types: []forebay.EventType{forebay.EventSucceeded}})
		other := listen(t, hub, feed.Filter{Task: "embed"})
		seqs := submit(t, s, "acme", "one", 1)
		mine := listen(t, hub, feed.Filter{Seqs: seqs})
		submit(t, s, "zeta", "two", 1)
		finish(t, s, "one")
		accepted, began, done := "job_acme_one_1_0 accepted queued acme one chat", "job_acme_one_1_0 started running acme one chat", "job_acme_one_1_0 succeeded succeeded acme one chat"
		want(t, "all", take(t, hub, all), accepted, "job_zeta_two_1_0 accepted queued zeta two chat", began, done)
		want(t, "one tenant", take(t, hub, own), accepted, began, done)
		want(t, "one type", take(t, hub, ended), done)
		want(t, "one job", take(t, hub, mine), accepted, began, done) // the round is after it listens
		want(t, "another task", take(t, hub, other))
	})
}

// Nothing is told while nobody listens.
func TestNobodyListens(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		hub, told := feed.NewHub(&wire{DB: s.DB}, "here"), 0
		s.DB.OnTold(func(db.Told) { told++ })
		submit(t, s, "acme", "q", 1)
		l := must(hub.Listen("t", feed.Filter{}))(t)
		submit(t, s, "acme", "q", 2)
		l.Close()
		submit(t, s, "acme", "q", 3)
		if told != 1 {
			t.Errorf("%d of three transactions told something; one had a listener", told)
		}
	})
}

// A listener of sums gets counts by queue and type, and no events. Those of a tenant are its own.
func TestSums(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		hub := feed.NewHub(&wire{DB: s.DB}, "here")
		s.DB.OnTold(hub.Tell)
		zeta := must(s.Queues.EnsureTenant(t.Context(), "zeta"))(t)
		all, own := listen(t, hub, feed.Filter{Sums: true}), listen(t, hub, feed.Filter{Sums: true, Tenant: zeta})
		submit(t, s, "acme", "one", 40)
		submit(t, s, "zeta", "two", 3)
		finish(t, s, "one")
		hub.Round(t.Context())
		hub.PassSums(t.Context())
		want(t, "all", take(t, hub, all), "one accepted 40", "one started 1", "one succeeded 1", "two accepted 3")
		want(t, "one tenant", take(t, hub, own), "two accepted 3")
		hub.PassSums(t.Context())
		want(t, "the next interval", take(t, hub, all))
	})
}

// What comes faster than it can be described is dropped, and the listener is told how much.
func TestTooMuchIsDroppedAndTold(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		hub := feed.NewHub(&wire{DB: s.DB}, "here")
		s.DB.OnTold(hub.Tell)
		l := listen(t, hub, feed.Filter{})
		const many = 1500 // more than wait for a round
		submit(t, s, "acme", "q", many)
		var events, lost int64
		for range 10 {
			hub.Round(t.Context())
			for _, item := range l.Take() {
				if item.Kind == forebay.FeedLost {
					lost += item.Lost.Count
				} else {
					events++
				}
			}
		}
		if events+lost != many || lost == 0 || events == 0 {
			t.Errorf("%d events and %d lost of %d", events, lost, many)
		}
	})
}

// A listener that takes nothing is told what it missed, and holds up nobody.
func TestSlowListener(t *testing.T) {
	hub := feed.NewHub(&wire{DB: fixture.Serving(t, dbtest.Databases["sqlite"](t)).DB}, "here")
	l := listen(t, hub, feed.Filter{})
	const many = 3000
	for i := range many {
		hub.TellObject(feed.Object{Kind: forebay.FeedDeployment, ID: fmt.Sprint(i), Type: "paused"})
		if i%200 == 0 {
			hub.Round(t.Context())
		}
	}
	for range 10 {
		hub.Round(t.Context())
	}
	items := l.Take()
	last := items[len(items)-1]
	if last.Kind != forebay.FeedLost || int64(len(items)-1)+last.Lost.Count != many {
		t.Errorf("%d items, the last is %+v", len(items), last)
	}
}

// Another process gets the events that its listeners want, and sums. What was not sent is told.
func TestOtherProcesses(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		here, there := &wire{DB: s.DB, shared: true}, &wire{DB: s.DB, shared: true}
		first, second := feed.NewHub(here, "first"), feed.NewHub(there, "second")
		s.DB.OnTold(first.Tell)
		zeta := must(s.Queues.EnsureTenant(t.Context(), "zeta"))(t)

		submit(t, s, "acme", "q", 1)
		first.Round(t.Context())
		if n := here.carry(second); n > 0 {
			t.Errorf("%d signals though nobody listens", n)
		}

		l, sums := must(second.Listen("t", feed.Filter{Tenant: zeta}))(t), must(second.Listen("t", feed.Filter{Sums: true}))(t)
		second.Round(t.Context()) // says what is wanted
		there.carry(first)
		submit(t, s, "acme", "q", 2)
		submit(t, s, "zeta", "q", 1)
		first.Round(t.Context())
		first.PassSums(t.Context())
		here.carry(second)
		want(t, "events of the other process", take(t, second, l), "job_zeta_q_1_0 accepted queued zeta q chat")
		second.PassSums(t.Context())
		want(t, "sums of the other process", take(t, second, sums), "q accepted 3")

		here.full = true
		submit(t, s, "zeta", "r", 2)
		first.Round(t.Context())
		here.full = false
		submit(t, s, "zeta", "r", 1)
		first.Round(t.Context())
		here.carry(second)
		want(t, "after a signal was dropped", take(t, second, l), "job_zeta_r_1_0 accepted queued zeta r chat", "lost 2")

		l.Close()
		sums.Close()
		second.Round(t.Context()) // says what is wanted
		there.carry(first)
		submit(t, s, "zeta", "s", 1)
		first.Round(t.Context())
		if n := here.carry(second); n > 0 {
			t.Errorf("%d signals though nobody listens any more", n)
		}
	})
}

// Who comes and goes in a loop costs a signal in a round, and a process that stops tells what
// happened last.
func TestSignalsOfInterestAreBounded(t *testing.T) {
	s := fixture.Serving(t, dbtest.Databases["sqlite"](t))
	here, there := &wire{DB: s.DB, shared: true}, &wire{DB: s.DB, shared: true}
	first, second := feed.NewHub(here, "first"), feed.NewHub(there, "second")
	s.DB.OnTold(first.Tell)
	for range 100 {
		must(second.Listen("t", feed.Filter{}))(t).Close()
	}
	l := must(second.Listen("t", feed.Filter{}))(t)
	second.Round(t.Context())
	if n := there.carry(first); n != 1 {
		t.Errorf("%d signals in a round", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	submit(t, s, "acme", "q", 1)
	first.Run(ctx) // it has stopped
	here.carry(second)
	want(t, "what happened last", take(t, second, l), "job_acme_q_1_0 accepted queued acme q chat")
}

// A signal that is damaged, foreign or hostile changes nothing.
func TestStrangeSignals(t *testing.T) {
	hub := feed.NewHub(&wire{DB: fixture.Serving(t, dbtest.Databases["sqlite"](t)).DB, shared: true}, "here")
	l := listen(t, hub, feed.Filter{})
	for text, ours := range map[string]bool{
		`{"want":["job"]}`: false, "feed": false, "feed ": true, "feed {": true, `feed {"o":"x","j":[null],"b":[null],"n":1}`: true, `feed {"o":"x","w":null}`: true,
	} {
		if got := hub.Receive(text); got != ours {
			t.Errorf("%q is one of a feed: %t", text, got)
		}
	}
	want(t, "a listener", take(t, hub, l))
}

// A tenant cannot take all places of listeners.
func TestListenersAreBounded(t *testing.T) {
	hub := feed.NewHub(&wire{DB: fixture.Serving(t, dbtest.Databases["sqlite"](t)).DB}, "here")
	n := 0
	for ; n < 1000; n++ {
		l, err := hub.Listen("greedy", feed.Filter{})
		if err != nil {
			if forebay.CodeOf(err) != forebay.CodeTooManyRequests {
				t.Error(err)
			}
			break
		}
		t.Cleanup(l.Close)
	}
	if n != 64 {
		t.Errorf("one tenant has %d listeners", n)
	}
	listen(t, hub, feed.Filter{})
}
