package orchestrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"
	"github.com/dapr/durabletask-go/task"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
)

var update = flag.Bool("update", false, "record the golden history anew")

// golden registers an orchestrator that uses every feature.
func golden(t *testing.T) *Registry {
	r := NewRegistry()
	add(t, r, "double", func(_ context.Context, n int) (any, error) { return 2 * n, nil })
	add(t, r, "flaky", func(ctx context.Context, _ any) (any, error) {
		if c, _ := CallOf(ctx); c.Attempt < 2 {
			return nil, errors.New("once")
		}
		return "mended", nil
	})
	add(t, r, "broken", func(context.Context, any) (any, error) { return nil, errors.New("for good") })
	addOrchestrator(t, r, "child", func(ctx *task.WorkflowContext) (any, error) {
		var n int
		err := ctx.GetInput(&n)
		return n + 1, err
	})
	addOrchestrator(t, r, "golden", func(ctx *task.WorkflowContext) (any, error) {
		var n, sum, next int
		if err := ctx.GetInput(&n); err != nil {
			return nil, err
		}
		var tasks []task.Task
		for i := range n {
			tasks = append(tasks, activity(ctx, "double", i, forebay.RetryPolicy{}))
		}
		for _, t := range tasks {
			var v int
			if err := t.Await(&v); err != nil {
				return nil, err
			}
			sum += v
		}
		var mended, answer string
		if err := activity(ctx, "flaky", nil, forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond}).Await(&mended); err != nil {
			return nil, err
		}
		failed := activity(ctx, "broken", nil, forebay.RetryPolicy{}).Await(nil)
		if err := ctx.CreateTimer(time.Millisecond).Await(nil); err != nil {
			return nil, err
		}
		if err := ctx.CallChildWorkflow("child", task.WithChildWorkflowInput(sum)).Await(&next); err != nil {
			return nil, err
		}
		if err := ctx.WaitForSingleEvent("answer", time.Hour).Await(&answer); err != nil {
			return nil, err
		}
		return []any{sum, mended, failed.Error(), next, answer}, nil
	})
	return r
}

// A history that an earlier build has recorded replays to the same end and asks for nothing new.
func TestGoldenHistory(t *testing.T) {
	const file = "testdata/history.jsonl"
	r := golden(t)
	if *update {
		recordGolden(t, r, file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var events []*protos.HistoryEvent
	for line := range strings.Lines(string(content)) {
		e := &protos.HistoryEvent{}
		if err := protojson.Unmarshal([]byte(line), e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	end := events[len(events)-1].GetExecutionCompleted()
	code := task.NewTaskExecutorWithLogger(r.engine, EngineLog{New(Options{}).log})
	// For each prefix of the history, as it was after each work item.
	for n, e := range events[:len(events)-1] {
		if e.GetWorkflowStarted() != nil && n > 0 {
			resp, err := history.Replay(t.Context(), code, "golden", events[:n], nil)
			if err != nil || len(resp.Actions) != 0 {
				t.Fatalf("after %d events the code asks for %v: %v", n, resp.GetActions(), err)
			}
		}
	}
	resp, err := history.Replay(t.Context(), code, "golden", events[:len(events)-1], nil)
	if err != nil || len(resp.Actions) != 1 {
		t.Fatalf("%v: %v", resp, err)
	}
	done := resp.Actions[0].GetCompleteWorkflow()
	if done.GetFailureDetails() != nil || done.GetResult().GetValue() != end.GetResult().GetValue() {
		t.Errorf("%v, not %v", done, end)
	}
}

func recordGolden(t *testing.T, r *Registry, file string) {
	p := run(t, db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true}, Options{Registry: r})
	id := p.start(t, StartRequest{Name: "golden", ID: "golden", Input: json.RawMessage("3")})
	p.waitsFor(t, id, "SubOrchestrationInstanceCompleted")
	if err := p.Raise(t.Context(), tenant, id, "answer", json.RawMessage(`"yes"`)); err != nil {
		t.Fatal(err)
	}
	p.ends(t, id, forebay.OrchestrationCompleted)
	row, err := p.Row(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	events, err := p.Events(t.Context(), row.No)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, e := range events {
		line, err := protojson.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
