// Package servertest is what tests of a server share that are in several packages. It starts
// servers in processes of their own, speaks to a server by HTTP, and waits for what is to happen.
//
// A package whose tests launch processes calls Main in its TestMain. A process runs the test
// binary again, and Main makes it a server.
package servertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Remote is a server as an HTTP client sees it, at its base URL.
type Remote struct{ URL string }

// Problem is the body of an error.
type Problem struct {
	Status int          `json:"status"`
	Code   forebay.Code `json:"code"`
	Detail string       `json:"detail"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// Do sends a request and decodes the answer into out. The error is a *Problem when the server
// answered with one, and the transport's otherwise.
func (r Remote) Do(ctx context.Context, method, path string, header map[string]string, body, out any) (http.Header, error) {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		p := &Problem{Status: resp.StatusCode}
		if err := json.Unmarshal(b, p); err != nil {
			return nil, fmt.Errorf("status %d without a problem: %.200q", resp.StatusCode, b)
		}
		return nil, p
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return resp.Header, nil
	}
	return resp.Header, json.Unmarshal(b, out)
}

// Get is Do for a request that only reads.
func (r Remote) Get(ctx context.Context, path string, out any) error {
	_, err := r.Do(ctx, http.MethodGet, path, nil, nil, out)
	return err
}

// Submit submits a job, with an idempotency key unless that is "".
func (r Remote) Submit(ctx context.Context, key string, req map[string]any) (job forebay.Job, replayed bool, err error) {
	header := map[string]string{}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	h, err := r.Do(ctx, http.MethodPost, "/v1/jobs", header, req, &job)
	return job, h.Get("Idempotency-Replayed") == "true", err
}

// Job reads a job.
func (r Remote) Job(ctx context.Context, id string) (job forebay.Job, err error) {
	return job, r.Get(ctx, "/v1/jobs/"+id, &job)
}

// Await long-polls until the job is terminal.
func (r Remote) Await(ctx context.Context, id string) (job forebay.Job, err error) {
	for {
		if err = r.Get(ctx, "/v1/jobs/"+id+"?wait=30s", &job); err != nil || job.Status.Terminal() {
			return job, err
		}
	}
}

// Attempts reads the first page of a job's attempts.
func (r Remote) Attempts(ctx context.Context, id string) ([]forebay.Attempt, error) {
	var page forebay.Page[forebay.Attempt]
	err := r.Get(ctx, "/v1/jobs/"+id+"/attempts", &page)
	return page.Items, err
}

// Events reads a terminal job's whole event stream.
func (r Remote) Events(ctx context.Context, id string) (events []forebay.Event, err error) {
	return events, r.Follow(ctx, id, 0, func(e forebay.Event) { events = append(events, e) })
}

// Follow hands each event numbered above after to f, until the stream ends.
func (r Remote) Follow(ctx context.Context, id string, after int64, f func(forebay.Event)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/v1/jobs/"+id+"/events", nil)
	if err != nil {
		return err
	}
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("events: status %d", resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e forebay.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		f(e)
	}
	return lines.Err()
}

// Queue reads the state of the default queue.
func (r Remote) Queue(ctx context.Context) (q forebay.QueueInfo, err error) {
	return q, r.Get(ctx, "/v1/queues/"+forebay.DefaultQueue, &q)
}

// List reads all pages of the job list.
func (r Remote) List(ctx context.Context) (all []forebay.Job, err error) {
	for cursor := ""; ; {
		var page forebay.Page[forebay.Job]
		if err := r.Get(ctx, "/v1/jobs?limit=500&cursor="+cursor, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
}

// Chat is a request for one chat with that prompt.
func Chat(prompt string) map[string]any { return map[string]any{"task": "chat", "input": prompt} }

// Outcomes returns how the attempts ended, in order.
func Outcomes(attempts []forebay.Attempt) []forebay.Outcome {
	list := make([]forebay.Outcome, len(attempts))
	for i, a := range attempts {
		list[i] = a.Outcome
	}
	return list
}

// Eventually calls f, at most every 10 ms, until it returns nil or limit has passed. Then it calls
// f once more, because the test itself may have been suspended.
func Eventually(t testing.TB, limit time.Duration, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for over := false; ; over = sleep.For(ctx, 10*time.Millisecond) != nil {
		err := f()
		if err == nil {
			return
		}
		if over {
			t.Fatalf("not within %s: %s", limit, err)
		}
	}
}

// ErrNotYet is for conditions of Eventually with nothing more to say.
var ErrNotYet = errors.New("not yet")

// Send submits a chat whose calls are counted under the marker.
func (r Remote) Send(t *testing.T, marker string, fields ...map[string]any) forebay.Job {
	t.Helper()
	req := Chat(modelsim.Marked(marker, "say something"))
	for _, more := range fields {
		for name, value := range more {
			req[name] = value
		}
	}
	job, _, err := r.Submit(t.Context(), "", req)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// MustAwait waits until the job is terminal, and returns it with its attempts.
func (r Remote) MustAwait(t *testing.T, id string) (forebay.Job, []forebay.Attempt) {
	t.Helper()
	job, err := r.Await(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	attempts, err := r.Attempts(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return job, attempts
}

// SetAside lists what stands in a subqueue of the default queue, dead-letters or quarantine.
func (r Remote) SetAside(t *testing.T, subqueue string) []forebay.SetAsideJob {
	t.Helper()
	var page forebay.Page[forebay.SetAsideJob]
	if err := r.Get(t.Context(), "/v1/queues/default/"+subqueue, &page); err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// AwaitModel waits until what the model has seen is the wanted.
func AwaitModel(t *testing.T, model *modelsim.TestServer, wanted func(modelsim.Stats) bool) {
	t.Helper()
	if err := model.Await(t.Context(), wanted); err != nil {
		t.Fatalf("the model saw only %+v: %s", model.Stats(), err)
	}
}

// InFlight is a condition of AwaitModel: so many calls are under way.
func InFlight(n int) func(modelsim.Stats) bool {
	return func(s modelsim.Stats) bool { return s.InFlight == n }
}
