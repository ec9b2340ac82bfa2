package standin

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model/sim"
)

// deployment is one that runs. Calls outlive a reset: what they end is then no more counted.
type deployment struct {
	Deployment
	seed  uint64
	model *sim.Provider // does the work of structured output and of ContentWork

	mu         sync.Mutex // guards what follows
	generation int        // of resets
	start      time.Time
	latest     time.Time // that begin and end were called with
	meter      *Meter
	script     Script
	conditions Conditions
	changes    time.Duration // when conditions do, after start; below 0: never
	rng        *rand.Rand
	tally      *tally
}

func newDeployment(d Deployment, seed uint64, now time.Time) (*deployment, error) {
	if d.Model == "" {
		d.Model = d.Name
	}
	m, err := sim.New(sim.Options{Model: d.Model, MaxOutputTokens: d.MaxOutputTokens})
	if err != nil {
		return nil, err
	}
	r := &deployment{Deployment: d, seed: seed ^ hash(d.Name), model: m, script: d.Faults.Script.Scaled(d.FaultsScale)}
	r.reset(now)
	return r, nil
}

// reset starts the deployment's time anew: nothing used, nothing seen, the script at its beginning.
func (d *deployment) reset(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	d.start, d.latest = now, now
	d.rng = rand.New(rand.NewPCG(d.seed, 1))
	q := d.quota(d.rng.Float64())
	d.meter = NewMeter(q, now)
	d.tally = newTally(now, q.Phase)
	d.changes = 0
}

// setScript replaces the script; the time goes on.
func (d *deployment) setScript(s Script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script, d.changes = s, 0
}

func (d *deployment) schedule(elapsed time.Duration) {
	next, ok := d.script.Next(elapsed)
	if !ok {
		next = -1
	}
	d.changes = next
}

// notBack returns now, or the latest time if now is before it: calls that come at once may overtake
// each other before they hold the lock.
func (d *deployment) notBack(now time.Time) time.Time {
	if now.Before(d.latest) {
		return d.latest
	}
	d.latest = now
	return now
}

// admission is what a call met when it came.
type admission struct {
	generation int
	now        time.Time
	conditions Conditions
	outcome    Outcome // what is to become of it: Answered, or a fault
	status     int     // of the fault
	verdict    Verdict // zero unless the meter was asked
	state      State   // after the call was counted
}

// begin admits a call, or does not.
func (d *deployment) begin(now time.Time, cost Cost) admission {
	d.mu.Lock()
	defer d.mu.Unlock()
	now = d.notBack(now)
	d.tally.began(now)
	if elapsed := now.Sub(d.start); d.changes >= 0 && elapsed >= d.changes {
		d.conditions = d.script.At(elapsed)
		d.schedule(elapsed)
		d.meter.SetFactor(now, d.conditions.Quota, d.conditions.QuotaShown)
	}
	a := admission{generation: d.generation, now: now, conditions: d.conditions, outcome: Outage}
	if a.conditions.Outage {
		return a
	}
	a.outcome, a.status = a.conditions.Draw(d.rng.Float64())
	if a.status == 429 {
		a.outcome, a.verdict = Throttled, Verdict{Refused: throttledByScript, RetryAfter: a.conditions.retryAfter}
	} else if a.verdict = d.meter.Admit(now, cost); !a.verdict.Admitted {
		a.outcome = Throttled
	} else {
		d.tally.admitted(now, int64(a.verdict.Charged))
	}
	a.state = d.meter.State(now)
	return a
}

// end settles a call that began.
func (d *deployment) end(now time.Time, a admission, e ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.generation != d.generation {
		return
	}
	now = d.notBack(now)
	d.meter.Settle(now, a.verdict, e.used)
	d.tally.ended(now, e)
}

func (d *deployment) stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tally.copied()
}

// estimate is what the service takes a prompt of so many tokens for, the same for the same prompt.
func (d *deployment) estimate(prompt int, key uint64) int {
	f := d.EstimateFactor
	if d.EstimateSpread > 0 {
		f *= max(1+d.EstimateSpread*rand.New(rand.NewPCG(d.seed, key)).NormFloat64(), 0.1)
	}
	return max(int(float64(prompt)*f+0.5), 1)
}

// hash is FNV-1a, so that the same text draws the same numbers in every process.
func hash(texts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range texts {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	return h
}

// byName finds a deployment for the name that a call gave.
func (s *Server) byName(name string) (*deployment, bool) {
	if d, ok := s.names[name]; ok {
		return d, true
	}
	if s.options.AnyModel {
		return s.deployments[0], true
	}
	return nil, false
}

// named returns one deployment, or all for "".
func (s *Server) named(name string) ([]*deployment, error) {
	if name == "" {
		return s.deployments, nil
	}
	for _, d := range s.deployments {
		if d.Name == name {
			return []*deployment{d}, nil
		}
	}
	return nil, forebay.Errorf(forebay.CodeNotFound, "there is no deployment %.64q", name)
}

func (d *deployment) elapsed() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.start)
}

func (d *deployment) currentScript() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.script == nil {
		return Script{}
	}
	return d.script
}
