package quota_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// The simulation runs on a virtual clock in milliseconds: an ordered list of things to do.

type simulation struct {
	now    int64
	rng    *rand.Rand
	events eventHeap
	count  int
	server *server
	jobs   []*job

	connected int // connections that are open and idle

	open      int // jobs that are neither done nor failed
	lastDone  int64
	calls     int
	throttled int
	failed    int
	wasted    int64 // tokens charged for calls that gave no result
}

type event struct {
	at, order int64
	do        func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (s *simulation) after(d int64, do func()) { s.at(s.now+max(d, 0), do) }

func (s *simulation) at(at int64, do func()) {
	s.count++
	heap.Push(&s.events, event{at: max(at, s.now), order: int64(s.count), do: do})
}

// run goes on until no job is open, or for a day.
func (s *simulation) run() {
	for s.open > 0 && len(s.events) > 0 && s.now < epoch+24*3600*1000 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
}

// epoch is when simulations begin; a real date, so that stored times have their real size.
const epoch = 1_800_000_000_000

// job is one call to be made. Sizes are heavy-tailed.
type job struct {
	id       int
	guess    int64 // of the prompt, as a client estimates it
	prompt   int64 // as the provider counts it
	real     int64 // of the prompt, as its tokenizer counts it
	output   int64 // max output; 0: it names none
	counted  int64 // what the provider counts in its place then
	produced int64 // real output

	poison poison // how its calls always fail
	tenant int64
	turn   int64 // its place in the line; jobs of the same go by their number
	from   int64 // ms after the start when it is submitted

	calls    int
	attempts int // of them that were charged to it
	failures int // of them that failed in passing
	over     bool
}

func (j *job) charge(how charging) int64 {
	switch how {
	case chargeLarger:
		return max(j.prompt, j.most())
	case chargePrompt:
		return j.prompt
	}
	return j.prompt + j.most()
}

// most is the output that is counted at admission.
func (j *job) most() int64 {
	if j.output == 0 {
		return j.counted
	}
	return j.output
}

const admissionTokens = 29_100_000

// newJobs makes n jobs of 2,910 admission tokens on average. A client's estimate of prompts is
// off by a factor that differs from run to run and by a tenth from prompt to prompt.
func newJobs(rng *rand.Rand, n int) []*job {
	bias := 0.85 + 0.4*rng.Float64()
	jobs := make([]*job, n)
	total, outputs := 0.0, 0.0
	sizes := make([]float64, n)
	for i := range jobs {
		output := []int64{200, 400, 600, 900, 1600}[rng.IntN(5)]
		share := 0.25 + 0.75*rng.Float64()
		jobs[i] = &job{id: i, output: output, produced: max(int64(float64(output)*share), 1)}
		sizes[i] = min(math.Exp(rng.NormFloat64()*1.1), 14)
		total += sizes[i]
		outputs += float64(output)
	}
	want := float64(admissionTokens)*float64(n)/10_000 - outputs
	for i, j := range jobs {
		j.prompt = max(int64(sizes[i]/total*want), 10)
		j.real = max(int64(float64(j.prompt)*math.Exp(rng.NormFloat64()*0.05)), 1)
		j.guess = max(int64(float64(j.prompt)/bias*math.Exp(rng.NormFloat64()*0.08)), 1)
	}
	return jobs
}

func newSimulation(seed uint64, n int, server *server) *simulation {
	rng := rand.New(rand.NewPCG(seed, 42))
	s := &simulation{now: epoch, rng: rng, server: server, jobs: newJobs(rng, n), open: n, lastDone: epoch}
	server.begin(epoch, rng)
	return s
}

func (s *simulation) finish(j *job, ok bool) {
	if j.over {
		return
	}
	j.over = true
	s.open--
	if ok {
		s.lastDone = s.now
	} else {
		s.failed++
	}
}

// call makes one call: a journey to the server, its answer, the first token and the end. onHeaders
// may be nil.
func (s *simulation) call(j *job, onHeaders func(headers), onEnd func(answer)) {
	s.calls++
	server := s.server
	there := 20 + int64(s.rng.ExpFloat64()*15) + server.roundTrip/2
	back := 20 + int64(s.rng.ExpFloat64()*15) + server.roundTrip/2
	if server.service != nil {
		if s.connected == 0 { // two round trips for TCP and TLS, and some work
			there += 2*server.roundTrip + int64(s.rng.ExpFloat64()*60)
			s.connected++
		}
		s.connected--
		ended := onEnd
		onEnd = func(a answer) { s.connected++; ended(a) }
	}
	s.after(there, func() {
		a := server.admit(s.now, j)
		if a.status == 429 {
			s.throttled++
		}
		if a.status == 200 {
			switch j.poison {
			case alwaysError:
				a.status, a.takes = 500, 50
			case alwaysTimeout:
				a.status, a.takes = 0, callTimeout
				if server.lasts > 0 {
					a.takes = 1000
				}
			}
		}
		if a.status != 200 {
			s.wasted += a.charged
			s.after(back+a.takes, func() { onEnd(a) })
			return
		}
		first := int64(float64(300+j.prompt/20) * math.Exp(s.rng.NormFloat64()*0.3))
		speed := 70.0
		if server.swift {
			first, speed = 300, 400
		}
		tokens := int64(float64(j.produced) * 1000 / speed * math.Exp(s.rng.NormFloat64()*0.2))
		if server.lasts > 0 {
			first, tokens = server.lasts, 0
			if j.poison == alwaysCut {
				first = 10
			}
		}
		s.streams(server, j, a, first, tokens, back, onHeaders, onEnd)
	})
}

// streams plays an accepted call: it may be slow, and an outage cuts it.
func (s *simulation) streams(server *server, j *job, a answer, first, tokens, back int64, onHeaders func(headers), onEnd func(answer)) {
	firstAt, firstCut := server.faults.play(s.now, first)
	endAt, endCut := server.faults.play(firstAt, tokens)
	if !firstCut && onHeaders != nil {
		s.at(firstAt+back, func() { onHeaders(a.headers) })
	}
	if firstCut {
		endAt, endCut = firstAt, true
	}
	s.at(endAt, func() {
		if endCut || j.poison == alwaysCut {
			a.status = 0
			s.wasted += a.charged
		} else {
			server.complete(s.now, j)
		}
		s.after(back, func() { onEnd(a) })
	})
}
