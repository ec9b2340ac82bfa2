package bus

import (
	"strconv"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/dead"
)

// Dead letters that are sent back at a pace become active one after the other. They do so also
// when the process that sent them back is gone and another one goes on.
func testRedriveAtAPace(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	const many, every = 5, 10 * time.Second
	for i := range many {
		sendTo(t, s, q, MessageContent{MessageID: strconv.Itoa(i)})
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
		mustDo(t, err)
		mustDo(t, s.Bus.DeadLetter(t.Context(), q.Subqueue(false), got[0].Lock, DeadLettering{Reason: "r"}, nil))
	}
	shared := s.DB.Writer.Shared()
	other := c.beside(shared)
	begun := c.time()
	step, err := s.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Limit: 3}, dead.Pace{Every: every}, nil)
	if err != nil || step.Done != 3 || !step.More || !step.Next.Equal(begun.Add(3*every)) {
		t.Fatalf("redrove %+v, %v", step, err)
	}
	step, err = other.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{After: step.After, Until: step.Until, Limit: 10}, dead.Pace{First: step.Next, Every: every}, nil)
	if err != nil || step.Done != 2 || step.More || !step.Next.Equal(begun.Add(many*every)) {
		t.Fatalf("then redrove %+v, %v", step, err)
	}
	if step, err := s.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Limit: 10}, dead.Pace{Every: every}, nil); err != nil || step.Done != 0 {
		t.Fatalf("redrove %+v again, %v", step, err)
	}
	mustDo(t, s.DB.Close())
	if !shared { // one process serves SQLite, and the next begins when that is gone
		other = c.beside(true)
	}
	c.stores = []*stores{other}
	for i := range many {
		got, err := other.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil || len(got) != 1 || got[0].MessageID != strconv.Itoa(i) || got[0].Deliveries != 1 || got[0].DeadLetterReason != "" {
			t.Fatalf("after %d times the pace: %+v, %v", i, got, err)
		}
		c.pass(every - time.Millisecond)
		if got, err := other.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 10, MaxBytes: 1 << 20}); err != nil || len(got) != 0 {
			t.Fatalf("too early: %+v, %v", got, err)
		}
		c.pass(time.Millisecond)
	}
	// Time that has passed is not made up for.
	pace := dead.Pace{First: time.UnixMilli(1000), Every: time.Second}
	if at := pace.At(50_000, 2); at != 52_000 {
		t.Errorf("a pace that began long ago goes on at %d", at)
	}
}
