package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// A job that was turned away is not at fault, unless that happens to it time after time. One that
// finds out whether its deployment still turns calls away never is if it is certain that it does.
func TestWhoIsAtFault(t *testing.T) {
	for _, c := range []struct {
		certain, probe bool
		before         int
		is, perhaps    bool
	}{
		{true, false, 0, false, false},
		{true, false, 9, false, false},
		{true, false, 10, true, false},
		{true, true, 100, false, false},
		{false, false, 0, false, true},
		{false, true, 2, false, true},
		{false, true, 3, true, true},
	} {
		d := Delivery{LockedJob: LockedJob{Admission: &admission.Admission{
			Reservation: quota.Reservation{Probe: c.probe}, Outcome: &quota.Outcome{Kind: quota.Denied, Certain: c.certain}}}}
		if is, perhaps := d.atFault(c.before); is != c.is || perhaps != c.perhaps {
			t.Errorf("%+v: at fault %t, perhaps %t", c, is, perhaps)
		}
	}
}

// Of a deployment that turns calls away operators are told why. They, or a start of the server,
// have it tried again at once. Of others that says nothing.
func TestDeniedDeployments(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx := t.Context()
		deny := func(name string, r quota.Reservation) {
			t.Helper()
			o := quota.Outcome{Kind: quota.Denied, Denial: quota.Unpaid, Certain: true}
			if err := s.Admission.RecordOutcome(ctx, admission.Admission{Option: admission.Option{Deployment: name}, Reservation: r, Outcome: &o}); err != nil {
				t.Fatal(err)
			}
		}
		// tried reports whether a deployment takes a call now, and makes it.
		tried := func(name string) (r quota.Reservation, takes bool) {
			t.Helper()
			_, err := db.TransactIn(ctx, admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
				d, err := tx.Deployment(name)
				if err != nil {
					return struct{}{}, err
				}
				r, _ = d.Reserve(tx.Now, quota.Limits{}, quota.Request{})
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return r, r.Seq != 0
		}
		for _, name := range []string{"east", "west"} {
			r, _ := tried(name)
			deny(name, r)
			if _, takes := tried(name); takes {
				t.Fatalf("%s takes calls", name)
			}
		}
		changes, err := s.Admission.DeploymentChanges(ctx, "east", 0, 10)
		if err != nil || len(changes) != 1 || changes[0].Type != string(quota.BreakerOpened) || changes[0].Reason != "insufficient_quota" || changes[0].Until == nil {
			t.Errorf("%+v (%v)", changes, err)
		}
		if err := s.Admission.RetryDenied(ctx, []string{"north", "east"}); err != nil {
			t.Fatal(err)
		}
		r, takes := tried("east")
		if _, more := tried("east"); !takes || !r.Probe || more {
			t.Errorf("east takes a call: %t; more: %t", takes, more)
		}
		if _, takes := tried("west"); takes {
			t.Error("west takes calls, which another server has")
		}
		deny("east", r)
		if err := s.Admission.PauseDeployment(ctx, "east", false, audit.Act{Actor: "a", Action: "resume-deployment", Target: "east"}); err != nil {
			t.Fatal(err)
		}
		if r, takes := tried("east"); !takes || !r.Probe {
			t.Error("east takes no call after it was resumed")
		}
		if holding, err := s.Admission.Holding(ctx); err != nil || holding.Deployments["north"] != nil {
			t.Errorf("something is known of a deployment that nobody called: %v", err)
		}
	})
}

// turnedAway is what is told of a call that was turned away, perhaps for the job's own fault.
func turnedAway(d *LockedJob, why quota.Denial) (a, back AttemptRecord) {
	d.Admission.Outcome = &quota.Outcome{Kind: quota.Denied, Denial: why}
	a = AttemptRecord{Deployment: d.Admission.Deployment, Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: why.String()}
	back = a
	back.Outcome = forebay.OutcomeRetried
	return a, back
}

// An endpoint fails, and turns away the calls that are still under way, as an ingress does while
// what is behind it goes. No job fails for good.
func TestRefusalsOfAnOutageCostNoJob(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const all, failing = 40, 15
		ctx, tenant, queueID := t.Context(), tenantNamed(t, s, "a"), queueOf(t, s, "q")
		for i := range all {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: "east", Priority: 5})
		}
		var calls []LockedJob
		for len(calls) < all {
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: all, MaxBytes: 1 << 20, Lock: time.Hour, Plan: planOf(quota.Limits{})})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, got...)
		}
		for i := range calls[:failing] {
			calls[i].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
			a := AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, ErrorCode: "unavailable", RetryDelay: time.Hour}
			if err := s.Jobs.Retry(ctx, &calls[i], a); err != nil {
				t.Fatal(err)
			}
		}
		for i := range calls[failing:] {
			d := &calls[failing+i]
			a, back := turnedAway(d, quota.NotFound)
			if failed, err := s.Jobs.DeadLetterUnlessDenied(ctx, d, a, back, queue.SubqueueDeadLetter, "not_found"); err != nil || failed {
				t.Errorf("job %s failed for good: %t (%v)", d.ID, failed, err)
			}
		}
		if holding, err := s.Admission.Holding(ctx); err != nil || holding.Deployments["east"].Status(holding.Now, quota.Limits{}).Breaker != quota.Open {
			t.Errorf("east is %+v (%v)", holding.Deployments["east"], err)
		}
		page, err := s.Jobs.Jobs(ctx, JobQuery{Tenant: tenant, Limit: all})
		if err != nil || len(page.Jobs) != all {
			t.Fatal(len(page.Jobs), err)
		}
		for _, job := range page.Jobs {
			if job.Status != forebay.StatusQueued && job.Status != forebay.StatusRetrying {
				t.Errorf("%s is %s", job.ID, job.Status)
			}
		}
	})
}

// Some calls of a tenant are refused one by one, as a firewall refuses prompts. They do not keep
// another tenant's from a deployment that both use. It is tried about once a minute, at least
// every other time with the job whose turn it is.
func TestRefusedPromptsKeepNoOtherTenantAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		const batch, forgiven = 30, 3
		a, b := tenantNamed(t, s, "a"), tenantNamed(t, s, "b")
		for i := range batch {
			submitAll(t, s, NewJob{ID: fmt.Sprint("bad", i), Tenant: a, Queue: queueID, Task: "east", Priority: 5})
		}
		var came time.Duration
		began, good := time.Now(), "good"
		for ended := 0; ended <= batch; {
			if time.Since(began) >= 10*time.Minute && came == 0 {
				came = time.Since(began)
				if holding, err := s.Admission.Holding(t.Context()); err != nil || holding.Deployments["east"].Denied() != quota.Unauthorized {
					t.Fatalf("it takes calls, with %d jobs ended (%v)", ended, err)
				}
				submitAll(t, s, NewJob{ID: good, Tenant: b, Queue: queueID, Task: "east", Priority: 5})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 4, MaxBytes: 1 << 20, Lock: time.Hour, Plan: planOf(quota.Limits{})})
			if cancel(); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			if time.Since(began) > 24*time.Hour {
				t.Fatalf("after a day %d jobs have ended", ended)
			}
			<-time.After(100 * time.Millisecond)
			for i := range got {
				d := &got[i]
				if d.ID == good {
					if waited := d.LockedAt.Sub(d.CreatedAt); waited > 6*time.Minute {
						t.Errorf("it waited for %s", waited)
					}
					ended++
					d.Admission.Outcome = &quota.Outcome{Kind: quota.Succeeded}
					if err := s.Jobs.Succeed(t.Context(), d, AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				record, back := turnedAway(d, quota.Unauthorized)
				failed := d.Number-1 >= forgiven
				if failed {
					err = s.Jobs.DeadLetter(t.Context(), d, record, queue.SubqueueDeadLetter, "unauthorized")
				} else {
					failed, err = s.Jobs.DeadLetterUnlessDenied(t.Context(), d, record, back, queue.SubqueueDeadLetter, "unauthorized")
				}
				if err != nil {
					t.Fatal(err)
				}
				if failed {
					ended++
				}
			}
		}
	})
}
