package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/raced"
)

// claimant is a tenant whose backlog waits for deployments.
type claimant struct {
	weight   float64
	tokens   int64 // of each answer
	priority int
	age      time.Duration
	jobs     int
	idle     int // jobs of it that call a deployment without limits, submitted first
}

// served is what tenants were given of the scarce deployments: tokens, and calls.
type served struct{ tokens, calls []float64 }

// serveScarce has tenants compete for the deployments for so long, in virtual time. It returns
// what each got of the deployments that have limits. A job of class 2 calls the deployment "idle".
// The others call the scarce ones, in their order.
func serveScarce(t *testing.T, claimants []claimant, deployments []quota.Limits, most int, span time.Duration) served {
	t.Helper()
	got := served{make([]float64, len(claimants)), make([]float64, len(claimants))}
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		var floods []flood
		for _, c := range claimants {
			floods = append(floods, flood{weight: c.weight, priority: c.priority, class: 1, jobs: c.jobs, age: c.age})
		}
		tenants, share := fillBacklogs(t, s, queueID, floods)
		of := map[int64]int{}
		for i, no := range tenants {
			of[no] = i
			jobs := make([]NewJob, claimants[i].idle)
			for n := range jobs {
				jobs[n] = NewJob{ID: fmt.Sprintf("idle-%d-%d", i, n), Tenant: no, Queue: queueID, Task: "idle", Priority: claimants[i].priority, Class: 2}
			}
			if len(jobs) > 0 {
				submitAll(t, s, jobs...)
			}
		}
		plan := func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) (options []admission.Option) {
			if task == "idle" {
				return []admission.Option{{Deployment: "idle", Limits: quota.Limits{Accounting: quota.AccountAzureOpenAI}, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: 1000}}}
			}
			var i int
			if _, err := fmt.Sscan(task, &i); err != nil {
				t.Error(err)
			}
			for n, l := range deployments {
				options = append(options, admission.Option{Deployment: fmt.Sprint("d", n), Limits: l, Request: quota.Request{PromptTokens: 20, MaxOutputTokens: claimants[i].tokens}})
			}
			return options
		}
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		for {
			deliveries, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: most, MaxBytes: 1 << 20, Lock: time.Hour, Share: share, Plan: plan})
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			calls := false
			var settling sync.WaitGroup
			for _, d := range deliveries {
				if i := of[d.Tenant]; d.Admission.Deployment != "idle" {
					got.tokens[i] += float64(d.Admission.Reservation.Size())
					got.calls[i]++
				} else {
					calls = true
				}
				d.Admission.Outcome = &quota.Outcome{Kind: quota.Succeeded}
				settling.Go(func() {
					if err := s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
						t.Error(err)
					}
				})
			}
			settling.Wait()
			if calls { // one that is not scarce takes its time
				<-time.After(200 * time.Millisecond)
			}
		}
	})
	return got
}

func sumOf(list []float64) (sum float64) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// Scarce deployments are shared by weight, however the jobs of the tenants differ in size, and
// nearly all of them is used.
func TestSharesOfWhatIsScarce(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	const limit, perMinute, minutes = 200_000, 60, 3
	tokens := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: limit}
	requests := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 100 * limit, RequestsPerMinute: perMinute}
	small, large := int64(980), int64(19_980) // with the prompt 1,000 and 20,000
	tests := map[string]struct {
		claimants   []claimant
		deployments []quota.Limits
		requests    bool
		most        int
	}{
		"equal weights":            {claimants: []claimant{{weight: 1, tokens: small}, {weight: 1, tokens: large}}, deployments: []quota.Limits{tokens}, most: 1},
		"four times for the small": {claimants: []claimant{{weight: 4, tokens: 2_000}, {weight: 1, tokens: 8_000}}, deployments: []quota.Limits{tokens}, most: 8},
		"three tenants": {claimants: []claimant{{weight: 1, tokens: 2_000}, {weight: 2, tokens: large, priority: 9}, {weight: 3, tokens: 4_000, age: time.Hour}},
			deployments: []quota.Limits{tokens}, most: 8},
		"requests":          {claimants: []claimant{{weight: 4, tokens: small}, {weight: 1, tokens: large}, {weight: 2, tokens: large}}, deployments: []quota.Limits{requests}, requests: true, most: 8},
		"three deployments": {claimants: []claimant{{weight: 1, tokens: 4_000}, {weight: 4, tokens: large}, {weight: 2, tokens: 8_000}}, deployments: []quota.Limits{tokens, tokens, tokens}, most: 8},
		"busy elsewhere":    {claimants: []claimant{{weight: 1, tokens: large, idle: 1_000}, {weight: 1, tokens: 4_000}}, deployments: []quota.Limits{tokens}, most: 8},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i, c := range test.claimants { // more than it could be given alone
				if test.claimants[i].jobs = int(1.2 * minutes * limit * float64(len(test.deployments)) / float64(c.tokens)); test.requests {
					test.claimants[i].jobs = perMinute * minutes
				}
			}
			got := serveScarce(t, test.claimants, test.deployments, test.most, minutes*time.Minute)
			var floods []flood
			for _, c := range test.claimants {
				floods = append(floods, flood{weight: c.weight})
			}
			of, all := got.tokens, float64(limit)
			if test.requests {
				of, all = got.calls, perMinute
			}
			checkShares(t, name, floods, of)
			if used := sumOf(of) / (all * minutes * float64(len(test.deployments))); used < 0.95 {
				t.Errorf("%.1f %% of the quota was used", 100*used)
			}
		})
	}
}

// What is scarce is shared by weight whatever the ages and the priorities of the backlogs are.
func TestSharesOfWhatIsScarceByAgeAndPriority(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	const limit, minutes, tokens = 200_000, 3, 3_000
	for _, age := range []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute} {
		var claimants []claimant
		var floods []flood
		for priority := range forebay.MaxPriority + 1 { // each is old or fresh, of a large weight or a small one
			c := claimant{weight: float64(1 + priority%3), tokens: tokens / int64(1+priority%2), priority: priority, jobs: 100}
			if priority%4 < 2 {
				c.age = age
			}
			claimants, floods = append(claimants, c), append(floods, flood{weight: c.weight})
		}
		got := serveScarce(t, claimants, []quota.Limits{{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: limit}}, 8, minutes*time.Minute)
		checkShares(t, age.String(), floods, got.tokens)
		if used := sumOf(got.tokens) / (limit * minutes); used < 0.95 {
			t.Errorf("%v: %.1f %% of the quota was used", age, 100*used)
		}
	}
}

// A function's calls have no tokens. Those of one that takes few at once are shared by weight all
// the same.
func TestSharesOfAFunctionThatTakesFewAtOnce(t *testing.T) {
	t.Parallel()
	floods := []flood{{weight: 1, class: 1, jobs: 90, age: time.Hour}, {weight: 2, class: 1, jobs: 90}}
	got := make([]float64, len(floods))
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenants, share := fillBacklogs(t, s, queueID, floods)
		plan := func(string, []byte, int64, *forebay.CallEstimate) []admission.Option {
			return []admission.Option{{Deployment: "http:slow", Concurrency: 2, Request: quota.Request{MaxOutputTokens: -1}}}
		}
		for range 30 {
			deliveries, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 8, MaxBytes: 1 << 20, Lock: time.Hour, Share: share, Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range deliveries {
				got[slices.Index(tenants, d.Tenant)]++
				d.Admission.Outcome = &quota.Outcome{Kind: quota.Succeeded}
				if err := s.Jobs.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if sumOf(got) < 50 {
		t.Fatalf("%v calls", got)
	}
	checkShares(t, "calls", floods, got)
}
