//go:build unix

package kills_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
)

// However often processes are killed while jobs end, each message gets one answer.
func TestAnswersUnderKills(t *testing.T) { underKills(t, testAnswersUnderKills) }

func testAnswersUnderKills(t *testing.T, o servertest.ProcessOptions, processes int) {
	ctx := t.Context()
	c, running := sendUnderKills(t, o, processes, map[string]int{"orders": 100, "answers": 10}, func(i int) forebay.NewMessage {
		body := fmt.Sprint("message ", i)
		return forebay.NewMessage{MessageID: fmt.Sprint("m", i), Body: &body, ReplyTo: "Answers", ReplyToSessionID: "s"}
	})
	servertest.Eventually(t, 3*time.Minute, func() error {
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
		if q.Active < sentUnderKills || left > 0 {
			return fmt.Errorf("answers are missing: %+v, %d jobs are left", q, left)
		}
		return nil
	})
	answered := map[string]bool{}
	for m, err := range c.Messages("answers").Peek(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if answered[m.CorrelationID] || m.Subject != string(forebay.StatusSucceeded) || m.SessionID != "s" {
			t.Errorf("again, or wrong: %+v", m)
		}
		if answered[m.CorrelationID] = true; len(answered) == sentUnderKills {
			break // a peek waits for more
		}
	}
	if _, q, err := c.FindQueue(ctx, "answers"); err != nil || q.Active != sentUnderKills {
		t.Errorf("%+v answers to %d messages (%v)", q, sentUnderKills, err)
	}
	for _, p := range running {
		p.Stop(t)
	}
}
