package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// The jobs that a scan finds at its end may go, and there may be more of them behind. The search
// behind held jobs then delivers each of them once.
func TestJobsBehindHeldOnesGoOnce(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID, tenant := queueOf(t, s, "q"), tenantNamed(t, s, "default")
		const most, found = 10, 4
		const held = quota.Backfill + most - found
		var jobs []NewJob
		for i := range held + 5*found {
			job := NewJob{ID: fmt.Sprint("held-", i), Tenant: tenant, Queue: queueID, Task: "held", Class: 1, Priority: 5}
			if i >= held {
				job.ID, job.Task = fmt.Sprint("free-", i-held), "free"
			}
			jobs = append(jobs, job)
		}
		submitAll(t, s, jobs...)
		mustDo(t, s.Admission.PauseDeployment(t.Context(), "paused", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "paused"}))
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: most, MaxBytes: 1 << 20, Lock: time.Hour, Plan: func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			if task == "held" {
				return []admission.Option{{Deployment: "paused"}}
			}
			return []admission.Option{{Deployment: "open"}}
		}}
		got, err := s.Jobs.Claim(t.Context(), request)
		mustDo(t, err)
		for i, d := range got {
			if want := fmt.Sprint("free-", i); d.ID != want || d.Deliveries != 1 {
				t.Errorf("delivery %d is %s, for the %d. time", i, d.ID, d.Deliveries)
			}
		}
	})
}
