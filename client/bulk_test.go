package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
)

// bulkServer answers bulk submits line by line, as a real one does.
type bulkServer struct {
	t  *testing.T
	mu sync.Mutex
	// jobs by idempotency key: a second submit of a key makes no second job.
	jobs  map[string]string
	calls atomic.Int32
	// answer may write something else for a line, or break off by panicking.
	answer func(call, line int, req forebay.SubmitRequest) *forebay.SubmitResult
}

func (s *bulkServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/jobs/bulk" || r.Header.Get("Content-Type") != ndjson {
		s.t.Errorf("%s with %v", r.URL, r.Header)
	}
	call := int(s.calls.Add(1))
	control := http.NewResponseController(w)
	control.EnableFullDuplex()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		result := forebay.SubmitResult{Line: n}
		var req forebay.SubmitRequest
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			result.Error = &forebay.Error{Code: forebay.CodeInvalidJSON, Field: "body", Message: "is not valid JSON"}
		} else if other := s.decide(call, n, req); other != nil {
			result = *other
		} else {
			result.Job, result.Existing = s.store(req)
		}
		json.NewEncoder(w).Encode(result)
		control.Flush()
	}
}

func (s *bulkServer) decide(call, line int, req forebay.SubmitRequest) *forebay.SubmitResult {
	if s.answer == nil {
		return nil
	}
	return s.answer(call, line, req)
}

func (s *bulkServer) store(req forebay.SubmitRequest) (*forebay.Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.IdempotencyKey == "" {
		s.t.Error("a line without an idempotency key")
	}
	id, existing := s.jobs[req.IdempotencyKey]
	if !existing {
		id = "job_" + req.Task
		s.jobs[req.IdempotencyKey] = id
	}
	return &forebay.Job{ID: id}, existing
}

func newBulk(t *testing.T, answer func(call, line int, req forebay.SubmitRequest) *forebay.SubmitResult) (*bulkServer, *Client) {
	s := &bulkServer{t: t, jobs: map[string]string{}, answer: answer}
	return s, serve(t, s.ServeHTTP)
}

func requests(n int) iter.Seq[forebay.SubmitRequest] {
	return func(yield func(forebay.SubmitRequest) bool) {
		for i := range n {
			if !yield(forebay.SubmitRequest{Task: fmt.Sprint(i + 1), Input: json.RawMessage(`"x"`)}) {
				return
			}
		}
	}
}

func TestBulkAnswersWhileItSends(t *testing.T) {
	_, c := newBulk(t, nil)
	answered := make(chan struct{})
	// Each request is only made when the one before has its result.
	drawn := func(yield func(forebay.SubmitRequest) bool) {
		for i := range 50 {
			if i > 0 {
				<-answered
			}
			if !yield(forebay.SubmitRequest{Task: fmt.Sprint(i + 1)}) {
				return
			}
		}
	}
	n := 0
	for result, err := range c.SubmitBulk(t.Context(), drawn) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; result.Line != n || result.Job.ID != fmt.Sprintf("job_%d", n) {
			t.Errorf("result %d is %+v", n, result)
		}
		if n < 50 {
			answered <- struct{}{}
		}
	}
	if n != 50 {
		t.Errorf("%d results", n)
	}
}

func TestBulkGoesOnAfterABrokenConnection(t *testing.T) {
	const jobs = 3000
	s, c := newBulk(t, func(call, line int, _ forebay.SubmitRequest) *forebay.SubmitResult {
		if call < 4 && line == 700 {
			panic(http.ErrAbortHandler)
		}
		return nil
	})
	seen := map[int]bool{}
	for result, err := range c.SubmitBulk(t.Context(), requests(jobs)) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[result.Line] || result.Job == nil || result.Job.ID != fmt.Sprintf("job_%d", result.Line) {
			t.Fatalf("result %+v, seen before: %t", result, seen[result.Line])
		}
		seen[result.Line] = true
	}
	if len(seen) != jobs || len(s.jobs) != jobs {
		t.Errorf("%d results and %d jobs, want %d", len(seen), len(s.jobs), jobs)
	}
	if s.calls.Load() != 4 {
		t.Errorf("%d connections, want 4", s.calls.Load())
	}
}

func TestBulkSendsAgainWhatTheServerWasTooBusyFor(t *testing.T) {
	s, c := newBulk(t, func(call, line int, _ forebay.SubmitRequest) *forebay.SubmitResult {
		if call == 1 && line == 2 {
			return &forebay.SubmitResult{Line: 2, Error: &forebay.Error{Code: forebay.CodeTooManyRequests, Message: "busy"}}
		}
		return nil
	})
	var order []int
	for result, err := range c.SubmitBulk(t.Context(), requests(4)) {
		if err != nil || result.Error != nil {
			t.Fatal(err, result.Error)
		}
		order = append(order, result.Line)
	}
	if fmt.Sprint(order) != "[1 3 4 2]" || len(s.jobs) != 4 {
		t.Errorf("results in order %v, %d jobs", order, len(s.jobs))
	}
}

func TestBulkLineErrors(t *testing.T) {
	_, c := newBulk(t, func(_, line int, _ forebay.SubmitRequest) *forebay.SubmitResult {
		if line == 2 {
			return &forebay.SubmitResult{Line: 2, Error: &forebay.Error{Code: forebay.CodeUnknownTask, Message: "unknown"}}
		}
		return nil
	})
	mixed := func(yield func(forebay.SubmitRequest) bool) {
		_ = yield(forebay.SubmitRequest{Task: "1"}) && yield(forebay.SubmitRequest{Task: "2"}) &&
			yield(forebay.SubmitRequest{Task: "3", Input: json.RawMessage(`{"broken`)}) && yield(forebay.SubmitRequest{Task: "4"})
	}
	var codes []string
	for result, err := range c.SubmitBulk(t.Context(), mixed) {
		if err != nil {
			t.Fatal(err)
		}
		if result.Error != nil {
			codes = append(codes, fmt.Sprintf("%d %s", result.Line, result.Error.Code))
		}
	}
	if fmt.Sprint(codes) != "[2 unknown_task 3 invalid_json]" {
		t.Errorf("errors are %v", codes)
	}
}

func TestBulkIsRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answerProblem(w, http.StatusUnauthorized, forebay.CodeUnauthorized, "", "no key")
	})
	n := 0
	for _, err := range c.SubmitBulk(t.Context(), requests(10)) {
		if n++; forebay.CodeOf(err) != forebay.CodeUnauthorized {
			t.Errorf("error is %v", err)
		}
	}
	if n != 1 {
		t.Errorf("yielded %d times, want one error", n)
	}
}

func TestBulkStops(t *testing.T) {
	t.Run("by the caller", func(t *testing.T) {
		_, c := newBulk(t, nil)
		drawn := 0
		endless := func(yield func(forebay.SubmitRequest) bool) {
			for yield(forebay.SubmitRequest{Task: "x"}) {
				drawn++
			}
		}
		for range c.SubmitBulk(t.Context(), endless) {
			break
		}
		if drawn > 2*bulkWindow {
			t.Errorf("drew %d requests before one result was read", drawn)
		}
	})
	t.Run("by the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, c := newBulk(t, nil)
		drawn := func(yield func(forebay.SubmitRequest) bool) {
			yield(forebay.SubmitRequest{Task: "x"})
			<-ctx.Done()
		}
		var last error
		for _, err := range c.SubmitBulk(ctx, drawn) {
			last = err
			cancel()
		}
		if last != nil && !errors.Is(last, context.Canceled) {
			t.Errorf("error is %v", last)
		}
	})
	t.Run("without requests", func(t *testing.T) {
		_, c := newBulk(t, nil)
		for result, err := range c.SubmitBulk(t.Context(), requests(0)) {
			t.Errorf("got %v, %v", result, err)
		}
	})
}
