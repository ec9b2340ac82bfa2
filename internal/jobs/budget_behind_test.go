package jobs

import (
	"fmt"
	"testing"
	"time"
)

// Many jobs may wait for a budget that has no room for any of them. A smaller one that waits
// behind them goes once there is room for it, and not when the period ends.
func TestSmallJobsDoNotWaitBehindLargeOnes(t *testing.T) {
	inPurse(t, func(p *purseful) {
		p.dailyTokens(0)
		p.submit(nil)
		p.claim(paidPlan)
		need, err := waitsFor(p)
		if err != nil {
			t.Fatal(err)
		}
		p.dailyTokens(need) // for one call
		running := p.claim(paidPlan)
		if len(running) != 1 {
			t.Fatalf("claimed %+v", running)
		}
		large := make([]NewJob, 1000)
		for i := range large {
			large[i] = NewJob{ID: fmt.Sprintf("job_x%d", i), Tenant: p.tenant, Queue: p.queue, Task: "t9", MaxAttempts: 9, Priority: 5, Input: []byte("1"), InputSize: 1}
		}
		if _, err := p.Jobs.Submit(p.Context(), large); err != nil {
			t.Fatal(err)
		}
		small := p.submit(nil)
		for range 10 {
			if got := p.claim(paidPlan); len(got) != 0 {
				t.Fatalf("claimed %+v", got)
			}
		}
		p.succeed(&running[0], 0)
		for range 10 {
			if got := p.claim(paidPlan); len(got) == 1 && got[0].ID == small {
				return
			}
			<-time.After(time.Minute) // now and then all budgets are looked at
		}
		t.Error("a job for which there is room still waits for its budget")
	})
}
