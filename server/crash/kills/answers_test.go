//go:build unix

package kills_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// However often processes are killed while jobs end, each message gets one answer.
func TestAnswersUnderKills(t *testing.T) { underKills(t, testAnswersUnderKills) }

func testAnswersUnderKills(t *testing.T, o servertest.ProcessOptions, processes int) {
	const messages, kills = 600, 6
	ctx := t.Context()
	o.Intake, o.Functions = map[string]server.Intake{"orders": {Task: "count"}}, []string{"count"}
	o.Queue.LockDuration = 5 * time.Second
	running := make([]*servertest.Process, processes)
	connect := func(i int) *client.Client {
		running[i] = servertest.Launch(t, o)
		c, err := client.New(client.Options{BaseURL: running[i].MustListen(t)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var c *client.Client
	for i := range running {
		c = connect(i)
	}
	for name, deliveries := range map[string]int{"orders": 100, "answers": 10} {
		if _, err := c.PutMessageQueue(ctx, name, forebay.MessageQueueSettings{LockSeconds: 1, MaxDeliveryCount: deliveries}); err != nil {
			t.Fatal(err)
		}
	}
	for sent := 0; sent < messages; {
		var batch []forebay.NewMessage
		for range forebay.MaxMessagesPerCall {
			body := fmt.Sprint("message ", sent)
			batch = append(batch, forebay.NewMessage{MessageID: fmt.Sprint("m", sent), Body: &body, ReplyTo: "Answers", ReplyToSessionID: "s"})
			sent++
		}
		if _, err := c.Messages("orders").Send(ctx, batch...); err != nil {
			t.Fatal(err)
		}
		if n := sent/forebay.MaxMessagesPerCall - 1; n < kills {
			running[n%processes].Kill()
			c = connect(n % processes)
		}
	}
	timeout := time.After(3 * time.Minute)
	for {
		_, q, err := c.FindQueue(ctx, "answers")
		if err != nil {
			t.Fatal(err)
		}
		left := 0 // that could answer once more
		for _, err := range c.List(ctx, forebay.JobFilter{Status: []forebay.Status{forebay.StatusQueued, forebay.StatusRunning, forebay.StatusRetrying}}) {
			if err != nil {
				t.Fatal(err)
			}
			left++
		}
		if q.Active >= messages && left == 0 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-timeout:
			t.Fatalf("answers are missing: %+v", q)
		}
	}
	answered := map[string]bool{}
	for m, err := range c.Messages("answers").Peek(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if answered[m.CorrelationID] || m.Subject != string(forebay.StatusSucceeded) || m.SessionID != "s" {
			t.Errorf("again, or wrong: %+v", m)
		}
		if answered[m.CorrelationID] = true; len(answered) == messages {
			break // a peek waits for more
		}
	}
	if _, q, err := c.FindQueue(ctx, "answers"); err != nil || q.Active != messages {
		t.Errorf("%+v answers to %d messages (%v)", q, messages, err)
	}
	for _, p := range running {
		p.Stop(t)
	}
}
