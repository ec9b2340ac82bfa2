package quota_test

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/retry"
)

// workers is the client under test: processes that share nothing but the line of jobs and the
// one state. It is stored and read now and then, as passOn says. What follows a failure is decided
// by the code that decides it for a queue with the standard policy. Each process has a pool for
// the main and one for the retry lane, and a budget of retries.
type workers struct {
	s      *simulation
	limits quota.Limits
	policy retry.Policy
	passOn passOn
	state  quota.State
	inside bool      // a transaction
	lines  [2][]*job // of main and retryLane: those that may be called now, oldest first
	look   [quota.Backfill + 16]quota.Candidate
	procs  []*process
	wakeAt int64

	changes []quota.Change
	longest int // bytes that the state had
	losses  []loss
	retries int // calls in the retry lane
}

const (
	mainLane = iota
	retryLane
)

// loss is a call that was charged and gave no result.
type loss struct {
	began, known int64 // when it was made, and when its client heard that it had failed
	tokens       int64
	probe        bool
}

type process struct {
	free    [2]int
	budget  *retry.Budget
	running map[*job]int // and in which lane
	dead    bool
}

func runWorkers(s *simulation, limits quota.Limits, processes, slots int) *workers {
	f := &workers{s: s, limits: limits, policy: retry.Default}
	f.policy.Concurrency = max(f.policy.Concurrency, slots/16) // as many of the places as by default
	f.lines[mainLane] = slices.Clone(s.jobs)
	for range processes {
		f.procs = append(f.procs, &process{
			free: [2]int{slots, f.policy.Concurrency}, budget: retry.NewBudget(f.policy), running: map[*job]int{},
		})
	}
	s.after(0, f.pump)
	return f
}

// with runs a transaction on the state, or goes on with that which runs.
func (f *workers) with(do func(*quota.State)) {
	if f.inside {
		do(&f.state)
		return
	}
	f.inside = true
	defer func() { f.inside = false }()
	do(&f.state)
	f.changes = append(f.changes, f.state.Changes()...)
	f.longest = max(f.longest, f.passOn.store(&f.state))
}

// passOn hands a state from one transaction to the next.
type passOn struct{ times int }

// storedEach is how many transactions go on with one state before it is stored and read, which
// takes a third of a simulation's time.
const storedEach = 8

// store has the next transaction go on with the state as it is stored, now and then. It returns
// its size in bytes then, else 0.
func (p *passOn) store(s *quota.State) int {
	if p.times++; p.times%storedEach != 0 {
		return 0
	}
	b, err := s.MarshalBinary()
	if err == nil {
		err = s.UnmarshalBinary(b)
	}
	if err != nil {
		panic(err)
	}
	return len(b)
}

// pump lets every process claim what it has room for; lanes have no order.
func (f *workers) pump() {
	f.with(func(s *quota.State) {
		for _, p := range f.procs {
			first := mainLane
			if len(f.lines[retryLane]) > 0 {
				first = f.s.rng.IntN(2)
			}
			f.claim(s, p, first)
			f.claim(s, p, 1-first)
		}
	})
}

func (f *workers) claim(s *quota.State, p *process, lane int) {
	waiting, free := f.lines[lane], p.free[lane]
	if p.dead || free == 0 || len(waiting) == 0 {
		return
	}
	if lane == retryLane {
		var wait time.Duration
		if free, wait = p.budget.Take(time.UnixMilli(f.s.now), free); free == 0 {
			f.wake(f.s.now + wait.Milliseconds() + 1)
			return
		}
	}
	line := f.look[:min(len(waiting), quota.Backfill+min(free, 16))]
	for i := range line {
		j := waiting[i]
		line[i] = quota.Candidate{ID: int64(j.id) + 1, Request: quota.Request{PromptTokens: j.guess, MaxOutputTokens: j.output}}
	}
	decisions := s.Admit(f.s.now, f.limits, line, free)
	next := int64(math.MaxInt64)
	var taken []int
	for i, d := range decisions {
		switch {
		case d.Reservation.Seq != 0:
			taken = append(taken, i)
			f.start(p, waiting[i], lane, d.Reservation)
		case !d.Verdict.Admitted() && d.Verdict.RetryAt > 0:
			next = min(next, d.Verdict.RetryAt)
		}
	}
	if lane == retryLane {
		f.retries += len(taken)
		p.budget.Refund(free - len(taken))
	}
	for _, i := range slices.Backward(taken) { // near the front of a long line
		copy(waiting[1:i+1], waiting[:i])
		waiting = waiting[1:]
	}
	f.lines[lane] = waiting
	if next < math.MaxInt64 {
		f.wake(next)
	}
}

func (f *workers) wake(at int64) {
	if f.wakeAt <= f.s.now || at < f.wakeAt {
		f.wakeAt = max(at, f.s.now+1)
		f.s.at(f.wakeAt, f.pump)
	}
}

func (f *workers) start(p *process, j *job, lane int, r quota.Reservation) {
	p.free[lane]--
	p.running[j] = lane
	j.calls++
	began := f.s.now
	// feedback tells what a call said, and in the same transaction processes claim.
	feedback := func(o quota.Outcome) {
		f.with(func(s *quota.State) {
			s.Feedback(f.s.now, f.limits, r, o, f.s.rng.Float64)
			f.pump()
		})
	}
	onHeaders := func(h headers) {
		if !p.dead {
			feedback(quota.Outcome{Kind: quota.HeadersArrived, Headers: neutral(h)})
		}
	}
	f.s.call(j, onHeaders, func(a answer) {
		if p.dead {
			f.s.wasted += a.charged
			return
		}
		p.free[lane]++
		delete(p.running, j)
		p.budget.Ended(lane == retryLane, a.status == 200)
		o := quota.Outcome{Headers: neutral(a.headers)}
		failure := &forebay.TaskError{RetryAfter: millis(a.retryAfter)}
		switch a.status {
		case 200:
			// The headers of an answer come with its first token; they are not new at the end.
			o = quota.Outcome{Kind: quota.Succeeded, Usage: quota.Usage{PromptTokens: j.real, OutputTokens: j.produced}}
			failure = nil
			f.s.finish(j, true)
		case 429:
			failure.Class = forebay.ClassThrottled
			o.Kind, o.RetryAfter = quota.ThrottledTokens, failure.RetryAfter
			if a.onRequests {
				o.Kind = quota.ThrottledRequests
			}
			if f.s.server.silent {
				o.Kind = quota.Throttled
			}
		default:
			failure.Class, o.Kind = forebay.ClassTransient, quota.Transient
			if a.charged > 0 {
				f.losses = append(f.losses, loss{began: began, known: f.s.now, tokens: a.charged, probe: r.Probe})
			}
		}
		if failure != nil {
			f.failed(j, lane, r, failure)
		}
		feedback(o)
	})
}

// failed does with a job whose call failed what its policy says.
func (f *workers) failed(j *job, lane int, r quota.Reservation, failure *forebay.TaskError) {
	next := f.policy.Next(retry.Failed{
		Number: j.calls, Charged: j.attempts, Failures: j.failures, MaxAttempts: f.policy.Attempts, Age: millis(f.s.now - epoch), Probe: r.Probe, Unwell: r.Unwell,
	}, failure, f.s.rng.Float64)
	if failure.Class == forebay.ClassTransient {
		j.failures++
	}
	switch next.Step {
	case retry.SetAside:
		f.s.finish(j, false)
		return
	case retry.Retry:
		lane = retryLane
		if next.Charged {
			j.attempts++
		}
	}
	f.s.after(next.Delay.Milliseconds(), func() { f.back(j, lane); f.pump() })
}

// back puts a job into a line, where its number says.
func (f *workers) back(j *job, lane int) {
	i, _ := slices.BinarySearchFunc(f.lines[lane], j.id, func(o *job, id int) int { return o.id - id })
	f.lines[lane] = slices.Insert(f.lines[lane], i, j)
}

// kill ends a process: what it runs is lost, and its jobs come back when their locks end.
func (f *workers) kill(i int, lock int64) {
	p := f.procs[i]
	p.dead = true
	running := slices.SortedFunc(maps.Keys(p.running), func(a, b *job) int { return a.id - b.id })
	for _, j := range running {
		f.s.after(f.s.rng.Int64N(lock), func() { f.back(j, p.running[j]); f.pump() })
	}
}

func neutral(h headers) quota.Headers {
	return quota.Headers{
		Reset:     [...]time.Duration{quota.Tokens: millis(h.reset), quota.Requests: millis(h.resetRequests), quota.OutputTokens: 0},
		Limit:     quota.Amount{quota.Tokens: h.limit, quota.Requests: h.limitRequests, quota.OutputTokens: h.limitOutput},
		Remaining: quota.Amount{quota.Tokens: h.remaining, quota.Requests: h.remainingRequests, quota.OutputTokens: h.remainingOutput},
	}
}

// pool is what people write: workers that each take a job and stay with it until it is over.
type pool struct {
	s    *simulation
	line []*job
	size int
	// again says how long to wait before the next try, or that there is none.
	again func(j *job, a answer) (wait int64, ok bool)
}

func (p *pool) run() {
	p.line = slices.Clone(p.s.jobs)
	for range p.size {
		p.s.after(p.s.rng.Int64N(1000), p.next)
	}
}

func (p *pool) next() {
	if len(p.line) == 0 {
		return
	}
	j := p.line[0]
	p.line = p.line[1:]
	p.try(j)
}

func (p *pool) try(j *job) {
	p.s.call(j, nil, func(a answer) {
		if a.status == 200 {
			p.s.finish(j, true)
			p.next()
			return
		}
		j.attempts++
		wait, ok := p.again(j, a)
		if !ok {
			p.s.finish(j, false)
			p.next()
			return
		}
		p.s.after(wait, func() { p.try(j) })
	})
}

// inline retries three times after six seconds each.
func inline(j *job, _ answer) (int64, bool) { return 6000, j.attempts <= 3 }

// patient tries until it is done, as long after a refusal as it was told.
func (s *simulation) patient(j *job, a answer) (int64, bool) {
	if a.retryAfter > 0 {
		return a.retryAfter, true
	}
	return 1000 + s.rng.Int64N(1000*int64(1)<<min(j.attempts, 5)), true
}

// exponential backs off with full jitter, up to a minute, six times.
func (s *simulation) exponential(j *job, _ answer) (int64, bool) {
	return s.rng.Int64N(1000 << min(j.attempts, 6)), j.attempts <= 6
}

// obedient does what Retry-After says, ten times, and backs off where nothing is said.
func (s *simulation) obedient(j *job, a answer) (int64, bool) {
	if a.retryAfter > 0 {
		return a.retryAfter + s.rng.Int64N(1000), j.attempts <= 10
	}
	return s.rng.Int64N(1000 << min(j.attempts, 6)), j.attempts <= 10
}

// cookbook is the well-known parallel script. Its budget of tokens and requests refills
// continuously. It makes any number of calls at a time and five attempts, and rests for fifteen
// seconds after a refusal.
type cookbook struct {
	s                *simulation
	line             []*job
	tokens, requests float64
	filledAt, restTo int64
}

func (c *cookbook) run() {
	c.line = slices.Clone(c.s.jobs)
	c.tokens, c.requests, c.filledAt = float64(c.s.server.quota), float64(c.s.server.requests), c.s.now
	c.s.after(0, c.tick)
}

func (c *cookbook) tick() {
	quota, perMinute := float64(c.s.server.quota), float64(c.s.server.requests)
	passed := float64(c.s.now-c.filledAt) / 60_000
	c.filledAt = c.s.now
	c.tokens = min(c.tokens+passed*quota, quota)
	c.requests = min(c.requests+passed*perMinute, perMinute)
	for len(c.line) > 0 && c.s.now >= c.restTo {
		j := c.line[0]
		cost := float64(j.prompt + j.output) // it has a real tokenizer
		if c.tokens < cost || c.requests < 1 {
			break
		}
		c.line = c.line[1:]
		c.tokens -= cost
		c.requests--
		c.s.call(j, nil, func(a answer) {
			if a.status == 200 {
				c.s.finish(j, true)
				return
			}
			if a.status == 429 {
				c.restTo = c.s.now + 15_000
			}
			if j.attempts++; j.attempts >= 5 {
				c.s.finish(j, false)
				return
			}
			c.line = append(c.line, j)
		})
	}
	if c.s.open > 0 {
		c.s.after(10, c.tick)
	}
}

// oracle sees into the server: it sends a call when it will be admitted and nothing is wrong.
type oracle struct {
	s    *simulation
	line []*job
	sent int64 // tokens under way to the server
}

func (o *oracle) run() {
	o.line = slices.Clone(o.s.jobs)
	o.s.after(0, o.tick)
}

func (o *oracle) tick() {
	v := o.s.server
	v.turn(o.s.now)
	ahead := v.faults.at(o.s.now + 500)
	if f := v.faults.at(o.s.now); f.errors == 0 && !f.down && !ahead.down && ahead.errors == 0 && (o.s.now+v.phase)%60_000 < 59_500 {
		for sent, i := 0, 0; i < min(len(o.line), 64) && sent < 1; {
			j := o.line[i]
			if v.used+float64(o.sent)+float64(j.prompt+j.output) > float64(v.quota)*min(f.quota, ahead.quota) {
				i++
				continue
			}
			o.line = slices.Delete(o.line, i, i+1)
			cost := j.prompt + j.output
			o.sent += cost
			sent++
			o.s.after(500, func() { o.sent -= cost })
			o.s.call(j, nil, func(a answer) {
				if a.status == 200 {
					o.s.finish(j, true)
				} else {
					o.line = append(o.line, j)
				}
			})
		}
	}
	if o.s.open > 0 {
		o.s.after(50, o.tick)
	}
}
