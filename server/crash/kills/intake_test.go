//go:build unix

package kills_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
)

// However often processes are killed while messages become jobs, each message makes one job, and
// none is left over.
func TestIntakeUnderKills(t *testing.T) { underKills(t, testIntakeUnderKills) }

func testIntakeUnderKills(t *testing.T, o servertest.ProcessOptions, processes int) {
	ctx := t.Context()
	c, running := sendUnderKills(t, o, processes, map[string]int{"orders": 100}, func(i int) forebay.NewMessage {
		body := fmt.Sprint("message ", i)
		return forebay.NewMessage{MessageID: fmt.Sprint("m", i), Body: &body, Properties: forebay.Properties{"n": int64(i)}}
	})
	servertest.Eventually(t, 2*time.Minute, func() error {
		_, q, err := c.FindQueue(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if q.Active+q.Locked > 0 {
			return fmt.Errorf("messages are left: %+v", q)
		}
		if q.DeadLetter > 0 {
			t.Errorf("%d dead letters", q.DeadLetter)
		}
		return nil
	})
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
	if len(made) != sentUnderKills {
		t.Errorf("%d messages became jobs, of %d", len(made), sentUnderKills)
	}
	for _, p := range running {
		p.Stop(t)
	}
}
