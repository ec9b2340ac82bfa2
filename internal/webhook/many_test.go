package webhook

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// process is one of those that deliver from one database.
type process struct {
	*Service
	store *stores
	name  string
}

// processHeader tells the endpoint of a test which process sent a request.
const processHeader = "X-Process"

func startProcess(t *testing.T, name string, where db.Options) *process {
	t.Helper()
	where.Serve = true
	st, err := openStores(context.WithoutCancel(t.Context()), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.DB.Close() })
	p := &process{Service: New(Options{Store: st.Webhooks, Bus: st.Bus, Sender: SenderOptions{Policy: local()}, Logger: slog.New(slog.DiscardHandler), Grace: time.Millisecond}), store: st, name: name}
	network := p.sender.transport
	p.sender.transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Header.Set(processHeader, name)
		return network.RoundTrip(r)
	})
	return p
}

// call is a delivery that has arrived at a test's endpoint, which answers when the test says so.
type call struct {
	id, process string
	answer      chan int
}

// gate is an endpoint that keeps what arrives, and counts.
type gate struct {
	url    string
	calls  chan call
	closed chan struct{} // all that is kept is answered

	mu         sync.Mutex
	busy, most int
	arrived    map[string]int // how often, by id
}

func newGate(t *testing.T) *gate {
	g := &gate{calls: make(chan call, 1000), closed: make(chan struct{}), arrived: map[string]int{}}
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c := call{r.Header.Get(HeaderID), r.Header.Get(processHeader), make(chan int, 1)}
		g.mu.Lock()
		g.busy++
		g.most = max(g.most, g.busy)
		g.arrived[c.id]++
		g.mu.Unlock()
		g.calls <- c
		select {
		case status := <-c.answer:
			g.mu.Lock()
			g.busy-- // before its sender can know of the answer
			g.mu.Unlock()
			w.WriteHeader(status)
		case <-g.closed:
		}
	})
	t.Cleanup(func() { close(g.closed) }) // before the server waits for what is under way
	g.url = server.URL
	return g
}

func (g *gate) total() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, times := range g.arrived {
		n += times
	}
	return n
}

// settle waits until no more than n deliveries are under way.
func (g *gate) settle(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		g.mu.Lock()
		busy := g.busy
		g.mu.Unlock()
		if busy <= n {
			return
		}
		if time.Now().After(end) { // never, unless something is broken
			t.Fatalf("%d deliveries stay under way", busy)
		}
		<-time.After(time.Millisecond)
	}
}

// next returns what arrives next.
func (g *gate) next(t *testing.T) call {
	t.Helper()
	select {
	case c := <-g.calls:
		return c
	case <-time.After(time.Minute): // never, unless something is broken
		t.Fatal("nothing more arrives")
	}
	return call{}
}

// until reads a webhook of acme's until it is as it should be.
func until(t *testing.T, s *Service, name string, ok func(forebay.Webhook) bool) forebay.Webhook {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		w, err := s.Webhook(t.Context(), "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		if ok(w) {
			return w
		}
		if time.Now().After(end) { // never, unless something is broken
			t.Fatalf("the webhook stays %+v", w)
		}
		<-time.After(time.Millisecond)
	}
}

// However many processes deliver, an endpoint has no more deliveries at once than its
// concurrency, and as many as that while there are events. Each event is sent once.
func TestConcurrencyOfAllProcesses(t *testing.T) {
	const concurrency, events = 3, 40
	test := func(t *testing.T, processes ...*process) {
		g := newGate(t)
		_, err := processes[0].Create(t.Context(), "acme", forebay.NewWebhook{Name: "w", WebhookSettings: forebay.WebhookSettings{URL: g.url, Concurrency: concurrency}}, "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range processes {
			defer run(p.Service)()
		}
		for i := range events {
			publish(t, processes[i%len(processes)].store, "acme", fmt.Sprint("evt_", i), forebay.EventSucceeded)
		}
		var kept []call
		for range concurrency {
			kept = append(kept, g.next(t))
		}
		for range events - concurrency {
			kept[0].answer <- http.StatusOK
			kept = append(kept[1:], g.next(t))
		}
		for _, c := range kept {
			c.answer <- http.StatusOK
		}
		until(t, processes[0].Service, "w", func(w forebay.Webhook) bool { return w.Pending == 0 })
		if g.most != concurrency || g.total() != events || len(g.arrived) != events {
			t.Errorf("%d at once; %d deliveries of %d events", g.most, g.total(), len(g.arrived))
		}
		tries, err := processes[0].Tries(t.Context(), "acme", "w")
		if err != nil || len(tries) != events {
			t.Errorf("%d tries (%v)", len(tries), err)
		}
		for _, try := range tries {
			if try.Number != 1 || try.Outcome != forebay.WebhookDelivered {
				t.Errorf("try %+v", try)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		test(t, startProcess(t, "one", db.Options{Path: filepath.Join(t.TempDir(), "f.db")}))
	})
	t.Run("postgresql", func(t *testing.T) {
		address := dbtest.Postgres(t)
		test(t, startProcess(t, "one", db.Options{URL: address}), startProcess(t, "two", db.Options{URL: address}), startProcess(t, "three", db.Options{URL: address}))
	})
}

// settableClock is a PostgreSQL database whose clock the test sets: its clock_timestamp stands
// before the server's own in the search path.
type settableClock struct {
	t  *testing.T
	pg *pgconn.PgConn
}

func newSettableClock(t *testing.T) (c settableClock, where db.Options) {
	address := dbtest.Postgres(t)
	pg, err := pgconn.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pg.Close(context.WithoutCancel(t.Context())) })
	c = settableClock{t, pg}
	c.run(`CREATE SCHEMA test; CREATE TABLE test.clock (at timestamptz); INSERT INTO test.clock VALUES (now());
		CREATE FUNCTION test.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM test.clock'`)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "test,pg_catalog")
	u.RawQuery = query.Encode()
	return c, db.Options{URL: u.String()}
}

func (c settableClock) run(sql string) {
	c.t.Helper()
	if _, err := c.pg.Exec(c.t.Context(), sql).ReadAll(); err != nil {
		c.t.Fatal(err)
	}
}

func (c settableClock) pass(d time.Duration) {
	c.t.Helper()
	c.run(fmt.Sprintf("UPDATE test.clock SET at = at + interval '%d milliseconds'", d.Milliseconds()))
}

// A breaker that one process opened holds for the other. One of them sends the probe. If it is
// killed, the other sends one once the lock has ended. When a probe succeeds all events go out.
func TestBreakerOfAllProcesses(t *testing.T) {
	const events = 20
	clock, where := newSettableClock(t)
	processes := map[string]*process{}
	stops := map[string]func(){}
	g := newGate(t)
	for _, name := range []string{"one", "two"} {
		p := startProcess(t, name, where)
		processes[name] = p
		if name == "one" {
			create(t, p.Service, "acme", "w", g.url)
			for i := range events {
				publish(t, p.store, "acme", fmt.Sprint("evt_", i), forebay.EventSucceeded)
			}
		}
	}
	for name, p := range processes {
		stops[name] = sync.OnceFunc(run(p.Service))
		defer stops[name]()
	}
	// Four are under way at any time, and of those that are when it opens nothing more is to be
	// known.
	var kept []call
	for range forebay.DefaultWebhookConcurrency {
		kept = append(kept, g.next(t))
	}
	for range 4 {
		kept[0].answer <- http.StatusInternalServerError
		kept = append(kept[1:], g.next(t))
	}
	kept[0].answer <- http.StatusInternalServerError
	paused := func(w forebay.Webhook) bool { return w.PausedUntil != nil }
	until(t, processes["one"].Service, "w", paused)
	until(t, processes["two"].Service, "w", paused)
	for _, c := range kept[1:] {
		c.answer <- http.StatusInternalServerError
	}
	const before = 8
	recorded := func(p *process, n int) {
		t.Helper()
		until(t, p.Service, "w", func(forebay.Webhook) bool {
			tries, err := p.Tries(t.Context(), "acme", "w")
			if err != nil {
				t.Fatal(err)
			}
			return len(tries) >= n
		})
	}
	recorded(processes["one"], before)
	extra := 0
	// kick lets a process read the time and scan.
	kick := func(p *process) {
		t.Helper()
		publish(t, p.store, "acme", fmt.Sprint("extra_", extra), forebay.EventSucceeded)
		extra++
	}
	both := func() { kick(processes["one"]); kick(processes["two"]) }
	clock.pass(14 * time.Second)
	both()
	if n := g.total(); n != before {
		t.Errorf("%d calls while the breaker is open", n-before)
	}
	clock.pass(3 * time.Second)
	both()
	probe := g.next(t)
	both()
	if n := g.total(); n != before+1 {
		t.Errorf("%d calls in place of one probe", n-before)
	}

	// The prober is killed: nothing that it does reaches the database any more.
	killed, survivor := processes[probe.process], processes["one"]
	if probe.process == "one" {
		survivor = processes["two"]
	}
	if err := killed.store.DB.Close(); err != nil {
		t.Fatal(err)
	}
	clock.pass(MinLock - 5*time.Second)
	kick(survivor)
	kick(survivor)
	if n := g.total(); n != before+1 {
		t.Errorf("%d calls before the lock of the probe had ended", n-before-1)
	}
	clock.pass(6 * time.Second)
	kick(survivor)
	second := g.next(t)
	kick(survivor)
	if n := g.total(); second.process != survivor.name || n != before+2 {
		t.Errorf("probed by %q, %d calls", second.process, n-before-1)
	}
	probe.answer <- http.StatusOK // too late
	stops[killed.name]()
	g.settle(t, 1)
	second.answer <- http.StatusOK
	recorded(survivor, before+1)

	// All that waits goes out, at most so many at once, and what has failed follows when its time
	// has come.
	done := make(chan struct{})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			select {
			case c := <-g.calls:
				c.answer <- http.StatusOK
			case <-done:
				return
			}
		}
	}()
	clock.pass(10 * time.Minute)
	kick(survivor)
	w := until(t, survivor.Service, "w", func(w forebay.Webhook) bool { return w.Pending == 0 })
	close(done)
	<-answered
	if w.DeadLetters != 0 || w.PausedUntil != nil || w.FailingSince != nil || g.most != forebay.DefaultWebhookConcurrency {
		t.Errorf("at last %+v, %d at once", w, g.most)
	}
	tries, err := survivor.Tries(t.Context(), "acme", "w")
	if err != nil {
		t.Fatal(err)
	}
	latest := map[string]forebay.WebhookTry{}
	for _, try := range tries { // newest first
		if _, found := latest[try.MessageID]; !found {
			latest[try.MessageID] = try
		}
	}
	if len(latest) != events+extra || len(g.arrived) != events+extra {
		t.Errorf("%d of %d events were delivered, %d have tries", len(g.arrived), events+extra, len(latest))
	}
	for id, try := range latest {
		if try.Outcome != forebay.WebhookDelivered || try.Number != g.arrived[id] {
			t.Errorf("%s was sent %d times: %+v", id, g.arrived[id], try)
		}
	}
}
