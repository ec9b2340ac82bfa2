package orchestrate

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// While somebody keeps an old snapshot on the server, what a claim reads does not grow with the
// work items that are gone.
func TestOldSnapshotDoesNotSlowClaims(t *testing.T) {
	t.Parallel()
	const n, atOnce = 600, 5
	fixture.FewEntriesRead(t, n, 20, []string{"orchestration_items_ready", "orchestration_activities_ready"}, func(s *stores) {
		ctx := t.Context()
		tenant := tenantOf(t, s, "acme")
		req := ClaimRequest{Max: atOnce, Lock: time.Minute, Taker: takesOf(tenant)}
		complete := func(r func() *OrchestrationResult) {
			for got := 0; got < atOnce; {
				items, err := s.Orchestrations.ClaimOrchestrations(ctx, req)
				mustDo(t, err)
				for i := range items {
					_, err := s.Orchestrations.CompleteOrchestration(ctx, &items[i], r())
					mustDo(t, err)
				}
				got += len(items)
			}
		}
		for i := 0; i < n; i += atOnce {
			for k := range atOnce {
				mustDo(t, s.Orchestrations.CreateOrchestration(ctx, NewOrchestration{Tenant: tenant, ID: fmt.Sprint("i", i+k), Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
			}
			complete(func() *OrchestrationResult {
				return &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")),
					Activities: []NewActivity{{EventID: 1, Name: "step", Event: Inline([]byte("do"))}}}
			})
			for got := 0; got < atOnce; {
				activities, err := s.Orchestrations.ClaimActivities(ctx, req)
				mustDo(t, err)
				for i := range activities {
					mustDo(t, s.Orchestrations.SettleActivity(ctx, &activities[i], success))
				}
				got += len(activities)
			}
			complete(func() *OrchestrationResult {
				return &OrchestrationResult{Status: forebay.OrchestrationCompleted, Output: Inline([]byte("1")), Events: 1, History: Inline([]byte("h"))}
			})
		}
	})
}
