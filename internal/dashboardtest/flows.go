package dashboardtest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// Nasty is a text that must not reach a page as it is.
const Nasty = "<script>alert(1)</script> javascript:alert(1) \u202egnp.exe"

// Escaped is what a page shows of it.
const Escaped = "&lt;script&gt;alert(1)&lt;/script&gt; javascript:alert(1) \ufffdgnp.exe"

// diamond is a workflow whose last step waits for two that follow the first.
const diamond = `workflow: diamond
description: four steps <b>
steps:
  first:
    task: chat
  left:
    task: chat
    after: first
  right:
    task: chat
    if: steps.first.status == "failed"
  last:
    task: chat
    after: [first, left, right]
    continue_on_error: true
`

// Flows gives a server orchestrators and a workflow. The activity says fails until release is
// closed.
func Flows(t *testing.T, release chan struct{}) func(*server.Options) {
	says := server.NewActivity("says", func(context.Context, string) (string, error) {
		select {
		case <-release:
			return Nasty, nil
		default:
			return "", errors.New("refused: " + Nasty)
		}
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond})
	child := server.NewOrchestrator("child", says.Call)
	fails := server.NewOrchestrator("fails", child.Call)
	waits := server.NewOrchestrator("waits", func(o *server.Orchestration, in string) (string, error) {
		o.SetStatus(map[string]string{"at": Nasty})
		if err := o.Sleep(time.Millisecond); err != nil {
			return "", err
		}
		return server.WaitForEvent[string](o, "approval", time.Hour)
	})
	file := filepath.Join(t.TempDir(), "diamond.yaml")
	if err := os.WriteFile(file, []byte(diamond), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) {
		o.Blob = "file://" + t.TempDir()
		o.Durable = []server.DurableFunction{says, child, fails, waits}
		o.Workflows = []string{file}
	}
}

// InstanceIs waits until an instance has that status.
func InstanceIs(t *testing.T, s *Running, key, id string, status forebay.OrchestrationStatus) (o forebay.Orchestration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		var err error
		if o, err = s.Client(t, key).Orchestration(ctx, id); err != nil {
			t.Fatalf("%s is %s: %v", id, o.Status, err)
		}
		if o.Status == status {
			return o
		}
	}
}

// StartInstance starts an instance of an orchestrator or a workflow.
func StartInstance(t *testing.T, s *Running, key, name, id, input string) {
	t.Helper()
	if _, err := s.Client(t, key).StartOrchestration(t.Context(), name, id, json.RawMessage(input)); err != nil {
		t.Fatal(err)
	}
}
