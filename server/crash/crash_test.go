//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// TestSurvivesCrashes kills, stops and freezes a server process at random moments while clients
// submit. Then it checks every job: each acknowledged job ends, with exactly one result.
func TestSurvivesCrashes(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	c := newCrash(t, servertest.Size(1000, 400))
	c.options.Database = servertest.DatabaseFile(t)
	c.planDisturbances(servertest.Size(10, 4), servertest.Size(3, 1), 1)
	running, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(running) })
	submitting, _ := errgroup.WithContext(t.Context())
	for range crashSubmitters {
		submitting.Go(func() error { return c.submitAll(t.Context()) })
	}
	p := c.disturb()
	c.hitCalls(func() {
		p.Kill()
		p = c.launch()
	})
	if err := submitting.Wait(); err != nil {
		t.Fatal(err)
	}
	c.awaitAll()
	c.follow.Wait()
	stop()
	watching.Wait()
	c.checkAll()
	c.checkPeak(1)
	p.Stop(t)
	servertest.CheckIntegrity(t, c.options.Database)
	c.summary(len(c.plan))
}

const (
	crashSubmitters = 8
	crashLock       = time.Second
	crashPlaces     = 16                         // of the main lane
	crashRetries    = 8                          // of the retry lane
	crashLanes      = crashPlaces + crashRetries // of both
	crashBacklog    = 60                         // jobs that are submitted and not called yet
	// One job of this many has a client that follows its events.
	crashFollowed = 25
	crashSessions = 20                         // sessions that one job of so many belongs to
	crashAudited  = forebay.EventAttemptFailed // the events of which the audit log is to have each
	// The minimum number of checks between two disturbances.
	crashLooks = 10
)

// crash is one run of the crash test.
type crash struct {
	*testing.T
	seed    uint64
	options servertest.ProcessOptions
	model   *modelsim.TestServer
	plan    []disturbance
	ahead   time.Duration // of the database's clock before ours
	permits chan int      // numbers of jobs that may be submitted now
	total   int           // jobs to submit
	letting sync.Mutex
	let     int // how many were let in
	most    int // of them; hitCalls lets the others in

	fronts []atomic.Pointer[servertest.Process] // the processes with HTTP that run now
	turn   atomic.Int64                         // whose is next
	mu     sync.Mutex
	jobs   []*crashJob // acknowledged, in order
	follow sync.WaitGroup
	lost   atomic.Int64
	looks  atomic.Int64
	began  time.Time
}

// crashJob is an acknowledged job and what was last seen of it.
type crashJob struct {
	key    string
	id     string
	seen   forebay.Job
	began  time.Time       // its first attempt
	events []forebay.Event // as a client followed them; few jobs are followed
}

// disturbance is one thing that is done to the server.
type disturbance string

const (
	killIt   disturbance = "kill"
	stopIt   disturbance = "stop"
	freezeIt disturbance = "freeze"
)

// newCrash prepares a run with so many jobs; where they are kept is the caller's to say.
func newCrash(t *testing.T, jobs int) *crash {
	c := &crash{T: t, seed: servertest.Seed(t), began: time.Now(), fronts: make([]atomic.Pointer[servertest.Process], 1)}
	c.total, c.most, c.permits = jobs, jobs-jobs/10, make(chan int, jobs)
	for range crashBacklog {
		c.admit()
	}
	c.model = modelsim.StartTest(c.script)
	t.Cleanup(c.model.Close)
	c.options = servertest.ProcessOptions{
		Endpoint: c.model.URL(), Shutdown: 300 * time.Millisecond, Audit: server.Audit{JobEvents: []forebay.EventType{crashAudited}},
		Queue: server.Queue{
			Concurrency: crashPlaces, LockDuration: crashLock, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 50 * time.Millisecond, Max: 400 * time.Millisecond, Attempts: 100, Concurrency: crashRetries, Budget: 0.5},
		},
	}
	return c
}

// planDisturbances decides what is done to the one server, and in which order.
func (c *crash) planDisturbances(kills, stops, freezes int) {
	c.plan = slices.Concat(slices.Repeat([]disturbance{killIt}, kills), slices.Repeat([]disturbance{stopIt}, stops), slices.Repeat([]disturbance{freezeIt}, freezes))
	c.random(0).Shuffle(len(c.plan), func(i, j int) { c.plan[i], c.plan[j] = c.plan[j], c.plan[i] })
}

// random returns a generator for one purpose.
func (c *crash) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(c.seed, purpose)) }

// admit lets one more job in: one for each that begins, so that clients submit all the time.
func (c *crash) admit() {
	c.letting.Lock()
	defer c.letting.Unlock()
	if c.let == c.most {
		return
	}
	c.let++
	c.permits <- c.let // which has room for all
	if c.let == c.total {
		close(c.permits)
	}
}

// script makes the model slow, and sometimes unable or unwilling.
func (c *crash) script(call modelsim.Call) modelsim.Reply {
	if call.Number == 1 {
		c.admit()
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", c.seed, call.Marker, call.Number)
	draw := rand.New(rand.NewPCG(h.Sum64(), 0))
	r := modelsim.Reply{
		Delay: 20*time.Millisecond + time.Duration(draw.IntN(400))*time.Millisecond,
		Text:  fmt.Sprintf("answer %d to %s", call.Number, call.Marker),
	}
	switch n := draw.IntN(1000); {
	case n < 4:
		r.Status, r.RetryAfter = http.StatusTooManyRequests, 150*time.Millisecond
	case n < 60:
		r.Status = http.StatusInternalServerError
	case n < 80: // over the inline limit: its result goes to blob storage
		r.Text += strings.Repeat(" and more", forebay.InlineBytes/8)
	}
	return r
}

// disturb carries the plan out, each step after a random number of calls, and returns the last
// process.
func (c *crash) disturb() *servertest.Process {
	c.Helper()
	draw := c.random(1)
	p := c.launch()
	for i, d := range c.plan {
		seen := c.looks.Load()
		if d == killIt && draw.IntN(5) == 0 { // while the server starts
			c.pause(time.Duration(draw.IntN(100)) * time.Millisecond)
		} else {
			from, to := c.total*9/10*i/len(c.plan), c.total*9/10*(i+1)/len(c.plan)
			c.awaitCalls(from + draw.IntN(to-from))
			c.awaitLooks(seen + crashLooks)
			c.pause(time.Duration(draw.IntN(50)) * time.Millisecond)
		}
		switch d {
		case killIt:
			p.Kill()
			p = c.launch()
		case stopIt:
			p.Stop(c)
			p = c.launch()
		case freezeIt:
			p.Signal(syscall.SIGSTOP)
			c.pause(crashLock + crashLock/2)
			p.Signal(syscall.SIGCONT)
		}
	}
	return p
}

// awaitCalls waits until the model was called that often in all.
func (c *crash) awaitCalls(calls int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	if err := c.model.Await(ctx, func(s modelsim.Stats) bool { return int(s.Calls) >= calls }); err != nil {
		c.Fatalf("only %d of %d calls: %s", c.model.Stats().Calls, calls, err)
	}
}

// hitCalls lets the rest of the jobs in, and goes on to kill until a call was cut off. On a slow
// machine the disturbances so far may all have come while the processes that were hit made none,
// and all jobs so far may be over.
func (c *crash) hitCalls(kill func()) {
	c.Helper()
	c.letting.Lock()
	c.most = c.total
	c.letting.Unlock()
	for range crashBacklog {
		c.admit()
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	for n := 1; c.model.Stats().Gone == 0; n++ {
		if err := c.model.Await(ctx, func(s modelsim.Stats) bool { return s.InFlight > 0 }); err != nil {
			c.Fatalf("no call was cut off, and %d more kills found none: %s", n-1, err)
		}
		kill()
		c.Logf("%6.1f s: kill until a call is hit, %d", time.Since(c.began).Seconds(), n)
	}
}

// awaitLooks waits until jobs were looked at that often in all, however slow the machine is.
func (c *crash) awaitLooks(looks int64) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	for c.looks.Load() < looks {
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			c.Fatalf("only %d of %d looks: %s", c.looks.Load(), looks, err)
		}
	}
}

func (c *crash) launch() *servertest.Process {
	c.Helper()
	p := servertest.Launch(c.T, c.options)
	c.fronts[0].Store(p)
	return p
}

func (c *crash) pause(d time.Duration) {
	c.Helper()
	if err := sleep.For(c.Context(), d); err != nil {
		c.Fatal(err)
	}
}

// server returns a process that listens now, each in its turn, waiting for one.
func (c *crash) server(ctx context.Context) (servertest.Remote, error) {
	for ctx.Err() == nil {
		if p := c.fronts[int(c.turn.Add(1))%len(c.fronts)].Load(); p != nil {
			if url := p.Listen(ctx); url != "" {
				return servertest.Remote{URL: url}, nil
			}
		}
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			return servertest.Remote{}, err
		}
	}
	return servertest.Remote{}, ctx.Err()
}

// persist repeats a request until a server answers it: a lost connection and a server that is
// stopping are no answers.
func (c *crash) persist(ctx context.Context, request func(servertest.Remote) error) error {
	for {
		s, err := c.server(ctx)
		if err != nil {
			return err
		}
		err = request(s)
		var p *servertest.Problem
		if err == nil || errors.As(err, &p) && p.Status != http.StatusServiceUnavailable {
			return err
		}
		c.lost.Add(1)
		if err := sleep.For(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// submitAll submits the jobs that are let in, each until it is acknowledged, and some once more.
func (c *crash) submitAll(ctx context.Context) error {
	for n := range c.permits {
		key := fmt.Sprintf("job-%d", n)
		draw := c.random(uint64(n) + 100)
		prompt := modelsim.Marked(key, "say something")
		if draw.IntN(50) == 0 { // over the inline limit: its input goes to blob storage
			prompt += strings.Repeat(" and more", forebay.InlineBytes/8)
		}
		req := servertest.Chat(prompt)
		req["priority"] = draw.IntN(10)
		if draw.IntN(crashSessions) == 0 {
			req["session_id"] = fmt.Sprintf("session-%d", draw.IntN(crashSessions))
		}
		if draw.IntN(20) == 0 {
			req["scheduled_at"] = time.Now().Add(c.ahead + time.Second)
		}
		var id string
		for range 1 + draw.IntN(20)/19 {
			err := c.persist(ctx, func(s servertest.Remote) error {
				job, replayed, err := s.Submit(ctx, key, req)
				if err == nil && id != "" && (job.ID != id || !replayed) {
					return &servertest.Problem{Detail: fmt.Sprintf("%s was %s and is %s now (replayed: %t)", key, id, job.ID, replayed)}
				}
				if err == nil {
					id = job.ID
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		job := &crashJob{key: key, id: id}
		c.mu.Lock()
		c.jobs = append(c.jobs, job)
		c.mu.Unlock()
		if n%crashFollowed == 0 {
			c.follow.Go(func() { c.followToTheEnd(job) })
		}
	}
	return nil
}
