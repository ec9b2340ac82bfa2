package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

// sessionWorld drives jobs of a few sessions and watches that they take turns.
type sessionWorld struct {
	s       *Store
	engine  engine
	tenant  int64
	queue   int64
	jobs    []*sessionJob
	running []Delivery
}

type sessionJob struct {
	id, session string
	begun, over bool
	failed      bool // and set aside
}

func (w *sessionWorld) submit(t *rapid.T) {
	j := &sessionJob{id: fmt.Sprintf("job_%d", len(w.jobs)), session: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "session")}
	job := NewJob{ID: j.id, Tenant: w.tenant, Queue: w.queue, Task: "echo", MaxAttempts: 5, Priority: rapid.IntRange(0, 9).Draw(t, "priority"), SessionID: j.session}
	if rapid.IntRange(0, 5).Draw(t, "limited") == 0 {
		at := time.UnixMilli(w.engine.now() + rapid.Int64Range(1, 20_000).Draw(t, "deadline"))
		job.Deadline = &at
	}
	if _, err := w.s.Submit(background, []NewJob{job}); err != nil {
		t.Fatal(err)
	}
	w.jobs = append(w.jobs, j)
}

// claim takes what is ready: of each session nothing while one of its jobs runs, and never a job before
// one that was submitted earlier and has not begun.
func (w *sessionWorld) claim(t *rapid.T) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var got []Delivery
	done := make(chan struct{})
	lane := rapid.SampledFrom([]LaneKind{LaneMain, LaneRetry}).Draw(t, "lane")
	go func() {
		defer close(done)
		got, _ = w.s.Claim(ctx, ClaimRequest{Lane: LaneOf(w.queue, lane), Max: 3, MaxBytes: 1 << 20, Lock: time.Hour, MaxDeliveries: 1000})
	}()
	w.engine.settle(w.s, done)
	cancel()
	<-done
	for _, d := range got {
		at := slices.IndexFunc(w.jobs, func(j *sessionJob) bool { return j.id == d.ID })
		j := w.jobs[at]
		if j.session != d.SessionID {
			t.Fatalf("%s was delivered as one of session %q", j.id, d.SessionID)
		}
		if j.session != "" {
			for _, other := range w.running {
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
		err = w.s.Succeed(background, &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
		j.over = true
	case 2:
		err = w.s.Retry(background, &d, AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: time.Second})
	case 3:
		err = w.s.SetAside(background, &d, AttemptRecord{Outcome: forebay.OutcomeFailed}, LaneDeadLetter, "r")
		j.over, j.failed = true, true
	case 4:
		err = w.s.Release(background, &d, time.Second, "")
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
	row, err := w.s.Job(background, w.tenant, j.id)
	if err != nil {
		t.Fatal(err)
	}
	return j, row
}

func (w *sessionWorld) cancel(t *rapid.T) {
	j, row := w.any(t)
	if _, err := w.s.Cancel(background, row.Seq); err != nil {
		t.Fatal(err)
	}
	j.over = true
	w.running = slices.DeleteFunc(w.running, func(d Delivery) bool { return d.ID == j.id })
}

func (w *sessionWorld) redrive(t *rapid.T) {
	j, row := w.any(t)
	moved, err := w.s.Redrive(background, []Redrive{{Seq: row.Seq}}, Audit{})
	if err != nil || moved[0] != j.failed {
		t.Fatalf("redriving %s: %v (%v)", j.id, moved, err)
	}
	if moved[0] {
		j.over, j.failed = false, false
	}
}

func (w *sessionWorld) passTime(t *rapid.T) {
	w.engine.pass(w.s, time.Duration(rapid.Int64Range(1, 5_000).Draw(t, "ms"))*time.Millisecond)
	w.look(t)
}

// look notes which jobs have expired.
func (w *sessionWorld) look(t *rapid.T) {
	w.engine.settle(w.s, nil)
	for _, j := range w.jobs {
		row, err := w.s.Job(background, w.tenant, j.id)
		if err != nil {
			t.Fatal(err)
		}
		if row.Status == forebay.StatusExpired {
			j.over = true
			w.running = slices.DeleteFunc(w.running, func(d Delivery) bool { return d.ID == j.id })
		}
		if row.Waiting == forebay.WaitSession && (row.Status != forebay.StatusQueued || row.VisibleAt != nil || j.session == "") {
			t.Fatalf("%s waits for its session as %+v", j.id, row)
		}
		if row.Status.Terminal() != j.over {
			t.Fatalf("%s is %s", j.id, row.Status)
		}
	}
}

// Jobs of one session run one at a time and begin in the order in which they were submitted; whatever
// happens to some of them, the others get their turn.
func TestJobSessions(t *testing.T) {
	onEveryEngine(t, func(t *rapid.T, e engine) {
		w := &sessionWorld{s: e.open(t), engine: e}
		defer func() { w.s.Close() }()
		var err error
		if w.tenant, err = w.s.EnsureTenant(background, "t"); err != nil {
			t.Fatal(err)
		}
		if w.queue, err = w.s.EnsureQueue(background, "q"); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": w.submit, "submit2": w.submit, "submit3": w.submit, "claim": w.claim, "claim2": w.claim, "settle": w.settle, "settle2": w.settle,
			"settle3": w.settle, "cancel": w.cancel, "redrive": w.redrive, "time": w.passTime,
		})
		for range 4 * (len(w.jobs) + 1) {
			for len(w.running) > 0 {
				w.end(t, 0, 0)
			}
			w.claim(t)
			w.engine.pass(w.s, time.Second)
			w.look(t)
		}
		for _, j := range w.jobs {
			if !j.over {
				t.Errorf("%s of session %q never got its turn", j.id, j.session)
			}
		}
	})
}
