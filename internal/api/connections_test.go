package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
)

// newBounded is a fixture with so many connections at most, and a key of the tenant acme.
func newBounded(t *testing.T, connections int) *fixture {
	f := newFixture(t, func(o *api.Options) { o.Connections = connections })
	f.key = f.newKey("acme", forebay.ScopeSubmit, forebay.ScopeRead)
	// Another server, whose listener keeps to the limit.
	f.server.Close()
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = f.api.Server(context.Background())
	f.server.Listener = f.api.Listener(f.server.Listener, false)
	f.server.Start()
	t.Cleanup(f.server.Close)
	return f
}

// raw sends the text over a connection of its own.
func (f *fixture) raw(text string) net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	return c
}

const patience = 30 * time.Second

// answerOf reads one answer and waits until the server closes the connection. It returns the
// status.
func answerOf(t *testing.T, c net.Conn) int {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	if !res.Close {
		t.Error("the answer does not say that the connection is closed")
	}
	if _, err := in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the connection stays open: %v", err)
	}
	return res.StatusCode
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// An answer does not wait for a body that it does not need, and neither does the connection.
func TestAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	f := newBounded(t, 100)
	for _, c := range []struct {
		name, head string
		status     int
	}{
		{"no key", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 401},
		{"no key, chunked", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\nabc", 401},
		{"no such address", "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc", 404},
		{"no such method", "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 405},
		{"much announced", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", 401},
		{"bad path", "POST /%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 404},
		{"wrong type", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nContent-Type: a/b\r\nContent-Length: 1000\r\n\r\n", 415},
		{"a read with a body", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if status := answerOf(t, f.raw(c.head)); status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
		})
	}
}

// A body that was read leaves the connection open.
func TestConnectionIsKept(t *testing.T) {
	f := newBounded(t, 100)
	c := f.raw("")
	in := bufio.NewReader(c)
	c.SetReadDeadline(time.Now().Add(patience))
	body := jobBody(`1`)
	for range 2 {
		fmt.Fprintf(c, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", f.key, len(body), body)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusAccepted || res.Close {
			t.Errorf("status %d, close %t", res.StatusCode, res.Close)
		}
	}
}

// Strangers, however many connections they hold open, keep nobody with a key out: the oldest of
// theirs are closed.
func TestStrangersKeepNobodyOut(t *testing.T) {
	f := newBounded(t, 16)
	var strangers []net.Conn
	for i := range 60 {
		text := "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
		if i%2 == 0 {
			text = "GET /hea" // never ends its header
		}
		strangers = append(strangers, f.raw(text))
		if i%10 == 0 {
			f.server.Client().CloseIdleConnections()
			f.submit(jobBody(`1`))
		}
	}
	strangers[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := strangers[0].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the oldest connection is still open: %v", err)
	}
}

// A connection that no place can be made for is answered all the same.
func TestFullServerSaysSo(t *testing.T) {
	f := newBounded(t, 1)
	job := f.submit(jobBody(`1`))
	f.server.Client().CloseIdleConnections()
	// The server may take a moment to notice that there is a place again.
	for end := time.Now().Add(patience); ; {
		first := f.raw("GET " + job.Links.Events + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\n\r\n")
		first.SetReadDeadline(end)
		status, err := bufio.NewReader(first).ReadString('\n')
		if err == nil && strings.HasPrefix(status, "HTTP/1.1 200") {
			break // it is followed for as long as the job waits
		}
		first.Close()
		if time.Now().After(end) {
			t.Fatalf("%q, %v", status, err)
		}
	}
	if status := answerOf(t, f.raw("")); status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
}

// A stop waits neither for bodies that do not come nor for answers that nobody reads.
func TestStopDoesNotWaitForSlowClients(t *testing.T) {
	t.Parallel()
	f := newBounded(t, 100)
	for range 5 {
		f.raw("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nContent-Length: 100000\r\n\r\nabc")
		f.raw("POST /v1/jobs/bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.key + "\r\nContent-Length: 100000\r\n\r\n{")
		f.raw("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
	}
	f.submit(jobBody(`1`)) // they were accepted before
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.server.Config.Shutdown(ctx); err != nil {
		t.Errorf("the stop was held up: %v", err)
	}
}

// A stop ends connections that have sent nothing. net/http alone gives each five seconds for its
// first request.
func TestStopDoesNotWaitForSilentClients(t *testing.T) {
	t.Parallel()
	f := newBounded(t, 100)
	for range 5 {
		f.raw("")
		f.raw("POST /v1/jobs HTTP/1.1\r\nHost: x\r\n")
	}
	f.submit(jobBody(`1`)) // they were accepted before
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := f.server.Config.Shutdown(ctx); err != nil {
		t.Errorf("the stop was held up: %v", err)
	}
}

// Streams of HTTP/2 whose bodies do not come end as well, and so do those that are over at once.
func TestHTTP2Bodies(t *testing.T) {
	f := newFixture(t, func(o *api.Options) { o.Connections = 100 })
	f.key = f.newKey("acme", forebay.ScopeSubmit)
	f.server.Close()
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = f.api.Server(context.Background())
	f.server.EnableHTTP2 = true
	f.server.TLS = &tls.Config{NextProtos: []string{"h2"}}
	f.server.Listener = f.api.Listener(f.server.Listener, true)
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	r, w := io.Pipe()
	defer w.Close()
	req := f.request("POST", "/v1/jobs", r)
	req.Header.Del("Authorization")
	res, err := f.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("HTTP/%d, status %d", res.ProtoMajor, res.StatusCode)
	}
	f.submit(jobBody(`1`))
}
