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
	dir := t.TempDir()
	file := filepath.Join(dir, "rewound.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
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
		Functions: []forebay.Task{work}, Workflows: []string{file}})
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
	id, err := s.StartOrchestration(ctx, forebay.DefaultTenant, "rewound", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := func(status forebay.OrchestrationStatus) forebay.Orchestration {
		t.Helper()
		o, err := s.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
		if err != nil || o.Status != status {
			t.Fatalf("%s %+v: %v", o.Status, o.Failure, err)
		}
		return o
	}
	for range 2 { // the second time it fails again
		if o := ends(forebay.OrchestrationFailed); o.Failure.Type != "refused" {
			t.Fatalf("%+v", o.Failure)
		}
		if err := s.orchestrations.Rewind(ctx, forebay.DefaultTenant, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	ends(forebay.OrchestrationFailed)
	mended.Store(true)
	if err := s.orchestrations.Rewind(ctx, forebay.DefaultTenant, id, ""); err != nil {
		t.Fatal(err)
	}
	if o := ends(forebay.OrchestrationCompleted); string(o.Output) != `"bad abcd"` {
		t.Errorf("output %s", o.Output)
	}
	if n := calls.Load(); n != 4+4+1 {
		t.Errorf("%d calls", n)
	}
}
