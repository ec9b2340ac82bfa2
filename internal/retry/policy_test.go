package retry

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

func TestDelays(t *testing.T) {
	linear := Policy{Backoff: Linear, First: time.Second, Max: 3 * time.Second}
	fixed := Policy{Backoff: Fixed, First: time.Second, Max: 3 * time.Second}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second, 9: 3 * time.Second} {
		if got := linear.Delay(n, rand.Float64); got != want {
			t.Errorf("linear delay %d is %s, expected %s", n, got, want)
		}
		if got := fixed.Delay(n, rand.Float64); got != time.Second {
			t.Errorf("fixed delay %d is %s", n, got)
		}
	}
}

func TestExponentialDelayStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Backoff: Exponential, First: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "first")),
			Coefficient: rapid.Float64Range(1, 100).Draw(t, "coefficient"), Max: time.Hour,
		}
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		if d := p.Delay(n, rand.Float64); d < 0 || d > p.Max {
			t.Fatalf("delay %d is %s", n, d)
		}
		asked := time.Duration(rapid.Int64Range(1, int64(2*time.Hour)).Draw(t, "asked"))
		if d := p.after(asked, n, rand.Float64); d < min(asked, longestRetryAfter) || d > longestRetryAfter*11/10 {
			t.Fatalf("the provider asked for %s and got %s", asked, d)
		}
	})
}

// The mean of a full-jitter delay is half of what it has grown to.
func TestFullJitterIsUniform(t *testing.T) {
	p := Policy{Backoff: Exponential, First: time.Second, Coefficient: 2, Max: time.Hour}
	var sum time.Duration
	const draws = 20_000
	for range draws {
		sum += p.Delay(3, rand.Float64)
	}
	if mean := sum / draws; mean < 1900*time.Millisecond || mean > 2100*time.Millisecond {
		t.Errorf("the mean delay after the third attempt is %s, expected about 2s", mean)
	}
}

func TestNext(t *testing.T) {
	p := Policy{Backoff: Linear, First: time.Second, Max: time.Minute, Attempts: 3, Timeout: time.Hour}
	transient := forebay.TaskError{Class: forebay.ClassTransient}
	throttled := forebay.TaskError{Class: forebay.ClassThrottled, RetryAfter: 10 * time.Second}
	uncalled := forebay.TaskError{Class: forebay.ClassThrottled, Uncalled: true, Waiting: forebay.WaitPaused}
	late := time.Hour - time.Second
	for name, c := range map[string]struct {
		job     Failed
		failure forebay.TaskError
		want    Next
	}{
		"first failure":           {Failed{Number: 1}, transient, Next{Step: Retry, Charged: true, Delay: time.Second}},
		"after a refused call":    {Failed{Number: 2}, transient, Next{Step: Retry, Charged: true, Delay: time.Second}},
		"second":                  {Failed{Number: 2, Charged: 1}, transient, Next{Step: Retry, Charged: true, Delay: 2 * time.Second}},
		"of no class":             {Failed{Number: 1}, forebay.TaskError{}, Next{Step: Retry, Charged: true, Delay: time.Second}},
		"last":                    {Failed{Number: 3, Charged: 2}, transient, Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}},
		"with a delay":            {Failed{Number: 1}, forebay.TaskError{Class: forebay.ClassTransient, RetryAfter: 5 * time.Second}, Next{Step: Retry, Charged: true, Delay: 5 * time.Second}},
		"too late":                {Failed{Number: 2, Charged: 1, Age: late}, transient, Next{Step: SetAside, Reason: "RetryTimeout"}},
		"in time":                 {Failed{Number: 1, Age: late}, transient, Next{Step: Retry, Charged: true, Delay: time.Second}},
		"permanent":               {Failed{Number: 1}, forebay.TaskError{Class: forebay.ClassPermanent, Code: "bad_request"}, Next{Step: SetAside, Reason: "bad_request"}},
		"refused":                 {Failed{Number: 7, Charged: 2}, throttled, Next{Step: Throttle, Delay: 10 * time.Second, Waiting: forebay.WaitQuota}},
		"refused for long":        {Failed{Number: 30}, forebay.TaskError{Class: forebay.ClassThrottled}, Next{Step: Throttle, Delay: 10 * time.Second, Waiting: forebay.WaitQuota}},
		"refused too late":        {Failed{Number: 1, Age: late}, throttled, Next{Step: SetAside, Reason: "RetryTimeout"}},
		"not called":              {Failed{Number: 3, Charged: 2, Age: late}, uncalled, Next{Step: Release, Delay: time.Second, Waiting: forebay.WaitPaused}},
		"probe":                   {Failed{Number: 4, Charged: 2, Failures: 3, Probe: true}, transient, Next{Step: Retry, Delay: 4 * time.Second}},
		"probe, others call":      {Failed{Number: 4, Charged: 2, Failures: 3, Probe: true, Elsewhere: true}, transient, Next{Step: Retry, Delay: time.Second}},
		"probe time after time":   {Failed{Number: 119, Charged: 2, Failures: 118, Probe: true}, transient, Next{Step: Retry, Delay: 10 * time.Second}},
		"probe too often":         {Failed{Number: 120, Charged: 2, Failures: 119, Probe: true}, transient, Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}},
		"probe, others succeed":   {Failed{Number: 5, Charged: 2, Failures: 4, Probe: true, Mixed: true}, transient, Next{Step: Retry, Delay: 5 * time.Second}},
		"it fails, others do not": {Failed{Number: 6, Charged: 2, Failures: 5, Probe: true, Mixed: true}, transient, Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}},
		"probe too late":          {Failed{Number: 4, Charged: 2, Probe: true, Age: late}, transient, Next{Step: SetAside, Reason: "RetryTimeout"}},
		"many others failed":      {Failed{Number: 5, Failures: 4, Charged: 2, Unwell: true}, transient, Next{Step: Retry, Delay: 5 * time.Second}},
		"others, after refusals":  {Failed{Number: 8, Failures: 2, Charged: 2, Unwell: true}, transient, Next{Step: Retry, Delay: 8 * time.Second}},
		"others, and it once":     {Failed{Number: 1, MaxAttempts: 1, Unwell: true}, transient, Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}},
		"others, and it too long": {Failed{Number: 6, Failures: 5, Charged: 2, Unwell: true}, transient, Next{Step: SetAside, Reason: "MaxAttemptsExceeded"}},
		"others, and too late":    {Failed{Number: 5, Failures: 4, Charged: 2, Unwell: true, Age: late}, transient, Next{Step: SetAside, Reason: "RetryTimeout"}},
	} {
		c.job.MaxAttempts = cmp.Or(c.job.MaxAttempts, p.Attempts)
		if got := p.Next(c.job, &c.failure, func() float64 { return 0 }); got != c.want {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
}

// A lane's rate bounds its starts beside the budget, and does not use the budget up.
func TestRate(t *testing.T) {
	p := Default
	p.Rate = 2
	b, now := NewBudget(p), time.Unix(0, 0)
	n, _ := b.Take(now, 10)
	none, wait := b.Take(now, 10)
	if n != 2 || none != 0 || wait != 500*time.Millisecond {
		t.Errorf("%d and %d starts at once at two a second, and the next after %s", n, none, wait)
	}
	b.Refund(1)
	if n, _ := b.Take(now, 10); n != 1 {
		t.Errorf("%d starts after one was given back", n)
	}
	b.rate = nil
	if n, _ := b.Take(now, 100); n != 16 {
		t.Errorf("%d starts are left of 18, of which two were used", n)
	}
}
