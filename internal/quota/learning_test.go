package quota_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// learningCase is a deployment of which a client has to learn how it counts.
type learningCase struct {
	name    string
	server  server
	quota   int64
	limits  quota.Limits
	factor  float64 // what the provider counts of a prompt, by what the client estimates; 0: as newJobs draws it
	unnamed bool    // jobs name no max output
	counted int64   // what the provider counts then; < 0: what is produced
	tiny    bool    // jobs are of some 60 tokens
	jobs    int
	foreign float64 // share of the quota that another client takes
	bar     result
}

// learned is what became of the case with one seed.
type learned struct {
	result
	kappa float64 // what was learned of it, by what is true
}

// foreigner has another client call the same deployment, of which the headers tell in sum only.
func foreigner(s *simulation, share float64, rng *rand.Rand, took *int64) {
	mean := 2000.0
	rate := share * float64(s.server.quota) / 60_000 / mean
	var next func()
	next = func() {
		size := int64(min(rng.ExpFloat64(), 8)*mean) + 1
		*took += s.server.admit(s.now, &job{prompt: size}).charged
		s.after(int64(rng.ExpFloat64()/rate)+1, next)
	}
	s.after(0, next)
}

func (c learningCase) run(seed uint64) learned {
	v := c.server
	v.quota = c.quota
	rng := rand.New(rand.NewPCG(seed, 7))
	s := newSimulation(seed, c.jobs, &v)
	guessed, counted, needed, taken := 0.0, 0.0, int64(0), int64(0)
	for _, j := range s.jobs {
		if c.tiny {
			j.prompt, j.produced = 20+rng.Int64N(60), 10+rng.Int64N(40)
			j.real = j.prompt
			j.guess = max(int64(float64(j.prompt)*math.Exp(rng.NormFloat64()*0.08)), 1)
		}
		if c.factor > 0 {
			j.guess = max(int64(float64(j.prompt)/c.factor*math.Exp(rng.NormFloat64()*0.1)), 1)
		}
		if c.unnamed {
			j.output, j.counted = 0, c.counted
			if c.counted < 0 {
				j.counted = j.produced
			}
		}
		guessed, counted = guessed+float64(j.guess), counted+float64(j.prompt)
		needed += j.charge(v.charging)
		if v.settles {
			needed -= j.most() - j.produced
		}
	}
	if c.foreign > 0 {
		foreigner(s, c.foreign, rng, &taken)
	}
	f := runWorkers(s, c.limits, 2, 128)
	s.run()
	var r learned
	f.with(func(q *quota.State) { r.kappa = q.Status(s.now, c.limits).Kappa / (counted / guessed) })
	bound := v.faults.bound(needed+taken, c.quota)
	if perRequest := int64(float64(len(s.jobs)) / float64(v.requests) * 60_000); perRequest > bound {
		bound = perRequest
	}
	r.ratio = float64(s.lastDone-epoch) / float64(bound)
	r.throttled = float64(s.throttled) / float64(s.calls)
	r.wasted = float64(s.wasted) / float64(needed)
	r.failed = float64(s.failed + s.open)
	return r
}

func learningCases() []learningCase {
	const large = 600_000
	limits := func(a quota.Accounting, tokens int64) quota.Limits {
		return quota.Limits{Accounting: a, TokensPerMinute: tokens, RequestsPerMinute: tokens * 6 / 1000}
	}
	azure, openai, ptu := limits(quota.AccountAzureOpenAI, large), limits(quota.AccountOpenAI, large), limits(quota.AccountAzurePTU, large)
	bar := result{ratio: 1.05, throttled: 0.005, wasted: 0.02}
	cases := []learningCase{
		{name: "named, alone", limits: azure, factor: 0.99, jobs: 2000},
		{name: "named, beside another client", limits: azure, factor: 0.99, jobs: 2000, foreign: 0.3},
		{name: "nothing named, 16 counted", limits: azure, unnamed: true, counted: 16, jobs: 2000},
		{name: "nothing named, 1,024 counted", limits: azure, unnamed: true, counted: 1024, jobs: 2000},
		{name: "nothing named, 8,192 counted", limits: azure, unnamed: true, counted: 8192, jobs: 600},
		{name: "nothing named, 16 counted, beside another client", limits: azure, unnamed: true, counted: 16, jobs: 2000, foreign: 0.3},
		{name: "nothing named, tiny jobs, 16 counted", limits: azure, unnamed: true, counted: 16, jobs: 18_000, tiny: true},
		{name: "nothing named, what is produced counted", limits: azure, unnamed: true, counted: -1, jobs: 2000},
		{name: "nothing named, OpenAI, the prompt counted", limits: openai, server: server{counting: refilled, charging: chargeLarger}, unnamed: true, counted: 16, jobs: 2000},
		{name: "nothing named, PTU, settled", limits: ptu, server: server{counting: leakyBucket, settles: true}, unnamed: true, counted: 1000, jobs: 4000},
		{name: "nothing named, no headers, 16 counted", limits: azure, server: server{silent: true}, unnamed: true, counted: 16, jobs: 2000},
		{name: "nothing named, no headers, 1,024 counted", limits: azure, server: server{silent: true}, unnamed: true, counted: 1024, jobs: 2000},
		{name: "nothing named, no headers, what is produced counted", limits: azure, server: server{silent: true}, unnamed: true, counted: -1, jobs: 2000},
		{name: "named, no headers", limits: azure, server: server{silent: true}, jobs: 2000},
	}
	for i := range cases {
		cases[i].quota, cases[i].bar = large, bar
	}
	// Only refusals tell that more than the prompt is counted, here of three guesses, and none
	// says for how long.
	cases[11].bar.throttled = 0.01
	return cases
}

// TestLearning: what is learned of how a provider counts, whoever else calls it, uses the quota
// and is not refused.
func TestLearning(t *testing.T) {
	t.Parallel()
	for _, c := range learningCases() {
		results := make([]learned, seeds())
		var all sync.WaitGroup
		for i := range results {
			all.Go(func() { results[i] = c.run(uint64(i + 1)) })
		}
		all.Wait()
		var mean result
		n, kappas := float64(len(results)), ""
		for _, r := range results {
			mean.ratio += r.ratio / n
			mean.worst = max(mean.worst, r.ratio)
			mean.throttled += r.throttled / n
			mean.wasted += r.wasted / n
			mean.failed += r.failed / n
			kappas += fmt.Sprintf(" %.2f", r.kappa)
			if c.factor > 0 && math.Abs(r.kappa-1) > 0.08 {
				t.Errorf("%s: the factor of prompts was learned as %.2f of what is true", c.name, r.kappa)
			}
		}
		t.Logf("%-50s %v; kappa / true:%s", c.name, mean, kappas)
		mean.atMost(t, c.name, c.bar)
	}
}

// What one source's prompts and answers are like changes nothing of what another's calls are
// thought to be charged.
func TestWhatIsLearnedOfOneSourceIsNotUsedForAnother(t *testing.T) {
	t.Parallel()
	own, odd := quota.SourceOf(1, "chat"), quota.SourceOf(2, "chat")
	for _, accounting := range []quota.Accounting{quota.AccountAzureOpenAI, quota.AccountOpenAI, quota.AccountAzurePTU} {
		limits := quota.Limits{Accounting: accounting, TokensPerMinute: 10_000_000}
		request := quota.Request{PromptTokens: 1000, Source: own}
		estimate := func(oddCalls int) int64 {
			var s quota.State
			now, left := int64(epoch), int64(9_000_000)
			made := func(source, factor, answer int64) {
				now += 200
				r := call(t, &s, now, limits, quota.Request{PromptTokens: 1000, Source: source})
				left -= 1000*factor + 16
				o := quota.Outcome{Kind: quota.HeadersArrived}
				o.Headers.Remaining[quota.Tokens] = left
				s.Feedback(now+50, limits, r, o, half)
				o.Kind, o.Usage = quota.Succeeded, quota.Usage{PromptTokens: 1000 * factor, OutputTokens: answer}
				s.Feedback(now+100, limits, r, o, half)
				s = *reload(t, &s)
			}
			for i := range 60 {
				made(own, 1, 100)
				for range oddCalls {
					made(odd, 3, 4000)
				}
				for other := range 2 * oddCalls { // many sources that come and go do not displace one that is in use
					made(quota.SourceOf(int64(10+2*i+other), "chat"), 3, 4000)
				}
			}
			return s.Estimate(limits, request)
		}
		alone, beside := estimate(0), estimate(2)
		if alone < 1000 || alone > 1150 || beside < alone*95/100 || beside > alone*105/100 {
			t.Errorf("accounting %d: %d tokens alone, %d beside odd jobs", accounting, alone, beside)
		}
	}
}
