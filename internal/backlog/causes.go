package backlog

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// causes names what holds a job back for the reason: its tenant, or the deployments. Each
// deployment comes with what it would say to the job if that were next.
func (f forecast) causes(q *Query, reason forebay.WaitReason, options []option) (list []forebay.WaitCause) {
	switch reason {
	case forebay.WaitConcurrency:
		if f.Concurrency.Full(q.Tenant) {
			return []forebay.WaitCause{{Kind: forebay.CauseTenant, Name: q.TenantName, Reason: reason}}
		}
	case forebay.WaitPaused:
		if q.Paused {
			return nil // not by a deployment
		}
	case forebay.WaitQuota, forebay.WaitBreaker:
	default:
		return nil
	}
	for _, o := range options {
		c := forebay.WaitCause{Kind: forebay.CauseDeployment, Name: o.Deployment}
		_, v := o.state.Clone().Reserve(f.Now, o.Limits, o.Request)
		switch full := o.Concurrency > 0 && f.Concurrency.OfDeployment(o.Deployment) >= o.Concurrency; {
		case v.Admitted() && full:
			c.Reason = forebay.WaitConcurrency
		case v.Admitted():
			c.Reason = forebay.WaitQuota // those ahead use it up
		default:
			c.Reason = v.Reason
		}
		until := o.status.PausedUntil
		if o.status.Breaker != quota.Closed {
			until = max(until, o.status.BreakerUntil)
		}
		if until > f.Now {
			at := time.UnixMilli(until).UTC()
			c.Until = &at
		}
		list = append(list, c)
	}
	return list
}
