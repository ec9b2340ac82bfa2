//go:build unix

package crash_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

func TestGracefulStopChargesNothing(t *testing.T) {
	t.Parallel()
	const grace = 8 * time.Second
	release := make(chan struct{})
	answer := sync.OnceFunc(func() { close(release) })
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		if c.Marker == "short" {
			<-release
		}
		return modelsim.Reply{Hang: c.Marker == "long" && c.Number == 1}
	})
	t.Cleanup(model.Close)
	t.Cleanup(answer) // the model waits for its calls
	// With one delivery a job, one that was counted would set it aside.
	options := servertest.ProcessOptions{Database: servertest.DatabaseFile(t), Endpoint: model.URL(), Shutdown: grace,
		Queue: server.Queue{Concurrency: 2, MaxDeliveryCount: 1, Retry: server.Retry{Attempts: 1}}}
	p := servertest.Launch(t, options)
	s := servertest.Remote{URL: p.MustListen(t)}
	short, long := s.Send(t, "short"), s.Send(t, "long")
	servertest.AwaitModel(t, model, servertest.InFlight(2))
	waiting := s.Send(t, "waiting")
	stopped := time.Now()
	time.AfterFunc(time.Second, answer)
	p.Stop(t)
	if took := time.Since(stopped); took < grace || took > grace+10*time.Second {
		t.Errorf("the stop took %s; calls may take %s", took, grace)
	}
	if model.Calls("waiting") != 0 {
		t.Error("a job was begun while the server stopped")
	}

	s = servertest.Remote{URL: servertest.Launch(t, options).MustListen(t)}
	for _, c := range []struct {
		marker, id string
		want       []forebay.Outcome
	}{
		{"short", short.ID, []forebay.Outcome{forebay.OutcomeSucceeded}},
		{"long", long.ID, []forebay.Outcome{forebay.OutcomeLost, forebay.OutcomeSucceeded}},
		{"waiting", waiting.ID, []forebay.Outcome{forebay.OutcomeSucceeded}},
	} {
		job, attempts := s.MustAwait(t, c.id)
		if job.Status != forebay.StatusSucceeded || job.Attempt != 1 || !slices.Equal(servertest.Outcomes(attempts), c.want) || model.Calls(c.marker) != len(c.want) {
			t.Errorf("%s: %s, charged %d, %d calls, attempts %v", c.marker, job.Status, job.Attempt, model.Calls(c.marker), servertest.Outcomes(attempts))
		}
		if c.marker == "long" && (attempts[0].Deployment != "simulated" || *attempts[0].ErrorCode != "interrupted") {
			t.Errorf("the attempt that was cut off: %+v", attempts[0])
		}
		if c.marker == "short" && !job.CompletedAt.Before(stopped.Add(grace)) {
			t.Errorf("the short call was recorded only at %v", job.CompletedAt)
		}
	}
}

// A job that kills its worker is delivered as often as its queue allows, then set aside, and no
// longer in the way of others.
func TestJobThatKillsItsWorkerIsSetAside(t *testing.T) {
	t.Parallel()
	const deliveries = 3
	options := servertest.ProcessOptions{Database: servertest.DatabaseFile(t), Functions: []string{"die", "count"},
		Queue: server.Queue{Concurrency: 1, MaxDeliveryCount: deliveries, LockDuration: 3 * time.Second}}
	poison, bystander := submitPoison(t, options)
	for range deliveries {
		if code := servertest.Launch(t, options).Wait(); code != servertest.ExitPoisoned {
			t.Fatalf("the server exited with %d", code)
		}
	}
	s := servertest.Remote{URL: servertest.Launch(t, options).MustListen(t)}
	job, attempts := s.MustAwait(t, poison)
	want := slices.Repeat([]forebay.Outcome{forebay.OutcomeLost}, deliveries)
	if job.Status != forebay.StatusFailed || job.Error == nil || job.Error.Code != "MaxDeliveryCountExceeded" || !slices.Equal(servertest.Outcomes(attempts), want) {
		t.Errorf("%s %+v, attempts %v", job.Status, job.Error, servertest.Outcomes(attempts))
	}
	letters := s.SetAside(t, "dead-letters")
	if len(letters) != 1 || letters[0].JobID != poison || letters[0].Reason != "MaxDeliveryCountExceeded" || letters[0].DeliveryCount != deliveries {
		t.Errorf("dead letters: %+v", letters)
	}
	if job, attempts := s.MustAwait(t, bystander); job.Status != forebay.StatusSucceeded || len(attempts) != 1 {
		t.Errorf("the other job is %s after %v", job.Status, servertest.Outcomes(attempts))
	}
}

// submitPoison stores the deadly job and, behind it, a harmless one, without running either.
func submitPoison(t *testing.T, o servertest.ProcessOptions) (poison, bystander string) {
	t.Helper()
	opts := server.Options{Database: "sqlite:" + o.Database, Queues: map[string]server.Queue{forebay.DefaultQueue: o.Queue}}
	for _, name := range o.Functions {
		opts.Functions = append(opts.Functions, forebay.Task{Name: name, Run: servertest.Functions[name]})
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	submit := func(task, input string) string {
		job, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: task, Input: json.RawMessage(strconv.Quote(input))})
		if err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	return submit("die", "now"), submit("count", "me")
}

func TestSecondServerOnTheSameDatabase(t *testing.T) {
	t.Parallel()
	options := servertest.ProcessOptions{Database: servertest.DatabaseFile(t), Functions: []string{"count"}}
	first := servertest.Launch(t, options)
	s := servertest.Remote{URL: first.MustListen(t)}
	second := servertest.Launch(t, options)
	if code := second.Wait(); code != 1 {
		t.Errorf("the second server exited with %d", code)
	}
	if message := second.Stderr.String(); strings.Count(message, "\n") != 1 || !strings.Contains(message, "another Forebay server is using this database") {
		t.Errorf("it said %q", message)
	}
	// Also while the first one does not answer.
	first.Signal(syscall.SIGSTOP)
	if code := servertest.Launch(t, options).Wait(); code != 1 {
		t.Errorf("beside a frozen server the second exited with %d", code)
	}
	first.Signal(syscall.SIGCONT)
	job, _, err := s.Submit(t.Context(), "", map[string]any{"task": "count", "input": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	if job, _ := s.MustAwait(t, job.ID); job.Status != forebay.StatusSucceeded || string(job.Result) != "5" {
		t.Errorf("the first server's job is %s: %s", job.Status, job.Result)
	}
}

// A client that follows a job comes back after a crash and misses nothing.
func TestEventStreamResumesAfterACrash(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply { return modelsim.Reply{Hang: c.Number == 1} })
	t.Cleanup(model.Close)
	options := servertest.ProcessOptions{Database: servertest.DatabaseFile(t), Endpoint: model.URL()}
	p := servertest.Launch(t, options)
	s := servertest.Remote{URL: p.MustListen(t)}
	job := s.Send(t, "followed")
	var seen []forebay.EventType
	var last int64
	note := func(e forebay.Event) {
		seen, last = append(seen, e.Type), e.Number
		if e.Type == forebay.EventStarted && len(seen) == 2 {
			servertest.AwaitModel(t, model, servertest.InFlight(1))
			p.Signal(syscall.SIGKILL)
		}
	}
	if err := s.Follow(t.Context(), job.ID, 0, note); err == nil {
		t.Error("the stream of a killed server ended as if it were complete")
	}
	p.Wait()
	s = servertest.Remote{URL: servertest.Launch(t, options).MustListen(t)}
	if err := s.Follow(t.Context(), job.ID, last, note); err != nil {
		t.Error(err)
	}
	want := []forebay.EventType{forebay.EventAccepted, forebay.EventStarted, forebay.EventStarted, forebay.EventSucceeded}
	if !slices.Equal(seen, want) || last != int64(len(want)) {
		t.Errorf("the client saw %v, the last numbered %d", seen, last)
	}
}
