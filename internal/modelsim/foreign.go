package modelsim

import (
	"math/rand/v2"
	"time"
)

const (
	// foreignTokens is the size of the other client's calls. They have at most one
	// foreignPart-th of a minute's quota.
	foreignTokens = 1500
	foreignPart   = 20
	// foreignOften is the least mean time between two of its calls. Where more are needed, they
	// are larger instead.
	foreignOften = time.Millisecond
	// foreignBehind bounds how much of the past is caught up on when nothing was called for long.
	foreignBehind = 2 * time.Minute
)

// foreign is another client of the deployment. It calls at random times, at an even rate on
// average, and never repeats what is refused.
type foreign struct {
	every time.Duration // between two calls, on average
	cost  Cost
	rng   *rand.Rand
	next  time.Time
}

func newForeign(d Deployment, seed uint64, now time.Time) *foreign {
	perMinute := d.ForeignShare * float64(d.TokensPerMinute)
	if perMinute <= 0 {
		return nil
	}
	f := &foreign{every: time.Duration(min(foreignTokens, float64(d.TokensPerMinute)/foreignPart) / perMinute * float64(time.Minute)), rng: rand.New(rand.NewPCG(seed, 3)), next: now}
	f.every = max(f.every, foreignOften)
	half := int(perMinute * f.every.Minutes() / 2)
	f.cost = Cost{Prompt: half, Output: half}
	if d.Kind == KindOpenAI {
		f.cost.Prompt += half // this kind charges the larger of the two
	}
	f.step()
	return f
}

func (f *foreign) step() {
	f.next = f.next.Add(time.Duration(f.rng.ExpFloat64() * float64(f.every)))
}

// call makes the calls that are due by now. It returns how many tokens were admitted.
func (f *foreign) call(m *Meter, now time.Time) (tokens int64) {
	if f == nil {
		return 0
	}
	if past := now.Add(-foreignBehind); f.next.Before(past) {
		f.next = past
	}
	for !f.next.After(now) {
		if v := m.Admit(f.next, f.cost); v.Admitted {
			tokens += int64(v.Charged)
		}
		f.step()
	}
	return tokens
}
