package jobs

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/store"
)

// Why a job that is ready does not run, and when it will, nobody writes down: it is worked out when
// somebody asks, from what is known of the deployments, on copies of it.

const (
	// countedAhead is how many jobs are counted that go before another one, in each line.
	countedAhead = 2000
	// rateSpan is over how long the rate at which jobs start is measured, rateStarts the fewest of them.
	rateSpan   = 15 * time.Second
	rateStarts = 5
	// nearly is from which share of its limit on a deployment is held back by it.
	nearly = 0.8
	// fewCalls is from how many calls in the last minute on these tell what the jobs ahead will need.
	fewCalls = 10
	// portions is into how many parts the work ahead is cut, to be spread over deployments.
	portions = 16
)

// forecast is what can be said of jobs that are ready.
type forecast struct{ store.Holding }

// option is a deployment that a job could go to, with a copy of what is known of it.
type option struct {
	store.Option
	state  *quota.State
	status quota.Status
}

func (f forecast) options(list []store.Option) []option {
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

// holds says why none of the deployments would take the job if it were its turn now; "": one would, or
// the job needs none. Of several reasons it is the one that is over soonest, as a rule.
func (f forecast) holds(options []option) (reason forebay.WaitReason) {
	for _, o := range options {
		_, v := o.state.Clone().Reserve(f.Now, o.Limits, o.Request)
		if v.Admitted() && o.Concurrency > 0 && f.Slots.OfDeployment(o.Deployment) >= o.Concurrency {
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

// start estimates in how long a job is started that has so many ahead of it. held tells that it is the
// quotas that it waits for; not known: there is nothing to tell it by.
func (f forecast) start(options []option, ahead int64) (in time.Duration, held, known bool) {
	var able []option
	var starts, since int64
	// A limit is known; a deployment is not held back by its own; all are left alone for a while, so that
	// the rate of late says nothing.
	limited, free, blocked := false, false, true
	for _, o := range options {
		n, from := o.state.Starts(f.Now, rateSpan)
		starts += n
		if from > 0 && (since == 0 || from < since) {
			since = from
		}
		if o.status.Operator {
			continue
		}
		able = append(able, o)
		limited = limited || o.limited()
		free = free || !o.tight(f.Now, ahead)
		blocked = blocked && (o.status.PausedUntil > 0 || o.status.Breaker != quota.Closed)
	}
	if len(able) == 0 {
		return 0, false, false
	}
	in = f.drain(able, ahead+1)
	if starts >= rateStarts && since < f.Now && !blocked {
		rate := float64(starts) / float64(f.Now-since) // a millisecond
		return max(in, time.Duration(float64(ahead)/rate)*time.Millisecond), limited && !free, true
	}
	return in, limited && !free, limited && (!free || starts > 0 || in > 0)
}

// drain is in how long the deployments have begun so many jobs together, if each portion goes to the one
// that is done with it first.
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

// size is what a job ahead will be charged in tokens: as much as those of the last minute, or else as this one.
func (o option) size() int64 {
	if used := o.status.Used; used[quota.Requests] >= fewCalls {
		return (used[quota.Tokens] + used[quota.OutputTokens]) / used[quota.Requests]
	}
	return o.state.Estimate(o.Limits, o.Request)
}

func (o option) limited() bool {
	return o.status.Limit[quota.Tokens] > 0 || o.status.Limit[quota.Requests] > 0
}

// tight reports whether the deployment's own limits hold calls back, not the workers: then there is no
// room for even a few of those that wait.
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

// planOf is plan for a job whose input is not at hand.
func (s *Service) planOf(row *store.JobRow) []store.Option {
	return store.Asking(s.plan(row.Task, nil, row.InputSize), row.MaxOutputTokens)
}

// whole is the view of one job, with what holds it back and when it may start if it is ready.
func (s *Service) whole(ctx context.Context, tenant string, row store.JobRow) (forebay.Job, error) {
	if !row.Ready {
		return s.view(tenant, row), nil
	}
	at, err := s.store.Standing(ctx, &row, s.share, countedAhead)
	if err != nil {
		return forebay.Job{}, err
	}
	f := forecast{at.Holding}
	options := f.options(s.planOf(&row))
	capped := f.Slots.Full(row.Tenant)
	if row.Waiting == "" && capped {
		row.Waiting = forebay.WaitConcurrency
	} else if row.Waiting == "" {
		row.Waiting = f.holds(options)
	}
	in, held, known := f.start(options, at.Ahead)
	if row.Waiting == "" && held && in > 0 {
		row.Waiting = forebay.WaitQuota
	}
	job := s.view(tenant, row)
	position := at.Ahead + 1
	if at.More {
		job.QueuePositionAtLeast = &position
		return job, nil
	}
	job.QueuePosition = &position
	if known && !capped && row.Waiting != forebay.WaitPaused && row.Status == forebay.StatusQueued {
		start := time.UnixMilli(at.Now).Add(in).UTC().Truncate(time.Millisecond)
		job.ExpectedStartAt = &start
	}
	return job, nil
}

// views are those of a list of jobs, with what would hold those that are ready back if it were their turn.
func (s *Service) views(ctx context.Context, tenant string, rows []store.JobRow) ([]forebay.Job, error) {
	list := make([]forebay.Job, len(rows))
	var f forecast
	for i := range rows {
		row := &rows[i]
		if row.Ready && row.Waiting == "" {
			if f.Deployments == nil {
				var err error
				if f.Holding, err = s.store.Holding(ctx); err != nil {
					return nil, err
				}
			}
			if f.Slots.Full(row.Tenant) {
				row.Waiting = forebay.WaitConcurrency
			} else {
				row.Waiting = f.holds(f.options(s.planOf(row)))
			}
		}
		list[i] = s.view(tenant, *row)
	}
	return list, nil
}
