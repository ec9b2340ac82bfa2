package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

// trickle has tenants call a deployment at a steady pace. Each call of a tenant takes a while,
// and ends as it says.
type trickle struct {
	every, takes int64 // milliseconds
	outcome      func(now int64) quota.OutcomeKind
}

// trickled runs the tenants, of which the first is tenant 1, for some virtual seconds. It returns
// how often the breaker opened, when it first did (milliseconds since the start; -1: never), and
// the longest wait of each tenant's calls.
func trickled(seconds int64, tenants ...trickle) (opened int, first int64, waits []int64) {
	type call struct {
		tenant int
		since  int64
		ends   int64
		res    quota.Reservation
	}
	l := quota.Limits{Accounting: quota.AccountOpenAI}
	var s quota.State
	var on passOn
	var waiting, running []call
	first, waits = -1, make([]int64, len(tenants))
	for t := int64(0); t < seconds*1000; t += 10 {
		now := int64(epoch) + t
		running = slices.DeleteFunc(running, func(c call) bool {
			if c.ends > now {
				return false
			}
			o := quota.Outcome{Kind: tenants[c.tenant].outcome(t)}
			if o.Kind == quota.Denied {
				o.Denial = quota.Unpaid
			}
			if o.Kind == quota.Oversize {
				o.RetryAfter = 24 * time.Hour
			}
			s.Feedback(now, l, c.res, o, func() float64 { return 0.5 })
			return true
		})
		for i, of := range tenants {
			if t%of.every == 0 {
				waiting = append(waiting, call{tenant: i, since: now})
			}
		}
		line := make([]quota.Candidate, min(len(waiting), 100))
		for i := range line {
			// The first tenant's are the cheapest.
			line[i] = quota.Candidate{ID: waiting[i].since*8 + int64(waiting[i].tenant), Tenant: int64(waiting[i].tenant) + 1,
				Request: quota.Request{PromptTokens: 10, MaxOutputTokens: 10 + 100*int64(waiting[i].tenant)}}
		}
		decisions := s.Admit(now, l, line, 64)
		for i := len(line) - 1; i >= 0; i-- {
			c := waiting[i]
			waits[c.tenant] = max(waits[c.tenant], now-c.since)
			if decisions[i].Admitted() && decisions[i].Reservation.Seq != 0 {
				c.ends, c.res = now+tenants[c.tenant].takes, decisions[i].Reservation
				running, waiting = append(running, c), slices.Delete(waiting, i, i+1)
			}
		}
		for _, c := range s.Changes() {
			if c.Kind == quota.BreakerOpened {
				if opened++; first < 0 {
					first = t
				}
			}
		}
		on.store(&s)
	}
	return opened, first, waits
}

func always(kind quota.OutcomeKind) func(int64) quota.OutcomeKind {
	return func(int64) quota.OutcomeKind { return kind }
}

// One tenant's calls that always fail, 20 a second, do not keep a deployment closed to another
// tenant.
func TestOneTenantsFailuresDoNotKeepOthersAway(t *testing.T) {
	t.Parallel()
	for _, takes := range []int64{10, 500, 2000} {
		t.Run(fmt.Sprintf("good calls take %d ms", takes), func(t *testing.T) {
			opened, _, waits := trickled(120, trickle{50, 20, always(quota.Transient)}, trickle{200, takes, always(quota.Succeeded)})
			t.Logf("opened %d times; the other tenant waited %d ms at most", opened, waits[1])
			// Until a call of the other's has gone well nobody knows who is at fault.
			if opened > 2 || waits[1] > 10_000 {
				t.Errorf("the breaker opened %d times and the other tenant waited up to %d ms", opened, waits[1])
			}
		})
	}
}

// An outage opens the breaker soon, whatever one tenant's calls did before it, and also where
// that tenant alone calls.
func TestOutageOpensBreakerBesideOneTenantsFailures(t *testing.T) {
	t.Parallel()
	down := func(now int64) quota.OutcomeKind {
		if now >= 60_000 {
			return quota.Transient
		}
		return quota.Succeeded
	}
	until := func(now int64) quota.OutcomeKind { return down(now) }
	for name, tenants := range map[string][]trickle{
		"both call":         {{50, 20, always(quota.Transient)}, {200, 20, until}},
		"one tenant alone":  {{200, 20, until}},
		"two that are well": {{200, 20, until}, {200, 20, until}},
	} {
		t.Run(name, func(t *testing.T) {
			before, _, _ := trickled(60, tenants...)
			after, _, _ := trickled(65, tenants...)
			if after <= before {
				t.Errorf("the breaker did not open within 5 s of the outage; it had opened %d times before", before)
			}
		})
	}
}

// One tenant's calls that are turned away for what they ask, 20 a second, close a deployment to
// another tenant once for a minute, and then for seconds.
func TestOneTenantsDenialsDoNotKeepOthersAway(t *testing.T) {
	t.Parallel()
	for _, takes := range []int64{10, 500, 3000} {
		t.Run(fmt.Sprintf("good calls take %d ms", takes), func(t *testing.T) {
			opened, _, waits := trickled(300, trickle{50, 20, always(quota.Denied)}, trickle{400, takes, always(quota.Succeeded)})
			t.Logf("opened %d times; the other tenant waited %d ms at most", opened, waits[1])
			// Until a call of the other's has gone well nobody knows who is at fault.
			if waits[1] > 65_000 {
				t.Errorf("the breaker opened %d times and the other tenant waited up to %d ms", opened, waits[1])
			}
		})
	}
}

// A deployment that turns away everybody is left alone for a minute at a time, whatever one
// tenant's calls did before.
func TestDenialsOfEverybodyBesideOneTenants(t *testing.T) {
	t.Parallel()
	until := func(now int64) quota.OutcomeKind {
		if now >= 120_000 {
			return quota.Denied
		}
		return quota.Succeeded
	}
	before, _, _ := trickled(120, trickle{50, 20, always(quota.Denied)}, trickle{200, 20, until})
	after, _, _ := trickled(420, trickle{50, 20, always(quota.Denied)}, trickle{200, 20, until})
	if opened := after - before; opened < 4 || opened > 8 {
		t.Errorf("it opened %d times in five minutes", opened)
	}
}

// One tenant's calls that are too large, 20 a second, keep nobody else away once others' go well,
// though no limit tells that they are.
func TestOneTenantsLargeCallsDoNotKeepOthersAway(t *testing.T) {
	t.Parallel()
	for _, takes := range []int64{500, 15_000} {
		well := trickle{400, takes, always(quota.Succeeded)}
		large := trickle{50, 20, func(now int64) quota.OutcomeKind {
			if now < 20_000 {
				return quota.Succeeded
			}
			return quota.Oversize
		}}
		if opened, first, waits := trickled(60, large, well); opened > 0 {
			t.Errorf("where good calls take %d ms, it opened %d times, first after %d ms, and the other tenant waited up to %d ms", takes, opened, first, waits[1])
		}
		large.outcome = always(quota.Oversize)
		// Until a call of the other's has gone well nobody knows who is at fault.
		if opened, _, waits := trickled(120, large, well); opened > 1 || waits[1] > 65_000+takes {
			t.Errorf("where good calls take %d ms, it opened %d times at first, and the other tenant waited up to %d ms", takes, opened, waits[1])
		}
	}
}
