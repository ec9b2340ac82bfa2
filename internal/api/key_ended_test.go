package api_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// open begins a request that goes on until something happens, and returns a channel with what it
// was answered with in the end.
func (f *fixture) open(method, path string, body io.Reader, headers ...string) (begun <-chan struct{}, answer <-chan reply) {
	f.t.Helper()
	req := f.request(method, path, body, headers...)
	first, whole := make(chan struct{}), make(chan reply, 1)
	go func() {
		res, err := f.server.Client().Do(req)
		if err != nil {
			f.t.Error(err)
			close(first)
			return
		}
		defer res.Body.Close()
		close(first)
		// A stream that is cut off counts as ended.
		b, _ := io.ReadAll(bufio.NewReader(res.Body))
		whole <- reply{res, b}
	}()
	return first, whole
}

// endsSoon waits for an answer.
func endsSoon(t *testing.T, what string, answer <-chan reply) reply {
	t.Helper()
	select {
	case r := <-answer:
		return r
	case <-time.After(20 * time.Second): // without the mend a minute, or for ever
		t.Fatalf("%s went on after its key had ended", what)
		return reply{}
	}
}

// What was opened under a key ends when the key is revoked: streams, long polls, receives that
// wait, bulk submits. An expiry ends the same context: see Hold of package jobs.
func TestWhatIsOpenEndsWithItsKey(t *testing.T) {
	f := newFixture(t)
	key, err := f.keys.Create(t.Context(), "t", forebay.Scopes, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	f.key = key.Key
	job := f.submit(jobBody(`1`))
	f.putQueue(orders, "{}")

	lines, sent := io.Pipe()
	defer sent.Close()
	streaming, stream := f.open("GET", "/v1/jobs/"+job.ID+"/events", nil)
	submitting, bulk := f.open("POST", "/v1/jobs/bulk", lines, "Content-Type", "application/x-ndjson")
	_, poll := f.open("GET", "/v1/jobs/"+job.ID+"?wait=60s", nil)
	_, receive := f.open("POST", orders+"/messages/receive", strings.NewReader(`{"wait_seconds":60}`))
	if _, err := sent.Write([]byte(jobBody(`2`) + "\n")); err != nil {
		t.Fatal(err)
	}
	<-streaming
	<-submitting
	if _, err := f.keys.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if r := endsSoon(t, "the stream", stream); r.StatusCode != http.StatusOK {
		t.Errorf("the stream began with %d", r.StatusCode)
	}
	if r := endsSoon(t, "the bulk submit", bulk); !strings.Contains(string(r.body), `"line":2`) || !strings.Contains(string(r.body), string(forebay.CodeUnauthorized)) {
		t.Errorf("the bulk submit was answered with %s", r.body)
	}
	wantProblem(t, endsSoon(t, "the long poll", poll), http.StatusUnauthorized, forebay.CodeUnauthorized)
	wantProblem(t, endsSoon(t, "the receive", receive), http.StatusUnauthorized, forebay.CodeUnauthorized)
}
