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
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/server"
)

// provider answers chat completions with a nasty text and a call of a tool. It refuses what says
// refuse, and waits with what says wait: until the channel is closed, for the test's end if that is
// nil.
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
func (s *running) batchOf(t *testing.T, c *client.Client, lines string) forebay.Batch {
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
	onDatabases(t, func(t *testing.T, database string) {
		cancelled := make(chan struct{})
		s := start(t, database, provider(t, cancelled))
		key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.client(t, key), s.visit(t, key)
		done := waitBatch(t, c, s.batchOf(t, c, linesOf("hi", "refuse", "ho")).ID)
		bad := waitBatch(t, c, s.batchOf(t, c, linesOf("hi")+"nonsense\n").ID)
		if done.Status != forebay.BatchCompleted || bad.Status != forebay.BatchFailed {
			t.Fatalf("%+v %+v", done, bad)
		}
		v.get("/batches").is(200).has(done.ID, bad.ID, "2 answered, 1 failed, of 3", "/v1/chat/completions", "chat", `aria-label="2 answered, 1 failed, of 3 lines"`)
		v.get("/batches/"+done.ID).is(200).has(escaped, "66.7 %", "correlation_id="+done.ID, "status=failed", "2,200 in, 14 out").lacks("<script>", "\u202e", "Cancel the batch")
		v.get("/batches/"+bad.ID).is(200).has("Why the input was refused", `<td class="n">2</td>`)
		for which, part := range map[string]string{"input": "refuse", "output": "javascript:alert", "errors": "r1"} {
			file := v.get("/batches/" + done.ID + "/files/" + which).is(200)
			h := file.header
			if !strings.Contains(file.body, part) || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Disposition") != "attachment; filename="+done.ID+"_"+which+".jsonl" {
				t.Errorf("%s: %v %s", which, h, file.body)
			}
		}
		v.get("/batches/" + done.ID + "/files/other").is(http.StatusNotFound)
		v.get("/batches/" + bad.ID + "/files/output").is(http.StatusNotFound)
		v.get("/batches/batch_none").is(http.StatusNotFound)

		open := s.batchOf(t, c, linesOf("wait", "wait"))
		v.get("/batches/" + open.ID).is(200).has("Cancel the batch")
		v.post("/batches/"+open.ID+"/cancel", url.Values{}).is(200).has("is being cancelled")
		close(cancelled) // else lines that run have a minute to end
		if b := waitBatch(t, c, open.ID); b.Status != forebay.BatchCancelled {
			t.Errorf("it is %s", b.Status)
		}
		v.post("/batches/"+done.ID+"/cancel", url.Values{}).is(http.StatusConflict)
	})
}

// ask makes a response of OpenAI's API and returns its id.
func (s *running) ask(t *testing.T, c *client.Client, input string, background bool) string {
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
	s := start(t, "sqlite:"+dbtest.SQLite(t), provider(t, nil))
	key := s.key(t, forebay.ScopeAdmin)
	job := s.job(t, key, "chat", `"How warm is it?"`, forebay.StatusSucceeded)
	s.visit(t, key).get("/jobs/"+job.ID).is(http.StatusOK).has("1 call of tools", "<td>weather</td>", "call_7", "&lt;i&gt;Oslo").lacks("<i>")
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
	onDatabases(t, func(t *testing.T, database string) {
		s := start(t, database, provider(t, nil))
		key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
		c, v := s.client(t, key), s.visit(t, key)
		waited, made, refused, open := s.ask(t, c, "hi", false), s.ask(t, c, "hi", true), s.ask(t, c, "refuse", true), s.ask(t, c, "wait", true)
		listed := responseIs(t, c, made, "completed")
		responseIs(t, c, refused, "failed")

		v.get("/responses").is(200).has(waited, made, refused, open, listed.JobID, "4 responses on this page", "forebay response list").lacks("javascript:")
		v.get("/responses?status=failed").is(200).has(refused, "forebay response list --status failed").lacks(waited, made, open)
		v.get("/responses?background=false").is(200).has(waited).lacks(made, refused, open)
		v.get("/responses?status=odd").is(http.StatusUnprocessableEntity)
		v.get("/responses?cursor=resp_odd").is(http.StatusUnprocessableEntity)
		v.get("/responses/"+made).is(200).has(escaped, "weather", "call_7", "&lt;i&gt;Oslo", "1,100 in, 7 out, 1,107 in all", "/ui/jobs/"+listed.JobID, "forebay response show "+made, "forebay response delete "+made, "in the background").
			lacks("<script>", "\u202e", "Cancel the response")
		v.get("/responses/"+waited).is(200).has(escaped, "while the client waited").lacks("Cancel the response")
		v.get("/responses/"+refused).is(200).has("Error", "failed")
		v.get("/responses/resp_none").is(http.StatusNotFound)
		whole := v.get("/responses/" + made + "/content").is(200)
		if !json.Valid([]byte(whole.body)) || !strings.HasPrefix(whole.header.Get("Content-Type"), "text/plain") || !strings.Contains(whole.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%v %s", whole.header, whole.body)
		}

		v.get("/responses/"+open).is(200).has("Cancel the response", "no text yet")
		v.post("/responses/"+open+"/cancel", url.Values{}).is(200).has("was cancelled")
		responseIs(t, c, open, "cancelled")
		v.post("/responses/"+made+"/delete", url.Values{"confirm": {"resp"}}).is(http.StatusUnprocessableEntity).has("nothing was changed")
		v.post("/responses/"+made+"/delete", url.Values{"confirm": {made}}).is(200).has("was deleted")
		v.get("/responses/" + made).is(http.StatusNotFound)
		v.get("/responses").is(200).has("3 responses on this page")
	})
}

// Whoever may only look changes nothing. A viewer from another tenant sees no payloads without
// the scope, and with it leaves a row in the audit log.
func TestScopesOnPagesOfOpenAI(t *testing.T) {
	t.Parallel()
	s := start(t, "sqlite:"+dbtest.SQLite(t), provider(t, nil))
	key := s.key(t, forebay.ScopeSubmit, forebay.ScopeRead)
	c := s.client(t, key)
	id := s.ask(t, c, "hi", false)
	b := waitBatch(t, c, s.batchOf(t, c, linesOf("hi")).ID)
	form := url.Values{"confirm": {id}}
	changes := []string{"/batches/" + b.ID + "/cancel", "/responses/" + id + "/cancel", "/responses/" + id + "/delete"}
	pages := []string{"/batches/" + b.ID, "/batches/" + b.ID + "/files/output", "/responses/" + id, "/responses/" + id + "/content"}

	views := s.visit(t, s.key(t, forebay.ScopeView))
	views.get("/responses/" + id).is(200).has(escaped).lacks("<form")
	views.get("/batches/" + b.ID).is(200).lacks("<form")
	for _, path := range changes {
		views.post(path, form).is(http.StatusForbidden)
	}
	elsewhere := s.visit(t, s.keyOf(t, "other", forebay.ScopeSubmit, forebay.ScopeRead))
	elsewhere.get("/batches").is(200).lacks(b.ID)
	elsewhere.get("/responses").is(200).lacks(id)
	for _, path := range pages {
		elsewhere.get(path).is(http.StatusNotFound)
		elsewhere.get(path + "?tenant=acme").is(http.StatusForbidden)
	}
	for _, path := range changes {
		elsewhere.post(path, form).is(http.StatusNotFound)
	}
	visits := s.visit(t, s.keyOf(t, "other", forebay.ScopeView, forebay.ScopeSubmit))
	visits.get("/batches?tenant=acme").is(200).has(b.ID)
	visits.get("/responses?tenant=acme").is(200).has(id)
	visits.get("/responses/"+id+"?tenant=acme").is(200).has("need a key with the scope", "chat").lacks("javascript:", "<form")
	visits.get("/batches/" + b.ID + "/files/output?tenant=acme").is(http.StatusForbidden)
	visits.get("/responses/" + id + "/content?tenant=acme").is(http.StatusForbidden)
	for _, path := range changes {
		visits.post(path+"?tenant=acme", form).is(http.StatusForbidden)
	}
	opens := s.visit(t, s.keyOf(t, "other", forebay.ScopeView, forebay.ScopePayload))
	opens.get("/responses/"+id+"?tenant=acme").is(200).has(escaped, "?tenant=acme")
	opens.get("/batches/" + b.ID + "/files/output?tenant=acme").is(200)
	var log struct{ Items []forebay.AuditEntry }
	if err := s.client(t, s.key(t, forebay.ScopeAdmin)).Call(t.Context(), http.MethodGet, "/v1/audit", nil, nil, &log); err != nil {
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
