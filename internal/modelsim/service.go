package modelsim

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Service is a running deployment with its meter, its script and its statistics. Like a Meter it
// is given the time, so a simulation can drive it. It is safe for concurrent use. A call that
// was in flight at a Reset goes on, and its end is not counted.
type Service struct {
	Deployment
	seed uint64

	mu         sync.Mutex // guards what follows
	generation int        // of resets
	start      time.Time
	latest     time.Time // of Begin and End
	meter      *Meter
	script     Script
	conditions Conditions
	changes    time.Duration // when conditions change, after start; below 0: never
	rng        *rand.Rand
	tally      *tally
	foreign    *foreign // nil: there is no other client
}

// NewService returns a service whose time begins now.
func NewService(d Deployment, seed uint64, now time.Time) (*Service, error) {
	if err := d.validate(""); err != nil {
		return nil, err
	}
	if d.Model == "" {
		d.Model = d.Name
	}
	r := &Service{Deployment: d, seed: seed ^ hash(d.Name), script: d.Faults.Scaled(d.FaultsScale)}
	r.Reset(now)
	return r, nil
}

// Reset starts the deployment again: the quota is unused, the script begins, statistics are zero.
func (d *Service) Reset(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	d.start, d.latest = now, now
	d.rng = rand.New(rand.NewPCG(d.seed, 1))
	q := d.quota(d.rng.Float64())
	d.meter = NewMeter(q, now)
	d.meter.Spend(now, d.SpentShare)
	d.foreign = newForeign(d.Deployment, d.seed, now)
	d.tally = newTally(now, q.Phase)
	d.changes = 0
}

// SetScript replaces the script; the time goes on.
func (d *Service) SetScript(s Script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script, d.changes = s, 0
}

func (d *Service) schedule(elapsed time.Duration) {
	next, ok := d.script.Next(elapsed)
	if !ok {
		next = -1
	}
	d.changes = next
}

// notBack returns now, or the latest time if now is before it. Calls at the same time may
// overtake each other on the way to the lock.
func (d *Service) notBack(now time.Time) time.Time {
	if now.Before(d.latest) {
		return d.latest
	}
	d.latest = now
	return now
}

// Admission is what Begin decided about a call.
type Admission struct {
	Outcome    Outcome // Answered, or a fault
	Status     int     // of the fault
	Verdict    Verdict // of the meter; zero in an outage and for a denied call
	Conditions Conditions
	State      State // after the call was counted

	now        time.Time
	generation int
}

// charged is how many tokens the call was charged.
func (a Admission) charged() int {
	if !a.Verdict.Admitted {
		return 0
	}
	return a.Verdict.Charged
}

// Begin admits or refuses a call. Every call that begins must End. Begin and End are called in the
// order of time.
func (d *Service) Begin(now time.Time, cost Cost) Admission {
	d.mu.Lock()
	defer d.mu.Unlock()
	now = d.notBack(now)
	d.tally.began(now)
	if elapsed := now.Sub(d.start); d.changes >= 0 && elapsed >= d.changes {
		d.conditions = d.script.At(elapsed)
		d.schedule(elapsed)
		d.meter.SetFactor(now, d.conditions.Quota, d.conditions.QuotaShown)
	}
	d.tally.ForeignTokens += d.foreign.call(d.meter, now)
	a := Admission{Outcome: Outage, Conditions: d.conditions, now: now, generation: d.generation}
	switch {
	case a.Conditions.Outage:
		return a
	case a.Conditions.Denied != "":
		a.Outcome = Denied
		return a
	}
	a.Outcome, a.Status = a.Conditions.Draw(d.rng.Float64())
	if a.Status == http.StatusTooManyRequests {
		a.Outcome, a.Verdict = Throttled, Verdict{Refused: throttledByScript, RetryAfter: a.Conditions.retryAfter}
	} else if a.Verdict = d.meter.Admit(now, cost); !a.Verdict.Admitted {
		a.Outcome = Throttled
	} else {
		d.tally.admitted(now, int64(a.Verdict.Charged))
	}
	a.State = d.meter.State(now)
	return a
}

// End settles a call that began, with its outcome and what it used.
func (d *Service) End(now time.Time, a Admission, outcome Outcome, used Used) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.generation != d.generation {
		return
	}
	now = d.notBack(now)
	d.tally.ForeignTokens += d.foreign.call(d.meter, now)
	d.meter.Settle(now, a.Verdict, used)
	d.tally.ended(now, a, outcome, used)
}

// Stats returns what the service has seen.
func (d *Service) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tally.copied()
}

// Duration is how long it takes until that many tokens of an answer are there.
func (d *Service) Duration(tokens int, c Conditions) time.Duration {
	seconds := time.Duration(d.FirstToken).Seconds()
	if d.TokensPerSecond > 0 {
		seconds += float64(tokens) / d.TokensPerSecond
	}
	return time.Duration(min(seconds*c.Latency, maxSeconds) * float64(time.Second))
}

// maxSeconds is more than any client waits, and fits a time.Duration.
const maxSeconds = 1e9

// Length draws how many tokens an answer has, and says whether limit cut it short. The same key
// gives the same length.
func (d *Service) Length(key uint64, limit int) (tokens int, cut bool) {
	rng := rand.New(rand.NewPCG(d.seed, key))
	tokens = max(int(min(float64(d.OutputTokens)*math.Exp(d.OutputSpread*rng.NormFloat64()), maxOutput)), 1)
	if tokens > limit {
		return limit, true
	}
	return tokens, false
}

// Estimate is what the service estimates for a prompt of that many tokens. The same key gives
// the same estimate.
func (d *Service) Estimate(prompt int, key uint64) int {
	f := d.EstimateFactor
	if d.EstimateSpread > 0 {
		f *= max(1+d.EstimateSpread*rand.New(rand.NewPCG(d.seed, key)).NormFloat64(), 0.1)
	}
	return max(int(float64(prompt)*f+0.5), 1)
}

// cached is how many tokens of a prompt are in the cache.
func (d *Service) cached(prompt int) int { return int(d.CachedShare * float64(prompt)) }

func (d *Service) elapsed() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.start)
}

func (d *Service) currentScript() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.script == nil {
		return Script{}
	}
	return d.script
}
