//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// TestManyProcesses runs three worker and two API processes on one PostgreSQL whose clock differs
// from theirs by 90 s. It disturbs processes, connections, the server and the network.
func TestManyProcesses(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	f := newFleet(t)
	running, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { f.watch(running) })
	submitting, _ := errgroup.WithContext(t.Context())
	for range crashSubmitters {
		submitting.Go(func() error { return f.submitAll(t.Context()) })
	}
	inOrder := f.startSessions(t.Context())
	f.disturb()
	f.hitCalls(f.killAll)
	if err := submitting.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := inOrder(); err != nil {
		t.Error(err)
	}
	f.awaitAll()
	f.follow.Wait()
	stop()
	watching.Wait()
	f.checkAll()
	f.checkPeak(fleetWorkers + fleetFronts)
	for i := range f.fronts {
		f.fronts[i].Load().Stop(t)
	}
	for _, w := range f.workers {
		w.Stop(t)
	}
	f.checkTables()
	f.summary(len(f.steps))
}

const (
	fleetWorkers = 3
	fleetFronts  = 2
	fleetSkew    = 90 * time.Second
	partitioned  = 0 // the worker between which and the server there is a proxy
)

// fleet is one run with many processes.
type fleet struct {
	*crash
	pg       *pgtest.Cluster
	database string
	proxy    *pgtest.Proxy
	workers  [fleetWorkers]*servertest.Process
	steps    []step
}

// step is one thing that is done to the fleet.
type step struct {
	name string
	do   func()
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{crash: newCrash(t, servertest.Size(1500, 1000))}
	f.fronts = make([]atomic.Pointer[servertest.Process], fleetFronts)
	f.pg = pgtest.New(t, nil)
	if f.ahead = fleetSkew; f.random(2).IntN(2) == 0 {
		f.ahead = -fleetSkew
	}
	f.database = skewed(t, f.pg.Database(t), f.ahead)
	f.proxy = pgtest.NewProxy(t, f.database)
	f.options.Database, f.options.Blob = f.database, filepath.Join(t.TempDir(), "blobs")
	for i := range f.fronts {
		f.launchFront(i)
	}
	for i := range f.workers {
		f.launchWorker(i)
	}
	f.plan()
	return f
}

// skewed gives a database a clock that is ahead of the server's. Its clock_timestamp comes before
// PostgreSQL's own in the search path, for whoever uses the URL that is returned.
func skewed(t *testing.T, database string, ahead time.Duration) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), fmt.Sprintf(`CREATE SCHEMA skewed;
		CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
		$$ SELECT pg_catalog.clock_timestamp() + interval '%d seconds' $$`, int(ahead.Seconds())))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "skewed,pg_catalog")
	u.RawQuery = query.Encode()
	return u.String()
}

func (f *fleet) launchFront(i int) { f.fronts[i].Store(servertest.Launch(f.T, f.options)) }

func (f *fleet) launchWorker(i int) {
	o := f.options
	o.Role = server.RoleWorker
	if i == partitioned {
		o.Database = f.proxy.URL(f.database)
	}
	f.workers[i] = servertest.Launch(f.T, o)
}

// plan decides what is done, and in which order.
func (f *fleet) plan() {
	draw := f.random(3)
	add := func(times int, name string, do func()) {
		for range times {
			f.steps = append(f.steps, step{name, do})
		}
	}
	worker := func() int { return draw.IntN(fleetWorkers) }
	add(servertest.Size(3, 2), "kill a worker", func() {
		i := worker()
		f.kill(f.workers[i])
		f.launchWorker(i)
	})
	add(1, "kill an API process", func() {
		i := draw.IntN(fleetFronts)
		f.kill(f.fronts[i].Load())
		f.launchFront(i)
	})
	add(1, "stop a worker", func() {
		i := worker()
		f.workers[i].MustListen(f)
		f.workers[i].Stop(f.T)
		f.launchWorker(i)
	})
	add(servertest.Size(2, 1), "freeze a worker past its locks", func() { f.freeze(f.workers[worker()]) })
	add(1, "freeze an API process", func() { f.freeze(f.fronts[draw.IntN(fleetFronts)].Load()) })
	add(servertest.Size(2, 1), "end all connections", f.endConnections)
	add(1, "cut a worker off", func() { f.partition(f.proxy.Cut) })
	add(1, "let a worker's packets vanish", func() { f.partition(f.proxy.Stall) })
	draw.Shuffle(len(f.steps), func(i, j int) { f.steps[i], f.steps[j] = f.steps[j], f.steps[i] })
	middle := len(f.steps) / 2
	restart := step{"restart PostgreSQL", func() {
		f.awaitStarts()
		if err := f.pg.Restart(f.Context(), pgtest.Immediate); err != nil {
			f.Fatal(err)
		}
	}}
	f.steps = append(f.steps[:middle:middle], append([]step{restart}, f.steps[middle:]...)...)
}

// disturb carries the plan out, each step after a random number of calls.
func (f *fleet) disturb() {
	draw := f.random(4)
	for i, step := range f.steps {
		seen := f.looks.Load()
		from, to := f.total*9/10*i/len(f.steps), f.total*9/10*(i+1)/len(f.steps)
		f.awaitCalls(from + draw.IntN(to-from))
		f.awaitLooks(seen + crashLooks)
		begun := time.Now()
		step.do()
		f.Logf("%6.1f s: %s (%.1f s)", time.Since(f.began).Seconds(), step.name, time.Since(begun).Seconds())
	}
}

// killAll kills all processes, so that whichever makes a call is hit, and starts others.
func (f *fleet) killAll() {
	f.Helper()
	for _, w := range f.workers {
		f.kill(w)
	}
	for i := range f.fronts {
		f.kill(f.fronts[i].Load())
	}
	for i := range f.fronts {
		f.launchFront(i)
	}
	for i := range f.workers {
		f.launchWorker(i)
	}
}

// kill ends a process that must not have ended by itself.
func (f *fleet) kill(p *servertest.Process) {
	f.Helper()
	if code := p.Kill(); code != -1 {
		f.Errorf("a process had exited with %d: %s", code, p.Stderr)
	}
}

// awaitStarts waits until all processes have opened the database: one that cannot while it starts
// may give up.
func (f *fleet) awaitStarts() {
	f.Helper()
	for i := range f.fronts {
		f.fronts[i].Load().MustListen(f)
	}
	for _, w := range f.workers {
		w.MustListen(f)
	}
}

func (f *fleet) freeze(p *servertest.Process) {
	f.Helper()
	p.Signal(syscall.SIGSTOP)
	f.pause(crashLock + crashLock/2)
	p.Signal(syscall.SIGCONT)
}

func (f *fleet) endConnections() {
	f.Helper()
	f.awaitStarts()
	if n, err := pgtest.Terminate(f.Context(), f.database); err != nil || n == 0 {
		f.Fatalf("%d connections were ended: %v", n, err)
	}
}

// partition cuts one worker off the server for longer than its locks last. It goes on until the
// others have made more calls than they could have claimed before.
func (f *fleet) partition(begin func()) {
	f.Helper()
	f.awaitStarts()
	begin()
	f.pause(crashLock + crashLock/2)
	f.awaitCalls(min(int(f.model.Stats().Calls)+3*crashLanes, f.total*9/10)) // of the jobs that are let in by now
	f.proxy.Heal()
}

// checkTables looks into the database itself: one result for each job, nothing hot left, nothing
// twice.
func (f *fleet) checkTables() {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.database)
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(f.Context()))
	for query, want := range map[string]int{
		"SELECT count(*) FROM jobs":                                                                  f.total,
		"SELECT count(*) FROM outcomes WHERE status = 'succeeded'":                                   f.total,
		"SELECT count(*) FROM outcomes":                                                              f.total,
		"SELECT count(*) FROM attempts WHERE outcome = 'succeeded'":                                  f.total,
		"SELECT count(*) FROM messages":                                                              0,
		"SELECT count(*) FROM jobs WHERE NOT EXISTS (SELECT FROM outcomes o WHERE o.seq = jobs.seq)": 0,
	} {
		var n int
		if err := conn.QueryRow(f.Context(), query).Scan(&n); err != nil || n != want {
			f.Errorf("%s: %d, want %d: %v", query, n, want, err)
		}
	}
}

// TestClocksThatDiffer runs calls on a database whose clock differs from ours, and in processes
// whose clocks differ from each other. A renewed lock must not end early. The lock of a killed
// process must end in time. Schedules and deadlines follow the database's clock.
func TestClocksThatDiffer(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	for _, c := range []struct {
		name   string
		ahead  time.Duration    // of the database
		clocks [3]time.Duration // of the process that is killed, and of the two others
	}{
		{"database ahead", fleetSkew, [3]time.Duration{}},
		{"database behind", -fleetSkew, [3]time.Duration{}},
		{"each its own", 0, [3]time.Duration{fleetSkew, -fleetSkew, fleetSkew}},
		{"each its own, beside the database", -fleetSkew, [3]time.Duration{-fleetSkew, fleetSkew, -fleetSkew}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.clocks != [3]time.Duration{} && !servertest.ClocksCanBeWrong() {
				t.Skip("it is not known how to set one process's clock wrong on this machine")
			}
			clocksThatDiffer(t, c.ahead, c.clocks)
		})
	}
}

func clocksThatDiffer(t *testing.T, ahead time.Duration, clocks [3]time.Duration) {
	const (
		limited = 6 // more than one process has places
		lock    = 5 * time.Second
	)
	release, together := make(chan struct{}), make(chan struct{})
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		switch {
		case c.Marker == "long":
			<-release
		case c.Marker == "orphan" && c.Number == 1:
			return modelsim.Reply{Hang: true}
		case strings.HasPrefix(c.Marker, "limited"):
			<-together
		}
		return modelsim.Reply{}
	})
	t.Cleanup(model.Close)
	o := servertest.ProcessOptions{Blob: filepath.Join(t.TempDir(), "blobs"), Endpoint: model.URL()}
	if o.Database = dbtest.Postgres(t); ahead != 0 {
		o.Database = skewed(t, o.Database, ahead)
	}
	o.Queue = server.Queue{Concurrency: 4, LockDuration: lock}
	start := func(clock time.Duration) (*servertest.Process, servertest.Remote) {
		o.Clock = int64(clock.Seconds())
		p := servertest.Launch(t, o)
		r := servertest.Remote{URL: p.MustListen(t)}
		wantClock(t, r, clock)
		return p, r
	}
	doomed, front := start(clocks[0])
	orphan := front.Send(t, "orphan")
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	doomed.Kill()

	_, s := start(clocks[1])
	_, other := start(clocks[2])
	ctx, cancel := context.WithTimeout(t.Context(), fleetSkew*2/3)
	defer cancel()
	if _, err := s.Await(ctx, orphan.ID); err != nil {
		t.Errorf("the job of a killed process: %s", err)
	}
	// Deadlines nearer than the clocks are to each other, in both processes at once.
	var jobs []string
	for i := range limited {
		jobs = append(jobs, other.Send(t, fmt.Sprint("limited", i), map[string]any{"deadline": time.Now().Add(ahead + fleetSkew/2)}).ID)
	}
	servertest.AwaitModel(t, model, servertest.InFlight(limited))
	close(together)
	for _, id := range jobs {
		if job, attempts := s.MustAwait(t, id); job.Status != forebay.StatusSucceeded || len(attempts) != 1 {
			t.Errorf("a job with a deadline: %s, attempts %v", job.Status, servertest.Outcomes(attempts))
		}
	}
	at := time.Now().Add(ahead + 2*time.Second)
	scheduled := s.Send(t, "scheduled", map[string]any{"scheduled_at": at})
	if job, _ := other.MustAwait(t, scheduled.ID); job.StartedAt == nil || job.StartedAt.Before(at.Truncate(time.Millisecond)) || job.StartedAt.After(at.Add(fleetSkew/2)) {
		t.Errorf("a job scheduled for %v started at %v", at, job.StartedAt)
	}
	long := s.Send(t, "long")
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	if err := sleep.For(t.Context(), 2*lock); err != nil {
		t.Fatal(err)
	}
	close(release)
	for _, c := range []struct {
		id, marker string
		calls      int
	}{{long.ID, "long", 1}, {orphan.ID, "orphan", 2}} {
		job, attempts := s.MustAwait(t, c.id)
		if calls := model.Calls(c.marker); calls != c.calls || len(attempts) != c.calls || job.Attempt != 1 {
			t.Errorf("%s was called %d times: %s, attempts %v", c.marker, calls, job.Status, servertest.Outcomes(attempts))
		}
		if by := time.Until(job.CreatedAt) - ahead; by.Abs() > fleetSkew/2 {
			t.Errorf("%s was made at %v, by a clock that is %v ahead", c.marker, job.CreatedAt, ahead)
		}
	}
}

// wantClock makes sure that the server's clock is ahead of ours by that.
func wantClock(t *testing.T, r servertest.Remote, ahead time.Duration) {
	t.Helper()
	header, err := r.Do(t.Context(), http.MethodGet, "/healthz", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || (time.Until(date)-ahead).Abs() > fleetSkew/3 {
		t.Fatalf("the process's clock says %v, and is to be ahead by %v: %v", date, ahead, err)
	}
}
