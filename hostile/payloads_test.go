//go:build hostile

package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// One key has the server hold much of what is large.
var payloads = register(
	Attack{Name: "slow chunked uploads", Bytes: 1 << 20, Pace: 8, Window: 700 * time.Millisecond, Run: func(ctx context.Context, s *Scene) error {
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				for ctx.Err() == nil {
					s.answered(drip(ctx, s))
					pause(ctx, 20*time.Millisecond)
				}
			})
		}
		running.Wait()
		return nil
	}},
	Attack{Name: "unread answers", Floor: time.Second, Window: 700 * time.Millisecond, Target: TargetOptions{Model: largeAnswers}, Prepare: largePayloads, Run: func(ctx context.Context, s *Scene) error {
		paths := []string{s.Given["result"], s.Given["dead letter"], s.Given["messages"]}
		var opened sync.WaitGroup
		for i := range 120 {
			opened.Go(func() {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
				if err != nil {
					s.Done("error")
					return
				}
				context.AfterFunc(ctx, func() { conn.Close() })
				_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", paths[i%len(paths)], s.Keys.Attacker)
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
				first := make([]byte, len("HTTP/1.1 200"))
				if _, err := io.ReadFull(conn, first); err != nil {
					s.Done("no answer yet")
					return
				}
				s.Done(string(first[len(first)-3:]))
			})
		}
		opened.Wait()
		<-ctx.Done()
		return nil
	}},
	Attack{Name: "large documents by URL", Floor: time.Second, Window: 700 * time.Millisecond, Target: TargetOptions{Sources: true}, Prepare: func(t *Target) map[string]string {
		for i := range 20 {
			name := filepath.Join(t.Sources(), fmt.Sprintf("%d.txt", i))
			if err := os.WriteFile(name, fmt.Appendf(nil, "%d", i), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(name, 30<<20); err != nil { // zeros take no place on the disk
				t.Fatal(err)
			}
		}
		return map[string]string{"folder": "file://" + t.Sources()}
	}, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		s.Ready()
		s.Flood(ctx, 20, func(ctx context.Context, i int) Answer {
			return p.call(ctx, "POST", "/v1/documents", map[string]any{"id": unique("d"), "url": fmt.Sprintf("%s/%d.txt", s.Given["folder"], i%20)})
		})
		return nil
	}},
)

// drip uploads a document of unknown size, just fast enough not to be cut off.
func drip(ctx context.Context, s *Scene) Answer {
	r, w := io.Pipe()
	p := s.Attacker()
	p.HTTP = fresh
	req, err := p.request(ctx, "POST", "/v1/documents?id="+unique("slow"), "text/plain", r)
	if err != nil {
		return Answer{Err: err}
	}
	go func() {
		chunk := []byte(strings.Repeat("slowly ", 10<<10))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			s.Done("sent a part")
			pause(ctx, 900*time.Millisecond)
			if ctx.Err() != nil {
				w.CloseWithError(ctx.Err())
				return
			}
		}
	}()
	resp, err := p.client().Do(req)
	r.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return Answer{Err: err}
	}
	resp.Body.Close()
	return Answer{Status: resp.StatusCode}
}

const largeBytes = 9 << 20

// largeAnswers answers with 9 MiB where it is asked to, and refuses for good where it is asked to.
func largeAnswers(c modelsim.Call) modelsim.Reply {
	switch c.Marker {
	case "large":
		return modelsim.Reply{Text: strings.Repeat("answer. ", largeBytes/8)}
	case "refused":
		return modelsim.Reply{Status: http.StatusBadRequest, Code: "content_filter", Message: "no"}
	}
	return modelsim.Reply{Delay: 2 * time.Millisecond}
}

// largePayloads makes a result, a dead letter and a queue of messages, of 9 MiB each.
func largePayloads(t *Target) map[string]string {
	p := t.attacker()
	large := p.submit(t, forebay.SubmitRequest{Task: "chat", Input: text(modelsim.Marked("large", ""))})
	refused := p.submit(t, forebay.SubmitRequest{Task: "chat", Input: text(modelsim.Marked("refused", strings.Repeat("input. ", largeBytes/7)))})
	p.must(t, "PUT", "/v1/queues/large", struct{}{}, nil)
	for range 9 {
		p.must(t, "POST", "/v1/queues/large/messages", map[string]any{"body": strings.Repeat("m", 1000<<10)}, nil)
	}
	if job := p.ended(t, large.ID); job.Status != forebay.StatusSucceeded {
		t.Fatalf("the large job is %s: %+v", job.Status, job.Error)
	}
	if job := p.ended(t, refused.ID); job.Status != forebay.StatusFailed {
		t.Fatalf("the refused job is %s", job.Status)
	}
	return map[string]string{
		"result": "/v1/jobs/" + large.ID + "/result", "dead letter": "/v1/queues/default/dead-letters/" + refused.ID,
		"messages": "/v1/queues/large/messages?limit=100",
	}
}
