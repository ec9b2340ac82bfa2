package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// planOf has each job called at the deployment that its task names.
func planOf(limits quota.Limits) admission.Plan {
	return func(task string, _ []byte, size int64, _ *forebay.CallEstimate) []admission.Option {
		return []admission.Option{{Deployment: task, Limits: limits, Request: quota.Request{PromptTokens: size, MaxOutputTokens: 1}}}
	}
}

// What came of a call whose lock was lost is taken in once.
func TestCallToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "d", Priority: 5})
		req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, Plan: planOf(quota.Limits{TokensPerMinute: 1e6})}
		got, err := s.Jobs.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Jobs.Cancel(t.Context(), got[0].Seq); err != nil {
			t.Fatal(err)
		}
		got[0].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
		if err := s.Jobs.Retry(t.Context(), &got[0], AttemptRecord{Outcome: forebay.OutcomeRetried}); !errors.Is(err, forebay.ErrLockLost) {
			t.Fatal(err)
		}
		if got[0].Admission != nil { // whose settlement told nothing
			if err := s.Admission.RecordOutcome(t.Context(), *got[0].Admission); err != nil {
				t.Fatal(err)
			}
		}
		holding, err := s.Admission.Holding(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st := holding.Deployments["d"].Status(holding.Now, quota.Limits{TokensPerMinute: 1e6}); st.Counts.Failed != 1 {
			t.Errorf("%d failures", st.Counts.Failed)
		}
	})
}

// A job that is held keeps no job behind it that another deployment has room for.
func TestHeldJobLetsOthersTry(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		limits := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 60_000}
		for _, task := range []string{"full", "full", "free"} {
			submitAll(t, s, NewJob{ID: fmt.Sprint(task, time.Now().UnixNano()), Tenant: tenant, Queue: queueID, Task: task, Priority: 5, InputSize: 50_000})
			<-time.After(time.Millisecond)
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour, Plan: planOf(limits)}
		began := time.Now()
		for _, want := range []string{"full", "free"} {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil || got[0].Task != want || time.Since(began) > time.Second {
				t.Fatalf("%v %v after %s, want %s", got, err, time.Since(began), want)
			}
		}
	})
}

// A job that there was no slot for is not held: no look goes deeper for it, or is put off.
func TestNoSlotIsNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		const each = 40
		var jobs []NewJob
		for _, name := range []string{"a", "b", "c"} {
			tenant := tenantNamed(t, s, name)
			for i := range each {
				jobs = append(jobs, NewJob{ID: fmt.Sprint(name, i), Tenant: tenant, Queue: queueID, Task: "t", Priority: 5})
			}
		}
		submitAll(t, s, jobs...)
		asked, plan := 0, planOf(quota.Limits{})
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 5, MaxBytes: 1 << 20, Lock: time.Hour, Plan: func(task string, input []byte, size int64, _ *forebay.CallEstimate) []admission.Option {
			asked++
			return plan(task, input, size, nil)
		}}
		began := time.Now()
		for n := 0; n < 3*each; {
			got, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			n += len(got)
		}
		if took := time.Since(began); took > 0 || asked > 3*3*each {
			t.Errorf("%d candidates for %d jobs, %s", asked, 3*each, took)
		}
	})
}

// A job that is larger than all of a deployment's quota is called where it fits. If it fits
// nowhere, it is called at the first deployment that is idle.
func TestLargeJobGoesWhereItFits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant := tenantNamed(t, s, "a")
		small := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 1_000}
		large := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 100_000}
		plan := func(_ string, _ []byte, size int64, _ *forebay.CallEstimate) []admission.Option {
			r := quota.Request{PromptTokens: size, MaxOutputTokens: 1}
			return []admission.Option{{Deployment: "small", Limits: small, Request: r}, {Deployment: "large", Limits: large, Request: r}}
		}
		for i, c := range []struct {
			tokens int64
			at     string
		}{{5_000, "large"}, {500, "small"}, {5_000, "large"}, {500_000, ""}, {5_000, "large"}} {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queueID, Task: "t", Priority: 5, InputSize: c.tokens})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour, Plan: plan})
			cancel()
			at := ""
			if len(got) == 1 {
				at = got[0].Admission.Deployment
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(len(got), err)
			}
			if at != c.at {
				t.Errorf("job %d, %d tokens: called at %q, want %q", i, c.tokens, at, c.at)
			}
		}
	})
}

// An input in blob storage may ask for an amount of output. Claims know that amount, whichever way
// the job comes to them, and so does whoever reads the job.
func TestOutputOfInputsElsewhere(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "default"), queueOf(t, s, "q")
		limits := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 1e9}
		claimed := func() LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, Plan: planOf(limits)})
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		asks := func(d LockedJob, want int64) {
			t.Helper()
			if got := d.Admission.Reservation.Request.MaxOutputTokens; got != want {
				t.Errorf("job %s was admitted for %d tokens of output; want %d", d.ID, got, want)
			}
			row, err := s.Jobs.Job(t.Context(), tenant, d.ID)
			if kept := max(row.MaxOutputTokens, 1); err != nil || kept != want {
				t.Errorf("job %s is seen to ask for %d (%v); want %d", d.ID, kept, err, want)
			}
		}
		job := NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "d", Priority: 5, MaxAttempts: 1, InputBlob: "a", InputSize: 100_000, MaxOutputTokens: 77}
		submitAll(t, s, job)
		first := claimed()
		asks(first, 77)

		waiting := make(chan LockedJob)
		go func() { waiting <- claimed() }()
		job.ID = "2"
		submitAll(t, s, job)
		asks(<-waiting, 77)
		job.ID, job.MaxOutputTokens = "3", 0
		submitAll(t, s, job)
		asks(claimed(), 1)

		for _, edit := range []struct {
			RedriveEdit
			want int64
		}{
			{RedriveEdit{MaxAttempts: 2}, 77},
			{RedriveEdit{Task: "e", MaxOutputTokens: 88}, 88},
			{RedriveEdit{InputBlob: "b", InputSize: 200_000, MaxOutputTokens: 99}, 99},
			{RedriveEdit{Input: []byte("1"), InputSize: 1}, 1},
		} {
			if err := s.Jobs.DeadLetter(t.Context(), &first, AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "because"); err != nil {
				t.Fatal(err)
			}
			if moved, err := s.Jobs.Redrive(t.Context(), []Redrive{{Seq: first.Seq, Edit: &edit.RedriveEdit}}, audit.Act{Actor: "a", Action: "redrive", Target: "1"}); err != nil || !moved[0] {
				t.Fatal(moved, err)
			}
			first = claimed()
			asks(first, edit.want)
		}
	})
}

// A deployment takes no calls while it fails or an operator has paused it. A job that is larger
// than the other deployment's quota does not wait for it: it goes once the other is idle.
func TestLargeJobDoesNotWaitForWhatStands(t *testing.T) {
	for how, stop := range map[string]func(*testing.T, *stores, ClaimRequest){
		"paused": func(t *testing.T, s *stores, _ ClaimRequest) {
			if err := s.Admission.PauseDeployment(t.Context(), "large", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "large"}); err != nil {
				t.Fatal(err)
			}
		},
		"failing": func(t *testing.T, s *stores, req ClaimRequest) {
			req.Max = 100
			for failed := 0; failed < 12; { // the first calls go before the others
				got, err := s.Jobs.Claim(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				failed += len(got)
				for i := range got {
					got[i].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
					if err := s.Jobs.Retry(t.Context(), &got[i], AttemptRecord{Outcome: forebay.OutcomeRetried, RetryDelay: time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stores, queueID int64) {
				tenant := tenantNamed(t, s, "a")
				small := admission.Option{Deployment: "small", Limits: quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 1_000}}
				large := admission.Option{Deployment: "large", Limits: quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 1_000_000}}
				plan := func(task string, _ []byte, size int64, _ *forebay.CallEstimate) []admission.Option {
					at := large
					at.Request = quota.Request{PromptTokens: size, MaxOutputTokens: 1}
					if task == "fails" {
						return []admission.Option{at}
					}
					first := small
					first.Request = at.Request
					return []admission.Option{first, at}
				}
				req := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour, Plan: plan}
				for i := range 12 {
					submitAll(t, s, NewJob{ID: fmt.Sprint("fails", i), Tenant: tenant, Queue: queueID, Task: "fails", Priority: 5, InputSize: 1})
				}
				stop(t, s, req)
				submitAll(t, s, NewJob{ID: "large", Tenant: tenant, Queue: queueID, Task: "either", Priority: 5, InputSize: 5_000})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got, err := s.Jobs.Claim(ctx, req)
				if err != nil || len(got) != 1 || got[0].ID != "large" || got[0].Admission.Deployment != "small" {
					t.Errorf("claimed %+v, %v", got, err)
				}
			})
		})
	}
}

// Refusals and transient failures of a job are counted, in its generation alone. Refusals for
// lack of quota and interruptions are not.
func TestComebacks(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "default"), queueOf(t, s, "q")
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queueID, Task: "d", Priority: 5})
		claimed := func(kind queue.SubqueueKind) LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, kind), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		subqueue := queue.SubqueueMain
		for i, call := range []struct {
			outcome        forebay.Outcome
			class          forebay.ErrorClass
			settle         func(context.Context, *LockedJob, AttemptRecord) error
			denied, failed int
		}{
			{forebay.OutcomeThrottled, forebay.ClassThrottled, func(ctx context.Context, d *LockedJob, r AttemptRecord) error {
				return s.Jobs.Throttle(ctx, d, r, forebay.WaitQuota)
			}, 0, 0},
			{forebay.OutcomeRetried, forebay.ClassPermanent, func(ctx context.Context, d *LockedJob, r AttemptRecord) error { return s.Jobs.Throttle(ctx, d, r, "") }, 1, 0},
			{forebay.OutcomeLost, forebay.ClassTransient, s.Jobs.Interrupt, 1, 0},
			{forebay.OutcomeRetried, forebay.ClassTransient, s.Jobs.Retry, 1, 1},
			{forebay.OutcomeFailed, forebay.ClassPermanent, func(ctx context.Context, d *LockedJob, r AttemptRecord) error {
				return s.Jobs.DeadLetter(ctx, d, r, queue.SubqueueDeadLetter, "because")
			}, 1, 1},
		} {
			d := claimed(subqueue)
			if err := call.settle(t.Context(), &d, AttemptRecord{Outcome: call.outcome, ErrorClass: call.class}); err != nil {
				t.Fatal(i, err)
			}
			if call.outcome == forebay.OutcomeRetried && call.class == forebay.ClassTransient {
				subqueue = queue.SubqueueRetry
			}
			if denied, failed, err := s.Jobs.Comebacks(t.Context(), d.Seq, d.Generation); err != nil || denied != call.denied || failed != call.failed {
				t.Errorf("after call %d: %d and %d (%v)", i+1, denied, failed, err)
			}
			if denied, failed, err := s.Jobs.Comebacks(t.Context(), d.Seq, d.Generation+1); err != nil || denied+failed != 0 {
				t.Errorf("of the next generation: %d and %d (%v)", denied, failed, err)
			}
		}
	})
}
