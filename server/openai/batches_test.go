package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// startBatch uploads lines and makes a batch of them.
func startBatch(t *testing.T, s *server.Server, lines string, headers ...string) gjson.Result {
	t.Helper()
	f := uploaded(t, s, headers, field{"file", lines, "lines.jsonl"}, field{"purpose", "batch", ""})
	resp, body := servertest.Post(t, s, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"b"}}`, f.ID), headers...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return gjson.Parse(body)
}

// batchOf reads a batch.
func batchOf(t *testing.T, s *server.Server, id string, headers ...string) gjson.Result {
	t.Helper()
	resp, body := asked(t, s, http.MethodGet, "/v1/batches/"+id, headers...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return gjson.Parse(body)
}

// becomes waits until a batch has that status, and returns it.
func becomes(t *testing.T, s *server.Server, id, status string, headers ...string) (b gjson.Result) {
	t.Helper()
	servertest.Eventually(t, 2*time.Minute, func() error {
		if b = batchOf(t, s, id, headers...); b.Get("status").Str != status {
			return fmt.Errorf("it is %s", b.Raw)
		}
		return nil
	})
	return b
}

// outputOf reads the lines of a file by their custom ids; "": there is none.
func outputOf(t *testing.T, s *server.Server, file string, headers ...string) map[string]gjson.Result {
	t.Helper()
	lines := map[string]gjson.Result{}
	if file == "" {
		return lines
	}
	resp, body := asked(t, s, http.MethodGet, "/v1/files/"+file+"/content", headers...)
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(body, "\n") {
		t.Fatalf("%d %.300s", resp.StatusCode, body)
	}
	for line := range strings.Lines(body) {
		o := gjson.Parse(line)
		id := o.Get("custom_id").Str
		if _, twice := lines[id]; twice || !gjson.Valid(line) || !strings.HasPrefix(o.Get("id").Str, "batch_req_") {
			t.Errorf("a line of the output: %s", line)
		}
		lines[id] = o
	}
	return lines
}

// answerByContent answers a chat completion by what its last message says.
func answerByContent(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	switch content := gjson.GetBytes(body, "messages.0.content").Str; {
	case strings.HasPrefix(content, "refuse"):
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","param":"messages","code":"content_policy_violation"}}`)
	case strings.HasPrefix(content, "break"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		w.Header().Set("X-Request-Id", "up-"+content)
		_, _ = io.WriteString(w, strings.Replace(servertest.PlainAnswer, `h\u00ef`, content, 1))
	}
}

// A batch is answered line by line: answers in one file, errors in the other, in their order.
func TestBatch(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		var u *servertest.Upstream
		u = servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) { answerByContent(w, r, []byte(u.Body())) })
		s := startForwarding(t, u, func(o *server.Options) {
			o.Database, o.Blob = database, t.TempDir()
			o.Queues = map[string]server.Queue{server.BatchesQueue: {Concurrency: 1, Retry: server.Retry{Attempts: 2, First: time.Millisecond, Max: time.Millisecond, Budget: 0.9, Concurrency: 1}}}
		})
		b := startBatch(t, s, servertest.BatchLines("one", "refuse", "two")+"\r\n"+strings.TrimSuffix(servertest.BatchLines("", "", "", "three"), "\n")[strings.LastIndex(strings.TrimSuffix(servertest.BatchLines("", "", "", "three"), "\n"), "\n")+1:])
		if b.Get("status").Str != "validating" || b.Get("object").Str != "batch" || b.Get("request_counts.total").Int() != 0 || b.Get("metadata.a").Str != "b" ||
			b.Get("expires_at").Int() != b.Get("created_at").Int()+86400 || b.Get("output_file_id").Exists() {
			t.Errorf("made: %s", b.Raw)
		}
		b = becomes(t, s, b.Get("id").Str, "completed")
		if c := b.Get("request_counts"); c.Get("total").Int() != 4 || c.Get("completed").Int() != 3 || c.Get("failed").Int() != 1 || b.Get("model").Str != "chat" {
			t.Errorf("ended: %s", b.Raw)
		}
		for _, stamp := range []string{"in_progress_at", "finalizing_at", "completed_at"} {
			if b.Get(stamp).Int() < b.Get("created_at").Int() {
				t.Errorf("%s of %s", stamp, b.Raw)
			}
		}
		if usage := b.Get("usage"); usage.Get("input_tokens").Int() != 33 || usage.Get("output_tokens").Int() != 21 || usage.Get("total_tokens").Int() != 54 {
			t.Errorf("used: %s", usage.Raw)
		}
		answers, errors := outputOf(t, s, b.Get("output_file_id").Str), outputOf(t, s, b.Get("error_file_id").Str)
		for id, content := range map[string]string{"r0": "one", "r2": "two", "r3": "three"} {
			r := answers[id].Get("response")
			if r.Get("status_code").Int() != 200 || r.Get("request_id").Str != "up-"+content || r.Get("body.choices.0.message.content").Str != content ||
				r.Get("body.big").Raw != "12345678901234567890" || answers[id].Get("error").Raw != "null" {
				t.Errorf("%s: %s", id, answers[id].Raw)
			}
		}
		if e := errors["r1"]; len(answers) != 3 || len(errors) != 1 || e.Get("response.status_code").Int() != 400 || e.Get("response.body.error.code").Str != "content_policy_violation" || e.Get("error").Raw != "null" {
			t.Errorf("%d answers, %d errors: %v", len(answers), len(errors), errors)
		}
		var f fileObject
		_, body := asked(t, s, http.MethodGet, "/v1/files/"+b.Get("output_file_id").Str)
		if err := json.Unmarshal([]byte(body), &f); err != nil || f.Purpose != "batch_output" || f.Filename != b.Get("id").Str+"_output.jsonl" {
			t.Errorf("its file: %s", body)
		}
		resp, answer := servertest.Post(t, s, "/v1/batches/"+b.Get("id").Str+"/cancel", "")
		refusedWith(t, resp, answer, http.StatusConflict, "")
		if resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(answer, "Cannot cancel a batch with status 'completed'.") {
			t.Errorf("%v %s", resp.Header, answer)
		}
		for _, job := range callJobs(t, s) {
			if job.Queue != server.BatchesQueue || job.CorrelationID != b.Get("id").Str || job.Status != forebay.StatusSucceeded {
				t.Errorf("a line's job: %+v", job)
			}
		}
	})
}

// An input that is not valid ends the batch as failed, with the numbers of its lines, and no line
// runs.
func TestBatchesOfInvalidInputs(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, servertest.AnswerPlainly)
	s := startForwarding(t, u, func(o *server.Options) {
		o.OpenAI.MaxBatchLines, o.Limits.MaxInputBytes = 5, 2000
		o.Deployments = append(o.Deployments, server.Deployment{Name: "other", Provider: server.ProviderAnthropic, Model: "m", APIKey: "k", Endpoint: u.URL})
		o.Models = map[string]server.Model{"chat": server.InOrder("up"), "claude": server.InOrder("other")}
	})
	good := strings.TrimSuffix(servertest.BatchLines("hello"), "\n")
	other := func(id string, change ...string) string {
		return strings.NewReplacer(append(change, `"r0"`, `"`+id+`"`)...).Replace(good)
	}
	for name, c := range map[string]struct {
		lines string
		want  map[int64]string
	}{
		"nothing":      {"", map[int64]string{0: "empty_file"}},
		"blank lines":  {"\n\r\n \n", map[int64]string{0: "empty_file"}},
		"many":         {good + "\n\nnonsense\n" + good + "\n[1]\n\xff\xfe", map[int64]string{3: "invalid_json_line", 4: "duplicate_custom_id", 5: "invalid_json_line", 6: "invalid_json_line"}},
		"a BOM":        {"\xef\xbb\xbf" + good, map[int64]string{1: "invalid_json_line"}},
		"url":          {other("a", "/v1/chat/completions", "/v1/embeddings"), map[int64]string{1: "url_mismatch"}},
		"method":       {other("a", "POST", "GET"), map[int64]string{1: "invalid_request"}},
		"stream":       {other("a", `"model"`, `"stream":true,"model"`), map[int64]string{1: "invalid_request"}},
		"no model":     {other("a", `"model":"chat",`, ``), map[int64]string{1: "invalid_request"}},
		"no id":        {other(""), map[int64]string{1: "invalid_request"}},
		"models":       {good + "\n" + other("a", `"chat"`, `"claude"`), map[int64]string{2: "mismatched_model"}},
		"unknown":      {other("a", `"chat"`, `"none"`), map[int64]string{1: "model_not_found"}},
		"not OpenAI's": {other("a", `"chat"`, `"claude"`), map[int64]string{1: "invalid_request"}},
		"long":         {good + "\n" + other("a", "hello", strings.Repeat("x", 70_000)) + "\n" + other("b"), map[int64]string{2: "invalid_request"}},
		"too many":     {servertest.BatchLines("1", "2", "3", "4", "5", "6"), map[int64]string{0: "too_many_tasks"}},
	} {
		b := becomes(t, s, startBatch(t, s, c.lines).Get("id").Str, "failed")
		got := map[int64]string{}
		for _, e := range b.Get("errors.data").Array() {
			got[e.Get("line").Int()] = e.Get("code").Str
			if e.Get("message").Str == "" || e.Get("param").Raw != "null" {
				t.Errorf("%s: %s", name, e.Raw)
			}
		}
		if b.Get("errors.object").Str != "list" || !maps.Equal(got, c.want) || b.Get("failed_at").Int() == 0 || b.Get("request_counts.total").Int() != 0 {
			t.Errorf("%s: %s", name, b.Raw)
		}
	}
	if n := u.Calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	// The input is no longer in use, so its deletion frees it.
	if list := callJobs(t, s); len(list) != 0 {
		t.Errorf("jobs: %+v", list)
	}
}

// What can be known at once is refused at once.
func TestBatchesRefused(t *testing.T) {
	t.Parallel()
	one := int64(1)
	database := "sqlite:" + dbtest.SQLite(t)
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) {
		o.Database = database
		o.Tenants = map[string]server.Tenant{"few": {Limits: forebay.TenantLimits{Batches: &one}}}
	})
	auth := func(tenant string, more ...forebay.Scope) []string {
		return []string{"Authorization", "Bearer " + servertest.Key(t, database, tenant, append(more, forebay.ScopeSubmit, forebay.ScopeRead)...)}
	}
	acme, other, few := auth("acme"), auth("other"), auth("few")
	f := uploaded(t, s, acme, field{"file", servertest.BatchLines("x"), "f"}, field{"purpose", "batch", ""})
	vision := uploaded(t, s, acme, field{"file", "x", "f"}, field{"purpose", "vision", ""})
	good := map[string]any{"input_file_id": f.ID, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
	create := func(headers []string, change map[string]any) (*http.Response, string) {
		t.Helper()
		body := maps.Clone(good)
		maps.Copy(body, change)
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return servertest.Post(t, s, "/v1/batches", string(text), headers...)
	}
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint(i)] = "x"
	}
	for _, bad := range []struct {
		change map[string]any
		param  string
	}{
		{map[string]any{"input_file_id": nil}, "input_file_id"},
		{map[string]any{"input_file_id": "file-none"}, "input_file_id"},
		{map[string]any{"input_file_id": vision.ID}, "input_file_id"},
		{map[string]any{"input_file_id": 7}, "input_file_id"},
		{map[string]any{"endpoint": "/v1/images/generations"}, "endpoint"},
		{map[string]any{"endpoint": ""}, "endpoint"},
		{map[string]any{"completion_window": "1d"}, "completion_window"},
		{map[string]any{"completion_window": "0h"}, "completion_window"},
		{map[string]any{"metadata": many}, "metadata"},
		{map[string]any{"metadata": map[string]any{"a": 1}}, "metadata"},
		{map[string]any{"metadata": map[string]string{strings.Repeat("k", 65): ""}}, "metadata"},
		{map[string]any{"metadata": map[string]string{"k": strings.Repeat("v", 513)}}, "metadata"},
		{map[string]any{"output_expires_after": map[string]any{"anchor": "created_at", "seconds": 1}}, "output_expires_after[seconds]"},
	} {
		resp, body := create(acme, bad.change)
		if param := gjson.Get(body, "error.param").Str; resp.StatusCode != http.StatusBadRequest || !strings.HasPrefix(param, bad.param) {
			t.Errorf("%v: %d %s", bad.change, resp.StatusCode, body)
		}
	}
	if resp, body := create(other, nil); resp.StatusCode != http.StatusBadRequest || gjson.Get(body, "error.param").Str != "input_file_id" {
		t.Errorf("another tenant's file: %d %s", resp.StatusCode, body)
	}
	resp, body := create(acme, map[string]any{"endpoint": "/chat/completions", "output_expires_after": map[string]any{"anchor": "created_at", "seconds": 3600}})
	if resp.StatusCode != http.StatusOK || gjson.Get(body, "endpoint").Str != "/v1/chat/completions" {
		t.Fatalf("as Azure writes it: %d %s", resp.StatusCode, body)
	}
	id := gjson.Get(body, "id").Str
	for _, path := range []string{"", "/cancel"} {
		resp, body := asked(t, s, map[string]string{"": "GET", "/cancel": "POST"}[path], "/v1/batches/"+id+path, other...)
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "No such batch object") {
			t.Errorf("another tenant: %d %s", resp.StatusCode, body)
		}
	}
	if _, body := asked(t, s, http.MethodGet, "/v1/batches", other...); body != `{"object":"list","data":[],"has_more":false}`+"\n" {
		t.Errorf("another tenant's list: %s", body)
	}
	b := becomes(t, s, id, "completed", acme...)
	var output fileObject
	_, text := asked(t, s, http.MethodGet, "/v1/files/"+b.Get("output_file_id").Str, acme...)
	if err := json.Unmarshal([]byte(text), &output); err != nil || output.ExpiresAt == nil || *output.ExpiresAt != output.CreatedAt+3600 {
		t.Errorf("the output: %s", text)
	}

	// Repeats, and pages.
	again := append([]string{"X-Stainless-Retry-Count", "1"}, acme...)
	keyed := append([]string{"Idempotency-Key", "k"}, acme...)
	ids := []string{id}
	for i, headers := range [][]string{acme, again, keyed, keyed} {
		_, body := create(headers, nil)
		if made := gjson.Get(body, "id").Str; (i%2 == 1) != slices.Contains(ids, made) {
			t.Errorf("%d: %s", i, body)
		} else if i%2 == 0 {
			ids = append(ids, made)
		}
	}
	resp, body = create(keyed, map[string]any{"completion_window": "48h"})
	refusedWith(t, resp, body, http.StatusBadRequest, "idempotency_mismatch")
	var listed []string
	for after, more := "", true; more; after = listed[len(listed)-1] {
		_, page := asked(t, s, http.MethodGet, "/v1/batches?limit=2&after="+after, acme...)
		for _, b := range gjson.Get(page, "data").Array() {
			listed = append(listed, b.Get("id").Str)
		}
		more = gjson.Get(page, "has_more").Bool()
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	if !slices.Equal(listed, ids) {
		t.Errorf("listed %q of %q", listed, ids)
	}

	// One batch at a time is what this tenant may have.
	if resp, body := asked(t, s, http.MethodPost, "/v1/queues/batches/pause", auth("acme", forebay.ScopeAdmin)...); resp.StatusCode >= 300 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	first := startBatch(t, s, servertest.BatchLines("x"), few...)
	file := uploaded(t, s, few, field{"file", servertest.BatchLines("x"), "f"}, field{"purpose", "batch", ""})
	resp, body = create(few, map[string]any{"input_file_id": file.ID})
	refusedWith(t, resp, body, http.StatusTooManyRequests, "rate_limit_exceeded")
	if _, body := asked(t, s, http.MethodPost, "/v1/batches/"+first.Get("id").Str+"/cancel", few...); gjson.Get(body, "status").Str != "cancelling" {
		t.Errorf("cancelling: %s", body)
	}
	becomes(t, s, first.Get("id").Str, "cancelled", few...)
	servertest.Eventually(t, time.Minute, func() error {
		if resp, body := create(few, map[string]any{"input_file_id": file.ID}); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return nil
	})
}

// A cancelled batch keeps what was answered. Each other line is in the file of errors, whether it
// was a job or not.
func TestBatchIsCancelled(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		const lines = 1200 // more than become jobs at once
		hold := make(chan struct{})
		u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			if n > 20 {
				select {
				case <-hold:
				case <-r.Context().Done():
				}
			}
			servertest.AnswerPlainly(w, r, n)
		})
		defer close(hold)
		s := startForwarding(t, u, func(o *server.Options) {
			o.Database, o.Blob = database, t.TempDir()
			o.Queues = map[string]server.Queue{server.BatchesQueue: {Concurrency: 4}}
		})
		id := startBatch(t, s, servertest.BatchLines(make([]string, lines)...)).Get("id").Str
		servertest.Eventually(t, time.Minute, func() error {
			if n := u.Calls.Load(); n < 24 {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		for range 2 {
			resp, body := servertest.Post(t, s, "/v1/batches/"+id+"/cancel", "")
			if status := gjson.Get(body, "status").Str; resp.StatusCode != http.StatusOK || status != "cancelling" {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
		}
		servertest.Eventually(t, time.Minute, func() error { // lines that wait are cancelled at once
			var waiting forebay.Page[forebay.Job]
			if err := servertest.Over(t, s).Get(t.Context(), "/v1/jobs?status=queued&limit=1", &waiting); err != nil || len(waiting.Items) > 0 {
				return fmt.Errorf("%d jobs wait (%w)", len(waiting.Items), err)
			}
			return nil
		})
		for range 4 { // those that run may end
			hold <- struct{}{}
		}
		b := becomes(t, s, id, "cancelled")
		n := b.Get("request_counts")
		if n.Get("total").Int() != lines || n.Get("failed").Int() != 0 || n.Get("completed").Int() != 24 || b.Get("cancelled_at").Int() < b.Get("cancelling_at").Int() {
			t.Errorf("ended: %s", b.Raw)
		}
		answers, errors := outputOf(t, s, b.Get("output_file_id").Str), outputOf(t, s, b.Get("error_file_id").Str)
		if len(answers) != 24 || len(errors) != lines-24 {
			t.Errorf("%d answers, %d errors", len(answers), len(errors))
		}
		for id, e := range errors {
			if e.Get("error.code").Str != "batch_cancelled" || e.Get("response").Raw != "null" || answers[id].Exists() {
				t.Fatalf("%s: %s", id, e.Raw)
			}
		}
		if resp, body := servertest.Post(t, s, "/v1/batches/"+id+"/cancel", ""); resp.StatusCode != http.StatusOK || gjson.Get(body, "status").Str != "cancelled" {
			t.Errorf("again: %d %s", resp.StatusCode, body)
		}
	})
}

// Lines that fail for good are errors of a completed batch, and leave no dead letters. A line
// that meets a limit of its tenant waits.
func TestBatchOfFailingLines(t *testing.T) {
	t.Parallel()
	var u *servertest.Upstream
	u = servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) { answerByContent(w, r, []byte(u.Body())) })
	two := int64(2)
	s := startForwarding(t, u, func(o *server.Options) {
		o.Queues = map[string]server.Queue{server.BatchesQueue: {Concurrency: 1, Retry: server.Retry{Attempts: 1, Concurrency: 1}}}
		o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Limits: forebay.TenantLimits{WaitingJobs: &two}}}
	})
	id := startBatch(t, s, servertest.BatchLines("a", "break", "refuse", "b", "c", "d", "e")).Get("id").Str
	b := becomes(t, s, id, "completed")
	if n := b.Get("request_counts"); n.Get("completed").Int() != 5 || n.Get("failed").Int() != 2 {
		t.Errorf("ended: %s", b.Raw)
	}
	errors := outputOf(t, s, b.Get("error_file_id").Str)
	if e := errors["r1"]; e.Get("response.status_code").Int() != 500 || e.Get("response.body.error.message").Str == "" || e.Get("error").Raw != "null" {
		t.Errorf("%s", e.Raw)
	}
	var dead forebay.Page[forebay.SetAsideJob]
	if err := servertest.Over(t, s).Get(t.Context(), "/v1/queues/batches/dead-letters", &dead); err != nil || len(dead.Items) != 0 {
		t.Errorf("%d dead letters (%v)", len(dead.Items), err)
	}
}

// Lines of batches leave a deployment to others that wait for it.
func TestBatchYieldsToCalls(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		release, contents := make(chan struct{}), make(chan string, 100)
		u := servertest.StartUpstream(t, nil)
		u.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			contents <- gjson.GetBytes(body, "messages.0.content").Str
			select {
			case <-release:
			case <-r.Context().Done():
			}
			servertest.AnswerPlainly(w, r, 0)
		})
		s := startForwarding(t, u, func(o *server.Options) {
			o.Database, o.Blob = database, t.TempDir()
			o.Deployments[0].Concurrency = 1
		})
		id := startBatch(t, s, servertest.BatchLines("line", "line", "line")).Get("id").Str
		if first := <-contents; first != "line" {
			t.Fatalf("first came %s", first)
		}
		answered := make(chan int, 1)
		go func() {
			resp, err := http.Post("http://"+s.Addr(t.Context()).String()+"/v1/chat/completions", "application/json", strings.NewReader(hello))
			if err != nil {
				answered <- 0
				return
			}
			resp.Body.Close()
			answered <- resp.StatusCode
		}()
		servertest.Eventually(t, time.Minute, func() error { // until it was refused once
			var waiting forebay.Page[forebay.Job]
			err := servertest.Over(t, s).Get(t.Context(), "/v1/jobs?queue=calls&status=queued", &waiting)
			if err != nil || len(waiting.Items) == 0 || waiting.Items[0].WaitingFor == nil || *waiting.Items[0].WaitingFor != forebay.WaitConcurrency {
				return fmt.Errorf("%+v %w", waiting.Items, err)
			}
			return nil
		})
		release <- struct{}{}
		if second := <-contents; second != "hello" {
			t.Errorf("a %s went before the call", second)
		}
		close(release)
		if status := <-answered; status != http.StatusOK {
			t.Errorf("the call: %d", status)
		}
		if b := becomes(t, s, id, "completed"); b.Get("request_counts.completed").Int() != 3 {
			t.Errorf("ended: %s", b.Raw)
		}
	})
}
