package jobs

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is how the delay grows from one attempt to the next.
type Backoff string

const (
	Exponential Backoff = "exponential" // First·Coefficientⁿ⁻¹, with full jitter
	Linear      Backoff = "linear"      // First·n
	Fixed       Backoff = "fixed"       // First
)

// RetryPolicy says when and how often a failed job runs again, and how the queue's retry lane runs.
type RetryPolicy struct {
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

// Delay returns the wait after the n-th charged attempt failed, n from 1. Exponential delays are
// drawn uniformly from zero to the grown value ("full jitter": Brooker, "Exponential Backoff And
// Jitter", AWS Architecture Blog 2015), which spreads jobs that failed together.
func (p RetryPolicy) Delay(n int) time.Duration {
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
	return time.Duration(rand.Int64N(int64(ceiling) + 1))
}

// longestRetryAfter bounds what a provider can ask for: some answer "retry after a day" to a request
// that will never fit (Azure OpenAI, quota documentation).
const longestRetryAfter = time.Hour

// after returns the delay a provider asked for, else the policy's. The provider's is never undercut;
// up to a tenth is added, so that those told the same do not all come back at once.
func (p RetryPolicy) after(asked time.Duration, n int) time.Duration {
	if asked <= 0 {
		return p.Delay(n)
	}
	asked = min(asked, longestRetryAfter)
	return asked + time.Duration(rand.Int64N(int64(asked)/10+1))
}
