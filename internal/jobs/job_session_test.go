package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
)

// sessionWorld drives jobs of a few sessions and watches that they take turns.
type sessionWorld struct {
	s       *stores
	engine  engine
	tenant  int64
	queue   int64
	jobs    []*sessionJob
	running []LockedJob
	aborted []LockedJob // cancelled while they ran; their calls may still run
}

type sessionJob struct {
	id, session string
	begun, over bool
	failed      bool // and set aside
	notBefore   int64
}

func (w *sessionWorld) submit(t *rapid.T) {
	var jobs []NewJob
	for range rapid.SampledFrom([]int{1, 1, 1, 1, 1, 3}).Draw(t, "at once") {
		j := &sessionJob{id: fmt.Sprintf("job_%d", len(w.jobs)), session: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "session")}
		job := NewJob{ID: j.id, Tenant: w.tenant, Queue: w.queue, Task: "echo", MaxAttempts: 5, Priority: rapid.IntRange(0, 9).Draw(t, "priority"), SessionID: j.session}
		if rapid.IntRange(0, 5).Draw(t, "limited") == 0 {
			at := time.UnixMilli(w.engine.Now() + rapid.Int64Range(1, 20_000).Draw(t, "deadline"))
			job.Deadline = &at
		}
		jobs, w.jobs = append(jobs, job), append(w.jobs, j)
	}
	if _, err := w.s.Jobs.Submit(context.Background(), jobs); err != nil {
		t.Fatal(err)
	}
}

// claim takes what is ready. A session has no ready job while one of its jobs runs. A job is never
// ready before one of its session that was submitted earlier and has not begun.
func (w *sessionWorld) claim(t *rapid.T) {
	w.claimFrom(t, rapid.SampledFrom([]queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry}).Draw(t, "subqueue"))
}

func (w *sessionWorld) claimFrom(t *rapid.T, subqueue queue.SubqueueKind) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got []LockedJob
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, _ = w.s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(w.queue, subqueue), Max: 3, MaxBytes: 1 << 20, Lock: time.Hour, MaxDeliveries: 1000})
	}()
	w.engine.Settle(w.s, done)
	cancel()
	<-done
	for _, d := range got {
		at := slices.IndexFunc(w.jobs, func(j *sessionJob) bool { return j.id == d.ID })
		j := w.jobs[at]
		if j.session != d.SessionID {
			t.Fatalf("%s was delivered as one of session %q", j.id, d.SessionID)
		}
		if j.session != "" {
			for _, other := range slices.Concat(w.running, w.aborted) {
				if other.SessionID == j.session {
					t.Fatalf("%s runs beside %s of its session", d.ID, other.ID)
				}
			}
			for _, earlier := range w.jobs[:at] {
				if earlier.session == j.session && !earlier.begun && !earlier.over {
					t.Fatalf("%s runs before %s", d.ID, earlier.id)
				}
			}
		}
		if now := w.engine.Now(); now < j.notBefore {
			t.Fatalf("%s runs %d ms before the time of its redrive", j.id, j.notBefore-now)
		}
		j.begun = true
		w.running = append(w.running, d)
	}
}

func (w *sessionWorld) settle(t *rapid.T) {
	if len(w.running) == 0 {
		t.Skip("nothing runs")
	}
	w.end(t, rapid.IntRange(0, len(w.running)-1).Draw(t, "delivery"), rapid.IntRange(0, 4).Draw(t, "how"))
}

func (w *sessionWorld) end(t *rapid.T, i, how int) {
	d := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	j := w.jobs[slices.IndexFunc(w.jobs, func(j *sessionJob) bool { return j.id == d.ID })]
	var err error
	switch how {
	case 0, 1:
		err = w.s.Jobs.Succeed(context.Background(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
		j.over = true
	case 2:
		err = w.s.Jobs.Retry(context.Background(), &d, AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: time.Second})
	case 3:
		err = w.s.Jobs.DeadLetter(context.Background(), &d, AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "r")
		j.over, j.failed = true, true
	case 4:
		err = w.s.Jobs.Release(context.Background(), &d, time.Second, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *sessionWorld) any(t *rapid.T) (*sessionJob, JobRow) {
	if len(w.jobs) == 0 {
		t.Skip("no jobs")
	}
	j := rapid.SampledFrom(w.jobs).Draw(t, "job")
	row, err := w.s.Jobs.Job(context.Background(), w.tenant, j.id)
	if err != nil {
		t.Fatal(err)
	}
	return j, row
}

func (w *sessionWorld) cancel(t *rapid.T) {
	j, row := w.any(t)
	if _, err := w.s.Jobs.Cancel(context.Background(), row.Seq); err != nil {
		t.Fatal(err)
	}
	if !row.Status.Terminal() {
		j.over = true
	}
	w.running = slices.DeleteFunc(w.running, func(d LockedJob) bool {
		if d.ID == j.id {
			w.aborted = append(w.aborted, d)
		}
		return d.ID == j.id
	})
}

// hangUp ends a call whose job was cancelled, and tells so, perhaps twice.
func (w *sessionWorld) hangUp(t *rapid.T) {
	if len(w.aborted) == 0 {
		t.Skip("no call was aborted")
	}
	i := rapid.IntRange(0, len(w.aborted)-1).Draw(t, "call")
	d := w.aborted[i]
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if err := w.s.Jobs.Amend(context.Background(), &d, AttemptRecord{}); err != nil {
			t.Fatal(err)
		}
	}
	w.aborted = slices.Delete(w.aborted, i, i+1)
}

func (w *sessionWorld) redrive(t *rapid.T) {
	j, row := w.any(t)
	delay := time.Duration(rapid.SampledFrom([]int64{0, 0, 3000}).Draw(t, "delay")) * time.Millisecond
	moved, err := w.s.Jobs.Redrive(context.Background(), []Redrive{{Seq: row.Seq, Delay: delay}}, audit.Act{})
	if err != nil || moved[0] != j.failed {
		t.Fatalf("redriving %s: %v (%v)", j.id, moved, err)
	}
	if moved[0] {
		j.over, j.failed, j.notBefore = false, false, w.engine.Now()+delay.Milliseconds()
	}
}

func (w *sessionWorld) passTime(t *rapid.T) {
	w.engine.Pass(w.s, time.Duration(rapid.Int64Range(1, 5_000).Draw(t, "ms"))*time.Millisecond)
	w.look(t)
}

// look notes which jobs have expired.
func (w *sessionWorld) look(t *rapid.T) {
	w.engine.Settle(w.s, nil)
	for _, j := range w.jobs {
		row, err := w.s.Jobs.Job(context.Background(), w.tenant, j.id)
		if err != nil {
			t.Fatal(err)
		}
		if row.Status == forebay.StatusExpired {
			j.over = true
			w.running = slices.DeleteFunc(w.running, func(d LockedJob) bool { return d.ID == j.id })
		}
		if row.Waiting == forebay.WaitSession && (row.Status != forebay.StatusQueued || row.VisibleAt != nil || j.session == "") {
			t.Fatalf("%s waits for its session as %+v", j.id, row)
		}
		if row.Status.Terminal() != j.over {
			t.Fatalf("%s is %s", j.id, row.Status)
		}
	}
}

// Jobs of one session run one at a time and begin in the order in which they were submitted.
// Whatever happens to some of them, the others get their turn.
func TestJobSessions(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	fixture.OnEveryEngine(t, func(t *rapid.T, e engine) {
		w := &sessionWorld{s: e.Open(t), engine: e}
		defer func() { w.s.DB.Close() }()
		var err error
		if w.tenant, err = w.s.Queues.EnsureTenant(context.Background(), "t"); err != nil {
			t.Fatal(err)
		}
		if w.queue, err = w.s.Queues.EnsureQueue(context.Background(), "q"); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": w.submit, "submit2": w.submit, "submit3": w.submit, "claim": w.claim, "claim2": w.claim, "settle": w.settle, "settle2": w.settle,
			"settle3": w.settle, "cancel": w.cancel, "redrive": w.redrive, "time": w.passTime, "hang up": w.hangUp,
		})
		for range 4 * (len(w.jobs) + 1) {
			for len(w.running) > 0 {
				w.end(t, 0, 0)
			}
			for len(w.aborted) > 0 {
				w.hangUp(t)
			}
			w.claimFrom(t, queue.SubqueueMain)
			w.claimFrom(t, queue.SubqueueRetry)
			w.engine.Pass(w.s, time.Second)
			w.look(t)
		}
		for _, j := range w.jobs {
			if !j.over {
				t.Errorf("%s of session %q never got its turn", j.id, j.session)
			}
		}
	})
}

// A cancelled job whose worker is lost keeps its turn until its lock ends, for jobs that were
// there and for those that come later. A worker that settles too late takes no turn away.
func TestTurnAfterCancelledCall(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) { turnAfterCancelledCall(t, restart) })
	}
}

func turnAfterCancelledCall(t *testing.T, restart bool) {
	fixture.Once(t, func(t *rapid.T, e engine) {
		w := &sessionWorld{s: e.Open(t), engine: e}
		defer func() { w.s.DB.Close() }()
		const lock = 30 * time.Second
		queueID, err := w.s.Queues.EnsureQueue(context.Background(), "q")
		if err != nil {
			t.Fatal(err)
		}
		submit := func(id string) {
			if _, err := w.s.Jobs.Submit(context.Background(), []NewJob{{ID: id, Tenant: 1, Queue: queueID, Task: "echo", MaxAttempts: 5, SessionID: "s"}}); err != nil {
				t.Fatal(err)
			}
		}
		claim := func() (ids []string, d LockedJob) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan struct{})
			var got []LockedJob
			go func() {
				defer close(done)
				got, _ = w.s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 9, MaxBytes: 1, Lock: lock, MaxDeliveries: 1000})
			}()
			e.Settle(w.s, done)
			cancel()
			<-done
			for _, d = range got {
				ids = append(ids, d.ID)
			}
			return ids, d
		}
		want := func(step string, ids []string, want ...string) {
			t.Helper()
			if !slices.Equal(ids, want) {
				t.Fatalf("%s: delivered %q, expected %q", step, ids, want)
			}
		}
		cancel := func(id string) {
			row, err := w.s.Jobs.Job(context.Background(), 1, id)
			if err == nil {
				_, err = w.s.Jobs.Cancel(context.Background(), row.Seq)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		waits := func(id string) {
			t.Helper()
			if row, err := w.s.Jobs.Job(context.Background(), 1, id); err != nil || row.Status != forebay.StatusQueued || row.Waiting != forebay.WaitSession {
				t.Fatalf("%s does not wait for its session: %+v, %v", id, row, err)
			}
		}
		submit("a")
		got, first := claim()
		want("the first", got, "a")
		cancel("a")
		submit("b") // comes while the call may still run
		waits("b")
		submit("c")
		cancel("b") // before it ran: the call of a may still
		waits("c")
		got, _ = claim()
		want("while a's call may run", got)
		e.Pass(w.s, lock)
		got, _ = claim()
		want("after a's lock", got, "c")
		submit("d")
		cancel("c")
		if err := w.s.Jobs.Amend(context.Background(), &first, AttemptRecord{}); err != nil {
			t.Fatal(err)
		}
		got, _ = claim()
		want("after a's worker was heard of at last", got)
		if restart {
			if err := w.s.DB.Close(); err != nil {
				t.Fatal(err)
			}
			w.s = e.Reopen(t)
			got, _ = claim()
			if _, alone := e.(dbtest.Bubble[*stores]); alone { // whoever called has gone with the process
				want("after a restart", got, "d")
				return
			}
			want("after a restart of one process", got)
		}
		e.Pass(w.s, lock)
		got, _ = claim()
		want("after c's lock", got, "d")
	})
}

// Jobs of one session that come at once, while a worker waits for them, still run one after the
// other.
func TestJobsOfASessionComeTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID := queueOf(t, s, "q")
		claimed := make(chan []LockedJob, 1)
		go func() {
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 10, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
			if err != nil {
				t.Error(err)
			}
			claimed <- got
		}()
		for parked := false; !parked; {
			var err error
			if parked, err = db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return len(t.w.Waiters) > 0, nil }); err != nil {
				t.Fatal(err)
			}
		}
		var jobs []NewJob
		for i := range 3 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("job_", i), Tenant: 1, Queue: queueID, Task: "echo", MaxAttempts: 5, SessionID: "s"})
		}
		made, err := s.Jobs.Submit(t.Context(), jobs)
		if err != nil || made[0].Held || !made[1].Held || !made[2].Held {
			t.Fatalf("submitted %+v: %v", made, err)
		}
		if got := <-claimed; len(got) != 1 || got[0].ID != "job_0" {
			t.Errorf("%d jobs of one session were delivered together", len(got))
		}
	})
}

// Over a network, each answer that a transaction waits for delays all others. So jobs of many
// sessions are stored and settled together.
func TestJobsOfManySessionsTakeFewRoundTrips(t *testing.T) {
	t.Parallel()
	s, few := overANetwork(t)
	tenant, queueID := tenantNamed(t, s, "t"), queueOf(t, s, "q")
	const sessions = 64
	submit := func(round int) []NewJob {
		jobs := make([]NewJob, sessions)
		for i := range jobs {
			jobs[i] = NewJob{ID: fmt.Sprint("job_", round, "_", i), Tenant: tenant, Queue: queueID, Task: "t", MaxAttempts: 5, SessionID: fmt.Sprint("s", i)}
		}
		return jobs
	}
	store := func(jobs []NewJob) {
		if _, err := s.Jobs.Submit(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
	}
	store(submit(0)) // prepares the statements
	few(40, "submitting", func() { store(submit(1)) })
	claim := func() []LockedJob {
		got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: sessions, MaxBytes: 1 << 20, Lock: time.Hour, MaxDeliveries: 10})
		if err != nil || len(got) == 0 {
			t.Fatal(len(got), err)
		}
		return got
	}
	settle := func(all []LockedJob) {
		begun, gate := make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) { close(begun); <-gate; return 0, nil }); err != nil {
				t.Error(err)
			}
		})
		<-begun
		for i := range all {
			callers.Go(func() {
				if err := s.Jobs.Succeed(t.Context(), &all[i], AttemptRecord{}, Output{Inline: []byte("1"), Size: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		for len(s.DB.Writer.Ops) < len(all) {
			<-time.After(time.Millisecond)
		}
		close(gate)
		callers.Wait()
	}
	first := claim()
	if len(first) != sessions {
		t.Fatalf("claimed %d", len(first))
	}
	settle(first[:2]) // prepares the statements
	few(40, "settling", func() { settle(first[2:]) })
	if next := claim(); len(next) != sessions {
		t.Errorf("then it is the turn of %d jobs of %d sessions", len(next), sessions)
	}
}
