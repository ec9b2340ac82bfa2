package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
)

// world is the plain model that the store is compared with: what each job should be after the same
// operations.
type world struct {
	t       *rapid.T
	s       *stores
	engine  engine
	tenant  int64
	queue   int64
	jobs    []*modelJob
	held    []LockedJob // every delivery ever made, current or stale
	keys    map[string]int
	turns   map[queue.SubqueueKind]int // jobs that were served
	serials int
}

type modelJob struct {
	id         string
	seq        int64
	rank       int
	subqueue   queue.SubqueueKind
	visible    int64
	token      int64 // 0: free
	deadline   int64
	deliveries int
	attempt    int
	number     int
	announced  int
	generation int
	rows       int   // attempts
	events     int64 // events
	over       forebay.Status
	gone       bool // no message any more
}

const (
	testLock          = 10 * time.Second
	testMaxDeliveries = 3
)

func (w *world) now() int64 { return w.engine.Now() }

// free reports whether nobody holds the job right now.
func (j *modelJob) free(now int64) bool { return j.token == 0 || j.visible <= now }

func (j *modelJob) end(status forebay.Status, events int64) {
	j.over, j.gone, j.token = status, true, 0
	j.events += events
}

func (j *modelJob) setAside(subqueue queue.SubqueueKind, now int64) {
	j.over, j.subqueue, j.visible, j.token, j.deadline = forebay.StatusFailed, subqueue, now, 0, 0
	j.events += 2
}

func (w *world) submit(t *rapid.T) {
	w.serials++
	job := NewJob{
		ID: fmt.Sprintf("job_%d", w.serials), Tenant: w.tenant, Queue: w.queue, Task: "echo", MaxAttempts: 5,
		Priority: rapid.IntRange(0, 9).Draw(t, "priority"), Input: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "input"), InputSize: 40,
	}
	now := w.now()
	m := &modelJob{id: job.ID, rank: 9 - job.Priority, visible: now, generation: 1, events: 1}
	if rapid.IntRange(0, 3).Draw(t, "scheduled") == 0 {
		at := time.UnixMilli(now + rapid.Int64Range(1, 30_000).Draw(t, "ahead"))
		job.ScheduledAt, m.visible = &at, at.UnixMilli()
	}
	if rapid.IntRange(0, 4).Draw(t, "limited") == 0 {
		at := time.UnixMilli(now + rapid.Int64Range(1, 40_000).Draw(t, "deadline"))
		job.Deadline, m.deadline = &at, at.UnixMilli()
	}
	if rapid.IntRange(0, 2).Draw(t, "keyed") == 0 {
		job.IdempotencyKey = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		job.BodyHash = []byte{byte(rapid.IntRange(0, 1).Draw(t, "body"))}
	}
	got, err := w.s.Jobs.Submit(context.Background(), []NewJob{job})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	if job.IdempotencyKey != "" {
		if made, used := w.keys[job.IdempotencyKey+string(job.BodyHash)]; used {
			if !got[0].Existing || got[0].ID != w.jobs[made].id {
				t.Fatalf("a repeated key made %+v", got[0])
			}
			return
		}
		for _, other := range []byte{0, 1} {
			if _, used := w.keys[job.IdempotencyKey+string([]byte{other})]; used {
				if !errors.Is(got[0].Err, &forebay.Error{Code: forebay.CodeIdempotencyMismatch}) {
					t.Fatalf("a key reused with another body got %+v", got[0])
				}
				return
			}
		}
		w.keys[job.IdempotencyKey+string(job.BodyHash)] = len(w.jobs)
	}
	if got[0].Err != nil || got[0].Existing || got[0].ID != job.ID {
		t.Fatalf("submit gave %+v", got[0])
	}
	row, err := w.s.Jobs.Job(context.Background(), w.tenant, job.ID)
	if err != nil || len(w.jobs) > 0 && row.Seq <= w.jobs[len(w.jobs)-1].seq {
		t.Fatalf("job %s has the number %d (%v), not one above all others", job.ID, row.Seq, err)
	}
	m.seq = row.Seq
	w.jobs = append(w.jobs, m)
}

// behindFirst returns the job that goes before the first one in the reserved share. Of the jobs
// behind it that are first in their priorities, that is the one that waits longest. If there is
// none, it is the first itself.
func behindFirst(ready []*modelJob, level func(*modelJob) int) int {
	best := 0
	seen := map[int]bool{ready[0].rank: true}
	for i, j := range ready {
		if seen[j.rank] { // ready is in the order of levels, and so is each priority's in that of time
			continue
		}
		seen[j.rank] = true
		if level(j) > level(ready[0]) && (best == 0 || cmp.Or(cmp.Compare(j.visible, ready[best].visible), cmp.Compare(j.seq, ready[best].seq)) < 0) {
			best = i
		}
	}
	return best
}

// expectClaim does to the model what a claim should do and returns whom it should deliver.
func (w *world) expectClaim(subqueue queue.SubqueueKind, limit int) (expected []*modelJob) {
	now := w.now()
	var ready []*modelJob
	for _, j := range w.jobs {
		if !j.gone && j.over == "" && j.subqueue == subqueue && j.visible <= now {
			ready = append(ready, j)
		}
	}
	level := func(j *modelJob) int { return max(0, j.rank-int(now-j.visible)/30_000) } // it goes up with waiting
	slices.SortFunc(ready, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(level(a), level(b)), cmp.Compare(a.visible, b.visible), cmp.Compare(a.seq, b.seq))
	})
	for len(expected) < limit && len(ready) > 0 {
		next := 0
		if w.turns[subqueue] == fairqueue.Reserved-1 { // the turn of those behind
			next = behindFirst(ready, level)
		}
		if w.turns[subqueue] = min(w.turns[subqueue]+1, fairqueue.Reserved-1); next > 0 {
			w.turns[subqueue] = 0
		}
		j := ready[next]
		ready = slices.Delete(ready, next, next+1)
		if j.token != 0 {
			j.rows++ // the lost attempt
			j.token = 0
		}
		if j.deliveries >= testMaxDeliveries {
			j.setAside(queue.SubqueueDeadLetter, now)
			continue
		}
		j.deliveries++
		if j.number++; j.number > j.announced {
			j.announced = j.number
			j.events++
		}
		expected = append(expected, j)
	}
	return expected
}

func (w *world) claim(t *rapid.T) {
	subqueue := rapid.SampledFrom([]queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry}).Draw(t, "subqueue")
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got []LockedJob
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = w.s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(w.queue, subqueue), Max: limit, MaxBytes: 1 << 20, Lock: testLock,
			MaxDeliveries: testMaxDeliveries, FailureSubqueue: queue.SubqueueDeadLetter})
	}()
	w.engine.Settle(w.s, done)
	cancel() // whoever still waits now found nothing
	<-done
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("claim: %v", err)
	}
	expected := w.expectClaim(subqueue, limit)
	if len(got) != len(expected) {
		t.Fatalf("claimed %d, expected %d", len(got), len(expected))
	}
	for i, d := range got {
		j := expected[i]
		if d.ID != j.id || d.Number != j.number || d.Deliveries != j.deliveries || d.Generation != j.generation || d.Attempt != j.attempt {
			t.Fatalf("delivery %d is %+v, expected %+v", i, d, j)
		}
		j.token, j.visible = d.Token, w.now()+testLock.Milliseconds()
		w.held = append(w.held, d)
	}
}

// settle ends a delivery, current or stale, in a random way.
func (w *world) settle(t *rapid.T) {
	if len(w.held) == 0 {
		t.Skip("nothing held")
	}
	d := w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "delivery")]
	j := w.jobs[slices.IndexFunc(w.jobs, func(j *modelJob) bool { return j.seq == d.Seq })]
	current := !j.gone && j.token == d.Token
	now := w.now()
	ctx := context.Background()
	delay := time.Duration(rapid.Int64Range(0, 20_000).Draw(t, "delay")) * time.Millisecond
	record := AttemptRecord{Deployment: "d", ErrorClass: forebay.ClassTransient, ErrorCode: "e", ErrorMessage: []byte("\x00\xff"), RetryDelay: delay}
	free := func(subqueue queue.SubqueueKind, at int64) { j.subqueue, j.visible, j.token = subqueue, at, 0 }
	var err error
	var apply func()
	switch kind := rapid.IntRange(0, 6).Draw(t, "how"); kind {
	case 0:
		err = w.s.Jobs.Succeed(ctx, &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("r"), Size: 1})
		apply = func() { j.rows++; j.attempt++; j.end(forebay.StatusSucceeded, 1) }
	case 1:
		record.Outcome, record.Uncharged = forebay.OutcomeRetried, rapid.Bool().Draw(t, "uncharged")
		err = w.s.Jobs.Retry(ctx, &d, record)
		apply = func() {
			j.rows++
			if !record.Uncharged {
				j.attempt++
			}
			j.deliveries = 0
			j.events += 2
			free(queue.SubqueueRetry, now+delay.Milliseconds())
		}
	case 2:
		record.Outcome = forebay.OutcomeThrottled
		err = w.s.Jobs.Throttle(ctx, &d, record, forebay.WaitQuota)
		apply = func() { j.rows++; j.deliveries--; j.events++; free(j.subqueue, now+delay.Milliseconds()) }
	case 3:
		err = w.s.Jobs.Release(ctx, &d, delay, "")
		apply = func() { j.deliveries--; j.number--; free(j.subqueue, now+delay.Milliseconds()) }
	case 4:
		record.Outcome = forebay.OutcomeFailed
		err = w.s.Jobs.DeadLetter(ctx, &d, record, queue.SubqueueQuarantine, "reason")
		apply = func() { j.rows++; j.attempt++; j.setAside(queue.SubqueueQuarantine, now) }
	case 5:
		record.Outcome = forebay.OutcomeLost
		put, uncounted := w.s.Jobs.Interrupt, 1
		if rapid.Bool().Draw(t, "given up") {
			put, uncounted = w.s.Jobs.Lose, 0
		}
		err = put(ctx, &d, record)
		apply = func() { j.rows++; j.deliveries -= uncounted; free(j.subqueue, now) }
	case 6:
		held, renewErr := w.s.Jobs.Renew(ctx, []queue.Lock{d.Lock}, testLock)
		if renewErr != nil {
			t.Fatalf("renew: %v", renewErr)
		}
		if err = nil; !held[0] {
			err = forebay.ErrLockLost
		}
		apply = func() { j.visible = now + testLock.Milliseconds() }
	}
	if !current {
		if !errors.Is(err, forebay.ErrLockLost) {
			t.Fatalf("a stale lock settled job %s: %v", j.id, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("settle %s: %v", j.id, err)
	}
	apply()
	w.expire()
}

func (w *world) cancel(t *rapid.T) {
	j := w.any(t)
	c, err := w.s.Jobs.Cancel(context.Background(), j.seq)
	if err != nil {
		t.Fatalf("cancel: %v", err)
	}
	if c.Cancelled != (j.over == "" || j.over == forebay.StatusCancelled) {
		t.Fatalf("cancel of a %q job gave %+v", j.over, c)
	}
	if j.over == "" {
		if j.token != 0 {
			j.rows++
		}
		j.end(forebay.StatusCancelled, 1)
	}
}

func (w *world) redrive(t *rapid.T) {
	j := w.any(t)
	moved, err := w.s.Jobs.Redrive(context.Background(), []Redrive{{Seq: j.seq}, {Seq: j.seq}}, audit.Act{})
	if err != nil {
		t.Fatalf("redrive: %v", err)
	}
	expected := j.over == forebay.StatusFailed && !j.gone
	if moved[0] != expected || moved[1] {
		t.Fatalf("redriving a %q job twice gave %v", j.over, moved)
	}
	if expected {
		j.over, j.subqueue, j.visible = "", queue.SubqueueMain, w.now()
		j.generation++
		j.attempt, j.number, j.announced, j.deliveries = 0, 0, 0, 0
		j.events++
	}
}

func (w *world) purge(t *rapid.T) {
	j := w.any(t)
	purged, err := w.s.Jobs.PurgeDeadLetters(context.Background(), []Purge{{Seq: j.seq}}, audit.Act{})
	if err != nil {
		t.Fatalf("purge: %v", err)
	}
	if expected := j.over == forebay.StatusFailed && !j.gone; (purged == 1) != expected {
		t.Fatalf("purging a %q job gave %d", j.over, purged)
	}
	if purged == 1 {
		j.gone = true
	}
}

func (w *world) any(t *rapid.T) *modelJob {
	if len(w.jobs) == 0 {
		t.Skip("no jobs")
	}
	return w.jobs[rapid.IntRange(0, len(w.jobs)-1).Draw(t, "job")]
}

func (w *world) passTime(t *rapid.T) {
	w.engine.Pass(w.s, time.Duration(rapid.Int64Range(1, 15_000).Draw(t, "ms"))*time.Millisecond)
	w.expire()
}

// expire ends the model's jobs whose deadline has passed while nobody held them.
func (w *world) expire() {
	w.engine.Settle(w.s, nil)
	now := w.now()
	for _, j := range w.jobs {
		if j.over == "" && j.deadline > 0 && j.deadline <= now && j.free(now) {
			if j.token != 0 {
				j.rows++
			}
			j.end(forebay.StatusExpired, 1)
		}
	}
}

// check compares every job of the store with the model.
func (w *world) check(t *rapid.T) {
	w.expire()
	now := w.now()
	for _, j := range w.jobs {
		row, err := w.s.Jobs.Job(context.Background(), w.tenant, j.id)
		if err != nil {
			t.Fatalf("job %s: %v", j.id, err)
		}
		want := j.over
		switch {
		case want != "":
		case j.token != 0 && j.visible > now:
			want = forebay.StatusRunning
		case j.subqueue == queue.SubqueueRetry:
			want = forebay.StatusRetrying
		default:
			want = row.Status // scheduled or queued: which one depends on how it got its delay
			if want != forebay.StatusScheduled && want != forebay.StatusQueued {
				t.Fatalf("job %s is %s, expected it to wait", j.id, want)
			}
		}
		if row.Status != want || row.Generation != j.generation || row.Attempt != j.attempt {
			t.Fatalf("job %s is %s generation %d attempt %d, expected %s %d %d", j.id, row.Status, row.Generation, row.Attempt, want, j.generation, j.attempt)
		}
		w.checkRows(t, j)
	}
	if err := hourSumsDiffer(w.s); err != nil {
		t.Fatal(err)
	}
}

func (w *world) checkRows(t *rapid.T, j *modelJob) {
	attempts, err := w.s.Jobs.Attempts(context.Background(), j.seq)
	if n := len(attempts); n > 0 && attempts[n-1].Outcome == forebay.OutcomeRunning { // it has no row
		attempts = attempts[:n-1]
	}
	if err != nil || len(attempts) != j.rows {
		t.Fatalf("job %s has %d attempts (%v), expected %d", j.id, len(attempts), err, j.rows)
	}
	events, err := w.s.Jobs.Events(context.Background(), j.seq, 0, 10_000)
	if err != nil || int64(len(events)) != j.events {
		t.Fatalf("job %s has %d events (%v), expected %d: %+v", j.id, len(events), err, j.events, events)
	}
	for i, e := range events {
		if e.Number != int64(i+1) {
			t.Fatalf("job %s: event %d has number %d", j.id, i+1, e.Number)
		}
	}
}

// TestStoreAgainstModel drives random operations on the store and on the model and compares.
func TestStoreAgainstModel(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		s := e.Open(t)
		defer s.DB.Close()
		w := &world{t: t, s: s, engine: e, keys: map[string]int{}, turns: map[queue.SubqueueKind]int{}}
		var err error
		if w.tenant, err = s.Queues.EnsureTenant(context.Background(), "t"); err != nil {
			t.Fatal(err)
		}
		if w.queue, err = s.Queues.EnsureQueue(context.Background(), "q"); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": w.submit, "submit2": w.submit, "claim": w.claim, "claim2": w.claim, "settle": w.settle, "settle2": w.settle,
			"settle3": w.settle, "cancel": w.cancel, "redrive": w.redrive, "purge": w.purge, "time": w.passTime, "": w.check,
		})
	})
}
