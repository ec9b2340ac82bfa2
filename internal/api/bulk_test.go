package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func results(t *testing.T, body []byte) []forebay.SubmitResult {
	t.Helper()
	var all []forebay.SubmitResult
	d := json.NewDecoder(bytes.NewReader(body))
	for d.More() {
		var r forebay.SubmitResult
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		all = append(all, r)
	}
	return all
}

func TestBulkBrokenLines(t *testing.T) {
	f := newFixture(t)
	lines := []struct {
		line string
		code forebay.Code // "": a job; "-": no answer
	}{
		{`{"task":"echo","input":1,"idempotency_key":"k"}`, ""},
		{``, "-"},
		{"  \t\r", "-"},
		{`{"task":"echo","input":`, forebay.CodeInvalidJSON},
		{"{\"task\":\"echo\",\"input\":\"\xff\"}", forebay.CodeInvalidJSON},
		{`{"task":"none","input":1}`, forebay.CodeUnknownTask},
		{`{"task":"echo","input":1,"prio":1}`, forebay.CodeUnknownField},
		{`{"task":"echo","input":"` + strings.Repeat("x", 100<<10) + `"}` + "\r", ""},
		{`{"task":"echo","input":"` + strings.Repeat("x", maxInput) + `"}`, forebay.CodePayloadTooLarge},
		{`{"task":"echo","input":"` + strings.Repeat("x", 3*maxInput) + `"}`, forebay.CodePayloadTooLarge},
		{`[]`, forebay.CodeInvalidRequest},
		{strings.Repeat("[", 1000), forebay.CodeInvalidJSON},
		{`{"task":"echo","input":1,"idempotency_key":"k"}`, ""},
		{`{"task":"echo","input":2,"idempotency_key":"k"}`, forebay.CodeIdempotencyMismatch},
		{`{"task":"echo","input":3}`, ""}, // without a newline at the end
	}
	var body []string
	for _, l := range lines {
		body = append(body, l.line)
	}
	r := f.do("POST", "/v1/jobs/bulk", strings.Join(body, "\n"), "Content-Type", "application/x-ndjson")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("status %d %v", r.StatusCode, r.Header)
	}
	got := results(t, r.body)
	for i, l := range lines {
		if l.code == "-" {
			continue
		}
		if len(got) == 0 {
			t.Fatalf("no answer to line %d", i+1)
		}
		result := got[0]
		got = got[1:]
		switch {
		case result.Line != i+1:
			t.Fatalf("answer to line %d where line %d was due", result.Line, i+1)
		case l.code == "" && (result.Job == nil || result.Error != nil):
			t.Errorf("line %d: %+v", i+1, result.Error)
		case l.code != "" && (result.Error == nil || result.Error.Code != l.code || result.Job != nil):
			t.Errorf("line %d: %+v, want %s", i+1, result.Error, l.code)
		}
		if i == 12 && !result.Existing {
			t.Error("a repeated key made another job")
		}
	}
	if len(got) != 0 {
		t.Errorf("%d answers too many", len(got))
	}
	if page := into[forebay.Page[forebay.Job]](t, f.do("GET", "/v1/jobs", ""), http.StatusOK); len(page.Items) != 3 {
		t.Errorf("%d jobs, want 3", len(page.Items))
	}
}

// Each line is answered while the request's body is still open.
func TestBulkStreams(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) { testBulkStreams(t, newFixture(t), 1) })
	t.Run("HTTP/2", func(t *testing.T) {
		f := newFixture(t)
		plain := f.server
		f.server = httptest.NewUnstartedServer(nil)
		f.server.Config = f.api.Server(t.Context())
		f.server.EnableHTTP2 = true
		f.server.TLS = f.server.Config.TLSConfig
		f.server.StartTLS()
		t.Cleanup(f.server.Close)
		testBulkStreams(t, f, 2)
		f.server = plain
	})
}

func testBulkStreams(t *testing.T, f *fixture, version int) {
	r, w := io.Pipe()
	answered := make(chan *http.Response, 1)
	go func() {
		res, err := f.server.Client().Do(f.request("POST", "/v1/jobs/bulk", r))
		if err != nil {
			t.Error(err)
		}
		answered <- res
	}()
	var lines *bufio.Scanner
	for i := 1; i <= 3; i++ {
		if _, err := fmt.Fprintf(w, "%s\n", jobBody(`1`)); err != nil {
			t.Fatal(err)
		}
		if lines == nil {
			res := <-answered
			if res == nil {
				t.FailNow()
			}
			defer res.Body.Close()
			if res.ProtoMajor != version {
				t.Errorf("over %s", res.Proto)
			}
			lines = bufio.NewScanner(res.Body)
		}
		if !lines.Scan() {
			t.Fatalf("no answer to line %d: %v", i, lines.Err())
		}
		if got := results(t, lines.Bytes()); got[0].Line != i || got[0].Job == nil {
			t.Errorf("line %d: %s", i, lines.Text())
		}
	}
	w.Close()
	if lines.Scan() {
		t.Errorf("another answer: %s", lines.Text())
	}
}

func TestBulkMany(t *testing.T) {
	f := newFixture(t)
	const n = 2000
	r := f.do("POST", "/v1/jobs/bulk", strings.Repeat(jobBody(`1`)+"\n", n))
	ids := map[string]bool{}
	for i, result := range results(t, r.body) {
		if result.Line != i+1 || result.Job == nil {
			t.Fatalf("answer %d: %+v", i+1, result)
		}
		ids[result.Job.ID] = true
	}
	if len(ids) != n {
		t.Errorf("%d jobs, want %d", len(ids), n)
	}
	if r = f.do("POST", "/v1/jobs/bulk", ""); r.StatusCode != 200 || len(r.body) != 0 {
		t.Errorf("an empty body was answered with %d %q", r.StatusCode, r.body)
	}
}

func TestBulkLineLimit(t *testing.T) {
	f := newFixture(t)
	r := f.do("POST", "/v1/jobs/bulk", strings.Repeat("\n", forebay.MaxBulkLines-1)+jobBody(`1`)+"\n")
	if got := results(t, r.body); len(got) != 1 || got[0].Line != forebay.MaxBulkLines || got[0].Job == nil {
		t.Errorf("at the limit: %s", r.body)
	}
	r = f.do("POST", "/v1/jobs/bulk", strings.Repeat("\n", forebay.MaxBulkLines)+jobBody(`1`)+"\n")
	if got := results(t, r.body); len(got) != 1 || got[0].Line != forebay.MaxBulkLines+1 || got[0].Error == nil {
		t.Errorf("over the limit: %s", r.body)
	}
}

// A client that breaks off keeps what was acknowledged, and half a line is not submitted even when
// it happens to be JSON.
func TestBulkDisconnect(t *testing.T) {
	f := newFixture(t)
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first, second := jobBody(`"first"`)+"\n", jobBody(`"second"`)
	fmt.Fprintf(conn, "POST /v1/jobs/bulk HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(first), first)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(res.Body).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := results(t, line)[0].Job
	fmt.Fprintf(conn, "%x\r\n%s\r\n", len(second), second)
	conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.server.Config.Shutdown(ctx); err != nil {
		t.Fatalf("the broken request did not end: %v", err)
	}
	page, err := f.service.List(t.Context(), forebay.DefaultTenant, forebay.JobFilter{})
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != acknowledged.ID {
		t.Errorf("stored %+v, %v; want only %s", page.Items, err, acknowledged.ID)
	}
}

func TestBulkEndsWithTheServer(t *testing.T) {
	f := newFixture(t)
	r, w := io.Pipe()
	defer w.Close()
	answered := make(chan *http.Response, 1)
	go func() {
		res, _ := f.server.Client().Do(f.request("POST", "/v1/jobs/bulk", r))
		answered <- res
	}()
	fmt.Fprintf(w, "%s\n", jobBody(`1`))
	res := <-answered
	if res == nil {
		t.Fatal("no answer")
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Scan()
	f.api.Drain()
	if !lines.Scan() {
		t.Fatalf("the stream just broke: %v", lines.Err())
	}
	if got := results(t, lines.Bytes())[0]; got.Line != 2 || got.Error == nil || got.Error.Code != forebay.CodeUnavailable {
		t.Errorf("got %s", lines.Text())
	}
}
