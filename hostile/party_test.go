//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// Party is somebody who sends requests to a server; Key is "" for those who have none.
type Party struct {
	URL, Key string
	// HTTP is nil for a client that opens a connection for each request.
	HTTP *http.Client
}

// fresh opens a connection for each request, as clients behind many gateways do.
var fresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// Answer is what a request got. Status is 0 where no answer came.
type Answer struct {
	Status int
	Body   []byte
	Err    error
}

func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %.300s", a.Status, a.Body)
}

// request makes a request of this party's.
func (p Party) request(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, body)
	if err != nil {
		return nil, err
	}
	if p.Key != "" {
		r.Header.Set("Authorization", "Bearer "+p.Key)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r, nil
}

func (p Party) client() *http.Client {
	if p.HTTP != nil {
		return p.HTTP
	}
	return fresh
}

// send sends a body of any type.
func (p Party) send(ctx context.Context, method, path, contentType string, body []byte) Answer {
	r, err := p.request(ctx, method, path, contentType, bytes.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	resp, err := p.client().Do(r)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, got, err}
}

// call sends JSON, or no body for nil.
func (p Party) call(ctx context.Context, method, path string, body any) Answer {
	if body == nil {
		return p.send(ctx, method, path, "", nil)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return Answer{Err: err}
	}
	return p.send(ctx, method, path, "application/json", data)
}

// must is call for what has to work: with one of 200 to 299. It fills out, unless that is nil.
func (p Party) must(t testing.TB, method, path string, body, out any) {
	t.Helper()
	var got Answer
	within(t.Context(), patience, func() bool {
		got = p.call(t.Context(), method, path, body)
		return got.Status != http.StatusTooManyRequests // a limit of this party's own
	})
	if got.Err != nil || got.Status < 200 || got.Status > 299 {
		t.Fatalf("%s %s: %s", method, path, got)
	}
	if out != nil {
		if err := json.Unmarshal(got.Body, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, got)
		}
	}
}

// submit submits a job that has to be accepted.
func (p Party) submit(t testing.TB, req forebay.SubmitRequest) (job forebay.Job) {
	t.Helper()
	p.must(t, "POST", "/v1/jobs", req, &job)
	return job
}

// ended waits until a job has ended.
func (p Party) ended(t testing.TB, id string) (job forebay.Job) {
	t.Helper()
	if !within(t.Context(), patience, func() bool {
		p.must(t, "GET", "/v1/jobs/"+id+"?wait=10s", nil, &job)
		return job.Status.Terminal()
	}) {
		t.Fatalf("job %s is %s after %s", id, job.Status, patience)
	}
	return job
}

// bulk submits many jobs and returns how many were accepted.
func (p Party) bulk(ctx context.Context, lines []byte) (accepted int, err error) {
	var got Answer
	within(ctx, patience, func() bool {
		got = p.send(ctx, "POST", "/v1/jobs/bulk", "application/x-ndjson", lines)
		return got.Status != http.StatusTooManyRequests
	})
	if got.Err != nil || got.Status != http.StatusOK {
		return 0, fmt.Errorf("bulk submit: %s", got)
	}
	return bytes.Count(got.Body, []byte(`"status":"`)), nil
}

// bulkLines are requests, one a line.
func bulkLines(n int, req func(i int) map[string]any) []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for i := range n {
		_ = lines.Encode(req(i)) // cannot fail for these types
	}
	return b.Bytes()
}

// text is the input of a job.
func text(s string) json.RawMessage {
	quoted, _ := json.Marshal(s)
	return quoted
}

// unique is a name that nobody has used before.
func unique(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:10]) }

// later is far ahead.
func later() *time.Time {
	at := time.Now().Add(30 * 24 * time.Hour).UTC().Truncate(time.Second)
	return &at
}

// between is what stands between two strings; "" if they do not stand there.
func between(s, before, after string) string {
	_, rest, _ := strings.Cut(s, before)
	found, _, ok := strings.Cut(rest, after)
	if !ok {
		return ""
	}
	return found
}
