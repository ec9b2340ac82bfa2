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

// However often processes are killed while messages become jobs, each message makes one job, and
// none is left over.
func TestIntakeUnderKills(t *testing.T) { underKills(t, testIntakeUnderKills) }

func testIntakeUnderKills(t *testing.T, o servertest.ProcessOptions, processes int) {
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
	if _, err := c.PutMessageQueue(ctx, "orders", forebay.MessageQueueSettings{LockSeconds: 1, MaxDeliveryCount: 100}); err != nil {
		t.Fatal(err)
	}
	for sent := 0; sent < messages; {
		var batch []forebay.NewMessage
		for range forebay.MaxMessagesPerCall {
			body := fmt.Sprint("message ", sent)
			batch = append(batch, forebay.NewMessage{MessageID: fmt.Sprint("m", sent), Body: &body, Properties: forebay.Properties{"n": int64(sent)}})
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
	timeout := time.After(2 * time.Minute)
	for {
		_, q, err := c.FindQueue(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if q.Active+q.Locked == 0 {
			if q.DeadLetter > 0 {
				t.Errorf("%d dead letters", q.DeadLetter)
			}
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-timeout:
			t.Fatalf("messages are left: %+v", q)
		}
	}
	made := map[string]string{}
	for job, err := range c.List(ctx, forebay.JobFilter{Limit: forebay.MaxPageSize}) {
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := made[job.Metadata["n"]]; ok {
			t.Errorf("message %s became %s and %s", job.Metadata["n"], other, job.ID)
		}
		made[job.Metadata["n"]] = job.ID
	}
	if len(made) != messages {
		t.Errorf("%d messages became jobs, of %d", len(made), messages)
	}
	for _, p := range running {
		p.Stop(t)
	}
}
