package quota_test

import (
	"math"
	"math/rand/v2"

	"github.com/forebayhq/forebay/internal/modelsim"
)

// charging is what a simulated provider counts at admission.
type charging int

const (
	chargeSum    charging = iota // prompt + max output
	chargeLarger                 // the larger of the two
	chargePrompt                 // prompt; output as it is produced
)

// counting is how a simulated provider's quota comes back.
type counting int

const (
	fixedWindow   counting = iota // each minute, at a phase that nobody knows
	rollingWindow                 // each call leaves after a minute
	tenSeconds                    // a sixth of the quota each ten seconds
	leakyBucket                   // continuously; refuses while more than the level allows is in it
	refilled                      // continuously, up to a minute's worth
)

// server is a simulated deployment. It knows nothing of its clients but their calls.
type server struct {
	quota           int64 // tokens per minute
	output          int64 // output tokens per minute, where they count apart
	requests        int64 // per minute
	requestSlice    int64 // ms over which requests are counted
	tellsOfSlice    bool  // the headers say what is admitted in a slice
	charging        charging
	counting        counting
	countsRefused   bool
	silent          bool  // no headers, no retry-after
	settles         bool  // corrects the charge at completion
	swift           bool  // answers at 400 tokens a second, and with errors at once
	lasts           int64 // ms that each answer takes, told of only at its end, while a hanging call takes 1 s; 0: by its tokens
	faults          faults
	service         *modelsim.Service // decides in place of this, if set
	roundTrip       int64             // ms that each call's network takes, beyond what it does for all
	rng             *rand.Rand
	phase           int64
	used            float64 // in the window or bucket
	usedOutput      float64
	filledAt        int64
	window          int64 // number of the current one
	recent          []charge
	recentSum       int64
	sliceNo, slices int64
}

type charge struct{ at, tokens int64 }

type headers struct {
	limit, remaining, reset          int64 // reset in ms
	resetRequests                    int64
	limitOutput, remainingOutput     int64
	limitRequests, remainingRequests int64
}

type answer struct {
	status     int // 0: connection lost or refused
	charged    int64
	takes      int64
	retryAfter int64 // ms; 0: not said
	onRequests bool
	headers    headers
}

func (v *server) begin(now int64, rng *rand.Rand) {
	v.rng, v.phase, v.filledAt = rng, rng.Int64N(60_000), now
	v.faults.start = now
	if v.requestSlice == 0 {
		v.requestSlice = 1000
	}
	if v.requests == 0 {
		v.requests = v.quota * 6 / 1000
	}
}

// admit decides about a call that has arrived.
func (v *server) admit(now int64, j *job) answer {
	if v.service != nil {
		return v.served(now, j)
	}
	f := v.faults.at(now)
	if f.down {
		if f.refuses {
			return answer{status: 0, takes: 5}
		}
		return answer{status: 503, takes: 50}
	}
	v.turn(now)
	limit := float64(v.quota) * f.quota
	cost := j.charge(v.charging)
	a := answer{status: 200, charged: cost}
	wait := v.wait(now, limit, cost)
	slice := (now + v.phase) / v.requestSlice
	if slice != v.sliceNo {
		v.sliceNo, v.slices = slice, 0
	}
	v.slices++ // refused requests count as well
	perSlice := max(v.requests*v.requestSlice/60_000, 1)
	switch {
	case v.slices > perSlice:
		a = answer{status: 429, onRequests: true, retryAfter: v.requestSlice - (now+v.phase)%v.requestSlice, takes: 10}
	case wait > 0:
		a = answer{status: 429, retryAfter: wait, takes: 10}
		if v.countsRefused {
			v.add(now, cost)
		}
	default:
		v.add(now, cost)
		if v.rng.Float64() < f.errors {
			a = answer{status: 503, charged: cost, takes: 100 + v.rng.Int64N(400)}
			if v.swift {
				a.takes = 0
			}
		}
	}
	if v.silent {
		a.retryAfter = 0
		return a
	}
	// The headers tell of the nominal quota even while less is given.
	a.headers = headers{limit: v.quota, remaining: max(v.quota-int64(math.Ceil(v.used)), 0),
		limitRequests: v.requests, reset: v.reset(now)}
	if v.tellsOfSlice {
		a.headers.limitRequests, a.headers.remainingRequests = perSlice, max(perSlice-v.slices, 0)
	}
	if v.counting == tenSeconds {
		a.headers.remaining = max(v.quota/6-int64(v.used), 0)
	}
	if v.output > 0 {
		a.headers.limitOutput, a.headers.remainingOutput = v.output, max(v.output-int64(v.usedOutput), 0)
	}
	return a
}

// turn brings the counters to now.
func (v *server) turn(now int64) {
	switch v.counting {
	case fixedWindow, tenSeconds:
		length := int64(60_000)
		if v.counting == tenSeconds {
			length = 10_000
		}
		if no := (now + v.phase) / length; no != v.window {
			v.window, v.used = no, 0
		}
	case rollingWindow:
		n := 0
		for n < len(v.recent) && v.recent[n].at <= now-60_000 {
			v.recentSum -= v.recent[n].tokens
			n++
		}
		v.recent = v.recent[n:]
		v.used = float64(v.recentSum)
	default:
		passed := float64(now-v.filledAt) / 60_000
		v.filledAt = now
		v.used = max(v.used-passed*float64(v.quota)*v.faults.at(now).quota, 0)
		v.usedOutput = max(v.usedOutput-passed*float64(v.output), 0)
	}
}

// wait is 0 when there is room, else how long until there may be.
func (v *server) wait(now int64, limit float64, cost int64) int64 {
	switch v.counting {
	case fixedWindow:
		if v.used+float64(cost) <= limit {
			return 0
		}
		return 60_000 - (now+v.phase)%60_000
	case tenSeconds:
		if v.used+float64(cost) <= limit/6 {
			return 0
		}
		return 10_000 - (now+v.phase)%10_000
	case rollingWindow:
		left := float64(v.recentSum)
		for _, c := range v.recent {
			if left+float64(cost) <= limit {
				break
			}
			left -= float64(c.tokens)
			if left+float64(cost) <= limit {
				return c.at + 60_000 - now
			}
		}
		return 0
	case leakyBucket: // a fifth of a minute's worth may be in it
		if over := v.used - limit/5; over > 0 {
			return int64(over/limit*60_000) + 1
		}
		return 0
	}
	if v.usedOutput > float64(v.output) {
		return int64((v.usedOutput-float64(v.output))/float64(v.output)*60_000) + 1
	}
	if over := v.used + float64(cost) - limit; over > 0 {
		return int64(over/limit*60_000) + 1
	}
	return 0
}

// reset is when the counter begins anew, or where there is no such time, when it will be empty.
func (v *server) reset(now int64) int64 {
	switch v.counting {
	case fixedWindow:
		return 60_000 - (now+v.phase)%60_000
	case tenSeconds:
		return 10_000 - (now+v.phase)%10_000
	case rollingWindow:
		return 60_000
	}
	return int64(v.used/float64(v.quota)*60_000) + 1
}

func (v *server) add(now, cost int64) {
	v.used += float64(cost)
	if v.counting == rollingWindow {
		v.recent = append(v.recent, charge{now, cost})
		v.recentSum += cost
		v.used = float64(v.recentSum)
	}
}

// complete corrects the charge of a call where the provider does.
func (v *server) complete(now int64, j *job) {
	if v.service != nil {
		return // nothing is settled by the kinds that are served
	}
	v.turn(now)
	if v.output > 0 {
		v.usedOutput += float64(j.produced)
	}
	if v.settles {
		v.used = max(v.used-float64(j.most()-j.produced), 0)
	}
}

// faults is a script of what goes wrong.
type faults struct {
	start int64
	parts []fault
}

type fault struct {
	from, to int64   // seconds from the start
	down     bool    // nothing is admitted, and what runs is cut
	spares   bool    // but not what runs
	refuses  bool    // connections are refused
	errors   float64 // share of admitted calls that end in a 503
	speed    float64
	quota    float64 // what is left of it, hidden from the headers
}

// theFaults is the script that strategies are measured with.
var theFaults = []fault{
	{from: 600, to: 780, errors: 0.7, speed: 1, quota: 1},
	{from: 1500, to: 1620, down: true, refuses: true},
	{from: 2100, to: 2700, speed: 0.25, quota: 1},
	{from: 3300, to: 3390, down: true},
	{from: 4000, to: 4900, speed: 1, quota: 0.6},
	{from: 5600, to: 5720, errors: 0.3, speed: 1, quota: 1},
}

func (f *faults) at(now int64) fault {
	for _, p := range f.parts {
		if t := now - f.start; p.from*1000 <= t && t < p.to*1000 {
			return p
		}
	}
	return fault{speed: 1, quota: 1}
}

// play says when work of so many milliseconds at full speed is over, and whether an outage cut it.
func (f *faults) play(from, work int64) (end int64, cut bool) {
	at := from
	for _, p := range f.parts {
		begin, over := f.start+p.from*1000, f.start+p.to*1000
		if over <= at {
			continue
		}
		if at+work <= begin {
			break
		}
		if at < begin {
			work -= begin - at
			at = begin
		}
		if p.down && !p.spares {
			return at, true
		}
		takes := int64(float64(work) / p.speed)
		if at+takes <= over {
			return at + takes, false
		}
		work -= int64(float64(over-at) * p.speed)
		at = over
	}
	return at + work, false
}

// bound is how long the quota alone, flowing evenly, needs for so many tokens: the fluid bound.
func (f *faults) bound(tokens, quota int64) int64 {
	left, ms := float64(tokens), int64(0)
	for left > 0 {
		p := f.at(f.start + ms)
		if !p.down {
			left -= float64(quota) / 60 / 100 * p.quota * (1 - p.errors)
		}
		ms += 10
	}
	return ms
}
