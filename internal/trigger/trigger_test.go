package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/stores"
)

// world is a database with its services, which can die and come back.
type world struct {
	t       *testing.T
	options db.Options
	limits  forebay.TenantLimits
	folder  string
	store   *stores.Stores
	bus     *messaging.Service
	jobs    *jobs.Service
}

const tenant = "acme"

// onBothEngines runs a test on a new SQLite file and on a new PostgreSQL database.
func onBothEngines(t *testing.T, test func(*testing.T, *world)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, db.Options{Path: filepath.Join(t.TempDir(), "f.db"), Serve: true}))
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, db.Options{URL: dbtest.Postgres(t), Serve: true}))
	})
}

func newWorld(t *testing.T, opts db.Options) *world {
	w := &world{t: t, options: opts, folder: t.TempDir()}
	w.open()
	t.Cleanup(func() { w.store.DB.Close() })
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open begins a process of the server's.
func (w *world) open() {
	w.t.Helper()
	ctx := w.t.Context()
	var err error
	w.store, err = stores.Open(ctx, w.options)
	w.ok(err)
	blobs, err := blob.Open(ctx, w.folder)
	w.ok(err)
	w.t.Cleanup(func() { blobs.Close() })
	meter := limits.New(w.store.Tenants, w.limits)
	w.t.Cleanup(meter.Close)
	o := jobs.Options{Store: w.store.Jobs, Payloads: w.store.Payloads(blobs)}
	o.MaxInputBytes, o.Limits = 1<<20, meter
	o.Queues = []jobs.Queue{{Name: forebay.DefaultQueue, Retry: retry.Policy{Attempts: 3}}, {Name: "slow", Retry: retry.Policy{Attempts: 3}}}
	o.Tasks = map[string]forebay.Task{"echo": {Name: "echo"}, "picky": {Name: "picky", Check: func(json.RawMessage) error {
		return errors.New("nothing is good enough")
	}}}
	w.jobs, err = jobs.New(ctx, o)
	w.ok(err)
	w.bus = messaging.New(messaging.Options{Store: w.store.Bus})
}

func (w *world) queue(settings forebay.MessageQueueSettings) {
	w.t.Helper()
	settings.LockSeconds = cmp.Or(settings.LockSeconds, 30)
	_, _, err := w.bus.Queues.Put(w.t.Context(), tenant, "orders", settings)
	w.ok(err)
}

func (w *world) trigger(change ...func(*Options)) *Trigger {
	opts := Options{Bus: w.bus, Jobs: w.jobs, Logger: slog.New(slog.DiscardHandler), Tenant: tenant, From: "orders", Task: "echo"}
	for _, f := range change {
		f(&opts)
	}
	i := New(opts)
	i.wait = 0
	return i
}

func (w *world) send(messages ...forebay.NewMessage) {
	w.t.Helper()
	for n := range messages {
		if messages[n].Properties == nil {
			messages[n].Properties = forebay.Properties{"id": messages[n].MessageID}
		}
	}
	for part := range slices.Chunk(messages, forebay.MaxMessagesPerCall) {
		_, err := w.bus.Messages.Send(w.t.Context(), tenant, "orders", part)
		w.ok(err)
	}
}

// all returns every job, oldest first.
func (w *world) all() (list []forebay.Job) {
	w.t.Helper()
	for cursor := ""; ; {
		page, err := w.jobs.List(w.t.Context(), tenant, forebay.JobFilter{Limit: forebay.MaxPageSize, Cursor: cursor})
		w.ok(err)
		list = append(list, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			slices.Reverse(list)
			return list
		}
	}
}

// inputs returns those of the jobs in the default queue, by the ids of their messages.
func (w *world) inputs() map[string]string {
	w.t.Helper()
	no, err := w.store.Queues.EnsureQueue(w.t.Context(), forebay.DefaultQueue)
	w.ok(err)
	main := queue.SubqueueOf(no, queue.SubqueueMain)
	got, err := w.store.Jobs.Claim(w.t.Context(), jobs.ClaimRequest{Subqueue: main, Max: 1000, MaxBytes: 1 << 30, Lock: time.Minute, MaxDeliveries: 5})
	w.ok(err)
	inputs := map[string]string{}
	for _, d := range got {
		var metadata map[string]string
		w.ok(json.Unmarshal(d.Metadata, &metadata))
		inputs[metadata["id"]] = string(d.Input)
		if d.InputBlob != "" {
			inputs[metadata["id"]] = fmt.Sprintf("%d bytes elsewhere", d.InputSize)
		}
	}
	return inputs
}

func (w *world) counts() forebay.MessageQueue {
	w.t.Helper()
	q, err := w.bus.Queues.Get(w.t.Context(), tenant, "orders")
	w.ok(err)
	return q
}

func (w *world) deadLetters() map[string]string {
	w.t.Helper()
	got, _, err := w.bus.Messages.Peek(w.t.Context(), tenant, "orders/$deadletterqueue", messaging.PeekFilter{Limit: 100})
	w.ok(err)
	reasons := map[string]string{}
	for _, m := range got {
		reasons[m.MessageID] = m.DeadLetterReason + ": " + m.DeadLetterDescription
	}
	return reasons
}

func text(id, body string) forebay.NewMessage { return forebay.NewMessage{MessageID: id, Body: &body} }

// dying submits and then takes the database from its process, before anything can be completed.
type dying struct {
	*world
	before bool // already before it submits
}

func (d dying) SubmitRepeatable(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, prints [][]byte) []forebay.SubmitResult {
	if d.before {
		d.ok(d.store.DB.Close())
	}
	results := d.jobs.SubmitRepeatable(ctx, tenant, reqs, prints)
	if !d.before {
		d.ok(d.store.DB.Close())
	}
	return results
}

// However often the process dies between the submit and the complete, a message makes one job.
func TestDeathBetweenSubmitAndComplete(t *testing.T) {
	for name, settings := range map[string]forebay.MessageQueueSettings{"messages": {LockSeconds: 3}, "sessions": {RequiresSession: new(true), LockSeconds: 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for four locks
			onBothEngines(t, func(t *testing.T, w *world) {
				w.queue(settings)
				for n := range 5 {
					m := text(fmt.Sprintf("m%d", n), fmt.Sprintf("body %d", n))
					m.SessionID, m.TimeToLiveSeconds = "s", 3600
					w.send(m)
				}
				for n := range 4 {
					i := w.trigger(func(o *Options) { o.Jobs = dying{w, n%2 == 0} })
					i.wait = 30 // until the lock of the one before has ended
					if err := i.pass(w.t.Context()); err == nil {
						t.Fatal("a dead process completed its messages")
					}
					w.open()
					if submitted := len(w.all()); submitted != min(n, 1)*5 {
						t.Fatalf("%d jobs after death %d", submitted, n+1)
					}
				}
				i := w.trigger()
				i.wait = 30
				w.ok(i.pass(t.Context()))
				if q := w.counts(); len(w.all()) != 5 || q.Active+q.Locked+q.DeadLetter != 0 {
					t.Fatalf("%d jobs, %+v", len(w.all()), q)
				}
			})
		})
	}
}

// Two triggers run at the same time, and one gets nothing but errors. Each message makes one job,
// and those of a session in their order.
func TestManyTriggers(t *testing.T) {
	for name, settings := range map[string]forebay.MessageQueueSettings{"messages": {LockSeconds: 3}, "sessions": {RequiresSession: new(true), LockSeconds: 3}} {
		t.Run(name, func(t *testing.T) {
			onBothEngines(t, func(t *testing.T, w *world) {
				const sessions, each = 7, 40
				w.queue(settings)
				var messages []forebay.NewMessage
				for n := range each {
					for s := range sessions {
						m := text(fmt.Sprintf("m%d-%d", s, n), fmt.Sprintf("%d %03d", s, n))
						if n%10 == 3 {
							m = text(m.MessageID, *m.Body+strings.Repeat(" ", forebay.InlineBytes))
						}
						m.SessionID = fmt.Sprintf("s%d", s)
						m.Properties = forebay.Properties{"n": int64(n), "s": int64(s)}
						messages = append(messages, m)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				for n := range 4 {
					i := w.trigger(func(o *Options) {
						if n == 0 {
							o.Jobs = &failing{Jobs: w.jobs, times: 3}
						}
					})
					i.wait = 1
					running.Go(func() { i.Run(ctx) })
				}
				w.send(messages...)
				w.until(func(q forebay.MessageQueue) bool { return q.Active+q.Locked == 0 })
				stop()
				running.Wait()
				seen, last := map[string]bool{}, map[string]string{}
				for _, job := range w.all() {
					id, session := job.Metadata["s"]+" "+job.Metadata["n"], job.Metadata["s"]
					n := fmt.Sprintf("%03s", job.Metadata["n"])
					if seen[id] || settings.RequiresSession != nil && n < last[session] {
						t.Fatalf("job %s of session %s comes after %s (again: %t)", n, session, last[session], seen[id])
					}
					seen[id], last[session] = true, n
				}
				if dead := w.counts().DeadLetter; len(seen) != sessions*each || dead != 0 {
					t.Fatalf("%d jobs, %d dead letters: %v", len(seen), dead, w.deadLetters())
				}
			})
		})
	}
}

// until waits for the queue to be as wanted.
func (w *world) until(done func(forebay.MessageQueue) bool) {
	w.t.Helper()
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !done(w.counts()) {
		select {
		case <-tick.C:
		case <-limit.C:
			w.t.Fatalf("the queue is still %+v", w.counts())
		}
	}
}

// failing refuses a number of submits for reasons that are not the message's fault.
type failing struct {
	Jobs
	times int
	code  forebay.Code
}

func (f *failing) SubmitRepeatable(ctx context.Context, tenant string, reqs []forebay.SubmitRequest, prints [][]byte) []forebay.SubmitResult {
	if f.times == 0 {
		return f.Jobs.SubmitRepeatable(ctx, tenant, reqs, prints)
	}
	f.times--
	results := make([]forebay.SubmitResult, len(reqs))
	for i := range results {
		code := f.code
		if code == "" {
			code = forebay.CodeUnavailable
		}
		results[i].Error = forebay.Errorf(code, "not now")
	}
	return results
}

// An outage uses up no deliveries of a message. Unknown errors count, so they end.
func TestOutage(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.queue(forebay.MessageQueueSettings{MaxDeliveryCount: 3})
		w.send(text("m", "x"), text("n", "y"))
		outage := &failing{Jobs: w.jobs, times: 10}
		i := w.trigger(func(o *Options) { o.Jobs = outage })
		for outage.times > 0 {
			if err := i.pass(t.Context()); forebay.CodeOf(err) != forebay.CodeUnavailable {
				t.Fatal(err)
			}
		}
		w.ok(i.pass(t.Context()))
		if n := len(w.all()); n != 2 {
			t.Fatalf("%d jobs", n)
		}
		w.send(text("o", "z"))
		i = w.trigger(func(o *Options) { o.Jobs = &failing{w.jobs, 10, forebay.CodeInternal} })
		for range 3 {
			if err := i.pass(t.Context()); forebay.CodeOf(err) != forebay.CodeInternal {
				t.Fatal(err)
			}
		}
		w.ok(i.pass(t.Context()))
		if why := w.deadLetters()["o"]; !strings.HasPrefix(why, forebay.ReasonMaxDeliveries) || len(w.all()) != 2 {
			t.Fatalf("%q, %d jobs", why, len(w.all()))
		}
	})
}

// At a tenant's limit a message waits, and its deliveries do not count. No later message of its
// session overtakes it. This holds for every limit.
func TestLimitKeepsTheOrder(t *testing.T) {
	onBothEngines(t, func(t *testing.T, w *world) {
		w.ok(w.store.DB.Close())
		const size = 10_000
		bytes := int64(size * 3 / 2) // the messages, and a small job, but not the job of the large one
		w.limits.StoredBytes = &bytes
		w.open()
		sessions := true
		w.queue(forebay.MessageQueueSettings{RequiresSession: &sessions, MaxDeliveryCount: 2})
		small, large := text("a", "x"), text("b", strings.Repeat("y", size))
		small.SessionID, large.SessionID = "s", "s"
		last := small
		last.MessageID = "c"
		w.send(small, large, last)
		for range 3 { // more than it may be delivered
			if err := w.trigger().pass(t.Context()); forebay.CodeOf(err) != forebay.CodeTenantLimit {
				t.Fatalf("at the limit: %v", err)
			}
			if n := len(w.all()); n != 1 {
				t.Fatalf("%d jobs: only the first message is to become one", n)
			}
		}
		if got := w.counts(); got.DeadLetter != 0 || got.Active < 2 {
			t.Errorf("the queue has %+v", got)
		}
		bytes = 10 * bytes
		w.ok(w.store.Tenants.SetTenant(t.Context(), w.tenantNo(), forebay.TenantSettings{Limits: &forebay.TenantLimits{StoredBytes: &bytes}}))
		w.ok(w.store.DB.Close()) // another process knows at once
		w.open()
		w.ok(w.trigger().pass(t.Context()))
		var order []string
		for _, job := range w.all() {
			order = append(order, job.Metadata["id"])
		}
		if !slices.Equal(order, []string{"a", "b", "c"}) {
			t.Errorf("jobs of %v", order)
		}
	})
}

func (w *world) tenantNo() int64 {
	w.t.Helper()
	no, err := w.store.Queues.EnsureTenant(w.t.Context(), tenant)
	w.ok(err)
	return no
}
