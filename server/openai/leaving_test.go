package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A client that leaves has its call made once. What the call may have used is charged to its
// budget, and its place is free again.
func TestLeavingIsCharged(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		begins     string // what the provider sends before the client leaves
	}{
		"in one piece":              {"/v1/chat/completions", `{"model":"chat","max_tokens":300,"messages":[{"role":"user","content":"hello"}]}`, ""},
		"before a stream":           {"/v1/chat/completions", `{"model":"chat","max_tokens":300,"stream":true,"messages":[{"role":"user","content":"hello"}]}`, ""},
		"in a stream without texts": {"/v1/chat/completions", `{"model":"chat","max_tokens":300,"stream":true,"messages":[{"role":"user","content":"hello"}]}`, ": wait\n\n"},
		"in a stream":               {"/v1/chat/completions", `{"model":"chat","max_tokens":300,"stream":true,"messages":[{"role":"user","content":"hello"}]}`, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n"},
		"a response":                {"/v1/responses", `{"model":"chat","max_output_tokens":300,"input":"hello"}`, ""},
		"a response's stream":       {"/v1/responses", `{"model":"chat","max_output_tokens":300,"input":"hello","stream":true}`, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			servertest.OnDatabases(t, func(t *testing.T, database string) {
				t.Parallel()
				testLeaving(t, database, c.path, c.body, c.begins)
			})
		})
	}
}

func testLeaving(t *testing.T, database, path, body, begins string) {
	called, left := make(chan struct{}, 1), make(chan struct{}, 1)
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		if n > 1 {
			servertest.AnswerPlainly(w, r, n)
			return
		}
		if begins != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begins)
			w.(http.Flusher).Flush()
		}
		called <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	limit := int64(1_000_000)
	s := startForwarding(t, u, func(o *server.Options) {
		o.Database = database
		o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Concurrency: 1, Budget: server.Budget{MonthlyTokens: &limit}}}
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr(t.Context()).String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	<-called
	leave()
	<-gone
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Fatal("the provider goes on")
	}
	var job forebay.Job
	servertest.Eventually(t, time.Minute, func() error {
		list := callJobs(t, s)
		if len(list) != 1 || !list[0].Status.Terminal() {
			return fmt.Errorf("%+v", list)
		}
		job = list[0]
		return nil
	})
	remote := servertest.Over(t, s)
	servertest.Eventually(t, time.Minute, func() error {
		var tenant forebay.Tenant
		if err := remote.Get(t.Context(), "/v1/tenants/"+forebay.DefaultTenant, &tenant); err != nil {
			return err
		}
		for _, use := range tenant.Usage {
			if use.Period == forebay.BudgetMonth && (use.Tokens == 0 || use.HeldTokens != 0) {
				return fmt.Errorf("charged: %+v", use)
			}
		}
		return nil
	})
	servertest.Eventually(t, time.Minute, func() error {
		attempts, err := remote.Attempts(t.Context(), job.ID)
		// It has failed if the client left before it was known here that its job is stored.
		if err != nil || len(attempts) != 1 || attempts[0].Deployment != "up" || attempts[0].Outcome != forebay.OutcomeCancelled && attempts[0].Outcome != forebay.OutcomeFailed {
			return fmt.Errorf("%s with %+v, %v", job.Status, attempts, err)
		}
		return nil
	})
	if resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello); resp.StatusCode != http.StatusOK {
		t.Errorf("the next call: %d %s", resp.StatusCode, answer)
	}
}
