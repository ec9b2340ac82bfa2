package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/stores"
)

// all opens the stores of all domains on every engine.
var all = dbtest.Fixture[*stores.Stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores.Stores, error) { return stores.Open(ctx, opts) },
	DB:   func(s *stores.Stores) *db.DB { return s.DB },
}

// What subscriptions of the events of jobs make of many changes is stored in several
// transactions, too.
func TestManyListeners(t *testing.T) {
	all.WithStores(t, func(t *testing.T, s *stores.Stores) {
		tenant, err := s.Queues.EnsureTenant(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		queueID, err := s.Queues.EnsureQueue(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		const many = 120
		for i := range many {
			submitted, err := s.Jobs.Submit(t.Context(), []jobs.NewJob{{ID: fmt.Sprint("job_", i), Tenant: tenant, Queue: queueID, Task: "echo", Priority: 5,
				MaxAttempts: 3, Input: []byte("1"), InputSize: 1}})
			if err != nil || submitted[0].Err != nil {
				t.Fatal(err, submitted)
			}
		}
		got, err := s.Jobs.Claim(t.Context(), jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: many, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
		if err != nil || len(got) != many {
			t.Fatal(len(got), err)
		}
		its := &bus.Stores{DB: s.DB, Queues: s.Queues, Audit: s.Audit, Bus: s.Bus}
		topic := bus.PutTopic(t, its, bus.MessageQueue{Name: "t/" + forebay.TopicJobEvents})
		subs := bus.ManySubscriptions(t, its, topic, forebay.MaxEventListeners)
		var calls []func() error
		for i := range got {
			calls = append(calls, func() error { // the first tells the writer how many there are
				return s.Jobs.Succeed(t.Context(), &got[i], jobs.AttemptRecord{Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: []byte("1"), Size: 1})
			})
		}
		first := calls[0]()
		for _, err := range append(dbtest.InOneTransaction(t, s.DB, calls[1:]...), first) {
			if err != nil {
				t.Error(err)
			}
		}
		// With so many subscriptions the events wait in the topic until its rules are compiled.
		bus.UntilEmpty(t, its, "SELECT count(*) FROM bodies WHERE handed IS NOT NULL")
		bus.WantOnce(t, its, subs, many, len(subs))
	})
}
