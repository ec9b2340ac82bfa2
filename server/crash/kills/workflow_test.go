//go:build unix

package kills_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

const crashWorkflow = `
workflow: crash
steps:
  parts:
    task: chat
    for_each: input.parts
    parallel: 3
    input: "[[${input.name}/${item}]]"
  left: {task: chat, input: "[[${input.name}/left]]"}
  both:
    task: chat
    after: left
    input: "[[${input.name}/both]] of ${len(steps.parts.result)}"
output:
  parts: ${map(steps.parts.result, .text)}
  both: ${steps.both.result.text}
`

// Server processes are killed again and again while workflows run. Each ends with the results of
// all its steps, each recorded once, and few calls are made again.
func TestWorkflowsSurviveKills(t *testing.T) {
	raced.Skip(t, raced.Processes)
	for kind, database := range map[string]func() string{
		"sqlite":     func() string { return filepath.Join(t.TempDir(), "forebay.db") },
		"postgresql": func() string { return dbtest.Postgres(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testWorkflowsSurviveKills(t, database())
		})
	}
}

func testWorkflowsSurviveKills(t *testing.T, database string) {
	const instances, parts, kills, places = 12, 6, 4, 8
	const calls = instances * (parts + 2)
	model := modelsim.StartTest(func(call modelsim.Call) modelsim.Reply {
		h := fnv.New32a()
		fmt.Fprint(h, call.Marker)
		r := modelsim.Reply{Delay: time.Duration(5+h.Sum32()%60) * time.Millisecond, Text: "answer to " + call.Marker}
		if h.Sum32()%7 == 0 && call.Number == 1 {
			r.Status = http.StatusInternalServerError
		}
		return r
	})
	defer model.Close()
	child := servertest.ProcessOptions{
		Database: database, Blob: "file://" + t.TempDir(), Endpoint: model.URL(), Shutdown: 50 * time.Millisecond, Workflows: []string{servertest.WriteWorkflow(t, crashWorkflow)},
		Orchestrations: server.Orchestrations{LockDuration: time.Second},
		Queue: server.Queue{Concurrency: places, LockDuration: time.Second, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 20 * time.Millisecond, Max: 100 * time.Millisecond, Attempts: 100, Concurrency: 4}},
	}
	options := child.Options()
	options.Logger = slog.New(slog.DiscardHandler)
	s, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, instances)
	for i := range ids {
		var items []int
		for n := range parts {
			items = append(items, n)
		}
		ids[i] = servertest.StartWorkflow(t, s, "crash", map[string]any{"name": fmt.Sprint("w", i), "parts": items})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	for kill := range kills {
		p := servertest.Launch(t, child)
		p.MustListen(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := model.Await(ctx, func(s modelsim.Stats) bool { return int(s.Calls) >= calls*(kill+1)/(kills+2) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		p.Kill()
	}

	s, stop := servertest.Run(t, options)
	defer stop()
	for i, id := range ids {
		o := servertest.EndOfWorkflow(t, s, id, forebay.OrchestrationCompleted)
		var output struct {
			Parts []string
			Both  string
		}
		if err := json.Unmarshal(o.Output, &output); err != nil || len(output.Parts) != parts || output.Both != fmt.Sprintf("answer to w%d/both", i) {
			t.Fatalf("%s: %v", o.Output, err)
		}
		for n, part := range output.Parts {
			if want := fmt.Sprintf("answer to w%d/%d", i, n); part != want {
				t.Errorf("part %d is %q", n, part)
			}
		}
		attempts, err := s.ActivityAttempts(t.Context(), forebay.DefaultTenant, id)
		if err != nil {
			t.Fatal(err)
		}
		succeeded := map[int]int{}
		for _, a := range attempts {
			if a.Outcome == "succeeded" {
				succeeded[a.EventID]++
			}
		}
		if len(succeeded) != 1+parts+2 {
			t.Errorf("%s has %d activities", id, len(succeeded))
		}
		for event, n := range succeeded {
			if n != 1 {
				t.Errorf("activity %d of %s has %d results", event, id, n)
			}
		}
	}
	// A call is made again if it failed, or if its process was killed before its result was recorded.
	if made := int(model.Stats().Calls); made < calls || made > calls+calls/3+kills*2*places {
		t.Errorf("%d calls for %d steps", made, calls)
	} else {
		t.Logf("%d calls for %d steps and %d kills", made, calls, kills)
	}
}
