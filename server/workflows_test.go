package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// onBothDatabases runs a test on SQLite and PostgreSQL.
func onBothDatabases(t *testing.T, f func(t *testing.T, database string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, "sqlite:"+dbtest.SQLite(t))
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		f(t, dbtest.Postgres(t))
	})
}

// workflowServer runs a server with the workflows until stop is called.
func workflowServer(t *testing.T, o server.Options, workflows ...string) (s *server.Server, stop func()) {
	t.Helper()
	o.Listen, o.Logger, o.ShutdownTimeout = "127.0.0.1:0", slog.New(slog.DiscardHandler), 50*time.Millisecond
	if o.Blob == "" {
		o.Blob = "file://" + t.TempDir()
	}
	for _, text := range workflows {
		o.Workflows = append(o.Workflows, servertest.WriteWorkflow(t, text))
	}
	return servertest.Run(t, o)
}

// Without any configuration a document can be analysed: by three jobs, which run as all jobs do.
func TestAnalyzeDocument(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s, stop := workflowServer(t, server.Options{Database: database})
		defer stop()
		text, err := os.ReadFile("../examples/documents/letter-complaint-airline.txt")
		if err != nil {
			t.Fatal(err)
		}
		for _, input := range []any{string(text), map[string]string{"text": string(text)}} {
			o := servertest.EndOfWorkflow(t, s, servertest.StartWorkflow(t, s, "analyze-document", input), forebay.OrchestrationCompleted)
			var output struct {
				Summary   struct{ Summary string }
				Entities  struct{ Entities []map[string]any }
				Sentiment struct {
					Sentiment string
					Score     *float64
				}
			}
			if err := json.Unmarshal(o.Output, &output); err != nil || output.Summary.Summary == "" || len(output.Entities.Entities) == 0 || output.Sentiment.Sentiment == "" || output.Sentiment.Score == nil {
				t.Errorf("%s: %v", o.Output, err)
			}
			if !strings.Contains(string(o.CustomStatus), `"summary":"succeeded"`) {
				t.Errorf("custom status %s", o.CustomStatus)
			}
		}
	})
}

// measure is a task that counts how many of its calls run at once.
type measure struct {
	mu            sync.Mutex
	running, peak int
	calls         map[string]int
	arrived       chan string
	open          chan struct{} // closed: all go on
}

func newMeasure() *measure {
	return &measure{calls: map[string]int{}, arrived: make(chan string, 1000), open: make(chan struct{})}
}

func (m *measure) task() forebay.Task {
	return forebay.Task{Name: "measure", MaxAttempts: 1, Run: func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		m.mu.Lock()
		m.running++
		m.peak = max(m.peak, m.running)
		m.calls[string(call.Input)]++
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			m.running--
			m.mu.Unlock()
		}()
		m.arrived <- string(call.Input)
		select {
		case <-m.open:
		case <-ctx.Done():
			return forebay.TaskResult{}, ctx.Err()
		}
		if strings.Contains(string(call.Input), "bad") {
			return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassPermanent, Code: "refused", Message: "it was refused"}
		}
		return forebay.TaskResult{Output: call.Input}, nil
	}}
}

const mapped = `
workflow: mapped
steps:
  each:
    task: measure
    for_each: input.items
    parallel: 3
    input: {item: "${item}", number: "${index}"}
  joined:
    task: measure
    if: len(steps.each.result) > 2
    input: ${join(map(steps.each.result, .item), "+")}
output: ${steps.joined.result}
`

// A step over a list makes no more concurrent calls than it says, also when the server restarts in
// the middle with another definition. The instance keeps the definition it began with, and calls
// that had ended are not repeated.
func TestWorkflowAcrossARestart(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	onBothDatabases(t, func(t *testing.T, database string) {
		blob := "file://" + t.TempDir()
		before, after := newMeasure(), newMeasure()
		s, stop := workflowServer(t, server.Options{Database: database, Blob: blob, Functions: []forebay.Task{before.task()}}, mapped)
		id := servertest.StartWorkflow(t, s, "mapped", map[string]any{"items": []string{"a", "b", "c", "d", "e", "f", "g"}})
		for range 3 {
			<-before.arrived
		}
		stop()
		close(after.open)
		changed := "workflow: mapped\nsteps: {other: {task: measure, input: changed}}\n"
		s, stop = workflowServer(t, server.Options{Database: database, Blob: blob, Functions: []forebay.Task{after.task()}}, changed)
		defer stop()
		if o := servertest.EndOfWorkflow(t, s, id, forebay.OrchestrationCompleted); string(o.Output) != `"a+b+c+d+e+f+g"` {
			t.Errorf("output %s", o.Output)
		}
		if o := servertest.EndOfWorkflow(t, s, servertest.StartWorkflow(t, s, "mapped", nil), forebay.OrchestrationCompleted); string(o.Output) != `{"other":"changed"}` {
			t.Errorf("the changed workflow gives %s", o.Output)
		}
		if before.peak != 3 || after.peak > 3 {
			t.Errorf("%d, then %d calls at once", before.peak, after.peak)
		}
		attempts, err := s.ActivityAttempts(t.Context(), forebay.DefaultTenant, id)
		if err != nil || len(attempts) != 1+7+1 {
			t.Errorf("%d activities: %v", len(attempts), err)
		}
	})
}

// A step that fails fails the workflow with its name and type, once what is under way has ended,
// and nothing begins any more.
func TestWorkflowFails(t *testing.T) {
	const text = `
workflow: fails
steps:
  first: {task: measure, input: bad}
  second: {task: measure, input: good}
  after_first: {task: measure, after: first, input: never}
`
	onBothDatabases(t, func(t *testing.T, database string) {
		m := newMeasure()
		s, stop := workflowServer(t, server.Options{Database: database, Functions: []forebay.Task{m.task()}}, text)
		defer stop()
		id := servertest.StartWorkflow(t, s, "fails", nil)
		<-m.arrived
		<-m.arrived
		close(m.open)
		o := servertest.EndOfWorkflow(t, s, id, forebay.OrchestrationFailed)
		if o.Failure.Type != "refused" || o.Failure.Message != "step first: it was refused" {
			t.Errorf("failed as %+v", o.Failure)
		}
		if m.calls[`"good"`] != 1 || m.calls[`"never"`] != 0 {
			t.Errorf("%v", m.calls)
		}
	})
}

// A step's timeout ends its job.
func TestWorkflowStepTimesOut(t *testing.T) {
	t.Parallel()
	const text = `
workflow: slow
steps:
  wait: {task: measure, input: x, timeout: 1s, continue_on_error: true}
output: {status: "${steps.wait.status}", type: "${steps.wait.error.type}"}
`
	m := newMeasure()
	s, stop := workflowServer(t, server.Options{Database: "sqlite:" + dbtest.SQLite(t), Functions: []forebay.Task{m.task()}}, text)
	defer stop()
	o := servertest.EndOfWorkflow(t, s, servertest.StartWorkflow(t, s, "slow", nil), forebay.OrchestrationCompleted)
	if string(o.Output) != `{"status":"failed","type":"deadline_exceeded"}` {
		t.Errorf("output %s", o.Output)
	}
}

// The example runs as it stands, on the simulated deployment.
func TestExampleWorkflow(t *testing.T) {
	s, stop := workflowServer(t, server.Options{Database: "sqlite:" + dbtest.SQLite(t), Workflows: []string{"../examples/workflows/review.yaml"}})
	defer stop()
	input := map[string]any{"product": "a kettle", "reviews": []string{"I love it, it is quick.", "It broke after a week. Awful, terrible.", "Too expensive."}}
	o := servertest.EndOfWorkflow(t, s, servertest.StartWorkflow(t, s, "review", input), forebay.OrchestrationCompleted)
	var output struct {
		Product          string
		Reviews, Unhappy int
		Topics           [][]string
		Summary          string
	}
	if err := json.Unmarshal(o.Output, &output); err != nil || output.Product != "a kettle" || output.Reviews != 3 || output.Unhappy < 1 || len(output.Topics) != 3 || output.Summary == "" {
		t.Errorf("%s: %v", o.Output, err)
	}
}

func TestWorkflowsAreChecked(t *testing.T) {
	file := servertest.WriteWorkflow(t, "workflow: w\nsteps:\n  a: {task: nothing}\n  b: {task: summarize, queue: nowhere}\n")
	other := servertest.WriteWorkflow(t, "workflow: twice\nsteps: {a: {task: summarize}}\n")
	err := server.Options{Workflows: []string{file, other, other, "missing.yaml"}}.WithDefaults().Validate()
	for _, want := range []string{
		"workflows[0]: " + file + ":3:13: there is no task nothing", "workflows[0]: " + file + ":4:31: there is no queue nowhere",
		"workflows[2]: " + other + ": there is a workflow twice in " + other, "workflows[3]: missing.yaml cannot be read: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
	all, err := server.Options{Workflows: []string{other}}.WithDefaults().DeclaredWorkflows()
	if err != nil || len(all) != 2 || all[0].Name != "analyze-document" || all[0].File != "" || all[1].File != other {
		t.Errorf("%+v: %v", all, err)
	}
	// A file takes the place of what is built in, as does a function.
	own := servertest.WriteWorkflow(t, "workflow: analyze-document\nsteps: {a: {task: summarize}}\n")
	if all, err = (server.Options{Workflows: []string{own}}).WithDefaults().DeclaredWorkflows(); err != nil || len(all) != 1 || all[0].File != own {
		t.Errorf("%+v: %v", all, err)
	}
}
