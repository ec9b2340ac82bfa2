package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

const instances = "/runtime/webhooks/durabletask/instances"

func TestOrchestrationOperations(t *testing.T) {
	var asked, body string
	answer := any(map[string]string{"id": "made"})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		asked, body = r.Method+" "+r.URL.RequestURI(), string(data)
		answerJSON(w, http.StatusAccepted, answer)
	})
	ctx := t.Context()
	text := func(_ string, err error) error { return err }
	for _, op := range []struct {
		do          func() error
		asked, body string
	}{
		{func() error { return text(c.StartOrchestration(ctx, "or/der", "", nil)) }, "POST /runtime/webhooks/durabletask/orchestrators/or%2Fder", ""},
		{func() error { return text(c.StartOrchestration(ctx, "order", "o 1", json.RawMessage("[1]"))) }, "POST /runtime/webhooks/durabletask/orchestrators/order/o%201", "[1]"},
		{func() error { return c.RaiseEvent(ctx, "o?1", "go", json.RawMessage("null")) }, "POST " + instances + "/o%3F1/raiseEvent/go", "null"},
		{func() error { return c.SuspendOrchestration(ctx, "o", "") }, "POST " + instances + "/o/suspend", ""},
		{func() error { return c.ResumeOrchestration(ctx, "o", "so be it") }, "POST " + instances + "/o/resume?reason=so+be+it", ""},
		{func() error { return c.TerminateOrchestration(ctx, "o", "") }, "POST " + instances + "/o/terminate", ""},
		{func() error { return c.RewindOrchestration(ctx, "o", "") }, "POST " + instances + "/o/rewind", ""},
		{func() error { return text(c.RestartOrchestration(ctx, "o", false)) }, "POST " + instances + "/o/restart?restartWithNewInstanceId=false", ""},
		{func() error { return c.PurgeOrchestration(ctx, "o") }, "DELETE " + instances + "/o", ""},
		{func() error { return second(c.Orchestration(ctx, "o")) }, "GET " + instances + "/o", ""},
		{func() error { return second(c.PollOrchestration(ctx, "o", 1500*time.Millisecond)) }, "GET " + instances + "/o?timeout=1.5", ""},
	} {
		if err := op.do(); err != nil || asked != op.asked || body != op.body {
			t.Errorf("%v: asked %s with %q, want %s with %q", err, asked, body, op.asked, op.body)
		}
	}
	if id, err := c.StartOrchestration(ctx, "order", "", nil); id != "made" || err != nil {
		t.Errorf("started %q, %v", id, err)
	}
	answer = map[string]any{"instanceId": "o", "historyEvents": []map[string]any{{"EventType": "TaskCompleted", "EventId": 3, "FunctionName": "charge", "Result": 1}}}
	events, err := c.OrchestrationHistory(ctx, "o")
	if err != nil || len(events) != 1 || events[0].Function != "charge" || events[0].EventID != 3 || string(events[0].Result) != "1" ||
		asked != "GET "+instances+"/o?showHistory=true&showHistoryOutput=true&showInput=false" {
		t.Errorf("%v: asked %s, got %+v", err, asked, events)
	}
	answer = map[string]int{"instancesDeleted": 4}
	if n, err := c.PurgeOrchestrations(ctx, OrchestrationFilter{Prefix: "o-"}); n != 4 || err != nil ||
		asked != "DELETE "+instances+"?createdTimeFrom=1970-01-01T00%3A00%3A00Z&instanceIdPrefix=o-" {
		t.Errorf("%v: asked %s, purged %d", err, asked, n)
	}
	for _, err := range []error{
		text(c.StartOrchestration(ctx, "", "", nil)), text(c.StartOrchestration(ctx, "order", "..", nil)), c.RaiseEvent(ctx, "", "go", nil), c.RaiseEvent(ctx, "o", "", nil),
		c.TerminateOrchestration(ctx, ".", ""), text(c.RestartOrchestration(ctx, "", true)), c.PurgeOrchestration(ctx, ""), second(c.Orchestration(ctx, "")),
	} {
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("error is %v, want an invalid request", err)
		}
	}
}

func TestOrchestrationsReadsPages(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "name=order&runtimeStatus=Failed&runtimeStatus=Completed&top=1" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		id := r.Header.Get("x-ms-continuation-token")
		if id == "" {
			w.Header().Set("x-ms-continuation-token", "second")
		}
		answerJSON(w, http.StatusOK, []forebay.Orchestration{{ID: id}})
	})
	var ids []string
	for o, err := range c.Orchestrations(t.Context(), OrchestrationFilter{Name: "order", Statuses: []forebay.OrchestrationStatus{"Failed", "Completed"}, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, o.ID)
	}
	if len(ids) != 2 || ids[1] != "second" {
		t.Errorf("listed %q", ids)
	}
}

func TestOrchestrationsDoesNotFollowACircle(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-continuation-token", "same")
		answerJSON(w, http.StatusOK, []forebay.Orchestration{})
	})
	var last error
	for _, err := range c.Orchestrations(t.Context(), OrchestrationFilter{}) {
		last = err
	}
	if last == nil {
		t.Error("no error")
	}
}

func TestPurgeOfNothing(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answerProblem(w, http.StatusNotFound, forebay.CodeNotFound, "", "there are none")
	})
	if n, err := c.PurgeOrchestrations(t.Context(), OrchestrationFilter{}); n != 0 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

func TestWaitOrchestration(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status := forebay.OrchestrationRunning
		if calls.Add(1) == 2 {
			status = forebay.OrchestrationTerminated
		}
		answerJSON(w, http.StatusAccepted, forebay.Orchestration{ID: "o", Status: status})
	})
	o, err := c.WaitOrchestration(t.Context(), "o")
	if err != nil || o.Status != forebay.OrchestrationTerminated || calls.Load() != 2 {
		t.Errorf("got %s, %v after %d calls", o.Status, err, calls.Load())
	}
}

// A batch that is waited for is known as it was last, also if the context ends in a request.
func TestWaitBatchKeepsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		c, err := New(Options{BaseURL: "http://server", HTTPClient: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if calls++; calls > 1 {
				cancel()
				return nil, ctx.Err()
			}
			body := io.NopCloser(strings.NewReader(`{"id": "b", "status": "in_progress"}`))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := c.WaitBatch(ctx, "b"); b.ID != "b" || b.Status != forebay.BatchInProgress || !errors.Is(err, context.Canceled) || calls != 2 {
			t.Errorf("got %+v, %v after %d calls", b, err, calls)
		}
	})
}

// transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
