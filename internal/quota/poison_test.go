package quota_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/retry"
)

// poison is how the calls of a job always fail.
type poison int

const (
	healthyJob poison = iota
	alwaysError
	alwaysCut
	alwaysTimeout
)

func (p poison) String() string { return [...]string{"healthy", "500", "cut", "timeout"}[p] }

// callTimeout is after how long a call that hangs is given up.
const callTimeout = 15_000

// routed is a queue whose jobs may be called at any of some deployments, in their order. Each has
// a state and a server of its own; what follows a failure is decided by the standard
// policy, in two lanes.
type routed struct {
	s       *simulation
	limits  quota.Limits
	policy  retry.Policy
	servers []*server
	states  []*quota.State
	passOn  []passOn
	lines   [2][]*job
	free    [2]int
	budget  *retry.Budget
	wakeAt  int64

	goodLeft, goodFailed int
	goodDone, ended      int64 // when the last good job was done, and the last job of all had ended
	mostCalls            int   // of one job
	opened               int   // times that a breaker opened
	doneOf               map[int64]int64
}

func newRouted(seed uint64, jobs []*job, deployments, slots int, perMinute int64) *routed {
	v := func() *server { return &server{quota: perMinute, swift: true} }
	s := newSimulation(seed, 1, v())
	s.jobs, s.open = jobs, len(jobs)
	r := &routed{s: s, policy: retry.Default, budget: retry.NewBudget(retry.Default), free: [2]int{slots, retry.Default.Concurrency},
		limits:   quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: perMinute, RequestsPerMinute: perMinute * 6 / 1000},
		goodDone: epoch, doneOf: map[int64]int64{}}
	for range deployments {
		server := v()
		server.begin(epoch, s.rng)
		r.servers, r.states, r.passOn = append(r.servers, server), append(r.states, new(quota.State)), append(r.passOn, passOn{})
	}
	for _, j := range jobs {
		if j.poison == healthyJob {
			r.goodLeft++
		}
		s.after(j.from, func() { r.back(j, mainLane); r.pump() })
	}
	return r
}

func (r *routed) with(i int, do func(*quota.State)) {
	state := r.states[i]
	do(state)
	for _, c := range state.Changes() {
		if c.Kind == quota.BreakerOpened {
			r.opened++
		}
	}
	r.passOn[i].store(state)
}

func (r *routed) pump() {
	for lane := range r.lines {
		r.claim(lane)
	}
}

func (r *routed) claim(lane int) {
	free := r.free[lane]
	if free == 0 || len(r.lines[lane]) == 0 {
		return
	}
	if lane == retryLane {
		var wait time.Duration
		if free, wait = r.budget.Take(time.UnixMilli(r.s.now), free); free == 0 {
			r.wake(r.s.now + wait.Milliseconds() + 1)
			return
		}
	}
	slots, next := free, int64(math.MaxInt64)
	waiting := slices.Clone(r.lines[lane][:min(len(r.lines[lane]), quota.Backfill+slots)])
	for i := range r.servers {
		line := make([]quota.Candidate, len(waiting))
		for n, j := range waiting {
			line[n] = quota.Candidate{ID: int64(j.id) + 1, Tenant: j.tenant, Again: lane == retryLane,
				Request: quota.Request{PromptTokens: j.guess, MaxOutputTokens: j.output}}
		}
		var left []*job
		r.with(i, func(s *quota.State) {
			for n, d := range s.Admit(r.s.now, r.limits, line, slots) {
				if d.Admitted() {
					slots--
					r.lines[lane] = slices.DeleteFunc(r.lines[lane], func(j *job) bool { return j == waiting[n] })
					r.start(i, waiting[n], lane, d.Reservation)
					continue
				}
				left = append(left, waiting[n])
				if d.Verdict.RetryAt > 0 {
					next = min(next, d.Verdict.RetryAt)
				}
			}
		})
		waiting = left
	}
	if lane == retryLane {
		r.budget.Refund(slots)
	}
	if next < math.MaxInt64 {
		r.wake(next)
	}
}

func (r *routed) wake(at int64) {
	if r.wakeAt <= r.s.now || at < r.wakeAt {
		r.wakeAt = max(at, r.s.now+1)
		r.s.at(r.wakeAt, r.pump)
	}
}

func (r *routed) start(at int, j *job, lane int, res quota.Reservation) {
	r.free[lane]--
	j.calls++
	r.mostCalls = max(r.mostCalls, j.calls)
	feedback := func(o quota.Outcome) {
		r.with(at, func(s *quota.State) { s.Feedback(r.s.now, r.limits, res, o, r.s.rng.Float64) })
	}
	r.s.server = r.servers[at]
	r.s.call(j, func(h headers) {
		feedback(quota.Outcome{Kind: quota.HeadersArrived, Headers: neutral(h)})
		r.pump()
	}, func(a answer) {
		r.free[lane]++
		r.budget.Ended(lane == retryLane, a.status == 200)
		o := quota.Outcome{Headers: neutral(a.headers)}
		failure := &forebay.TaskError{RetryAfter: millis(a.retryAfter)}
		switch a.status {
		case 200:
			o = quota.Outcome{Kind: quota.Succeeded, Usage: quota.Usage{PromptTokens: j.real, OutputTokens: j.produced}}
			failure = nil
			r.end(j, true)
		case 429:
			failure.Class, o.Kind, o.RetryAfter = forebay.ClassThrottled, quota.ThrottledTokens, failure.RetryAfter
		default:
			failure.Class, o.Kind = forebay.ClassTransient, quota.Transient
		}
		if failure != nil {
			r.failed(j, lane, res, failure)
		}
		feedback(o)
		r.pump()
	})
}

func (r *routed) failed(j *job, lane int, res quota.Reservation, failure *forebay.TaskError) {
	next := r.policy.Next(retry.Failed{Number: j.calls, Charged: j.attempts, Failures: j.failures, MaxAttempts: r.policy.Attempts,
		Age: millis(r.s.now - epoch), Probe: res.Probe, Unwell: res.Unwell, Mixed: res.Mixed}, failure, r.s.rng.Float64)
	if failure.Class == forebay.ClassTransient {
		j.failures++
	}
	switch next.Step {
	case retry.SetAside:
		r.end(j, false)
		return
	case retry.Retry:
		lane = retryLane
		if next.Charged {
			j.attempts++
		}
	}
	r.s.after(next.Delay.Milliseconds(), func() { r.back(j, lane); r.pump() })
}

func (r *routed) end(j *job, ok bool) {
	r.s.finish(j, ok)
	r.ended = r.s.now
	if j.poison == healthyJob {
		r.goodLeft--
		r.goodDone = r.s.now
		r.doneOf[j.tenant] = r.s.now
		if !ok {
			r.goodFailed++
		}
	}
}

func (r *routed) back(j *job, lane int) {
	i, _ := slices.BinarySearchFunc(r.lines[lane], j, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.id, b.id))
	})
	r.lines[lane] = slices.Insert(r.lines[lane], i, j)
}

// mixedJobs are poisoned jobs ahead of 200 good ones, which are the same whatever the number of
// the others.
func mixedJobs(seed uint64, kind poison, poisoned int) []*job {
	s := newSimulation(seed, 1, &server{quota: tpm})
	good := newJobs(s.rng, 200)
	bad := newJobs(s.rng, max(poisoned, 1))[:poisoned]
	for _, j := range bad {
		j.poison, j.prompt, j.guess, j.output = kind, 10, 10, 200 // the cheapest of all
	}
	all := slices.Concat(bad, good)
	for i, j := range all {
		j.id = i
	}
	return all
}

// TestPoisonedJobs: jobs that always fail stand ahead of 200 good ones. They hold those up by no
// more than half of what they need alone, and each of the poisoned ends.
func TestPoisonedJobs(t *testing.T) {
	t.Parallel()
	for _, deployments := range []int{1, 2} {
		for _, kind := range []poison{alwaysError, alwaysCut, alwaysTimeout} {
			for _, n := range []int{3, 12, 50} {
				t.Run(fmt.Sprintf("%d deployments, %d of %s", deployments, n, kind), func(t *testing.T) {
					t.Parallel()
					for seed := range uint64(2) {
						alone := newRouted(seed, mixedJobs(seed, kind, 0), deployments, 64, 3*tpm)
						alone.s.run()
						r := newRouted(seed, mixedJobs(seed, kind, n), deployments, 64, 3*tpm)
						r.s.run()
						took, needs := r.goodDone-epoch, alone.goodDone-epoch
						t.Logf("seed %d: ratio %.2f, %d ms alone; all ended after %d ms, at most %d calls of one job, opened %d times",
							seed, float64(took)/float64(needs), needs, r.ended-epoch, r.mostCalls, r.opened)
						if took > needs*3/2 || r.goodFailed > 0 || r.s.open > 0 || r.s.failed != n {
							t.Errorf("seed %d: the good ones took %d ms, alone %d; %d of them failed, %d jobs are open, %d failed",
								seed, took, needs, r.goodFailed, r.s.open, r.s.failed)
						}
						if bound := (retry.Excused + 1) * r.policy.Attempts; r.mostCalls > bound {
							t.Errorf("seed %d: a poisoned job was called %d times; at most %d may be", seed, r.mostCalls, bound)
						}
					}
				})
			}
		}
	}
}

// benchLike is a queue with few places and no limit of quota, as most begin with: whether the
// breaker is open alone decides. Answers take 0.8 s, and the first token comes at once.
func benchLike(seed uint64, kind poison, poisoned, deployments, places int) *routed {
	jobs := mixedJobs(seed, kind, poisoned)
	for _, j := range jobs {
		j.guess, j.prompt, j.output = 10, 10, 20 // all cost the same
	}
	r := newRouted(seed, jobs, deployments, places, 1000*tpm)
	r.limits = quota.Limits{}
	r.policy.First, r.policy.Max, r.policy.Attempts = time.Second, 10*time.Second, 3
	r.budget = retry.NewBudget(r.policy)
	for _, v := range r.servers {
		v.lasts = 800
	}
	return r
}

// TestPoisonedJobsAtFewPlaces: where the quota holds nothing back, the breaker alone decides what
// poisoned jobs cost the good ones. Those need no more than half as long again, or with timeouts,
// which also take the places, two thirds.
func TestPoisonedJobsAtFewPlaces(t *testing.T) {
	t.Parallel()
	for _, places := range []int{8, 16} {
		for _, deployments := range []int{1, 2} {
			for _, kind := range []poison{alwaysError, alwaysCut, alwaysTimeout} {
				const n, seeds = 50, 3
				sum := 0.0
				for seed := range uint64(seeds) {
					alone := benchLike(seed, kind, 0, deployments, places)
					alone.s.run()
					r := benchLike(seed, kind, n, deployments, places)
					r.s.run()
					sum += float64(r.goodDone-epoch) / float64(alone.goodDone-epoch) / seeds
					if r.goodFailed > 0 || r.s.open > 0 || r.s.failed != n {
						t.Errorf("%d places, %d deployments, %s: %d good jobs failed, %d jobs are open, %d failed",
							places, deployments, kind, r.goodFailed, r.s.open, r.s.failed)
					}
				}
				const most = 1.5
				t.Logf("%d places, %d deployments, %d of %s: ratio %.2f", places, deployments, n, kind, sum)
				if sum > most {
					t.Errorf("%d places, %d deployments, %s: ratio %.2f; at most %.1f", places, deployments, kind, sum, most)
				}
			}
		}
	}
}
