package server

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
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
	// It goes on after failures of first, list and aside; one and two fail side by side.
	const tolerant = `
workflow: tolerant
steps:
  first: {task: work, input: bad first, continue_on_error: true}
  list: {task: work, for_each: [a, bad b, c], continue_on_error: true}
  next: {task: work, after: [first, list], input: "${steps.first.error.type}"}
  aside: {task: work, after: next, input: bad aside, continue_on_error: true}
  one: {task: work, after: next, input: bad one, timeout: 1h}
  two: {task: work, after: next, input: bad two}
  beside: {task: work, after: aside, input: beside}
  last: {task: work, after: [one, two, beside], input: last}
output: ["${steps.next.result}", "${steps.list.result}", "${steps.two.result}", "${steps.aside.error.type}", "${steps.last.result}"]
`
	t.Run("sqlite", func(t *testing.T) {
		testWorkflowRewind(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"), text, tolerant)
	})
	t.Run("postgresql", func(t *testing.T) { testWorkflowRewind(t, dbtest.Postgres(t), text, tolerant) })
}

func testWorkflowRewind(t *testing.T, database string, workflows ...string) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "rewound.yaml"), filepath.Join(dir, "tolerant.yaml")}
	for i, text := range workflows {
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var mended atomic.Bool
	var mu sync.Mutex
	calls := map[string]int{}
	work := forebay.Task{Name: "work", MaxAttempts: 1, Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		mu.Lock()
		defer mu.Unlock()
		calls[strings.Trim(string(call.Input), `"`)]++
		if strings.HasPrefix(string(call.Input), `"bad`) && !mended.Load() {
			return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassPermanent, Code: "refused", Message: "it was refused"}
		}
		return forebay.TaskResult{Output: call.Input}, nil
	}}
	s, err := New(Options{Database: database, Blob: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
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
	called := func() map[string]int { // once an instance is over
		mu.Lock()
		defer mu.Unlock()
		return calls
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
	if want := (map[string]int{"bad": 4, "a": 1, "b": 1, "c": 1, "d": 1, "bad abcd": 1}); !maps.Equal(called(), want) {
		t.Errorf("called %v, want %v", calls, want)
	}

	mended.Store(false)
	clear(called())
	start("tolerant")
	for range 2 {
		if o := ends(forebay.OrchestrationFailed); o.Failure.Type != "refused" {
			t.Fatalf("%+v", o.Failure)
		}
		rewind()
	}
	ends(forebay.OrchestrationFailed)
	mended.Store(true)
	before := time.Now()
	rewind()
	if o := ends(forebay.OrchestrationCompleted); string(o.Output) != `["refused",["a",null,"c"],"bad two","refused","last"]` {
		t.Errorf("output %s", o.Output)
	}
	want := map[string]int{"bad first": 1, "a": 1, "bad b": 1, "c": 1, "refused": 1, "bad aside": 1, "bad one": 4, "bad two": 4, "beside": 1, "last": 1}
	if !maps.Equal(called(), want) {
		t.Errorf("called %v, want %v", calls, want)
	}
	// The newest comes first.
	page, err := s.jobs.List(ctx, forebay.DefaultTenant, forebay.JobFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range page.Items {
		if j.Deadline == nil {
			continue
		}
		if j.Deadline.Before(before.Add(time.Hour).Truncate(time.Millisecond)) {
			t.Errorf("what was called again at %s has time until %s", before, j.Deadline)
		}
		return
	}
	t.Error("nothing has a deadline")
}
