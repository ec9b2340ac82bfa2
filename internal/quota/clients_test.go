package quota_test

import (
	"math"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

// workers is the client under test: processes that share nothing but the bytes of one state, which
// are read before each use of it and written after it.
type workers struct {
	s      *simulation
	limits quota.Limits
	stored []byte
	state  quota.State
	line   []*job // may be called now, oldest first
	look   [quota.Backfill + 16]quota.Candidate
	procs  []*process
	wakeAt int64

	changes  []quota.Change
	attempts int // after which a job has failed
	longest  int // bytes that the state had
	losses   []loss
}

// loss is a call that was charged and gave no result.
type loss struct {
	began, known int64 // when it was made, and when its client heard that it had failed
	tokens       int64
	probe        bool
}

type process struct {
	free    int
	running map[*job]bool
	dead    bool
}

func runWorkers(s *simulation, limits quota.Limits, processes, slots int) *workers {
	f := &workers{s: s, limits: limits, line: slices.Clone(s.jobs), attempts: 8}
	for range processes {
		f.procs = append(f.procs, &process{free: slots, running: map[*job]bool{}})
	}
	s.after(0, f.pump)
	return f
}

// with runs a transaction on the stored state.
func (f *workers) with(do func(*quota.State)) {
	if f.stored != nil {
		if err := f.state.UnmarshalBinary(f.stored); err != nil {
			panic(err)
		}
	}
	do(&f.state)
	f.changes = append(f.changes, f.state.Changes()...)
	var err error
	if f.stored, err = f.state.AppendBinary(f.stored[:0]); err != nil {
		panic(err)
	}
	f.longest = max(f.longest, len(f.stored))
}

// pump lets every process claim what it has room for.
func (f *workers) pump() {
	for _, p := range f.procs {
		if !p.dead && p.free > 0 && len(f.line) > 0 {
			f.claim(p)
		}
	}
}

func (f *workers) claim(p *process) {
	line := f.look[:min(len(f.line), quota.Backfill+min(p.free, 16))]
	for i := range line {
		j := f.line[i]
		line[i] = quota.Candidate{ID: int64(j.id) + 1, Request: quota.Request{PromptTokens: j.guess, MaxOutputTokens: j.output}}
	}
	var decisions []quota.Decision
	f.with(func(s *quota.State) { decisions = s.Admit(f.s.now, f.limits, line, p.free) })
	next := int64(math.MaxInt64)
	var taken []int
	for i, d := range decisions {
		switch {
		case d.Reservation.Seq != 0:
			taken = append(taken, i)
			f.start(p, f.line[i], d.Reservation)
		case !d.Verdict.Admitted() && d.Verdict.RetryAt > 0:
			next = min(next, d.Verdict.RetryAt)
		}
	}
	for _, i := range slices.Backward(taken) { // near the front of a long line
		copy(f.line[1:i+1], f.line[:i])
		f.line = f.line[1:]
	}
	if next < math.MaxInt64 && (f.wakeAt <= f.s.now || next < f.wakeAt) {
		f.wakeAt = max(next, f.s.now+1)
		f.s.at(f.wakeAt, f.pump)
	}
}

func (f *workers) start(p *process, j *job, r quota.Reservation) {
	p.free--
	p.running[j] = true
	began := f.s.now
	feedback := func(o quota.Outcome) {
		f.with(func(s *quota.State) { s.Feedback(f.s.now, f.limits, r, o, f.s.rng.Float64) })
	}
	onHeaders := func(h headers) {
		if !p.dead {
			feedback(quota.Outcome{Kind: quota.HeadersArrived, Headers: neutral(h)})
			f.pump()
		}
	}
	f.s.call(j, onHeaders, func(a answer) {
		if p.dead {
			f.s.wasted += a.charged
			return
		}
		p.free++
		delete(p.running, j)
		o := quota.Outcome{Headers: neutral(a.headers)}
		delay := int64(-1)
		switch a.status {
		case 200:
			// The headers of an answer come with its first token; they are not new at the end.
			o = quota.Outcome{Kind: quota.Succeeded, Usage: quota.Usage{PromptTokens: j.real, OutputTokens: j.produced}}
			f.s.finish(j, true)
		case 429:
			o.Kind, o.RetryAfter = quota.ThrottledTokens, millis(a.retryAfter)
			if a.onRequests {
				o.Kind = quota.ThrottledRequests
			}
			if f.s.server.silent {
				o.Kind = quota.Throttled
			}
			delay = 0
		default:
			if a.charged > 0 {
				f.losses = append(f.losses, loss{began: began, known: f.s.now, tokens: a.charged, probe: r.Probe})
			}
			o.Kind = quota.Transient
			if !r.Probe { // whoever tries for all is not charged for it
				j.attempts++
			}
			delay = quota.RetryDelay(j.attempts, f.s.rng.Float64).Milliseconds()
			if j.attempts >= f.attempts {
				f.s.finish(j, false)
				delay = -1
			}
		}
		feedback(o)
		if delay >= 0 {
			f.s.after(delay, func() { f.back(j); f.pump() })
		}
		f.pump()
	})
}

// back puts a job into the line, where its number says.
func (f *workers) back(j *job) {
	i, _ := slices.BinarySearchFunc(f.line, j.id, func(o *job, id int) int { return o.id - id })
	f.line = slices.Insert(f.line, i, j)
}

// kill ends a process: what it runs is lost, and its jobs come back when their locks end.
func (f *workers) kill(i int, lock int64) {
	p := f.procs[i]
	p.dead = true
	for j := range p.running {
		f.s.after(f.s.rng.Int64N(lock), func() { f.back(j); f.pump() })
	}
}

func neutral(h headers) quota.Headers {
	return quota.Headers{
		Reset:     [...]time.Duration{quota.Tokens: millis(h.reset), quota.Requests: 0, quota.OutputTokens: 0},
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

// cookbook is the well-known parallel script: a budget of tokens and requests that refills
// continuously, any number of calls at a time, five attempts, and fifteen seconds of rest after a
// refusal.
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
