package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// startOn runs a server whose model is a simulator that decides so.
func startOn(t *testing.T, script func(modelsim.Call) modelsim.Reply, queue server.Queue) (servertest.Remote, *modelsim.TestServer) {
	t.Helper()
	model := modelsim.StartTest(script)
	t.Cleanup(model.Close)
	s := servertest.Start(t, server.Options{
		Deployments:     []server.Deployment{simulatedDeployment(model)},
		Queues:          map[string]server.Queue{forebay.DefaultQueue: queue},
		ShutdownTimeout: 10 * time.Millisecond,
	})
	return servertest.Over(t, s), model
}

func simulatedDeployment(model *modelsim.TestServer) server.Deployment {
	return server.Deployment{Name: "simulated", Provider: server.ProviderOpenAI, Endpoint: model.URL(), Model: "test"}
}

func cancelJob(t *testing.T, r servertest.Remote, id string) (job forebay.Job, err error) {
	t.Helper()
	_, err = r.Do(t.Context(), http.MethodPost, "/v1/jobs/"+id+"/cancel", nil, nil, &job)
	return job, err
}

func TestCancelAbortsTheCallInFlight(t *testing.T) {
	t.Parallel()
	s, model := startOn(t, func(c modelsim.Call) modelsim.Reply { return modelsim.Reply{Hang: c.Marker == "hangs"} },
		server.Queue{Concurrency: 1})
	job := s.Send(t, "hangs")
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	waiting := s.Send(t, "waits")
	if _, err := cancelJob(t, s, job.ID); err != nil {
		t.Fatal(err)
	}
	servertest.AwaitModel(t, model, func(st modelsim.Stats) bool { return st.Gone == 1 })
	job, attempts := s.MustAwait(t, job.ID)
	if job.Status != forebay.StatusCancelled || job.Result != nil && string(job.Result) != "null" || len(attempts) != 1 {
		t.Fatalf("%s with the result %s and %v", job.Status, job.Result, servertest.Outcomes(attempts))
	}
	// The deployment is known once the aborted call has returned.
	servertest.Eventually(t, time.Minute, func() error {
		_, attempts = s.MustAwait(t, job.ID)
		if attempts[0].Outcome != forebay.OutcomeCancelled || attempts[0].Deployment != "simulated" {
			return fmt.Errorf("the attempt is %+v", attempts[0])
		}
		return nil
	})
	// Its place is free again.
	if job, _ := s.MustAwait(t, waiting.ID); job.Status != forebay.StatusSucceeded {
		t.Errorf("the next job is %s", job.Status)
	}
	if again, err := cancelJob(t, s, job.ID); err != nil || again.Status != forebay.StatusCancelled || model.Calls("hangs") != 1 {
		t.Errorf("cancelled twice: %s %v, %d calls", again.Status, err, model.Calls("hangs"))
	}
	var p *servertest.Problem
	if _, err := cancelJob(t, s, waiting.ID); !errors.As(err, &p) || p.Status != http.StatusConflict {
		t.Errorf("a succeeded job was cancelled: %v", err)
	}
}

func TestCancelBeforeTheCall(t *testing.T) {
	t.Parallel()
	s, model := startOn(t, func(c modelsim.Call) modelsim.Reply {
		return modelsim.Reply{Hang: c.Marker == "hangs", Status: map[bool]int{true: 500}[c.Marker == "retries"]}
	}, server.Queue{Concurrency: 1, Retry: server.Retry{Policy: "fixed", First: time.Hour, Max: time.Hour}})
	retrying := s.Send(t, "retries")
	servertest.Eventually(t, time.Minute, func() error {
		if job, err := s.Job(t.Context(), retrying.ID); err != nil || job.Status != forebay.StatusRetrying {
			return fmt.Errorf("%s %w", job.Status, servertest.ErrNotYet)
		}
		return nil
	})
	s.Send(t, "hangs")
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	for marker, job := range map[string]forebay.Job{
		"retries": retrying, "queued": s.Send(t, "queued"),
		"scheduled": s.Send(t, "scheduled", map[string]any{"scheduled_at": time.Now().Add(time.Hour)}),
	} {
		before := model.Calls(marker)
		cancelled, err := cancelJob(t, s, job.ID)
		if err != nil || cancelled.Status != forebay.StatusCancelled || cancelled.CompletedAt == nil {
			t.Errorf("%s: %s %v", marker, cancelled.Status, err)
		}
		events, err := s.Events(t.Context(), job.ID)
		if err != nil || events[len(events)-1].Type != forebay.EventCancelled || model.Calls(marker) != before {
			t.Errorf("%s: %v, %d calls, events %+v", marker, err, model.Calls(marker), events)
		}
	}
	if q, err := s.Queue(t.Context()); err != nil || q.Active+q.Scheduled != 0 || q.Locked != 1 {
		t.Errorf("left in the queue: %+v %v", q, err)
	}
}

// An endpoint that answers 429 for a while costs no attempt. It is not called before the time it
// named, nor by all jobs at once.
func TestThrottledJobsWaitUncharged(t *testing.T) {
	t.Parallel()
	const jobs, places = 24, 8
	over := sync.OnceValue(func() time.Time { return time.Now().Add(2500 * time.Millisecond) })
	s, model := startOn(t, func(modelsim.Call) modelsim.Reply {
		if time.Now().Before(over()) {
			return modelsim.Reply{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
		}
		return modelsim.Reply{}
	}, server.Queue{Concurrency: places, MaxDeliveryCount: 1, Retry: server.Retry{Attempts: 1}})
	var sent []forebay.Job
	for i := range jobs {
		sent = append(sent, s.Send(t, fmt.Sprint("throttled-", i)))
	}
	throttled := 0
	for i, job := range sent {
		job, attempts := s.MustAwait(t, job.ID)
		began := model.Began(fmt.Sprint("throttled-", i))
		if job.Status != forebay.StatusSucceeded || job.Attempt != 1 || len(attempts) != len(began) {
			t.Errorf("%s, charged %d, %d calls, attempts %v", job.Status, job.Attempt, len(began), servertest.Outcomes(attempts))
		}
		for n, a := range attempts[:len(attempts)-1] {
			throttled++
			if a.Outcome != forebay.OutcomeThrottled || began[n+1].Sub(began[n]) < time.Second {
				t.Errorf("attempt %d was %s; the next call came after %s", n+1, a.Outcome, began[n+1].Sub(began[n]))
			}
		}
	}
	// At most the calls in flight learn of each pause, and there was one a second.
	if throttled == 0 || throttled > 4*places {
		t.Errorf("%d calls were throttled", throttled)
	}
}

// One owner of retries: an endpoint that fails is called once for each attempt. There are too few
// calls to open its breaker.
func TestEachAttemptIsOneCall(t *testing.T) {
	t.Parallel()
	const jobs, attemptsEach = 3, 3
	s, model := startOn(t, func(modelsim.Call) modelsim.Reply { return modelsim.Reply{Status: http.StatusInternalServerError} },
		server.Queue{Retry: server.Retry{First: 10 * time.Millisecond, Attempts: attemptsEach, Concurrency: 8}})
	var sent []forebay.Job
	for i := range jobs {
		sent = append(sent, s.Send(t, fmt.Sprint("failing-", i)))
	}
	for i, job := range sent {
		job, attempts := s.MustAwait(t, job.ID)
		want := []forebay.Outcome{forebay.OutcomeRetried, forebay.OutcomeRetried, forebay.OutcomeFailed}
		if calls := model.Calls(fmt.Sprint("failing-", i)); job.Status != forebay.StatusFailed || job.Attempt != attemptsEach || calls != attemptsEach || !slices.Equal(servertest.Outcomes(attempts), want) {
			t.Errorf("%s after %d calls, attempts %v", job.Status, calls, servertest.Outcomes(attempts))
		}
	}
	letters := s.SetAside(t, "dead-letters")
	for _, letter := range letters {
		if letter.Reason != "MaxAttemptsExceeded" || letter.Generation != 1 || letter.Properties["attempt"] == "" {
			t.Errorf("dead letter: %+v", letter)
		}
	}
	if len(letters) != jobs {
		t.Fatalf("%d dead letters", len(letters))
	}
	model.Decide(nil)
	redriveTwice(t, s, jobs)
	for i, job := range sent {
		job, attempts := s.MustAwait(t, job.ID)
		if calls := model.Calls(fmt.Sprint("failing-", i)); job.Status != forebay.StatusSucceeded || job.Generation != 2 || job.Attempt != 1 || calls != attemptsEach+1 || len(attempts) != calls {
			t.Errorf("redriven: %s, generation %d, %d calls, attempts %v", job.Status, job.Generation, calls, servertest.Outcomes(attempts))
		}
	}
}

// A job that fails while many calls of its deployment fail keeps its attempts. A job whose calls
// alone fail loses them.
func TestFailuresOfADeploymentChargeNoAttempts(t *testing.T) {
	t.Parallel()
	const failing = 10
	s, _ := startOn(t, func(c modelsim.Call) modelsim.Reply {
		first := strings.HasPrefix(c.Marker, "once-") && c.Number == 1
		if first || strings.HasPrefix(c.Marker, "thrice-") && c.Number <= 3 {
			return modelsim.Reply{Status: http.StatusInternalServerError}
		}
		return modelsim.Reply{}
	}, server.Queue{Retry: server.Retry{First: time.Millisecond, Attempts: 2}})
	if job, attempts := s.MustAwait(t, s.Send(t, "thrice-alone").ID); job.Status != forebay.StatusFailed || job.Attempt != 2 || len(attempts) != 2 {
		t.Fatalf("before others failed: %s, attempt %d, attempts %v", job.Status, job.Attempt, servertest.Outcomes(attempts))
	}
	for i := range failing - 2 {
		if job, _ := s.MustAwait(t, s.Send(t, fmt.Sprint("once-", i)).ID); job.Status != forebay.StatusSucceeded || job.Attempt != 2 {
			t.Fatalf("%s, attempt %d", job.Status, job.Attempt)
		}
	}
	job, attempts := s.MustAwait(t, s.Send(t, "thrice-too").ID)
	if job.Status != forebay.StatusSucceeded || job.Attempt != 1 || len(attempts) != 4 {
		t.Errorf("%s, attempt %d, attempts %v", job.Status, job.Attempt, servertest.Outcomes(attempts))
	}
}

// redriveTwice redrives all dead letters several times at once: each of them goes back once.
func redriveTwice(t *testing.T, s servertest.Remote, want int) {
	t.Helper()
	reports := make([]forebay.RedriveReport, 4)
	var group sync.WaitGroup
	for i := range reports {
		group.Go(func() {
			if _, err := s.Do(t.Context(), http.MethodPost, "/v1/queues/default/dead-letters/redrive", nil, map[string]any{"all": true}, &reports[i]); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	redriven := 0
	for _, r := range reports {
		redriven += r.Redriven
	}
	if redriven != want {
		t.Errorf("%d of %d dead letters were redriven: %+v", redriven, want, reports)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	s, model := startOn(t, func(c modelsim.Call) modelsim.Reply {
		if c.Number == 1 {
			return modelsim.Reply{Status: http.StatusServiceUnavailable, RetryAfter: 2 * time.Second}
		}
		return modelsim.Reply{}
	}, server.Queue{Retry: server.Retry{First: time.Millisecond}})
	job, attempts := s.MustAwait(t, s.Send(t, "later").ID)
	began := model.Began("later")
	if job.Status != forebay.StatusSucceeded || job.Attempt != 2 || len(began) != 2 || began[1].Sub(began[0]) < 2*time.Second {
		t.Fatalf("%s after the calls %v", job.Status, began)
	}
	if delay := attempts[0].RetryDelaySeconds; delay == nil || *delay < 2 || *delay > 2.3 {
		t.Errorf("the recorded delay is %v", delay)
	}
}

func TestPermanentFailuresAreCalledOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		onFailure, subqueue string
		reply               modelsim.Reply
		code                string
	}{
		{server.OnFailureDeadLetter, "dead-letters", modelsim.Reply{Status: 400}, "bad_request"},
		{server.OnFailureDeadLetter, "dead-letters", modelsim.Reply{Status: 400, Code: "content_filter"}, "content_filter"},
		{server.OnFailureQuarantine, "quarantine", modelsim.Reply{Status: 400, Code: "content_filter"}, "content_filter"},
		{server.OnFailureQuarantine, "quarantine", modelsim.Reply{Status: 403}, "unauthorized"},
	} {
		s, model := startOn(t, func(modelsim.Call) modelsim.Reply { return c.reply },
			server.Queue{OnFailure: c.onFailure, Retry: server.Retry{First: time.Millisecond}})
		job, attempts := s.MustAwait(t, s.Send(t, "permanent").ID)
		if job.Status != forebay.StatusFailed || job.Error == nil || job.Error.Code != c.code || model.Calls("permanent") != 1 || len(attempts) != 1 {
			t.Errorf("%s: %s %+v after %d calls", c.code, job.Status, job.Error, model.Calls("permanent"))
		}
		if aside := s.SetAside(t, c.subqueue); len(aside) != 1 || aside[0].Reason != c.code || aside[0].ErrorClass != forebay.ClassPermanent {
			t.Errorf("%s: in %s stands %+v", c.code, c.subqueue, aside)
		}
		for _, subqueue := range []string{"dead-letters", "quarantine"} {
			if aside := s.SetAside(t, subqueue); subqueue != c.subqueue && len(aside) != 0 {
				t.Errorf("%s: in %s stands %+v as well", c.code, subqueue, aside)
			}
		}
	}
}

// Whatever bytes a model sends can be recorded and read back.
func TestAnyBytesAreStored(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	huge := strings.Repeat("huge \x00 answer \"\\ ", 100_000)
	replies := map[string]modelsim.Reply{
		"nul":       {Text: "before \x00 after"},
		"invalid":   {Text: "before \xff\xc3 after"},
		"huge":      {Text: huge},
		"too-large": {Text: strings.Repeat("x", 11<<20)},
		"malformed": {Body: []byte("data: {\"choices\":[{\x00\xff\n\n")},
		"empty":     {Body: []byte{}},
		"cut":       {Body: []byte("data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n")},
		"complains": {Status: 400, Message: "nul \x00 and \xff\xfe invalid", Code: "strange\x00code"},
	}
	s, model := startOn(t, func(c modelsim.Call) modelsim.Reply { return replies[c.Marker] },
		server.Queue{Retry: server.Retry{First: time.Millisecond, Attempts: 2}})
	for marker, want := range map[string]struct {
		text, code string
		calls      int
	}{
		"nul":       {text: "before \x00 after", calls: 1},
		"invalid":   {text: "before \uFFFD\uFFFD after", calls: 1},
		"huge":      {text: huge, calls: 1},
		"too-large": {code: "response_too_large", calls: 1},
		"malformed": {code: "malformed_response", calls: 2},
		"empty":     {code: "malformed_response", calls: 2},
		"cut":       {code: "stream_cut", calls: 2},
		"complains": {code: "bad_request", calls: 1},
	} {
		job, attempts := s.MustAwait(t, s.Send(t, marker).ID)
		if calls := model.Calls(marker); calls != want.calls || len(attempts) != calls {
			t.Errorf("%s: %d calls, attempts %v", marker, calls, servertest.Outcomes(attempts))
		}
		if want.code != "" {
			if last := attempts[len(attempts)-1]; job.Status != forebay.StatusFailed || job.Error == nil || job.Error.Code != want.code || last.ErrorMessage == nil {
				t.Errorf("%s: %s %+v", marker, job.Status, job.Error)
			}
			continue
		}
		var result struct{ Text string }
		if err := s.Get(t.Context(), job.Links.Result, &result); err != nil || job.Status != forebay.StatusSucceeded || result.Text != want.text {
			t.Errorf("%s: %s %v: %.80q", marker, job.Status, err, result.Text)
		}
	}
}

func TestFunctionsMayReturnAnyBytes(t *testing.T) {
	t.Parallel()
	outputs := map[string]string{
		`"escaped nul"`: `{"nul":"\u0000","surrogate":"\ud800"}`,
		`"raw bytes"`:   "\"\xff\xfe\"",
		`"no JSON"`:     "\x00",
		`"nothing"`:     "",
	}
	s := servertest.Start(t, server.Options{Functions: []forebay.Task{{
		Name: "bytes", MaxAttempts: 1,
		Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if out, ok := outputs[string(call.Input)]; ok {
				return forebay.TaskResult{Output: json.RawMessage(out)}, nil
			}
			return forebay.TaskResult{Deployment: "d\x00\xff"}, errors.New("nul \x00, invalid \xff\xfe, long " + strings.Repeat("é", 5000))
		},
	}}})
	r := servertest.Over(t, s)
	for input, want := range map[string]struct {
		status forebay.Status
		result string
	}{
		`"escaped nul"`: {forebay.StatusSucceeded, outputs[`"escaped nul"`]},
		`"no JSON"`:     {forebay.StatusFailed, "null"},
		`"nothing"`:     {forebay.StatusSucceeded, "null"},
		`"raw bytes"`:   {forebay.StatusSucceeded, "\"\uFFFD\""},
		`"error"`:       {forebay.StatusFailed, "null"},
	} {
		job, attempts := r.MustAwait(t, servertest.Submit(t, s, "bytes", json.RawMessage(input)).ID)
		if job.Status != want.status || string(job.Result) != want.result || len(attempts) != 1 {
			t.Errorf("%s: %s %q %+v", input, job.Status, job.Result, job.Error)
		}
	}
}

// A client that breaks off changes nothing about its job.
func TestClientMayGoAway(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s, model := startOn(t, func(modelsim.Call) modelsim.Reply {
		<-release
		return modelsim.Reply{}
	}, server.Queue{})
	job := s.Send(t, "left")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := s.Await(ctx, job.ID)
		gone <- err
	}()
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	leave()
	if err := <-gone; err == nil {
		t.Error("the job ended too soon")
	}
	close(release)
	if job, attempts := s.MustAwait(t, job.ID); job.Status != forebay.StatusSucceeded || len(attempts) != 1 || model.Calls("left") != 1 {
		t.Errorf("%s after %v", job.Status, servertest.Outcomes(attempts))
	}
}
