//go:build unix

package server_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/loopback"
	"github.com/forebayhq/forebay/server"
)

// crashSeedVariable repeats a crash test's choices; what the scheduler does it cannot repeat.
const crashSeedVariable = "FOREBAY_CRASH_SEED"

// TestSurvivesCrashes kills, stops and freezes a server process at random moments while clients keep
// submitting, and then looks at every job: whatever was acknowledged ends, with exactly one result.
func TestSurvivesCrashes(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	running, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(running) })
	submitting, _ := errgroup.WithContext(t.Context())
	for range crashSubmitters {
		submitting.Go(func() error { return c.submitAll(t.Context()) })
	}
	p := c.disturb()
	if err := submitting.Wait(); err != nil {
		t.Fatal(err)
	}
	c.awaitAll()
	stop()
	watching.Wait()
	c.checkAll()
	p.stop(t)
	checkIntegrity(t, c.options.Database)
	c.summary()
}

const (
	crashSubmitters = 8
	crashLock       = time.Second
	crashPlaces     = 16
	crashBacklog    = 60 // jobs that are submitted and not called yet
)

// crash is one run of the crash test.
type crash struct {
	*testing.T
	seed    uint64
	options childOptions
	model   *loopback.Server
	plan    []disturbance
	permits chan int // numbers of jobs that may be submitted now
	total   int      // jobs to submit
	let     atomic.Int64

	at    atomic.Pointer[process] // the process that runs now
	mu    sync.Mutex
	jobs  []*crashJob // acknowledged, in order
	lost  atomic.Int64
	looks atomic.Int64
	began time.Time
}

// crashJob is an acknowledged job and what was last seen of it.
type crashJob struct {
	key  string
	id   string
	seen forebay.Job
	last int64 // number of the last event seen
}

// disturbance is one thing that is done to the server.
type disturbance string

const (
	killIt   disturbance = "kill"
	stopIt   disturbance = "stop"
	freezeIt disturbance = "freeze"
)

func newCrash(t *testing.T) *crash {
	c := &crash{T: t, seed: rand.Uint64(), began: time.Now()}
	if s := os.Getenv(crashSeedVariable); s != "" {
		var err error
		if c.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %s", crashSeedVariable, err)
		}
	}
	t.Logf("%s=%d", crashSeedVariable, c.seed)
	jobs, counts := 2000, map[disturbance]int{killIt: 20, stopIt: 5, freezeIt: 1}
	if testing.Short() {
		jobs, counts = 400, map[disturbance]int{killIt: 4, stopIt: 1, freezeIt: 1}
	}
	for _, d := range []disturbance{killIt, stopIt, freezeIt} {
		for range counts[d] {
			c.plan = append(c.plan, d)
		}
	}
	c.random(0).Shuffle(len(c.plan), func(i, j int) { c.plan[i], c.plan[j] = c.plan[j], c.plan[i] })
	c.total, c.permits = jobs, make(chan int, jobs)
	for range crashBacklog {
		c.admit()
	}
	c.model = loopback.Start(c.script)
	t.Cleanup(c.model.Close)
	c.options = childOptions{
		Database: database(t), Endpoint: c.model.URL(), Shutdown: 300 * time.Millisecond,
		Queue: server.Queue{
			Concurrency: crashPlaces, LockDuration: crashLock, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 50 * time.Millisecond, Max: 400 * time.Millisecond, Attempts: 100, Concurrency: 8, Budget: 0.5},
		},
	}
	return c
}

// random returns a generator for one purpose.
func (c *crash) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(c.seed, purpose)) }

// admit lets one more job in: one for each that begins, so that clients submit all the time.
func (c *crash) admit() {
	n := int(c.let.Add(1))
	if n <= c.total {
		c.permits <- n
	}
	if n == c.total {
		close(c.permits)
	}
}

// script makes the model slow, and sometimes unable or unwilling.
func (c *crash) script(call loopback.Call) loopback.Reply {
	if call.Number == 1 {
		c.admit()
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", c.seed, call.Marker, call.Number)
	draw := rand.New(rand.NewPCG(h.Sum64(), 0))
	r := loopback.Reply{
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

// disturb carries the plan out, each step after a random number of calls, and returns the last process.
func (c *crash) disturb() *process {
	c.Helper()
	draw := c.random(1)
	p := c.launch()
	for i, d := range c.plan {
		if d == killIt && draw.IntN(5) == 0 { // while the server starts
			c.pause(time.Duration(draw.IntN(100)) * time.Millisecond)
		} else {
			from, to := c.total*9/10*i/len(c.plan), c.total*9/10*(i+1)/len(c.plan)
			c.awaitCalls(p, from+draw.IntN(to-from))
			c.pause(time.Duration(draw.IntN(50)) * time.Millisecond)
		}
		switch d {
		case killIt:
			p.kill()
			p = c.launch()
		case stopIt:
			p.stop(c)
			p = c.launch()
		case freezeIt:
			p.signal(syscall.SIGSTOP)
			c.pause(crashLock + crashLock/2)
			p.signal(syscall.SIGCONT)
		}
	}
	return p
}

// awaitCalls waits until the model was called that often in all.
func (c *crash) awaitCalls(p *process, calls int) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	if err := c.model.Await(ctx, func(s loopback.Stats) bool { return s.Calls >= calls }); err != nil {
		c.Fatalf("only %d of %d calls: %s: %s", c.model.Stats().Calls, calls, err, p.stderr)
	}
}

func (c *crash) launch() *process {
	c.Helper()
	p := launch(c.T, c.options)
	c.at.Store(p)
	return p
}

func (c *crash) pause(d time.Duration) {
	c.Helper()
	if err := pause(c.Context(), d); err != nil {
		c.Fatal(err)
	}
}

// server returns the process that listens now, waiting for one.
func (c *crash) server(ctx context.Context) (remote, error) {
	for ctx.Err() == nil {
		if p := c.at.Load(); p != nil {
			if url := p.listen(ctx); url != "" {
				return remote{url}, nil
			}
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return remote{}, err
		}
	}
	return remote{}, ctx.Err()
}

// persist repeats a request until a server answers it: a lost connection and a server that is
// stopping are no answers.
func (c *crash) persist(ctx context.Context, request func(remote) error) error {
	for {
		s, err := c.server(ctx)
		if err != nil {
			return err
		}
		err = request(s)
		var p *problem
		if err == nil || errors.As(err, &p) && p.Status != http.StatusServiceUnavailable {
			return err
		}
		c.lost.Add(1)
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// submitAll submits the jobs that are let in, each until it is acknowledged, and some once more.
func (c *crash) submitAll(ctx context.Context) error {
	for n := range c.permits {
		key := fmt.Sprintf("job-%d", n)
		draw := c.random(uint64(n) + 100)
		prompt := loopback.Marked(key, "say something")
		if draw.IntN(50) == 0 { // over the inline limit: its input goes to blob storage
			prompt += strings.Repeat(" and more", forebay.InlineBytes/8)
		}
		req := chat(prompt)
		req["priority"] = draw.IntN(10)
		if draw.IntN(20) == 0 {
			req["scheduled_at"] = time.Now().Add(time.Second)
		}
		var id string
		for range 1 + draw.IntN(20)/19 {
			err := c.persist(ctx, func(s remote) error {
				job, replayed, err := s.submit(ctx, key, req)
				if err == nil && id != "" && (job.ID != id || !replayed) {
					return &problem{Detail: fmt.Sprintf("%s was %s and is %s now (replayed: %t)", key, id, job.ID, replayed)}
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
		c.mu.Lock()
		c.jobs = append(c.jobs, &crashJob{key: key, id: id})
		c.mu.Unlock()
	}
	return nil
}

// watch looks at a sample of the jobs again and again, to see that nothing goes backwards.
func (c *crash) watch(ctx context.Context) {
	for i := 0; pause(ctx, 10*time.Millisecond) == nil; i++ {
		c.mu.Lock()
		sample := c.jobs[:len(c.jobs):len(c.jobs)]
		c.mu.Unlock()
		if len(sample) == 0 {
			continue
		}
		// The newest change most; the older must not change any more.
		at := len(sample) - 1 - i*7%min(len(sample), 60)
		if i%4 == 0 {
			at = i / 4 % len(sample)
		}
		c.look(ctx, sample[at])
	}
}

// look reads a job and compares it with what was seen before.
func (c *crash) look(ctx context.Context, j *crashJob) {
	s, err := c.server(ctx)
	if err != nil {
		return
	}
	now, err := s.job(ctx, j.id)
	var refused *problem
	switch {
	case errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable:
		c.Errorf("the acknowledged job %s (%s) cannot be read: %s", j.id, j.key, err)
		return
	case err != nil:
		return
	}
	c.looks.Add(1)
	c.compare(j, now)
}

func (c *crash) compare(j *crashJob, now forebay.Job) {
	before := j.seen
	j.seen = now
	if before.ID == "" {
		return
	}
	if before.Status.Terminal() && (now.Status != before.Status || !now.CompletedAt.Equal(*before.CompletedAt) || string(now.Result) != string(before.Result)) {
		c.Errorf("%s was %s at %v with %.60s, and is %s at %v with %.60s", j.id, before.Status, before.CompletedAt, before.Result, now.Status, now.CompletedAt, now.Result)
	}
	if now.Attempt < before.Attempt || now.Generation != before.Generation {
		c.Errorf("%s went back from attempt %d of generation %d to %d of %d", j.id, before.Attempt, before.Generation, now.Attempt, now.Generation)
	}
	if before.StartedAt != nil && (now.StartedAt == nil || !now.StartedAt.Equal(*before.StartedAt) || now.Status == forebay.StatusScheduled) {
		c.Errorf("%s had started at %v, and now is %s and started at %v", j.id, before.StartedAt, now.Status, now.StartedAt)
	}
}

// awaitAll waits until every acknowledged job is terminal.
func (c *crash) awaitAll() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	c.each(func(j *crashJob) error {
		return c.persist(ctx, func(s remote) error {
			_, err := s.await(ctx, j.id)
			return err
		})
	})
}

// each does something for every job, several at a time.
func (c *crash) each(do func(*crashJob) error) {
	c.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, j := range c.jobs {
		group.Go(func() error {
			if err := do(j); err != nil {
				return fmt.Errorf("%s (%s): %w", j.id, j.key, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		c.Error(err)
	}
}

// checkAll looks at every job, its attempts and its events, and at what is left in the queue.
func (c *crash) checkAll() {
	c.Helper()
	s, err := c.server(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	if len(c.jobs) != c.total {
		c.Errorf("%d of %d jobs were acknowledged", len(c.jobs), c.total)
	}
	listed, err := s.list(c.Context())
	if err != nil || len(listed) != len(c.jobs) {
		c.Errorf("%d jobs are listed, %d were acknowledged: %v", len(listed), len(c.jobs), err)
	}
	c.each(func(j *crashJob) error { return c.check(s, j) })
	q, err := s.queue(c.Context())
	if err != nil || q.Active+q.Scheduled+q.Locked+q.Retrying+q.DeadLetter+q.Quarantine != 0 {
		c.Errorf("left in the queue: %+v %v", q, err)
	}
	if peak := c.model.Stats().Peak; peak > 2*(crashPlaces+8) {
		// After a kill the calls of the old process may still be on their way out.
		c.Errorf("%d calls at once; both lanes together have %d places", peak, crashPlaces+8)
	}
}

func (c *crash) check(s remote, j *crashJob) error {
	job, err := s.job(c.Context(), j.id)
	if err != nil {
		return err
	}
	c.compare(j, job)
	if job.Status != forebay.StatusSucceeded || job.Generation != 1 {
		return fmt.Errorf("is %s, generation %d: %+v", job.Status, job.Generation, job.Error)
	}
	attempts, err := s.attempts(c.Context(), j.id)
	if err != nil {
		return err
	}
	if err := checkAttempts(attempts, job.Attempt, c.model.Calls(j.key)); err != nil {
		return err
	}
	var result struct{ Text string }
	if err := s.get(c.Context(), job.Links.Result, &result); err != nil {
		return err
	}
	var call int
	var to string
	if _, err := fmt.Sscanf(result.Text, "answer %d to %s", &call, &to); err != nil || to != j.key || call > len(attempts) {
		return fmt.Errorf("its result is %.60q, after %d attempts", result.Text, len(attempts))
	}
	events, err := s.events(c.Context(), j.id)
	if err != nil {
		return err
	}
	return checkEvents(events)
}

// checkAttempts compares the attempts with the calls that the model saw: each call has a row, and
// each row whose call was answered has a call.
func checkAttempts(attempts []forebay.Attempt, charged, calls int) error {
	counts := map[forebay.Outcome]int{}
	for i, a := range attempts {
		counts[a.Outcome]++
		if a.Number != i+1 || a.Generation != 1 || a.FinishedAt.Before(a.StartedAt) {
			return fmt.Errorf("attempt %d is numbered %d/%d, from %v to %v", i+1, a.Generation, a.Number, a.StartedAt, a.FinishedAt)
		}
	}
	answered := counts[forebay.OutcomeSucceeded] + counts[forebay.OutcomeRetried] + counts[forebay.OutcomeThrottled]
	switch {
	case counts[forebay.OutcomeSucceeded] != 1 || attempts[len(attempts)-1].Outcome != forebay.OutcomeSucceeded:
		return fmt.Errorf("its attempts ended as %v, not once and last in success", outcomes(attempts))
	case answered+counts[forebay.OutcomeLost] != len(attempts):
		return fmt.Errorf("its attempts ended as %v", outcomes(attempts))
	case charged != counts[forebay.OutcomeSucceeded]+counts[forebay.OutcomeRetried]:
		return fmt.Errorf("%d attempts were charged, of %v", charged, outcomes(attempts))
	case calls < answered || calls > len(attempts):
		return fmt.Errorf("the model was called %d times, the attempts say %v", calls, outcomes(attempts))
	}
	return nil
}

// checkEvents checks that a job's events count up from acceptance to the one that ends it.
func checkEvents(events []forebay.Event) error {
	for i, e := range events {
		last := i == len(events)-1
		switch {
		case e.Number != int64(i+1):
			return fmt.Errorf("event %d is numbered %d", i+1, e.Number)
		case (i == 0) != (e.Type == forebay.EventAccepted):
			return fmt.Errorf("event %d is %s", i+1, e.Type)
		case last != (e.Type == forebay.EventSucceeded) || last != e.Status.Terminal():
			return fmt.Errorf("event %d of %d is %s with the status %s", i+1, len(events), e.Type, e.Status)
		case i > 0 && e.At.Before(events[i-1].At):
			return fmt.Errorf("event %d happened before event %d", i+1, i)
		}
	}
	if len(events) < 3 {
		return fmt.Errorf("only %d events", len(events))
	}
	return nil
}

func checkIntegrity(t testing.TB, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stmt, _, err := conn.PrepareTransient("PRAGMA integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Finalize()
	if ok, err := stmt.Step(); err != nil || !ok || stmt.ColumnText(0) != "ok" {
		t.Errorf("the database is damaged: %v %s", err, stmt.ColumnText(0))
	}
}

func (c *crash) summary() {
	c.Helper()
	stats := c.model.Stats()
	if stats.Disconnects < len(c.plan) || c.lost.Load() == 0 || c.looks.Load() < 100 {
		c.Errorf("the disturbances hit only %d calls and %d requests, seen by %d looks: they show nothing", stats.Disconnects, c.lost.Load(), c.looks.Load())
	}
	c.Logf("%d jobs, %d disturbances, %d calls, %d cut off, peak %d, %d requests lost, %d looks, %s",
		len(c.jobs), len(c.plan), stats.Calls, stats.Disconnects, stats.Peak, c.lost.Load(), c.looks.Load(), time.Since(c.began).Round(time.Second))
}
