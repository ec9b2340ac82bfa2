package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// durable runs a server with the functions over a database in the folder until stop is called.
func durable(dir string, functions ...server.DurableFunction) (s *server.Server, stop func()) {
	s, err := server.New(server.Options{
		Database: "sqlite:" + filepath.Join(dir, "forebay.db"), Listen: "127.0.0.1:0", Durable: functions, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// result runs an orchestrator to its end and prints its output.
func result(s *server.Server, name string, input any) {
	ctx := context.Background()
	id, err := s.StartOrchestration(ctx, forebay.DefaultTenant, name, "", input)
	if err != nil {
		panic(err)
	}
	o, err := s.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
	if err != nil {
		panic(err)
	}
	if o.Failure != nil {
		fmt.Println(o.Status, o.Failure.Message)
		return
	}
	fmt.Println(o.Status, string(o.Output))
}

func temp() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "forebay-example-")
	if err != nil {
		panic(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// Function chaining: each step gets the result of the one before.
func ExampleNewOrchestrator_chaining() {
	trim := server.NewActivity("trim", func(_ context.Context, s string) (string, error) { return strings.TrimSpace(s), nil })
	upper := server.NewActivity("upper", func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil })
	greet := server.NewActivity("greet", func(_ context.Context, s string) (string, error) { return "HELLO, " + s + "!", nil })

	chain := server.NewOrchestrator("chain", func(o *server.Orchestration, name string) (string, error) {
		name, err := trim.Call(o, name)
		if err != nil {
			return "", err
		}
		if name, err = upper.Call(o, name); err != nil {
			return "", err
		}
		return greet.Call(o, name)
	})

	dir, remove := temp()
	defer remove()
	s, stop := durable(dir, trim, upper, greet, chain)
	defer stop()
	result(s, "chain", "  ada ")
	// Output: Completed "HELLO, ADA!"
}

// Fan-out and fan-in: many activities at once, and what they make together.
func ExampleNewOrchestrator_fanOut() {
	count := server.NewActivity("count", func(_ context.Context, s string) (int, error) { return len(strings.Fields(s)), nil })

	total := server.NewOrchestrator("total", func(o *server.Orchestration, texts []string) (int, error) {
		var counts []server.Future[int]
		for _, text := range texts {
			counts = append(counts, count.Start(o, text))
		}
		all, err := server.AwaitAll(counts)
		sum := 0
		for _, n := range all {
			sum += n
		}
		return sum, err
	})

	dir, remove := temp()
	defer remove()
	s, stop := durable(dir, count, total)
	defer stop()
	result(s, "total", []string{"one two three", "four", "five six"})
	// Output: Completed 6
}

// Async HTTP: a client starts an instance, is told at once where to ask, and asks there until it
// is over.
func ExampleNewOrchestrator_asyncHTTP() {
	report := server.NewOrchestrator("report", func(o *server.Orchestration, month string) (string, error) {
		o.SetStatus("waits for the figures")
		figures, err := server.WaitForEvent[int](o, "figures", time.Hour)
		return fmt.Sprintf("%d in %s", figures, month), err
	})

	dir, remove := temp()
	defer remove()
	s, stop := durable(dir, report)
	defer stop()
	send := func(method, url, body string) (*http.Response, map[string]any) {
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil && !errors.Is(err, io.EOF) {
			panic(err)
		}
		return resp, answer
	}
	url := "http://" + s.Addr(context.Background()).String() + "/runtime/webhooks/durabletask/orchestrators/report"
	started, manage := send("POST", url, `"August"`)
	fmt.Println(started.StatusCode, "ask again in", started.Header.Get("Retry-After"), "seconds")
	status := started.Header.Get("Location")
	resp, o := send("GET", status, "")
	fmt.Println(resp.StatusCode, o["output"])

	send("POST", strings.Replace(manage["sendEventPostUri"].(string), "{eventName}", "figures", 1), "42")
	for resp.StatusCode == http.StatusAccepted {
		// With a timeout, the answer comes when the instance is over.
		resp, o = send("GET", status+"?timeout=10", "")
	}
	fmt.Println(resp.StatusCode, o["runtimeStatus"], o["output"])
	// Output:
	// 202 ask again in 10 seconds
	// 202 <nil>
	// 200 Completed 42 in August
}

// Monitor: look again and again until something is so. Each look begins with an empty history.
func ExampleContinueAsNew_monitor() {
	ready := server.NewActivity("ready", func(_ context.Context, look int) (bool, error) { return look == 3, nil })

	monitor := server.NewOrchestrator("monitor", func(o *server.Orchestration, look int) (string, error) {
		ok, err := ready.Call(o, look)
		if err != nil || ok {
			return fmt.Sprintf("ready at look %d", look), err
		}
		if err := o.Sleep(10 * time.Millisecond); err != nil {
			return "", err
		}
		return server.ContinueAsNew[string](o, look+1)
	})

	dir, remove := temp()
	defer remove()
	s, stop := durable(dir, ready, monitor)
	defer stop()
	result(s, "monitor", 1)
	// Output: Completed "ready at look 3"
}

// Human interaction: somebody approves, or the time runs out.
func ExampleWaitForEvent_approval() {
	approval := server.NewOrchestrator("approval", func(o *server.Orchestration, limit time.Duration) (string, error) {
		o.SetStatus("waits for an answer")
		approved, err := server.WaitForEvent[bool](o, "approval", limit)
		switch {
		case errors.Is(err, server.ErrTimeout):
			return "escalated", nil
		case err != nil:
			return "", err
		case approved:
			return "approved", nil
		}
		return "declined", nil
	})

	dir, remove := temp()
	defer remove()
	s, stop := durable(dir, approval)
	defer stop()
	ctx := context.Background()
	id, err := s.StartOrchestration(ctx, forebay.DefaultTenant, "approval", "", time.Hour)
	if err != nil {
		panic(err)
	}
	if err := s.RaiseEvent(ctx, forebay.DefaultTenant, id, "approval", true); err != nil {
		panic(err)
	}
	o, err := s.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
	fmt.Println(o.Status, string(o.Output), string(o.CustomStatus), err)
	result(s, "approval", 10*time.Millisecond) // nobody answers
	// Output:
	// Completed "approved" "waits for an answer" <nil>
	// Completed "escalated"
}

// An activity that fails is retried, also across a restart of the server. Here the first attempt
// fails, the server stops, and another one continues. The half second between attempts keeps the
// example short. With First at five seconds they are five seconds apart.
func ExampleActivity_WithRetry() {
	attempts := make(chan int, 10)
	flaky := server.NewActivity("flaky", func(ctx context.Context, _ struct{}) (string, error) {
		n := server.ActivityCallOf(ctx).Attempt
		attempts <- n
		if n < 3 {
			return "", errors.New("the other side is not there")
		}
		return fmt.Sprintf("worked at attempt %d", n), nil
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 3, First: 500 * time.Millisecond, Coefficient: 1})
	patient := server.NewOrchestrator("patient", func(o *server.Orchestration, _ struct{}) (string, error) {
		return flaky.Call(o, struct{}{})
	})

	dir, remove := temp()
	defer remove()
	ctx := context.Background()
	s, stop := durable(dir, flaky, patient)
	id, err := s.StartOrchestration(ctx, forebay.DefaultTenant, "patient", "", nil)
	if err != nil {
		panic(err)
	}
	<-attempts
	stop()

	s, stop = durable(dir, flaky, patient)
	defer stop()
	o, err := s.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
	fmt.Println(o.Status, string(o.Output), err)
	all, err := s.ActivityAttempts(ctx, forebay.DefaultTenant, id)
	for _, a := range all {
		fmt.Printf("%d %s %q\n", a.Number, a.Outcome, a.ErrorMessage)
	}
	fmt.Println(err)
	// Output:
	// Completed "worked at attempt 3" <nil>
	// 1 retried "the other side is not there"
	// 2 retried "the other side is not there"
	// 3 succeeded ""
	// <nil>
}

// A task is called as an activity: its job waits for quota, budget and breaker while the instance
// sleeps.
func ExampleCallTask() {
	shout := forebay.Task{
		Name: "shout",
		Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{Output: []byte(strings.ToUpper(string(call.Input)))}, nil
		},
	}
	twice := server.NewOrchestrator("twice", func(o *server.Orchestration, text string) (string, error) {
		first, second := server.StartTask[string](o, "shout", text, server.TaskOptions{}), server.StartTask[string](o, "shout", text, server.TaskOptions{})
		all, err := server.AwaitAll([]server.Future[string]{first, second})
		return strings.Join(all, " "), err
	})

	dir, remove := temp()
	defer remove()
	s, err := server.New(server.Options{
		Database: "sqlite:" + filepath.Join(dir, "forebay.db"), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Functions: []forebay.Task{shout}, Durable: []server.DurableFunction{twice},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	result(s, "twice", "hello")
	cancel()
	fmt.Println(<-done)
	// Output:
	// Completed "HELLO HELLO"
	// <nil>
}
