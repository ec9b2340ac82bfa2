package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// fakeServer takes bulk submits and finishes each job when it is first asked for.
type fakeServer struct {
	mu      sync.Mutex
	byKey   map[string]*forebay.Job
	byID    map[string]*forebay.Job
	asked   int
	onAsked func(n int)
	// outcome decides how the job of a request ends; nil: it succeeds.
	outcome func(forebay.SubmitRequest, *forebay.Job)
	large   map[string]string // results over the inline limit, by job
	http    *httptest.Server
}

func newFakeServer(t *testing.T) (*fakeServer, string) {
	s := &fakeServer{byKey: map[string]*forebay.Job{}, byID: map[string]*forebay.Job{}, large: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"items":[]}`)) })
	mux.HandleFunc("POST /v1/jobs/bulk", s.bulk)
	mux.HandleFunc("GET /v1/jobs/{id}", s.get)
	mux.HandleFunc("GET /v1/jobs/{id}/result", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Write([]byte(s.large[r.PathValue("id")]))
	})
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() { s.http.Close() })
	return s, s.http.URL
}

// restart waits for the requests under way and forgets how often it was asked.
func (s *fakeServer) restart() (url string) {
	s.http.Close()
	s.http = httptest.NewServer(s.http.Config.Handler)
	s.asked, s.onAsked = 0, nil
	return s.http.URL
}

func (s *fakeServer) bulk(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.EnableFullDuplex()
	lines := bufio.NewScanner(r.Body)
	for n := 1; lines.Scan(); n++ {
		var req forebay.SubmitRequest
		result := forebay.SubmitResult{Line: n}
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			panic(err)
		}
		if req.Task == "unknown" {
			result.Error = &forebay.Error{Code: forebay.CodeUnknownTask, Field: "task", Message: "there is none"}
		} else {
			result.Job, result.Existing = s.store(req)
		}
		json.NewEncoder(w).Encode(result)
		control.Flush()
	}
}

func (s *fakeServer) store(req forebay.SubmitRequest) (*forebay.Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job, ok := s.byKey[req.IdempotencyKey]; ok {
		return job, true
	}
	job := &forebay.Job{ID: fmt.Sprintf("job_%d", len(s.byID)+1), Status: forebay.StatusSucceeded, Result: req.Input, Metadata: req.Metadata}
	if s.outcome != nil {
		s.outcome(req, job)
	}
	s.byKey[req.IdempotencyKey], s.byID[job.ID] = job, job
	return job, false
}

func (s *fakeServer) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	job := s.byID[r.PathValue("id")]
	s.asked++
	n := s.asked
	s.mu.Unlock()
	if s.onAsked != nil {
		s.onAsked(n)
	}
	json.NewEncoder(w).Encode(job)
}

func batchFileOf(t *testing.T, jobs int) (file, out string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("\uFEFF")
	for i := range jobs {
		if i%10 == 3 {
			b.WriteString("\n") // blank lines count
		}
		fmt.Fprintf(&b, `{"input":"text %d"}`+"\r\n", i)
	}
	dir := t.TempDir()
	file, out = filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, out
}

// results reads an output file, which must hold no line twice.
func results(t *testing.T, out string) map[int]batchResult {
	t.Helper()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	byLine := map[int]batchResult{}
	for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line == "" {
			continue
		}
		var r batchResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, twice := byLine[r.Line]; twice {
			t.Errorf("line %d has two results", r.Line)
		}
		byLine[r.Line] = r
	}
	return byLine
}

func TestBatchIsTakenUpAgain(t *testing.T) {
	const jobs = 500
	file, out := batchFileOf(t, jobs)
	server, url := newFakeServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.onAsked = func(n int) {
		if n == 120 {
			cancel()
		}
	}
	args := []string{"batch", "run", file, "-o", out, "--task", "chat", "--waiters", "4"}
	got := commandLine{url: url}.run(ctx, args...)
	if got.code != command.ExitInterrupted || !strings.Contains(got.err, "of 500 done; run the same command again") {
		t.Fatalf("first run: %+v", got)
	}
	before := len(results(t, out))
	if before == 0 || before >= jobs {
		t.Fatalf("%d results after the interrupted run", before)
	}

	// A crash in the middle of a write leaves part of a line.
	f, err := os.OpenFile(out, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"line":499,"batch":"`)
	f.Close()

	url = server.restart()
	if got = (commandLine{url: url}).run(t.Context(), args...); got.code != command.ExitOK || got.err != "500 jobs: 500 succeeded, 0 did not\n" {
		t.Fatalf("second run: %+v", got)
	}
	all := results(t, out)
	if len(all) != jobs || len(server.byID) != jobs {
		t.Errorf("%d results of %d jobs, want %d of each", len(all), len(server.byID), jobs)
	}
	if server.asked > jobs-before {
		t.Errorf("asked for %d jobs in the second run; only %d had no result", server.asked, jobs-before)
	}
	// Line 1 has no blank one before it; the fourth text is the first that has.
	if string(all[1].Result) != `"text 0"` || string(all[5].Result) != `"text 3"` {
		t.Errorf("results are %s and %s", all[1].Result, all[5].Result)
	}

	url = server.restart()
	if got = (commandLine{url: url}).run(t.Context(), args...); got.code != command.ExitOK || server.asked != 0 {
		t.Errorf("a run with nothing to do: %+v, asked for %d jobs", got, server.asked)
	}
	if _, err := os.Stat(out + ".lock"); !os.IsNotExist(err) {
		t.Errorf("the lock file is left: %v", err)
	}
}

func TestBatchSaysWhatFailed(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	content := `{"task":"chat","input":"good"}
{"task":"chat","input":"bad","metadata":{"k":"v"}}
{"task":"unknown","input":"x"}
{"task":"chat","input":"large"}
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	server, url := newFakeServer(t)
	server.outcome = func(req forebay.SubmitRequest, job *forebay.Job) {
		switch string(req.Input) {
		case `"bad"`:
			job.Status, job.Result = forebay.StatusFailed, nil
			job.Error = &forebay.JobError{Class: forebay.ClassPermanent, Code: "content_filter", Message: "refused"}
		case `"large"`:
			job.Result = nil
			server.large[job.ID] = "{\n \"text\": \"long\"\n}"
		}
	}
	got := commandLine{url: url}.run(t.Context(), "batch", "run", file, "-o", out)
	if got.code != command.ExitFailed || got.err != "4 jobs: 2 succeeded, 2 did not\n" {
		t.Errorf("%+v", got)
	}
	all := results(t, out)
	if r := all[2]; r.Status != forebay.StatusFailed || r.Error.Code != "content_filter" || r.Metadata["k"] != "v" || r.ID == "" {
		t.Errorf("failed job: %+v", r)
	}
	if r := all[3]; r.Status != statusRejected || r.Error.Code != "unknown_task" || r.ID != "" {
		t.Errorf("rejected line: %+v", r)
	}
	if r := all[4]; string(r.Result) != `{"text":"long"}` {
		t.Errorf("large result: %s", r.Result)
	}
}

func TestBatchFileErrors(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	for content, want := range map[string]string{
		"":                                       "in.jsonl holds no jobs",
		"\n\n":                                   "in.jsonl holds no jobs",
		`{"task":"chat","input":"x"}` + "\n{":    "in.jsonl:2: is not valid JSON",
		`{"task":"chat","input":"x","prio":1}`:   `in.jsonl:1: is not a submit request: json: unknown field "prio"`,
		`{"input":"x"}`:                          "in.jsonl:1: names no task",
		`{"task":"chat"}`:                        "in.jsonl:1: has no input",
		`["chat"]`:                               "in.jsonl:1: is not a submit request",
		"{\"task\":\"chat\",\"input\":\"\xff\"}": "in.jsonl:1: is not valid UTF-8",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := commandLine{url: "http://127.0.0.1:1"}.run(t.Context(), "batch", "run", file, "-o", out)
		if got.code != command.ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%q: %+v, want %q", content, got, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: an output file was made", content)
		}
	}
}

func TestBatchWithoutAServer(t *testing.T) {
	file, out := batchFileOf(t, 3)
	got := commandLine{url: "http://127.0.0.1:1"}.run(t.Context(), "batch", "run", file, "-o", out, "--task", "chat")
	if got.code != command.ExitUnavailable || !strings.HasSuffix(got.err, "; 0 of 3 done; run the same command again to go on\n") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("an output file is left: %v", err)
	}
}

func TestBatchOutputOfAnotherFile(t *testing.T) {
	file, out := batchFileOf(t, 3)
	_, url := newFakeServer(t)
	if got := (commandLine{url: url}).run(t.Context(), "batch", "run", file, "-o", out, "--task", "chat"); got.code != command.ExitOK {
		t.Fatalf("%+v", got)
	}
	before, _ := os.ReadFile(out)
	got := commandLine{url: url}.run(t.Context(), "batch", "run", file, "-o", out, "--task", "embed")
	if got.code != command.ExitConflict || !strings.Contains(got.err, "out.jsonl:1: is the result of another batch file") {
		t.Errorf("another task: %+v", got)
	}
	after, _ := os.ReadFile(out)
	if string(before) != string(after) {
		t.Error("the foreign output was changed")
	}
	for _, text := range []string{"my notes\n", "my notes", `{"task":"chat","input":"x"}`} {
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (commandLine{url: url}).run(t.Context(), "batch", "run", file, "-o", out, "--task", "chat"); got.code != command.ExitConflict {
			t.Errorf("a file that is no output: %+v", got)
		}
		if left, _ := os.ReadFile(out); string(left) != text {
			t.Errorf("the file now holds %q", left)
		}
	}
}

// A crash leaves the beginning of a result, and a loss of power may leave zeros.
func TestBatchOutputThatWasCutOff(t *testing.T) {
	file, out := batchFileOf(t, 1)
	_, url := newFakeServer(t)
	for _, text := range []string{"", "{", `{"line":1,"batch":"a`, `{"li` + "\x00\x00", "\x00"} {
		if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (commandLine{url: url}).run(t.Context(), "batch", "run", file, "-o", out, "--task", "chat"); got.code != command.ExitOK {
			t.Errorf("after %q: %+v", text, got)
		}
	}
}
