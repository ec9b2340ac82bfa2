//go:build hostile

package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// One key sends whatever it may, as fast as it can.
var floods = register(
	Attack{Name: "flood of requests", Postgres: true, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		s.Flood(ctx, 16, func(ctx context.Context, i int) Answer {
			switch i % 4 {
			case 0:
				return p.call(ctx, "GET", "/v1/jobs?limit=500", nil)
			case 1:
				return p.send(ctx, "POST", "/v1/jobs", "application/json", []byte(`{"task":"chat","input":`+strings.Repeat("[", 60)))
			case 2:
				return p.call(ctx, "GET", "/v1/jobs/job_00000000000000000000000000", nil)
			}
			return p.call(ctx, "POST", "/v1/jobs", forebay.SubmitRequest{Task: "nosuchtask", Input: text("x")})
		})
		return nil
	}},
	Attack{Name: "flood of jobs", Postgres: true, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		lines := bulkLines(1000, func(int) map[string]any { return map[string]any{"task": "chat", "input": "flood", "priority": 9} })
		s.Flood(ctx, 4, func(ctx context.Context, _ int) Answer {
			return p.send(ctx, "POST", "/v1/jobs/bulk", "application/x-ndjson", lines)
		})
		return nil
	}},
	Attack{Name: "flood of scheduled jobs and sessions", Postgres: true, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		lines := bulkLines(1000, func(i int) map[string]any {
			if i%2 == 0 {
				return map[string]any{"task": "chat", "input": "later", "scheduled_at": later()}
			}
			return map[string]any{"task": "chat", "input": "turn", "session_id": unique("session")}
		})
		s.Flood(ctx, 2, func(ctx context.Context, _ int) Answer {
			return p.send(ctx, "POST", "/v1/jobs/bulk", "application/x-ndjson", lines)
		})
		return nil
	}},
	Attack{Name: "event streams and long polls", Prepare: func(t *Target) map[string]string {
		return map[string]string{"job": t.attacker().submit(t, forebay.SubmitRequest{Task: "chat", Input: text("later"), ScheduledAt: later()}).ID}
	}, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		var opened sync.WaitGroup
		for i := range 600 {
			opened.Add(1)
			go func() { // ends with the process
				first := sync.OnceFunc(opened.Done)
				defer first() // the attack may end before this one begins
				for ; ctx.Err() == nil; pause(ctx, shortWindow) {
					path := "/v1/jobs/" + s.Given["job"] + "/events"
					if i%2 == 1 {
						path = "/v1/jobs/" + s.Given["job"] + "?wait=60s"
						first() // an answer is a minute away
					}
					r, err := p.request(ctx, "GET", path, "", nil)
					if err != nil {
						continue
					}
					resp, err := p.client().Do(r)
					first()
					if err != nil {
						continue
					}
					s.answered(Answer{Status: resp.StatusCode})
					if resp.StatusCode == http.StatusOK {
						_, _ = resp.Body.Read(make([]byte, 1))
						<-ctx.Done()
					}
					resp.Body.Close()
				}
			}()
		}
		opened.Wait()
		s.Ready()
		<-ctx.Done()
		return nil
	}},
	Attack{Name: "flood of documents", Postgres: true, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		s.Flood(ctx, 8, func(ctx context.Context, i int) Answer {
			body := strings.Repeat(fmt.Sprintf("Chapter %d of %s.\n\n", i, unique("book")), 400)
			return p.send(ctx, "POST", "/v1/documents?id="+unique("d"), "text/plain", []byte(body))
		})
		return nil
	}},
	Attack{Name: "flood of queues, topics and subscriptions", Run: func(ctx context.Context, s *Scene) error {
		p, topic := s.Attacker(), unique("topic")
		p.call(ctx, "PUT", "/v1/topics/"+topic, struct{}{})
		s.Flood(ctx, 8, func(ctx context.Context, i int) Answer {
			switch i % 3 {
			case 0:
				return p.call(ctx, "PUT", "/v1/queues/"+unique("queue"), map[string]any{"requires_session": true})
			case 1:
				return p.call(ctx, "PUT", "/v1/topics/"+unique("topic"), struct{}{})
			}
			return p.call(ctx, "PUT", "/v1/topics/"+topic+"/subscriptions/"+unique("s"), struct{}{})
		})
		return nil
	}},
	Attack{Name: "inputs of blanks and newlines", Window: time.Second, Run: func(ctx context.Context, s *Scene) error {
		p := s.Attacker()
		s.Flood(ctx, 6, func(ctx context.Context, i int) Answer {
			blank, length := []string{" \n", "\r\n \t", " ", "\n"}[i%4], []int{120 << 10, 120 << 10, 120 << 10, 1 << 20, 9 << 20}[i%5]
			blanks := "x" + strings.Repeat(blank, length/2/len(blank)) // a newline is two bytes of JSON
			// More than the job may use if each byte were a token: so its tokens are counted.
			limit := int64(len(blanks) / 2)
			return p.call(ctx, "POST", "/v1/jobs", forebay.SubmitRequest{Task: "chat", Input: text(blanks), MaxTotalTokens: &limit})
		})
		return nil
	}},
)
