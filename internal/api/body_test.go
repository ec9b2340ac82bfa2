package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/transfer"
)

// slowClient is both ends of a connection whose client sends a part of its body after each pause.
// A read past the deadline fails as it does on a socket.
type slowClient struct {
	*httptest.ResponseRecorder
	deadline time.Time
	body     *bytes.Reader
	part     int
	pause    time.Duration
	arrived  int // of the part, not read yet
}

func (s *slowClient) SetReadDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *slowClient) Close() error                      { return nil }

func (s *slowClient) Read(p []byte) (int, error) {
	if s.arrived > 0 {
		n, err := s.body.Read(p[:min(len(p), s.arrived)])
		s.arrived -= n
		return n, err
	}
	arrives := time.Now().Add(s.pause)
	if !s.deadline.IsZero() && s.deadline.Before(arrives) {
		<-time.After(time.Until(s.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	<-time.After(s.pause)
	s.arrived = s.part
	return s.Read(p)
}

// However much a body announces, its time grows with what arrives only.
func TestBodiesKeepPace(t *testing.T) {
	const size = 900 << 10
	large := `{"task":"echo","input":"` + strings.Repeat("x", size) + `"}`
	for _, c := range []struct {
		name     string
		part     int
		pause    time.Duration
		accepted bool
		atMost   time.Duration // until it is refused
	}{
		{"just fast enough", 32 << 10, 500 * time.Millisecond, true, 0},
		{"in large parts", 512 << 10, 18 * time.Second, true, 0},
		{"nothing comes", 1, time.Hour, false, transfer.Timeout},
		{"trickling", 1 << 10, time.Second, false, 2 * transfer.Timeout},
		{"parts too far apart", 128 << 10, 31 * time.Second, false, transfer.Timeout},
		{"much at once, then nothing", 1, time.Hour, false, transfer.Timeout},
	} {
		for _, path := range []string{"/v1/jobs", "/v1/jobs/bulk"} {
			t.Run(c.name+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := New(Options{Jobs: instant{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20})
					client := &slowClient{ResponseRecorder: httptest.NewRecorder(), body: bytes.NewReader([]byte(large)), part: c.part, pause: c.pause}
					if strings.HasPrefix(c.name, "much at once") {
						client.arrived = 512 << 10
					}
					r := httptest.NewRequest("POST", path, client)
					r.ContentLength = int64(len(large))
					begun := time.Now()
					a.ServeHTTP(client, r)
					took := time.Since(begun)
					answer := client.Body.String()
					if accepted := strings.Contains(answer, "job_1"); accepted != c.accepted {
						t.Errorf("after %v: %.200s", took, answer)
					}
					if !c.accepted {
						if !strings.Contains(answer, "did not arrive in time") {
							t.Errorf("answered %.200s", answer)
						}
						if path == "/v1/jobs" && client.Code != http.StatusRequestTimeout {
							t.Errorf("status %d", client.Code)
						}
						// A bulk line may take minutes for each part until it is large.
						if path == "/v1/jobs" && took > c.atMost {
							t.Errorf("it was given %v", took)
						}
					}
					if held := a.memory.Held(); held != 0 {
						t.Errorf("%d bytes of memory were not given back", held)
					}
				})
			})
		}
	}
}

// A line that is too long holds no memory while it is skipped.
func TestSkippedLineHoldsNoMemory(t *testing.T) {
	a := New(Options{Jobs: instant{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20})
	r, w := io.Pipe()
	done := make(chan *httptest.ResponseRecorder)
	go func() {
		recorder := httptest.NewRecorder()
		a.ServeHTTP(recorder, httptest.NewRequest("POST", "/v1/jobs/bulk", r))
		done <- recorder
	}()
	// A pipe's write ends when all of it was read: by then the limit is passed.
	if _, err := w.Write(bytes.Repeat([]byte("x"), 3<<20)); err != nil {
		t.Fatal(err)
	}
	if held := a.memory.Held(); held > transfer.BytesAhead {
		t.Errorf("the line still holds memory: %d", held)
	}
	w.Close()
	if answer := <-done; answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), string(forebay.CodePayloadTooLarge)) {
		t.Errorf("answered %d %s", answer.Code, answer.Body)
	}
}

// A client that sends everything before it reads still reads why it was refused.
func TestTooLargeBodyIsReadToItsEnd(t *testing.T) {
	const size = 32 << 20
	s := httptest.NewServer(New(Options{Jobs: instant{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20}))
	t.Cleanup(s.Close)
	for name, framing := range map[string]string{"announced": "Content-Length: " + strconv.Itoa(size), "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n\r\n", framing)
			body := io.Writer(conn)
			if name == "chunked" {
				body = httputil.NewChunkedWriter(conn)
			}
			if _, err := body.Write(bytes.Repeat([]byte(" "), size)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		})
	}
}
