package orchestrate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs"
)

// A job that an instance awaits is cancelled in the transaction in which the instance ends or
// continues as new. Nothing answers it then: the answer would go to another execution.
func TestJobEndsWithItsExecution(t *testing.T) {
	ends := []struct {
		name string
		*OrchestrationResult
	}{
		{"fails", &OrchestrationResult{Status: forebay.OrchestrationFailed, Failure: &forebay.OrchestrationFailure{}, Events: 1, History: Inline([]byte("h"))}},
		{"starts anew", &OrchestrationResult{Status: forebay.OrchestrationRunning, Reset: &Reset{Execution: "next"}, Events: 1, History: Inline([]byte("h"))}}, // it stays suspended
	}
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		for _, end := range ends {
			name, ctx := end.name, t.Context()
			tenant := tenantOf(t, s, name)
			takes := ClaimRequest{Max: 1, Lock: time.Hour, Taker: takesOf(tenant)}
			claimed := func() *OrchestrationItem {
				t.Helper()
				items, err := s.Orchestrations.ClaimOrchestrations(ctx, takes)
				mustDo(t, err)
				return &items[0]
			}
			mustDo(t, s.Orchestrations.CreateOrchestration(ctx, NewOrchestration{Tenant: tenant, ID: "i", Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
			_, err := s.Orchestrations.CompleteOrchestration(ctx, claimed(), &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")),
				Activities: []NewActivity{{EventID: 1, Name: "step", Event: Inline([]byte("do"))}}})
			mustDo(t, err)
			activities, err := s.Orchestrations.ClaimActivities(ctx, takes)
			mustDo(t, err)
			no, err := s.Queues.EnsureQueue(ctx, "q")
			mustDo(t, err)
			made, err := s.Jobs.Submit(ctx, []jobs.NewJob{{ID: "job_" + name, Tenant: tenant, Queue: no, Task: "echo", MaxAttempts: 1, Input: []byte("{}"), InputSize: 2,
				CorrelationID: jobs.CallerCorrelation("i"), Caller: &activities[0]}})
			mustDo(t, errors.Join(err, made[0].Err))
			mustDo(t, s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: "i", Event: Inline([]byte("e"))}))
			item := claimed()
			mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB,
				func() error {
					return s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: "i", Event: Inline([]byte("e")), Effect: Suspends})
				},
				func() error {
					_, err := s.Orchestrations.CompleteOrchestration(ctx, item, end.OrchestrationResult)
					return err
				},
				func() error {
					c, err := s.Jobs.Cancel(ctx, made[0].Seq)
					if err == nil && !c.Cancelled {
						err = errors.New("not cancelled")
					}
					return err
				})...))
			mustDo(t, s.DB.Read(ctx, func(c driver.Conn) error {
				return c.Prep("SELECT job FROM orchestration_inbox WHERE instance = ? AND job IS NOT NULL").Int(item.Instance).Each(func(r driver.Row) error {
					t.Errorf("%s: %s answers it", name, r.Text(0))
					return nil
				})
			}))
		}
	})
}

// The new events of instances that have many are read one instance after the other, so that they
// are not in memory all at once.
func TestManyEventsAreReadByThemselves(t *testing.T) {
	const instances, events = 8, 1 + maxEventsTogether/forebay.InlineBytes
	s := fixture.Serving(t, db.Options{URL: dbtest.Postgres(t)})
	ctx, tenant := t.Context(), tenantOf(t, s, "acme")
	for i := range instances {
		id := fmt.Sprint("i", i)
		mustDo(t, s.Orchestrations.CreateOrchestration(ctx, NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
		for range events {
			mustDo(t, s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: id, Event: Inline(make([]byte, forebay.InlineBytes))}))
		}
	}
	trips := make(chan int64, 1000)
	s.DB.OnCommit(func(c db.Commit) { trips <- c.RoundTrips })
	items, err := s.Orchestrations.ClaimOrchestrations(ctx, ClaimRequest{Max: instances, Lock: time.Hour, Taker: &takesAny})
	mustDo(t, err)
	if len(items) != instances || len(items[0].Arrived) != 1+events {
		t.Errorf("%d instances were claimed, the first with %d events", len(items), len(items[0].Arrived))
	}
	for most := int64(0); most < instances; { // it is told after the claim is answered
		select {
		case n := <-trips:
			most = max(most, n)
		case <-time.After(30 * time.Second):
			t.Fatalf("the events of %d instances came in %d round trips", instances, most)
		}
	}
}
