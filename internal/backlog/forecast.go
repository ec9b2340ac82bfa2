package backlog

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/quota"
)

const (
	// countedAhead is how many jobs ahead of another one are counted in each flow. Beyond that
	// their number is estimated.
	countedAhead = 1000
	// rateSpan is over how long the rate of starts is measured; rateStarts is the fewest starts
	// that tell a rate.
	rateSpan   = 15 * time.Second
	rateStarts = 5
	// nearly is the share of its limit from which on a deployment counts as held back by it.
	nearly = 0.8
	// fewCalls is how many calls of the last minute tell what the jobs ahead will need.
	fewCalls = 10
	// portions is into how many parts the work ahead is cut, to be spread over deployments.
	portions = 16
)

// forecast is made from what holds jobs back now.
type forecast struct{ admission.Holding }

// option is a deployment that a job could call, with a copy of its state.
type option struct {
	admission.Option
	state  *quota.State
	status quota.Status
}

func (f forecast) options(list []admission.Option) []option {
	options := make([]option, len(list))
	for i, o := range list {
		state := &quota.State{}
		if known := f.Deployments[o.Deployment]; known != nil {
			state = known.Clone()
		}
		options[i] = option{Option: o, state: state, status: state.Status(f.Now, o.Limits)}
	}
	return options
}

// holds returns why none of the deployments would take the job if it were next; "": one would, or
// the job needs none. Of several reasons it prefers the one that usually ends soonest.
func (f forecast) holds(options []option) (reason forebay.WaitReason) {
	for _, o := range options {
		_, v := o.state.Clone().Reserve(f.Now, o.Limits, o.Request)
		if v.Admitted() && o.Concurrency > 0 && f.Concurrency.OfDeployment(o.Deployment) >= o.Concurrency {
			v.Reason = forebay.WaitConcurrency
		}
		switch {
		case v.Admitted():
			return ""
		case reason == "" || v.Reason == forebay.WaitConcurrency || v.Reason == forebay.WaitQuota || reason == forebay.WaitPaused:
			reason = v.Reason
		}
	}
	return reason
}

// rate returns how many jobs a millisecond the deployments have begun lately, together; 0: nobody
// knows.
func (f forecast) rate(options []option) float64 {
	var starts, since int64
	blocked := true // no deployment takes calls for a while, so the past tells nothing
	for _, o := range options {
		n, from := o.state.Starts(f.Now, rateSpan)
		starts += n
		if from > 0 && (since == 0 || from < since) {
			since = from
		}
		if !o.status.Operator {
			blocked = blocked && (o.status.PausedUntil > 0 || o.status.Breaker != quota.Closed)
		}
	}
	if starts < rateStarts || since >= f.Now || blocked {
		return 0
	}
	return float64(starts) / float64(f.Now-since)
}

// start is in how long a job is started.
type start struct {
	in    time.Duration
	known bool // else nothing tells
	held  bool // it waits for quotas
}

// atLeast makes the start wait for something else that takes so long.
func (e *start) atLeast(in time.Duration) { e.in, e.known = max(e.in, in), true }

// byQuota estimates the start of a job with so many ahead, by the quotas and the rate at which
// jobs start.
func (f forecast) byQuota(options []option, ahead int64, rate float64) start {
	var able []option
	// It is known how long a limit holds jobs back. Nobody knows how long a deployment is paused
	// or turns calls away.
	limited, free, called := false, false, false
	for _, o := range options {
		n, _ := o.state.Starts(f.Now, rateSpan)
		if called = called || n > 0; o.status.Operator || o.status.Denied != quota.NotDenied {
			continue
		}
		able = append(able, o)
		limited = limited || o.limited()
		free = free || !o.tight(f.Now, ahead)
	}
	if len(able) == 0 {
		return start{}
	}
	in := f.drain(able, ahead+1)
	e := start{in: in, held: limited && !free, known: limited && (!free || called || in > 0)}
	if rate > 0 {
		e.atLeast(time.Duration(float64(ahead)/rate) * time.Millisecond)
	}
	return e
}

// expect estimates when a job with so many ahead in its subqueue is started.
func (f forecast) expect(job *Job, retry RetryLimits, options []option, ahead Ahead, calls Calls, rate float64) start {
	if job.Retry() {
		e := f.byQuota(options, ahead.Jobs, 0) // jobs of the main subqueue start at another rate
		retry.delay(&e, ahead.Jobs, calls.Duration)
		return e
	}
	if calls.Most == 0 {
		return f.byQuota(options, ahead.Jobs, rate)
	}
	full := int64(len(calls.Running)) >= calls.Most
	if full { // jobs of other tenants pass it
		ahead.Jobs = ahead.Own
	}
	e := f.byQuota(options, ahead.Jobs, rate)
	if calls.Duration > 0 {
		e.atLeast(freeIn(calls, ahead.Own))
	} else if full {
		e.known = false
	}
	return e
}

// RetryLimits bound the starts of a queue's retries.
type RetryLimits struct {
	Concurrency int
	Rate        float64 // a second; 0: unlimited
	Budget      float64 // retries a second that the retry budget allows now; 0: unlimited
}

// delay makes the start wait for the limits of the retry subqueue.
func (l RetryLimits) delay(e *start, ahead int64, duration time.Duration) {
	places := int64(max(l.Concurrency, 1))
	if ahead < places {
		e.atLeast(0)
	}
	if duration > 0 {
		e.atLeast(times(float64(ahead/places), duration))
	}
	if l.Rate > 0 {
		e.atLeast(times(float64(ahead)/l.Rate, time.Second))
	}
	if l.Budget > 0 {
		e.atLeast(times(float64(ahead+1)/l.Budget, time.Second))
	}
}

// freeIn returns in how long the tenant has a free call for a job with so many ahead. It
// assumes that calls take as long as the latest did.
func freeIn(calls Calls, ahead int64) time.Duration {
	free := make([]time.Duration, calls.Most) // in how long each call is free, the soonest first
	running := calls.Running
	if over := len(running) - len(free); over > 0 { // its limit was lowered, so the first calls to end free nothing
		running = running[over:]
	}
	for i, since := range running {
		free[len(free)-len(running)+i] = max(calls.Duration-since, 0)
	}
	return free[ahead%calls.Most] + times(float64(ahead/calls.Most), calls.Duration)
}

// times returns n times d, but at most some years.
func times(n float64, d time.Duration) time.Duration {
	return time.Duration(min(n*float64(d), float64(1e8*time.Second)))
}

// drain returns in how long the deployments have begun so many jobs together. Each portion goes
// to the one that is done with it first.
func (f forecast) drain(options []option, jobs int64) (in time.Duration) {
	given := make([]int64, len(options))
	for left := jobs; left > 0; {
		portion := min(max(jobs/portions, 1), left)
		best, at := 0, time.Duration(-1)
		for i, o := range options {
			n := given[i] + portion
			if d := o.state.Drain(f.Now, o.Limits, n*o.size(), n); at < 0 || d < at {
				best, at = i, d
			}
		}
		given[best] += portion
		left -= portion
		in = max(in, at)
	}
	return in
}

// size is the tokens that a job ahead will be charged: the mean of the last minute, else the
// estimate of this one.
func (o option) size() int64 {
	if used := o.status.Used; used[quota.Requests] >= fewCalls {
		return (used[quota.Tokens] + used[quota.OutputTokens]) / used[quota.Requests]
	}
	return o.state.Estimate(o.Limits, o.Request)
}

func (o option) limited() bool {
	return o.status.Limit[quota.Tokens] > 0 || o.status.Limit[quota.Requests] > 0
}

// tight reports whether the deployment's own limits hold calls back, not the workers. Then there
// is no room for even a few of the waiting jobs.
func (o option) tight(now, ahead int64) bool {
	const few = 4
	state := o.state.Clone()
	for range min(ahead, few) + 1 {
		if _, v := state.Reserve(now, o.Limits, o.Request); !v.Admitted() {
			return true
		}
	}
	for d, limit := range o.status.Limit {
		if limit > 0 && float64(o.status.Used[d]) >= nearly*float64(limit) {
			return true
		}
	}
	return false
}

// Outlook is what can be said of a waiting job.
type Outlook struct {
	Waiting  forebay.WaitReason // what it waits for; "": nothing
	Position int64              // 1: it is next
	AtLeast  int64              // if Position is an estimate: the jobs that were counted; else 0
	Start    *time.Time         // when it may start; nil: nobody knows
	Causes   []forebay.WaitCause
}

// Query is a waiting job, and what the caller knows of it.
type Query struct {
	Job
	TenantName string
	Ready      bool // it could start now
	Paused     bool // its queue or tenant is
	Options    []admission.Option
	Shares     flows.Shares
	Retry      RetryLimits
}

// Outlook returns what can be said of a waiting job.
func (r *Reader) Outlook(ctx context.Context, q *Query) (o Outlook, err error) {
	at, err := r.Position(ctx, &q.Job, q.Shares, countedAhead)
	if err != nil {
		return o, err
	}
	f := forecast{at.Holding}
	options := f.options(q.Options)
	holds, rate := f.holds(options), f.rate(options)
	start := f.expect(&q.Job, q.Retry, options, at.Ahead, at.Calls, rate)
	o.Waiting, o.Position = q.Waiting, at.Jobs+1
	if at.Counted > 0 {
		o.AtLeast = at.Counted + 1
	}
	if q.Ready {
		if o.Waiting == "" && f.Concurrency.Full(q.Tenant) {
			o.Waiting = forebay.WaitConcurrency
		} else if o.Waiting == "" {
			o.Waiting = holds
		}
		if o.Waiting == "" && start.held && start.in > 0 {
			o.Waiting = forebay.WaitQuota
		}
	}
	o.Causes = f.causes(q, o.Waiting, options)
	begins := at.Now
	if start.known {
		begins += start.in.Milliseconds()
	}
	if !q.Ready {
		// What is ahead of it now may have gone by then, except what becomes ready together with
		// it.
		then := forecast{at.Holding}
		then.Now = q.Visible
		calls := at.Calls
		calls.Running = nil
		last := then.expect(&q.Job, q.Retry, then.options(q.Options), at.With, calls, rate)
		begins, start.known = max(begins, then.Now+last.in.Milliseconds()), true
	}
	if start.known && !q.Paused && holds != forebay.WaitPaused && !at.Unaffordable {
		at := time.UnixMilli(begins).UTC()
		o.Start = &at
	}
	return o, nil
}

// Holds returns what would hold a job back that is ready, if it were next; "": nothing would.
func Holds(h admission.Holding, tenant int64, list []admission.Option) forebay.WaitReason {
	if h.Concurrency.Full(tenant) {
		return forebay.WaitConcurrency
	}
	f := forecast{h}
	return f.holds(f.options(list))
}
