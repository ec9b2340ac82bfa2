//go:build unix

package kills_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// responsesVariable is how many background responses the crash test makes.
const responsesVariable = "FOREBAY_CRASH_RESPONSES"

// TestResponsesSurviveKills kills a server process in the middle of background responses. Each is
// answered once. Streams that clients follow through the restarts have no gap, and are the same
// when they are read again.
func TestResponsesSurviveKills(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := newResponsesCrash(t)
		c.options.Database = servertest.DatabaseFile(t)
		c.run(func() string { return c.base.Load().(string) })
	})
	// Clients ask another process than the one that makes the responses.
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := newResponsesCrash(t)
		c.options.Database, c.options.Blob = dbtest.Postgres(t), "file://"+t.TempDir()
		front := c.options
		front.Role = server.RoleAPI
		first := servertest.Launch(t, c.options) // it makes the tables
		first.MustListen(t)
		address := servertest.Launch(t, front).MustListen(t)
		first.Kill()
		c.run(func() string { return address })
	})
}

type responsesCrash struct {
	*testing.T
	options servertest.ProcessOptions
	total   int
	base    atomic.Value // string: the address of the process that is killed

	held  atomic.Int64  // calls that have begun an answer and wait
	open  chan struct{} // closed: answers go on
	calls atomic.Int64
}

func newResponsesCrash(t *testing.T) *responsesCrash {
	c := &responsesCrash{T: t, total: 20, open: make(chan struct{})}
	if n, err := strconv.Atoi(os.Getenv(responsesVariable)); err == nil {
		c.total = n
	}
	u := httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(u.Close)
	c.options = servertest.ProcessOptions{Endpoint: u.URL, Shutdown: time.Second, Responses: server.Queue{Concurrency: 8, LockDuration: 3 * time.Second,
		Retry: server.Retry{First: 10 * time.Millisecond, Max: 50 * time.Millisecond}}}
	return c
}

// answer answers a call word by word with what it was asked. Of three calls, two wait in the
// middle until the process was killed as often as it is to be.
func (c *responsesCrash) answer(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) != 1 {
		http.Error(w, "no messages", http.StatusBadRequest)
		return
	}
	n := c.calls.Add(1)
	for i, word := range strings.SplitAfter(asked.Messages[0].Content, " ") {
		if i == 2 && n%3 != 0 {
			c.held.Add(1)
			select {
			case <-c.open:
			case <-r.Context().Done():
			}
			c.held.Add(-1)
			if r.Context().Err() != nil {
				return
			}
		}
		servertest.ChatStream(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, word))
	}
	servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, servertest.ChatUsage, "[DONE]")
}

// run kills the process twice. reading is where clients ask.
func (c *responsesCrash) run(reading func() string) {
	const kills, followers = 2, 4
	p := servertest.Launch(c.T, c.options)
	c.base.Store(p.MustListen(c.T))
	ids, followed := make([]string, c.total), make([][]string, followers)
	var following sync.WaitGroup
	for i := range ids {
		ids[i] = c.create(reading(), i)
		if i < followers {
			following.Go(func() { followed[i] = c.follow(reading, ids[i]) })
		}
	}
	for range kills {
		servertest.Eventually(c.T, time.Minute, func() error {
			if n := c.held.Load(); n < 4 {
				return fmt.Errorf("%d calls are in the middle", n)
			}
			return nil
		})
		p.Kill()
		servertest.Eventually(c.T, time.Minute, func() error {
			if n := c.held.Load(); n > 0 {
				return fmt.Errorf("%d calls of the dead process go on", n)
			}
			return nil
		})
		p = servertest.Launch(c.T, c.options)
		c.base.Store(p.MustListen(c.T))
	}
	close(c.open)
	following.Wait()
	for i, id := range ids {
		c.check(reading(), i, id)
		if i < followers {
			c.sameInOneGo(reading(), id, followed[i])
		}
	}
	if n := c.calls.Load(); n <= int64(c.total) {
		c.Errorf("%d calls for %d responses: none was cut off", n, c.total)
	}
	p.Stop(c.T)
}

func (c *responsesCrash) text(i int) string { return fmt.Sprintf("this is the answer number %d", i) }

func (c *responsesCrash) get(ctx context.Context, method, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func (c *responsesCrash) read(method, url, body string) string {
	c.Helper()
	resp, err := c.get(c.Context(), method, url, body)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.Fatalf("%s: %d %s %v", url, resp.StatusCode, answer, err)
	}
	return string(answer)
}

func (c *responsesCrash) create(base string, i int) string {
	return servertest.Object(c.T, c.read(http.MethodPost, base+"/v1/responses", fmt.Sprintf(`{"model":"chat","background":true,"input":%q}`, c.text(i))))["id"].(string)
}

// follow returns the events of a stream, which it reads until its end, through breaks.
func (c *responsesCrash) follow(reading func() string, id string) (events []string) {
	for c.Context().Err() == nil {
		resp, err := c.get(c.Context(), http.MethodGet, fmt.Sprintf("%s/v1/responses/%s?stream=true&starting_after=%d", reading(), id, len(events)-1), "")
		if err != nil {
			_ = sleep.For(c.Context(), 10*time.Millisecond) // the process starts
			continue
		}
		some, over := dataOf(resp.Body)
		resp.Body.Close()
		if events = append(events, some...); over {
			return events
		}
	}
	return events
}

// dataOf reads the data of a stream's events. over says that the stream has ended by itself.
func dataOf(stream io.Reader) (events []string, over bool) {
	in := bufio.NewScanner(stream)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		switch data, ok := strings.CutPrefix(in.Text(), "data: "); {
		case !ok:
		case data == "[DONE]":
			return events, true
		case json.Valid([]byte(data)): // the last line of a broken stream may be cut
			events = append(events, data)
		}
	}
	return events, false
}

// sameInOneGo compares a stream that was read through breaks with what is read in one go.
func (c *responsesCrash) sameInOneGo(base, id string, events []string) {
	whole, over := dataOf(strings.NewReader(c.read(http.MethodGet, base+"/v1/responses/"+id+"?stream=true", "")))
	if !over || !reflect.DeepEqual(events, whole) {
		c.Errorf("a stream through the breaks was\n%s\nand in one go is\n%s", strings.Join(events, "\n"), strings.Join(whole, "\n"))
	}
}

// check checks that a response was answered once.
func (c *responsesCrash) check(base string, i int, id string) {
	var o map[string]any
	servertest.Eventually(c.T, 2*time.Minute, func() error {
		if o = servertest.Object(c.T, c.read(http.MethodGet, base+"/v1/responses/"+id, "")); o["status"] != "completed" {
			return fmt.Errorf("response %d is %v", i, o["status"])
		}
		return nil
	})
	if list := o["output"].([]any); len(list) != 1 || servertest.OutputText(o) != c.text(i) {
		c.Errorf("response %d is %v", i, o)
	}
	events := servertest.ReadStream(c.T, c.read(http.MethodGet, base+"/v1/responses/"+id+"?stream=true", ""))
	events.Gapless(c.T, 0)
	ends := 0
	for _, kind := range events.Types {
		if kind == "response.completed" {
			ends++
		}
	}
	if last := events.Data[len(events.Data)-1]; ends != 1 || !reflect.DeepEqual(last["response"], any(o)) {
		c.Errorf("response %d ended %d times: %v", i, ends, events.Types)
	}
}
