package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// A rewind calls the step that failed again, and goes on with those that had not begun.
func TestWorkflowRewind(t *testing.T) {
	const text = `
workflow: rewound
steps:
  first: {task: work, input: bad}
  list: {task: work, for_each: [a, b, c, d], parallel: 2}
  both: {task: work, input: "${steps.first.result} ${join(steps.list.result, \"\")}"}
output: ${steps.both.result}
`
	// It went on after a failure: without that failure its history makes no sense.
	const tolerant = `
workflow: tolerant
steps:
  first: {task: work, input: bad, continue_on_error: true}
  next: {task: work, after: first, input: good}
  last: {task: work, after: next, input: bad}
`
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "rewound.yaml"), filepath.Join(dir, "tolerant.yaml")}
	for i, text := range []string{text, tolerant} {
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var mended atomic.Bool
	var calls atomic.Int32
	work := forebay.Task{Name: "work", MaxAttempts: 1, Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		calls.Add(1)
		if string(call.Input) == `"bad"` && !mended.Load() {
			return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassPermanent, Code: "refused", Message: "it was refused"}
		}
		return forebay.TaskResult{Output: call.Input}, nil
	}}
	s, err := New(Options{Database: "sqlite:" + filepath.Join(dir, "forebay.db"), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Functions: []forebay.Task{work}, Workflows: files})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var id string
	start := func(name string) {
		t.Helper()
		if id, err = s.StartOrchestration(ctx, forebay.DefaultTenant, name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	rewind := func() {
		t.Helper()
		if err := s.orchestrations.Rewind(ctx, forebay.DefaultTenant, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(status forebay.OrchestrationStatus) forebay.Orchestration {
		t.Helper()
		o, err := s.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
		if err != nil || o.Status != status {
			t.Fatalf("%s %+v: %v", o.Status, o.Failure, err)
		}
		return o
	}
	start("rewound")
	for range 2 { // the second time it fails again
		if o := ends(forebay.OrchestrationFailed); o.Failure.Type != "refused" {
			t.Fatalf("%+v", o.Failure)
		}
		rewind()
	}
	ends(forebay.OrchestrationFailed)
	mended.Store(true)
	rewind()
	if o := ends(forebay.OrchestrationCompleted); string(o.Output) != `"bad abcd"` {
		t.Errorf("output %s", o.Output)
	}
	if n := calls.Load(); n != 4+4+1 {
		t.Errorf("%d calls", n)
	}

	mended.Store(false)
	start("tolerant")
	ends(forebay.OrchestrationFailed)
	rewind()
	if o := ends(forebay.OrchestrationFailed); o.Failure.Type != forebay.FailureNonDeterministic {
		t.Errorf("%+v", o.Failure)
	}
}
