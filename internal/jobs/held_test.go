package jobs

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// Held jobs are scanned again when their deployment reports something, and not each time that a
// call of another deployment ends.
func TestHeldJobsAreLookedAtWhenTheirDeploymentTells(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID, tenant := queueOf(t, s, "q"), tenantNamed(t, s, "default")
		for i := range 3 {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: "t", Class: 1, Priority: 5})
		}
		option := func(name string) admission.Option {
			return admission.Option{Deployment: name, Limits: quota.Limits{RequestsPerMinute: 1}, Request: quota.Request{MaxOutputTokens: -1}}
		}
		var planned atomic.Int64
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour, Plan: func(string, []byte, int64, *forebay.CallEstimate) []admission.Option {
			planned.Add(1)
			return []admission.Option{option("east")}
		}}
		first, err := s.Jobs.Claim(t.Context(), request)
		if err != nil || first[0].ID != "0" {
			t.Fatal(first, err)
		}
		second := make(chan string, 1)
		go func() {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Error(err)
				second <- ""
				return
			}
			second <- got[0].ID
		}()
		for held := false; !held; {
			held, err = db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return len(t.w.blocked) > 0, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		const calls = 200
		begun := time.Now()
		planned.Store(0)
		for range calls {
			if err := s.Admission.RecordOutcome(t.Context(), admission.Admission{Option: option("west"), Outcome: &quota.Outcome{Kind: quota.Succeeded}}); err != nil {
				t.Fatal(err)
			}
		}
		// A process that shares its database looks by itself, too, once in a while: for both jobs.
		looks := int64(time.Since(begun)/s.DB.Writer.Polling) + 1
		if n := planned.Load(); n > calls/10+2*looks {
			t.Errorf("while %d calls of another deployment ended, jobs were tried %d times, at %d looks by itself", calls, n, looks)
		}
		if err := s.Admission.RecordOutcome(t.Context(), *first[0].Admission); err != nil { // it was not sent
			t.Fatal(err)
		}
		if got := <-second; got != "1" {
			t.Errorf("claimed %s", got)
		}
	})
}

// More jobs than a scan tries may be held because their model may not be called. Others behind
// them in their flow still go.
func TestJobsBehindHeldOnesGo(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID, tenant := queueOf(t, s, "q"), tenantNamed(t, s, "default")
		const before, behind = backfillPiece + 2*maxScan, 7
		var jobs []NewJob
		for i := range before + behind + quota.Backfill {
			job := NewJob{ID: fmt.Sprint("held-", i), Tenant: tenant, Queue: queueID, Task: "held", Class: 1, Priority: 5}
			if i >= before && i < before+behind {
				job.ID, job.Task = fmt.Sprint("free-", i-before), "free"
			}
			jobs = append(jobs, job)
		}
		submitAll(t, s, jobs...)
		if err := s.Admission.PauseDeployment(t.Context(), "paused", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "paused"}); err != nil {
			t.Fatal(err)
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 2, MaxBytes: 1 << 20, Lock: time.Hour, Plan: func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			if task == "held" {
				return []admission.Option{{Deployment: "paused"}}
			}
			return []admission.Option{{Deployment: "open"}}
		}}
		for n := 0; n < behind; {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range got {
				if want := fmt.Sprint("free-", n); d.ID != want {
					t.Fatalf("%s was delivered, not %s", d.ID, want)
				}
				n++
			}
		}
		if err := s.Admission.PauseDeployment(t.Context(), "paused", false, audit.Act{Actor: "a", Action: "resume-deployment", Target: "paused"}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Jobs.Claim(t.Context(), request); err != nil || got[0].ID != "held-0" {
			t.Errorf("%s goes first: %v", got[0].ID, err)
		}
	})
}

// A job that goes from behind held ones, and one that goes anyway, have room in their budget
// together.
func TestJobsBehindHeldOnesKeepBudgets(t *testing.T) {
	inPurse(t, func(p *purseful) {
		p.dailyTokens(150)
		if err := p.Admission.PauseDeployment(p.Context(), "paused", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "paused"}); err != nil {
			p.Fatal(err)
		}
		plan := func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			if task == "held" {
				return []admission.Option{{Deployment: "paused", Request: quota.Request{MaxOutputTokens: -1}}}
			}
			return []admission.Option{{Deployment: "open", Request: quota.Request{MaxOutputTokens: 100}}}
		}
		for i := range 2 * quota.Backfill {
			p.submit(func(j *NewJob) { j.ID, j.Task, j.Class = fmt.Sprint("held-", i), "held", 1 })
		}
		if got := p.claim(plan); len(got) > 0 {
			p.Fatalf("%s is delivered", got[0].ID)
		}
		<-time.After(2 * backfillAgain * time.Millisecond)
		p.submit(func(j *NewJob) { j.ID, j.Class = "behind", 1 })
		p.submit(func(j *NewJob) { j.ID, j.Class = "beside", 2 })
		first := p.claim(plan)
		if len(first) != 1 {
			p.Fatalf("%d calls of 100 tokens or more go within 150 tokens", len(first))
		}
		p.succeed(&first[0], 10)
		<-time.After(2 * backfillAgain * time.Millisecond)
		if second := p.claim(plan); len(second) != 1 || second[0].ID == first[0].ID {
			p.Fatalf("after %s has used little: %v", first[0].ID, second)
		}
	})
}
