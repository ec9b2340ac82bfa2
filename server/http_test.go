package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// remote is a server as an HTTP client sees it.
type remote struct{ url string }

// over returns the HTTP client's view of a server in this process.
func over(t testing.TB, s *server.Server) remote {
	t.Helper()
	return remote{"http://" + s.Addr(t.Context()).String()}
}

// problem is the body of an error.
type problem struct {
	Status int          `json:"status"`
	Code   forebay.Code `json:"code"`
	Detail string       `json:"detail"`
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// do sends a request and decodes the answer into out. The error is a *problem when the server
// answered with one, and the transport's otherwise.
func (r remote) do(ctx context.Context, method, path string, header map[string]string, body, out any) (http.Header, error) {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, reader)
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
		p := &problem{Status: resp.StatusCode}
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

func (r remote) get(ctx context.Context, path string, out any) error {
	_, err := r.do(ctx, http.MethodGet, path, nil, nil, out)
	return err
}

func (r remote) submit(ctx context.Context, key string, req map[string]any) (job forebay.Job, replayed bool, err error) {
	header := map[string]string{}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	h, err := r.do(ctx, http.MethodPost, "/v1/jobs", header, req, &job)
	return job, h.Get("Idempotency-Replayed") == "true", err
}

// submitMany submits one request so many times at once, and returns the jobs' IDs.
func (r remote) submitMany(t *testing.T, n int, req map[string]any) (ids []string) {
	t.Helper()
	line, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{BaseURL: r.url})
	if err != nil {
		t.Fatal(err)
	}
	var one forebay.SubmitRequest
	if err := json.Unmarshal(line, &one); err != nil {
		t.Fatal(err)
	}
	for result, err := range c.SubmitBulk(t.Context(), slices.Values(slices.Repeat([]forebay.SubmitRequest{one}, n))) {
		if err != nil || result.Error != nil {
			t.Fatal(err, result.Error)
		}
		ids = append(ids, result.Job.ID)
	}
	return ids
}

func (r remote) job(ctx context.Context, id string) (job forebay.Job, err error) {
	return job, r.get(ctx, "/v1/jobs/"+id, &job)
}

// await long-polls until the job is terminal.
func (r remote) await(ctx context.Context, id string) (job forebay.Job, err error) {
	for {
		if err = r.get(ctx, "/v1/jobs/"+id+"?wait=30s", &job); err != nil || job.Status.Terminal() {
			return job, err
		}
	}
}

func (r remote) attempts(ctx context.Context, id string) ([]forebay.Attempt, error) {
	var page forebay.Page[forebay.Attempt]
	err := r.get(ctx, "/v1/jobs/"+id+"/attempts", &page)
	return page.Items, err
}

// events reads a terminal job's whole event stream.
func (r remote) events(ctx context.Context, id string) (events []forebay.Event, err error) {
	return events, r.follow(ctx, id, 0, func(e forebay.Event) { events = append(events, e) })
}

// follow hands each event numbered above after to f, until the stream ends.
func (r remote) follow(ctx context.Context, id string, after int64, f func(forebay.Event)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/jobs/"+id+"/events", nil)
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

func (r remote) queue(ctx context.Context) (q forebay.QueueInfo, err error) {
	return q, r.get(ctx, "/v1/queues/"+forebay.DefaultQueue, &q)
}

// list reads all pages of the job list.
func (r remote) list(ctx context.Context) (all []forebay.Job, err error) {
	for cursor := ""; ; {
		var page forebay.Page[forebay.Job]
		if err := r.get(ctx, "/v1/jobs?limit=500&cursor="+cursor, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
}

// chat is a request for one chat with that prompt.
func chat(prompt string) map[string]any { return map[string]any{"task": "chat", "input": prompt} }

// outcomes returns how the attempts ended, in order.
func outcomes(attempts []forebay.Attempt) []forebay.Outcome {
	list := make([]forebay.Outcome, len(attempts))
	for i, a := range attempts {
		list[i] = a.Outcome
	}
	return list
}

// eventually calls f, at most every 10 ms, until it returns nil or limit has passed. Then it calls
// f once more, because the test itself may have been suspended.
func eventually(t testing.TB, limit time.Duration, f func() error) {
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

var errNotYet = errors.New("not yet")
