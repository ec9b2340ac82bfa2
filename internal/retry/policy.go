// Package retry decides what follows a failed call of a job. [Policy.Next] says whether the job
// is called again, when, in which lane, and whether the failure counts as an attempt. [Budget]
// bounds how many such calls may start, so that an outage does not multiply load. The package
// knows neither a store nor a clock.
//
// # Whose fault a failure is
//
// There is one owner of retries. Providers never retry by themselves. What follows a failure is
// decided by internal/retry, which needs no store: the simulations of admission run it too.
//
// While a third of a deployment's calls fail for two minutes, its breaker stays closed. Of a few
// hundred jobs one would then use up five attempts. So some failures are the deployment's, judged
// by what was known when the call was made:
//
//   - Ten of the latest 60 calls had failed. Or, of those heard of in 20 seconds, ten and a sixth
//     had failed.
//   - Or the breaker had closed less than a minute before.
//
// A job whose own calls alone fail does not bring that about with fewer than ten. The failures of
// many jobs that nobody can serve end all the same. Each is charged once the job has had twice as
// many calls as it has attempts.
package retry

import (
	"math"
	"time"

	"github.com/forebayhq/forebay"
)

// Backoff is how the delay grows from one attempt to the next.
type Backoff string

const (
	Exponential Backoff = "exponential" // First·Coefficientⁿ⁻¹, with full jitter
	Linear      Backoff = "linear"      // First·n
	Fixed       Backoff = "fixed"       // First
)

// Policy says when and how often a failed job runs again, and how its queue's retry lane runs.
type Policy struct {
	Backoff     Backoff
	First       time.Duration
	Coefficient float64
	Max         time.Duration // longest delay
	Attempts    int           // in all, the first included
	Timeout     time.Duration // no retry starts later than this after the generation's start; 0: no limit
	Concurrency int           // of the retry lane
	Rate        float64       // starts a second in the retry lane; 0: no limit
	Budget      float64       // retries as a share of all calls
}

// Default is the policy of queues that are configured with none.
var Default = Policy{
	Backoff: Exponential, First: 2 * time.Second, Coefficient: 2, Max: time.Minute, Attempts: 5, Concurrency: 4, Budget: 0.2,
}

// Random returns numbers in [0, 1), such as rand.Float64; tests give a seeded one.
type Random func() float64

// Delay returns the wait after the n-th charged attempt failed, n from 1. Exponential delays are
// drawn uniformly from zero to the grown value. That spreads jobs that failed together. ("Full
// jitter": Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.)
func (p Policy) Delay(n int, rnd Random) time.Duration {
	switch p.Backoff {
	case Fixed:
		return min(p.First, p.Max)
	case Linear:
		return min(time.Duration(n)*p.First, p.Max)
	}
	grown := float64(p.First) * math.Pow(p.Coefficient, float64(n-1))
	ceiling := p.Max
	if grown < float64(p.Max) {
		ceiling = time.Duration(grown)
	}
	return time.Duration(rnd() * float64(ceiling+1))
}

// longestRetryAfter bounds the delay a provider asks for. Some answer "retry after a day" to a
// request that will never fit (Azure OpenAI, quota documentation).
const longestRetryAfter = time.Hour

// after returns the delay a provider asked for, else the policy's. It adds up to a tenth to the
// provider's, so that those told the same do not all come back at once.
func (p Policy) after(asked time.Duration, n int, rnd Random) time.Duration {
	if asked <= 0 {
		return p.Delay(n, rnd)
	}
	asked = min(asked, longestRetryAfter)
	return asked + time.Duration(rnd()*float64(asked/10+1))
}

// Step is what follows a call that failed.
type Step uint8

const (
	Release  Step = iota // nothing was called: back into its subqueue, as if never delivered
	Throttle             // back into its subqueue; no attempt is charged
	Retry                // to the retry subqueue
	SetAside             // it is dead-lettered
)

// Failed is a job whose call failed.
type Failed struct {
	Number      int           // of this call in the job's generation, from 1; also those count that were not charged
	Charged     int           // attempts before this one
	Failures    int           // calls before this one that failed, charged or not; more do no harm below Excused times MaxAttempts
	MaxAttempts int           // of the job
	Age         time.Duration // since its generation began
	// Probe: the call tested whether its deployment works again. Its failure is not the job's fault.
	Probe bool
	// Elsewhere: another deployment took calls when a probe was made.
	Elsewhere bool
	// Mixed: other calls of its deployment have succeeded since the outage began.
	Mixed bool
	// Unwell: so many other calls of its deployment had failed when it was made that the failure may
	// not be the job's fault.
	Unwell bool
}

// Next is what follows the failure.
type Next struct {
	Step    Step
	Delay   time.Duration      // before it may be called again
	Charged bool               // of a Retry: an attempt is
	Waiting forebay.WaitReason // what for, of a Release or Throttle
	Reason  string             // why it is set aside
}

// Excused bounds the failures that are blamed on a job's deployment, as a multiple of the job's
// attempts. They may be the job's fault after all, for many jobs may ask for the same impossible
// thing. A job with a single attempt is called once.
const Excused = 2

// Probes is that bound while no call of the deployment has succeeded since it began to fail. A
// job that is alone with an unreachable deployment probes it some thirty times in the first five
// minutes and then twice a minute.
const Probes = 40

// Next decides what follows a failure. Without a class it is a transient one.
func (p Policy) Next(f Failed, failure *forebay.TaskError, rnd Random) Next {
	const grown = 10 // attempts that are not charged are many at times
	waiting := failure.Waiting
	if waiting == "" {
		waiting = forebay.WaitQuota
	}
	number := min(f.Number, grown)
	if f.Elsewhere {
		// Soon, while the breaker is still open. A job whose delays match the breaker's pauses would
		// be the probe each time.
		number = 1
	}
	switch {
	case failure.Class == forebay.ClassThrottled && failure.Uncalled:
		return Next{Step: Release, Delay: p.after(failure.RetryAfter, 1, rnd), Waiting: waiting}
	case failure.Class == forebay.ClassThrottled:
		return p.inTime(f, Next{Step: Throttle, Delay: p.after(failure.RetryAfter, min(f.Number, grown), rnd), Waiting: waiting})
	case failure.Class == forebay.ClassPermanent:
		return Next{Step: SetAside, Reason: failure.Code}
	case f.Probe && !f.Mixed && f.Failures+1 < Probes*f.MaxAttempts:
		return p.inTime(f, Next{Step: Retry, Delay: p.after(failure.RetryAfter, number, rnd)})
	case (f.Unwell || f.Probe) && f.MaxAttempts > 1 && f.Failures+1 < Excused*f.MaxAttempts:
		return p.inTime(f, Next{Step: Retry, Delay: p.after(failure.RetryAfter, number, rnd)})
	case f.Charged+1 >= f.MaxAttempts:
		return Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}
	}
	return p.inTime(f, Next{Step: Retry, Charged: true, Delay: p.after(failure.RetryAfter, f.Charged+1, rnd)})
}

// inTime dead-letters a job whose next start would be past the policy's timeout.
func (p Policy) inTime(f Failed, next Next) Next {
	if p.Timeout > 0 && f.Age+next.Delay > p.Timeout {
		return Next{Step: SetAside, Reason: "RetryTimeout"}
	}
	return next
}
