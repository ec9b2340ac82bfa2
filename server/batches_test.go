package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/server"
)

// batchLines are lines of chat completions, whose contents are these.
func batchLines(contents ...string) string {
	var b strings.Builder
	for i, content := range contents {
		fmt.Fprintf(&b, `{"custom_id":"r%d","method":"POST","url":"/v1/chat/completions","body":{"model":"chat","messages":[{"role":"user","content":%q}]}}`+"\n", i, content)
	}
	return b.String()
}

// startBatch uploads lines and makes a batch of them.
func startBatch(t *testing.T, s *server.Server, lines string, headers ...string) gjson.Result {
	t.Helper()
	f := uploaded(t, s, headers, field{"file", lines, "lines.jsonl"}, field{"purpose", "batch", ""})
	resp, body := post(t, s, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"b"}}`, f.ID), headers...)
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
	eventually(t, 2*time.Minute, func() error {
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

// onDatabases runs a test on SQLite and on PostgreSQL.
func onDatabases(t *testing.T, test func(t *testing.T, database string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db")) })
	t.Run("postgresql", func(t *testing.T) { test(t, pgtest.Database(t)) })
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
		_, _ = io.WriteString(w, strings.Replace(plainAnswer, `h\u00ef`, content, 1))
	}
}

// A batch is answered line by line: answers in one file, errors in the other, in their order.
func TestBatch(t *testing.T) {
	onDatabases(t, func(t *testing.T, database string) {
		var u *upstream
		u = startUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) { answerByContent(w, r, []byte(u.body())) })
		s := startForwarding(t, u, func(o *server.Options) {
			o.Database, o.Blob = database, t.TempDir()
			o.Queues = map[string]server.Queue{server.BatchesQueue: {Concurrency: 1, Retry: server.Retry{Attempts: 2, First: time.Millisecond, Max: time.Millisecond, Budget: 0.9, Concurrency: 1}}}
		})
		b := startBatch(t, s, batchLines("one", "refuse", "two")+"\r\n"+strings.TrimSuffix(batchLines("", "", "", "three"), "\n")[strings.LastIndex(strings.TrimSuffix(batchLines("", "", "", "three"), "\n"), "\n")+1:])
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
		resp, answer := post(t, s, "/v1/batches/"+b.Get("id").Str+"/cancel", "")
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

var _ = context.Background
var _ = slices.Contains[[]string]
var _ sync.Mutex
