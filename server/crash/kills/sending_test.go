//go:build unix

package kills_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// sentUnderKills is how many messages sendUnderKills sends.
const sentUnderKills = 600

// sendUnderKills starts processes that take jobs from the queue "orders", and makes the queues
// with their delivery counts. It sends the messages, and kills a process again and again
// meanwhile. It returns a client of the process that it has started last.
func sendUnderKills(t *testing.T, o servertest.ProcessOptions, processes int, queues map[string]int, message func(i int) forebay.NewMessage) (c *client.Client, running []*servertest.Process) {
	const kills = 6
	ctx := t.Context()
	o.Intake, o.Functions = map[string]server.Intake{"orders": {Task: "count"}}, []string{"count"}
	o.Queue.LockDuration = 5 * time.Second
	running = make([]*servertest.Process, processes)
	connect := func(i int) *client.Client {
		running[i] = servertest.Launch(t, o)
		c, err := client.New(client.Options{BaseURL: running[i].MustListen(t)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range running {
		c = connect(i)
	}
	for name, deliveries := range queues {
		if _, err := c.PutMessageQueue(ctx, name, forebay.MessageQueueSettings{LockSeconds: 1, MaxDeliveryCount: deliveries}); err != nil {
			t.Fatal(err)
		}
	}
	for sent := 0; sent < sentUnderKills; {
		var batch []forebay.NewMessage
		for range forebay.MaxMessagesPerCall {
			batch = append(batch, message(sent))
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
	return c, running
}
