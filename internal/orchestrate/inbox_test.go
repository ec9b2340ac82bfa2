package orchestrate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// A completed work item is ready when the next event of its inbox is due, also if that comes in
// the same transaction.
func TestCompletedItemIsReadyForItsNextEvent(t *testing.T) {
	const ready = "SELECT count(*) FROM orchestration_items t WHERE instance = ? AND lock_token IS NULL AND visible_at = coalesce(" +
		"(SELECT min(i.visible_at) FROM orchestration_inbox i WHERE i.instance = t.instance), 4611686018427387904)"
	result := func() *OrchestrationResult {
		return &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h"))}
	}
	timers := func(r *OrchestrationResult, in ...time.Duration) *OrchestrationResult {
		for _, d := range in {
			r.Timers = append(r.Timers, Timer{At: time.Now().Add(d).UnixMilli(), Event: Inline([]byte("t"))})
		}
		return r
	}
	anew := func(r *OrchestrationResult) *OrchestrationResult { r.Reset = &Reset{Execution: "next"}; return r }
	const nothing, event, answer = "nothing", "event", "answer"
	for name, c := range map[string]struct {
		before, with string // what comes before the transaction, and in it
		result       *OrchestrationResult
		events       int64 // that are left
	}{
		"nothing is left":                       {nothing, nothing, result(), 0},
		"an event came before":                  {event, nothing, result(), 1},
		"an event comes with it":                {nothing, event, result(), 1},
		"a timer is set":                        {nothing, nothing, timers(result(), 2*time.Hour, time.Hour), 2},
		"a timer is set and an event comes":     {nothing, event, timers(result(), time.Hour), 2},
		"an answer comes with it":               {nothing, answer, result(), 1},
		"it begins anew after an answer":        {answer, nothing, anew(result()), 0},
		"it begins anew as an answer comes":     {nothing, answer, anew(result()), 0},
		"it begins anew with a timer":           {answer, answer, anew(timers(result(), time.Hour)), 1},
		"it begins anew after an event":         {event, nothing, anew(result()), 1},
		"it begins anew as an event comes":      {answer, event, anew(result()), 1},
		"it begins anew with an event and more": {event, event, anew(timers(result(), time.Hour)), 3},
	} {
		t.Run(name, func(t *testing.T) {
			fixture.WithStores(t, func(t *testing.T, s *stores) {
				o, activities := underWay(t, s, 2)
				send := func() error {
					return s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: activities[0].Tenant, ID: o.ID, Event: Inline([]byte("e"))})
				}
				settles := 0
				comes := func(what string) (calls []func() error) {
					switch what {
					case event:
						return []func() error{send}
					case answer:
						a := activities[settles]
						settles++
						return []func() error{func() error { return s.Orchestrations.SettleActivity(t.Context(), &a, success) }}
					}
					return nil
				}
				mustDo(t, send())
				item := takeItem(t, s)
				for _, call := range comes(c.before) {
					mustDo(t, call())
				}
				calls := append(comes(c.with), func() error {
					_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, c.result)
					return err
				})
				mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB, calls...)...))
				if left := countOf(t, s, "SELECT count(*) FROM orchestration_inbox WHERE instance = ?", o.No); left != c.events {
					t.Errorf("%d events are left, want %d", left, c.events)
				}
				if countOf(t, s, ready, o.No) != 1 {
					t.Error("the item is ready at another time than its next event")
				}
			})
		})
	}
}

// An event that comes to an instance after its work item was completed, in the same transaction,
// makes the item ready.
func TestToldAfterItsCompletion(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		for _, id := range []string{"told", "tells"} {
			mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: id, Event: Inline([]byte("start"))}))
		}
		take := func(of string) *OrchestrationItem {
			items, err := s.Orchestrations.ClaimOrchestrations(t.Context(), ClaimRequest{Max: 1, Lock: time.Hour, Taker: workqueues.Only(of)})
			mustDo(t, err)
			return &items[0]
		}
		told, tells := take("told"), take("tells")
		complete := func(item *OrchestrationItem, messages ...OrchestrationMessage) func() error {
			return func() error {
				_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item,
					&OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")), Messages: messages})
				return err
			}
		}
		mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB, complete(told), complete(tells, OrchestrationMessage{To: "told", Event: Inline([]byte("e"))}))...))
		if item := take("told"); len(item.Arrived) != 1 {
			t.Errorf("%d events have come", len(item.Arrived))
		}
	})
}

// Jobs that end in the transaction that ends an execution leave no answer to it, however many they
// are. Each answer needs a number, and while numbers are fetched other operations go on.
func TestManyJobsEndWithTheirExecution(t *testing.T) {
	for name, r := range map[string]OrchestrationResult{
		"fails": {Status: forebay.OrchestrationFailed, Failure: &forebay.OrchestrationFailure{}},
		"anew":  {Status: forebay.OrchestrationRunning, Reset: &Reset{Execution: "next"}},
	} {
		t.Run(name, func(t *testing.T) {
			fixture.WithStores(t, func(t *testing.T, s *stores) {
				ctx := t.Context()
				o, activities := underWay(t, s, 6)
				tenant := activities[0].Tenant
				no, err := s.Queues.EnsureQueue(ctx, "q")
				mustDo(t, err)
				var calls []func() error
				for i := range activities {
					made, err := s.Jobs.Submit(ctx, []jobs.NewJob{{ID: fmt.Sprint("job_", i), Tenant: tenant, Queue: no, Task: "echo", MaxAttempts: 1,
						Input: []byte("{}"), InputSize: 2, CorrelationID: jobs.CallerCorrelation(o.ID), Caller: &activities[i]}})
					mustDo(t, errors.Join(err, made[0].Err))
					calls = append(calls, func() error { _, err := s.Jobs.Cancel(ctx, made[0].Seq); return err })
				}
				send := func(effect Effect) error {
					return s.Orchestrations.SendOrchestration(ctx, Signal{Tenant: tenant, ID: o.ID, Event: Inline([]byte("e")), Effect: effect})
				}
				mustDo(t, send(NoEffect))
				item := takeItem(t, s)
				r := r
				r.Events, r.History = 1, Inline([]byte("h"))
				calls = append(calls, func() error {
					_, err := s.Orchestrations.CompleteOrchestration(ctx, item, &r)
					return err
				})
				if !r.Status.Terminal() {
					calls = append(calls, func() error { return send(Suspends) })
				}
				mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB, calls...)...))
				if n := countOf(t, s, "SELECT count(*) FROM orchestration_inbox WHERE instance = ? AND answer = 1", o.No); n != 0 {
					t.Errorf("%d answers are left", n)
				}
			})
		})
	}
}

// A caller that ends in the transaction in which its sub-orchestration is purged by force is not
// told any more, though the transaction has found it open when it began.
func TestCallerEndsAsItsChildIsPurged(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		items := starts(t, s, "caller", "child")
		child, err := s.Orchestrations.Orchestration(t.Context(), tenant, "child")
		mustDo(t, err)
		caller, err := s.Orchestrations.Orchestration(t.Context(), tenant, "caller")
		mustDo(t, err)
		forced := &Forced{child.No, OrchestrationMessage{To: "caller", Execution: caller.Execution, Event: Inline([]byte("purged"))}}
		mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB,
			func() error {
				return s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenant, ID: "caller", Event: Inline([]byte("e"))})
			},
			func() error {
				_, err := s.Orchestrations.CompleteOrchestration(t.Context(), items[0], &OrchestrationResult{Status: forebay.OrchestrationCompleted, Events: 1, History: Inline([]byte("h"))})
				return err
			},
			func() error {
				_, err := s.Orchestrations.PurgeOrchestration(t.Context(), tenant, "child", forced, audit.Act{})
				return err
			})...))
		if n := countOf(t, s, "SELECT count(*) FROM orchestration_inbox WHERE instance = ?", caller.No); n != 0 {
			t.Errorf("%d events are left of an instance that is over", n)
		}
	})
}
