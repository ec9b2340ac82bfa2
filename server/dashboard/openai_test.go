package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// provider answers chat completions with a nasty text and a call of a tool. It refuses what says
// refuse, and waits with what says wait: until the channel is closed, or for the test's end.
func provider(t *testing.T, until <-chan struct{}) func(*server.Options) {
	t.Helper()
	ended := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "refuse"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`)
			return
		case strings.Contains(string(body), "wait"):
			select {
			case <-ended:
			case <-until:
			case <-r.Context().Done():
			}
			return
		}
		said, _ := json.Marshal(nasty)
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"real","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%s,
  "tool_calls":[{"id":"call_7","type":"function","function":{"name":"weather","arguments":"{\"city\":\"<i>Oslo\"}"}}]}}],"usage":{"prompt_tokens":1100,"completion_tokens":7,"total_tokens":1107}}`, said)
	}))
	t.Cleanup(up.Close)
	t.Cleanup(func() { close(ended) })
	return func(o *server.Options) {
		o.Blob = "file://" + t.TempDir()
		o.ShutdownTimeout = 10 * time.Millisecond
		o.Deployments = []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: up.URL, Model: "real", APIKey: "sk-up"}}
	}
}

// batchOf makes a batch of lines with these contents.
func batchOf(t *testing.T, s *dashboardtest.Running, c *client.Client, lines string) forebay.Batch {
	t.Helper()
	file, err := c.UploadBatchFile(t.Context(), "lines.jsonl", strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.CreateBatch(t.Context(), forebay.NewBatch{InputFile: file, Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"who": nasty}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func linesOf(contents ...string) string {
	var b strings.Builder
	for i, content := range contents {
		fmt.Fprintf(&b, `{"custom_id":"r%d","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":%q}]}}`+"\n", i, content)
	}
	return b.String()
}

func waitBatch(t *testing.T, c *client.Client, id string) forebay.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := c.WaitBatch(ctx, id)
	if err != nil {
		t.Fatalf("%s is %s: %v", id, b.Status, err)
	}
	return b
}

// A batch is listed and shown with its counts, its errors and its files.
func TestPagesOfBatches(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		cancelled := make(chan struct{})
		s := dashboardtest.Start(t, database, provider(t, cancelled))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.Client(t, key), s.Visit(t, key)
		done := waitBatch(t, c, batchOf(t, s, c, linesOf("hi", "refuse", "ho")).ID)
		bad := waitBatch(t, c, batchOf(t, s, c, linesOf("hi")+"nonsense\n").ID)
		if done.Status != forebay.BatchCompleted || bad.Status != forebay.BatchFailed {
			t.Fatalf("%+v %+v", done, bad)
		}
		v.Get("/batches").Is(200).Has(done.ID, bad.ID, "2 answered, 1 failed, of 3", "/v1/chat/completions", "chat", `aria-label="2 answered, 1 failed, of 3 lines"`)
		v.Get("/batches/"+done.ID).Is(200).Has(escaped, "66.7 %", "correlation_id="+done.ID, "status=failed", "2,200 in, 14 out").Lacks("<script>", "\u202e", "Cancel the batch")
		v.Get("/batches/"+bad.ID).Is(200).Has("Why the input was refused", `<td class="n">2</td>`)
		for which, part := range map[string]string{"input": "refuse", "output": "javascript:alert", "errors": "r1"} {
			file := v.Get("/batches/" + done.ID + "/files/" + which).Is(200)
			h := file.Header
			if !strings.Contains(file.Body, part) || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Disposition") != "attachment; filename="+done.ID+"_"+which+".jsonl" {
				t.Errorf("%s: %v %s", which, h, file.Body)
			}
		}
		v.Get("/batches/" + done.ID + "/files/other").Is(http.StatusNotFound)
		v.Get("/batches/" + bad.ID + "/files/output").Is(http.StatusNotFound)
		v.Get("/batches/batch_none").Is(http.StatusNotFound)

		open := batchOf(t, s, c, linesOf("wait", "wait"))
		v.Get("/batches/" + open.ID).Is(200).Has("Cancel the batch")
		v.Post("/batches/"+open.ID+"/cancel", url.Values{}).Is(200).Has("is being cancelled")
		close(cancelled) // else lines that run have a minute to end
		if b := waitBatch(t, c, open.ID); b.Status != forebay.BatchCancelled {
			t.Errorf("it is %s", b.Status)
		}
		v.Post("/batches/"+done.ID+"/cancel", url.Values{}).Is(http.StatusConflict)
	})
}

// ask makes a response of OpenAI's API and returns its id.
func ask(t *testing.T, s *dashboardtest.Running, c *client.Client, input string, background bool) string {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	err := c.Call(t.Context(), http.MethodPost, "/v1/responses", nil, map[string]any{"model": "chat", "input": input, "background": background,
		"tools": []any{map[string]any{"type": "function", "name": "weather", "parameters": map[string]any{"type": "object"}}}}, &made)
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// A job's page has the tools that its result calls, as text.
func TestToolCallsOfAJob(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), provider(t, nil))
	key := s.Key(t, forebay.ScopeAdmin)
	job := s.Job(t, key, "chat", `"How warm is it?"`, forebay.StatusSucceeded)
	s.Visit(t, key).Get("/jobs/"+job.ID).Is(http.StatusOK).Has("1 call of tools", "<td>weather</td>", "call_7", "&lt;i&gt;Oslo").Lacks("<i>")
}

// responseIs waits until a response has that status.
func responseIs(t *testing.T, c *client.Client, id, status string) forebay.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		page, err := c.Responses(ctx, client.ResponseFilter{ID: id})
		if err != nil || len(page.Data) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		if page.Data[0].Status == status {
			return page.Data[0]
		}
	}
}

// Responses are listed without what they say, and shown with it.
func TestPagesOfResponses(t *testing.T) {
	t.Parallel()
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, provider(t, nil))
		key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.Client(t, key), s.Visit(t, key)
		waited, made, refused, open := ask(t, s, c, "hi", false), ask(t, s, c, "hi", true), ask(t, s, c, "refuse", true), ask(t, s, c, "wait", true)
		listed := responseIs(t, c, made, "completed")
		responseIs(t, c, refused, "failed")

		v.Get("/responses").Is(200).Has(waited, made, refused, open, listed.JobID, "4 responses on this page", "forebay response list").Lacks("javascript:")
		v.Get("/responses?status=failed").Is(200).Has(refused, "forebay response list --status failed").Lacks(waited, made, open)
		v.Get("/responses?background=false").Is(200).Has(waited).Lacks(made, refused, open)
		v.Get("/responses?status=odd").Is(http.StatusUnprocessableEntity)
		v.Get("/responses?cursor=resp_odd").Is(http.StatusUnprocessableEntity)
		v.Get("/responses/"+made).Is(200).Has(escaped, "weather", "call_7", "&lt;i&gt;Oslo", "1,100 in, 7 out, 1,107 in all", "/ui/jobs/"+listed.JobID, "forebay response show "+made, "forebay response delete "+made, "in the background").
			Lacks("<script>", "\u202e", "Cancel the response")
		v.Get("/responses/"+waited).Is(200).Has(escaped, "while the client waited").Lacks("Cancel the response")
		v.Get("/responses/"+refused).Is(200).Has("Error", "failed")
		v.Get("/responses/resp_none").Is(http.StatusNotFound)
		whole := v.Get("/responses/" + made + "/content").Is(200)
		if !json.Valid([]byte(whole.Body)) || !strings.HasPrefix(whole.Header.Get("Content-Type"), "text/plain") || !strings.Contains(whole.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%v %s", whole.Header, whole.Body)
		}

		v.Get("/responses/"+open).Is(200).Has("Cancel the response", "no text yet")
		v.Post("/responses/"+open+"/cancel", url.Values{}).Is(200).Has("was cancelled")
		responseIs(t, c, open, "cancelled")
		v.Post("/responses/"+made+"/delete", url.Values{"confirm": {"resp"}}).Is(http.StatusUnprocessableEntity).Has("nothing was changed")
		v.Post("/responses/"+made+"/delete", url.Values{"confirm": {made}}).Is(200).Has("was deleted")
		v.Get("/responses/" + made).Is(http.StatusNotFound)
		v.Get("/responses").Is(200).Has("3 responses on this page")
	})
}

// Whoever may only look changes nothing. A viewer from another tenant sees no payloads without
// the scope, and with it leaves a row in the audit log.
func TestScopesOnPagesOfOpenAI(t *testing.T) {
	t.Parallel()
	s := dashboardtest.Start(t, "sqlite:"+dbtest.SQLite(t), provider(t, nil))
	key := s.Key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	c := s.Client(t, key)
	id := ask(t, s, c, "hi", false)
	b := waitBatch(t, c, batchOf(t, s, c, linesOf("hi")).ID)
	form := url.Values{"confirm": {id}}
	changes := []string{"/batches/" + b.ID + "/cancel", "/responses/" + id + "/cancel", "/responses/" + id + "/delete"}
	pages := []string{"/batches/" + b.ID, "/batches/" + b.ID + "/files/output", "/responses/" + id, "/responses/" + id + "/content"}

	views := s.Visit(t, s.Key(t, forebay.ScopeView))
	views.Get("/responses/" + id).Is(200).Has(escaped).Lacks("<form")
	views.Get("/batches/" + b.ID).Is(200).Lacks("<form")
	for _, path := range changes {
		views.Post(path, form).Is(http.StatusForbidden)
	}
	elsewhere := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead))
	elsewhere.Get("/batches").Is(200).Lacks(b.ID)
	elsewhere.Get("/responses").Is(200).Lacks(id)
	for _, path := range pages {
		elsewhere.Get(path).Is(http.StatusNotFound)
		elsewhere.Get(path + "?tenant=acme").Is(http.StatusForbidden)
	}
	for _, path := range changes {
		elsewhere.Post(path, form).Is(http.StatusNotFound)
	}
	visits := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeView, forebay.ScopeSubmit))
	visits.Get("/batches?tenant=acme").Is(200).Has(b.ID)
	visits.Get("/responses?tenant=acme").Is(200).Has(id)
	visits.Get("/responses/"+id+"?tenant=acme").Is(200).Has("need a key with the scope", "chat").Lacks("javascript:", "<form")
	visits.Get("/batches/" + b.ID + "/files/output?tenant=acme").Is(http.StatusForbidden)
	visits.Get("/responses/" + id + "/content?tenant=acme").Is(http.StatusForbidden)
	for _, path := range changes {
		visits.Post(path+"?tenant=acme", form).Is(http.StatusForbidden)
	}
	opens := s.Visit(t, s.KeyOf(t, "other", forebay.ScopeView, forebay.ScopePayload))
	opens.Get("/responses/"+id+"?tenant=acme").Is(200).Has(escaped, "?tenant=acme")
	opens.Get("/batches/" + b.ID + "/files/output?tenant=acme").Is(200)
	var log struct{ Items []forebay.AuditEntry }
	if err := s.Client(t, s.Key(t, forebay.ScopeAdmin)).Call(t.Context(), http.MethodGet, "/v1/audit", nil, nil, &log); err != nil {
		t.Fatal(err)
	}
	var opened []string
	for _, row := range log.Items {
		if row.Action == "open-payload" {
			opened = append(opened, row.Target)
		}
	}
	if all := strings.Join(opened, " "); len(opened) != 2 || !strings.Contains(all, id) || !strings.Contains(all, b.OutputFile) {
		t.Errorf("the audit log has openings of %q", opened)
	}
}
