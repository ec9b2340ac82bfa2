package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Events contain their job, its input and, if it is small, its result. They are the same by SSE
// and as messages.
func TestEventsTellOfTheirJob(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, server.Options{Functions: []forebay.Task{{Name: "repeat", Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		var n int
		if err := json.Unmarshal(call.Input, &n); err != nil {
			return forebay.TaskResult{}, err
		}
		return forebay.TaskResult{Output: json.RawMessage(`"` + strings.Repeat("r", n) + `"`)}, nil
	}}}})
	url := "http://" + s.Addr(t.Context()).String()
	c, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutTopic(t.Context(), forebay.TopicJobEvents, forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutSubscription(t.Context(), forebay.TopicJobEvents, "all", forebay.SubscriptionSettings{}); err != nil {
		t.Fatal(err)
	}
	for n, small := range map[int]bool{10: true, forebay.MaxEventResultBytes - 2: true, forebay.MaxEventResultBytes - 1: false, 100 << 10: false} {
		job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "repeat", Input: json.RawMessage(fmt.Sprint(n)), Metadata: map[string]string{"order": fmt.Sprint(n)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		res, err := http.Get(url + job.Links.Events)
		if err != nil {
			t.Fatal(err)
		}
		var told []map[string]any
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var e map[string]any
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				told = append(told, e)
			}
		}
		res.Body.Close()
		for _, e := range told {
			links, _ := e["links"].(map[string]any)
			if e["task"] != "repeat" || e["queue"] != forebay.DefaultQueue || !reflect.DeepEqual(e["metadata"], map[string]any{"order": fmt.Sprint(n)}) || links["result"] != job.Links.Result || links["job"] != job.Links.Self {
				t.Errorf("%d bytes: %v", n, e)
			}
			if _, has := e["result"]; has != (small && e["type"] == "succeeded") {
				t.Errorf("the event %s of a result of %d bytes has one: %t", e["type"], n, has)
			}
		}
		var published []map[string]any
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		for m, err := range c.Messages(forebay.TopicJobEvents+"/subscriptions/all").Peek(within, 0) {
			if err != nil {
				t.Fatal(err)
			}
			var e map[string]any
			if err := json.Unmarshal([]byte(*m.Body), &e); err != nil {
				t.Fatal(err)
			}
			if delete(e, "timestamp"); e["job_id"] == job.ID {
				published = append(published, e)
			}
		}
		cancel()
		if len(told) != 3 || !reflect.DeepEqual(told, published) {
			t.Errorf("%d bytes: told of\n%v\nand published\n%v", n, told, published)
		}
	}
}
