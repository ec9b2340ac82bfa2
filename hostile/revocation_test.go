//go:build hostile

package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay"
)

const (
	// revocationLimit is how long a key may go on with what it has begun, once it has ended.
	revocationLimit = 2 * time.Second
	// revocationSlack is what a busy machine may add.
	revocationSlack = 2 * time.Second
)

// held is a request that is under way for as long as its key is good.
type held struct {
	name string
	// open begins it and returns what is closed at its end; what it was handed is sent before.
	open func(t *Target, key string) (handed <-chan string)
	// after does what would have handed it something, and returns what was wrong then.
	after func(t *Target, key string) error
}

// stream reads an answer to its end in the background, and hands out what stands in it.
func stream(t *Target, key, method, path, contentType string, body io.Reader) <-chan string {
	t.Helper()
	r, err := t.as(key).request(t.Context(), method, path, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	handed := make(chan string, 1000)
	answered := make(chan struct{})
	go func() {
		defer close(handed)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		close(answered)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			handed <- lines.Text()
		}
	}()
	if method == "GET" && !strings.Contains(path, "wait=") || contentType == "application/x-ndjson" {
		<-answered
	}
	return handed
}

// heldRequests are of the attacker's tenant. What they wait for never comes by itself.
func heldRequests(t *Target, way string) []held {
	waiting := t.attacker().submit(t, forebay.SubmitRequest{Task: "chat", Input: text("later"), ScheduledAt: later()}).ID
	queue := unique("queue")
	t.attacker().must(t, "PUT", "/v1/queues/"+queue, struct{}{}, nil)
	sessions := unique("sessions")
	t.attacker().must(t, "PUT", "/v1/queues/"+sessions, map[string]any{"requires_session": true}, nil)
	send := func(queue string, message map[string]any, check func() (string, string, any)) func(*Target, string) error {
		return func(t *Target, _ string) error {
			t.attacker().must(t, "POST", "/v1/queues/"+queue+"/messages", message, nil)
			method, path, body := check()
			if got := t.attacker().call(t.Context(), method, path, body); got.Status != http.StatusOK {
				return fmt.Errorf("a message that came later is not there for others: %s", got)
			}
			return nil
		}
	}
	var lines *io.PipeWriter
	correlation := unique("bulk")
	return []held{
		{"event stream", func(t *Target, key string) <-chan string {
			return stream(t, key, "GET", "/v1/jobs/"+waiting+"/events", "", nil)
		}, nil},
		{"long poll of a job", func(t *Target, key string) <-chan string {
			return stream(t, key, "GET", "/v1/jobs/"+waiting+"?wait=60s", "", nil)
		}, nil},
		{"long poll for messages", func(t *Target, key string) <-chan string {
			return stream(t, key, "POST", "/v1/queues/"+queue+"/messages/receive", "application/json", strings.NewReader(`{"wait_seconds":60}`))
		}, send(queue, map[string]any{"body": "secret"}, func() (string, string, any) {
			return "POST", "/v1/queues/" + queue + "/messages/receive", map[string]any{"wait_seconds": 2, "mode": "receive_and_delete"}
		})},
		{"long poll for a session", func(t *Target, key string) <-chan string {
			return stream(t, key, "POST", "/v1/queues/"+sessions+"/sessions/accept", "application/json", strings.NewReader(`{"wait_seconds":60}`))
		}, send(sessions, map[string]any{"body": "secret", "session_id": "s"}, func() (string, string, any) {
			return "POST", "/v1/queues/" + sessions + "/sessions/accept", map[string]any{"wait_seconds": 2}
		})},
		{"bulk submit", func(t *Target, key string) <-chan string {
			var body *io.PipeReader
			body, lines = io.Pipe()
			go func() { _, _ = io.WriteString(lines, `{"task":"chat","input":"first"}`+"\n") }()
			handed := stream(t, key, "POST", "/v1/jobs/bulk", "application/x-ndjson", body)
			<-handed // the first line's answer
			return handed
		}, func(t *Target, _ string) error {
			go func() {
				_, _ = io.WriteString(lines, `{"task":"chat","input":"after","correlation_id":"`+correlation+`"}`+"\n") // the server may be gone
				lines.Close()
			}()
			var page forebay.Page[forebay.Job]
			if within(t.Context(), time.Second, func() bool {
				t.attacker().must(t, "GET", "/v1/jobs?correlation_id="+correlation, nil, &page)
				return len(page.Items) > 0
			}) {
				return fmt.Errorf("a line that was sent afterwards became a job")
			}
			return nil
		}},
		{"stream of work by gRPC", func(t *Target, key string) <-chan string {
			items, err := t.durable(key).GetWorkItems(t.Context(), &protos.GetWorkItemsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			handed := make(chan string, 1000)
			go func() {
				defer close(handed)
				for {
					item, err := items.Recv()
					if err != nil {
						return
					}
					if turn := item.GetWorkflowRequest(); turn != nil {
						handed <- turn.GetInstanceId()
					}
				}
			}()
			return handed
		}, func(t *Target, _ string) error {
			_, err := t.durable(t.Keys.Attacker).StartInstance(t.Context(), &protos.CreateInstanceRequest{Name: "anything", InstanceId: unique(way)})
			return err
		}},
	}
}

// waysToEnd make a key that ends by itself at a time, or that end ends.
var waysToEnd = []struct {
	name  string
	lives time.Duration // 0: until it is revoked
	end   func(t *Target, id string)
}{
	{"expired", 3 * time.Second, func(*Target, string) {}},
	{"revoked over HTTP", 0, func(t *Target, id string) { t.admin().must(t, "DELETE", "/v1/keys/"+id, nil, nil) }},
	{"revoked by command", 0, func(t *Target, id string) {
		if out, err := command(t.Context(), t.Dir, "keys", "revoke", id, "--database", t.database).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}},
}

// What a key has begun ends with the key, and is handed nothing afterwards.
func TestKeysThatEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, postgres bool) {
		target := Start(t, TargetOptions{Postgres: postgres})
		for _, way := range waysToEnd {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				// A failure is this subtest's, the process the whole test's.
				mine := *target
				mine.TB = t
				endKey(&mine, way.name, way.lives, way.end)
			})
		}
	})
}

func endKey(t *Target, way string, lives time.Duration, end func(*Target, string)) {
	m := &Measurement{Attack: "open requests of a key, " + way}
	defer m.report(t)
	var ends *time.Time
	if lives > 0 {
		at := time.Now().Add(lives)
		ends = &at
	}
	var key forebay.APIKey
	t.admin().must(t, "POST", "/v1/keys", map[string]any{"tenant": attackerTenant, "scopes": []string{"submit", "read", "operate"}, "expires_at": ends}, &key)
	requests := heldRequests(t, "after")
	handed := make([]<-chan string, len(requests))
	for i, h := range requests {
		handed[i] = h.open(t, key.Key)
	}
	if ends != nil {
		pause(t.Context(), time.Until(*ends))
	} else {
		end(t, key.ID)
	}
	over := time.Now()
	limit, cancel := context.WithTimeout(t.Context(), revocationLimit+revocationSlack)
	defer cancel()
	for i, h := range requests {
		ended := drain(limit, handed[i])
		took := time.Since(over)
		if !ended {
			m.Faults = append(m.Faults, fmt.Sprintf("%s: still open %s after its key was %s", h.name, took.Round(100*time.Millisecond), way))
		}
	}
	// Nothing is handed out now, whether it has ended or not.
	for i, h := range requests {
		if h.after == nil {
			continue
		}
		if err := h.after(t, key.Key); err != nil {
			m.Faults = append(m.Faults, fmt.Sprintf("%s: %s", h.name, err))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		select {
		case what, open := <-handed[i]:
			if open {
				m.Faults = append(m.Faults, fmt.Sprintf("%s: was handed %.80q after its key was %s", h.name, what, way))
			}
		case <-ctx.Done():
		}
		cancel()
	}
}

// drain takes what is handed out until the end; it reports false when that does not come in time.
func drain(limit context.Context, handed <-chan string) bool {
	for {
		select {
		case _, open := <-handed:
			if !open {
				return true
			}
		case <-limit.Done():
			return false
		}
	}
}
