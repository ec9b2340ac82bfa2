package backlog

import (
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// binds finds out what holds back the jobs of a line that are ready.
func (f forecast) binds(l *line, tenant int64, name string, tenantPaused bool, options []option, workers func(string, bool) (int, int)) forebay.BacklogLimit {
	switch {
	case l.paused:
		return forebay.BacklogLimit{Kind: forebay.LimitPaused, Object: l.Queue, Detail: "an operator has paused the queue"}
	case tenantPaused:
		return forebay.BacklogLimit{Kind: forebay.LimitPaused, Object: name, Detail: "an operator has paused the tenant"}
	case f.Concurrency.Full(tenant):
		return forebay.BacklogLimit{Kind: forebay.LimitConcurrency, Object: name,
			Detail: fmt.Sprintf("the tenant has %d of %d calls under way", f.Concurrency.OfTenant(tenant), f.Concurrency.Most(tenant))}
	}
	if limit, held := f.held(options); held {
		return limit
	}
	for _, o := range options {
		if o.limited() && o.tight(f.Now, l.WaitingEstimate) {
			return o.quotaLimit()
		}
	}
	places, taken := workers(l.Queue, l.Lane == "retry")
	switch {
	case places == 0:
		return forebay.BacklogLimit{Kind: forebay.LimitWorkers, Object: l.Queue, Detail: "no process carries out jobs of this queue"}
	case taken >= places:
		return forebay.BacklogLimit{Kind: forebay.LimitWorkers, Object: l.Queue, Detail: fmt.Sprintf("%d of %d places for calls are taken", taken, places)}
	}
	return forebay.BacklogLimit{Kind: forebay.LimitNone, Detail: fmt.Sprintf("%d of %d places for calls are taken; its jobs start as they can", taken, places)}
}

// held returns the limit of a deployment that keeps the next job away, if none of them takes it.
// Of several it prefers the one that usually ends soonest, as holds does.
func (f forecast) held(options []option) (limit forebay.BacklogLimit, held bool) {
	for _, o := range options {
		_, v := o.state.Clone().Reserve(f.Now, o.Limits, o.Request)
		if v.Admitted() && o.Concurrency > 0 && f.Concurrency.OfDeployment(o.Deployment) >= o.Concurrency {
			v.Reason = forebay.WaitConcurrency
		}
		if v.Admitted() {
			return limit, false
		}
		if !held || v.Reason == forebay.WaitConcurrency || v.Reason == forebay.WaitQuota || limit.Kind == forebay.LimitPaused {
			limit, held = f.limitOf(o, v.Reason), true
		}
	}
	return limit, held
}

// limitOf describes the limit of a deployment that keeps jobs away for that reason.
func (f forecast) limitOf(o option, why forebay.WaitReason) forebay.BacklogLimit {
	switch why {
	case forebay.WaitConcurrency:
		return forebay.BacklogLimit{Kind: forebay.LimitConcurrency, Object: o.Deployment,
			Detail: fmt.Sprintf("the deployment has %d of %d calls under way", f.Concurrency.OfDeployment(o.Deployment), o.Concurrency)}
	case forebay.WaitBreaker:
		detail := "its breaker is open, because its calls fail"
		if o.status.Denied != quota.NotDenied {
			detail = "its breaker is open, because it turns calls away"
		}
		return forebay.BacklogLimit{Kind: forebay.LimitBreaker, Object: o.Deployment, Detail: detail + until(o.status.BreakerUntil)}
	case forebay.WaitPaused:
		return forebay.BacklogLimit{Kind: forebay.LimitPaused, Object: o.Deployment, Detail: "an operator has paused the deployment"}
	}
	return o.quotaLimit()
}

// quotaLimit describes the quota of a deployment that is used up.
func (o option) quotaLimit() forebay.BacklogLimit {
	limit := forebay.BacklogLimit{Kind: forebay.LimitQuota, Object: o.Deployment, Detail: "the quota of the deployment has no room"}
	if o.status.PausedUntil > 0 {
		limit.Detail = "its provider asked for a pause" + until(o.status.PausedUntil)
		return limit
	}
	share := 0.0
	for d, name := range dimensions {
		if most := o.status.Limit[d]; most > 0 && float64(o.status.Used[d])/float64(most) > share {
			share = float64(o.status.Used[d]) / float64(most)
			limit.Detail = fmt.Sprintf("%d of %d %s of the minute are used", o.status.Used[d], most, name)
		}
	}
	return limit
}

// dimensions are the names of what quotas limit.
var dimensions = [...]string{quota.Tokens: "tokens", quota.OutputTokens: "output tokens", quota.Requests: "requests"}

// until writes when something ends; 0: nobody knows.
func until(at int64) string {
	if at <= 0 {
		return ""
	}
	return ", until " + time.UnixMilli(at).UTC().Format(time.RFC3339)
}
