// Package limits measures calls that may not all go at once. How well is a quota used, what does
// an outage do, and how do tenants and priorities share? What do bad jobs do to good ones, and
// what does admission cost?
package limits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// quotaShare is the part of a minute's quota that the jobs need beyond whole minutes. It is
// small, so that two times nearly agree: how long the quota takes when it flows evenly, and the
// earliest end that its windows allow.
const quotaShare = 0.03

// estimateFactor is by how much the provider's estimate of a prompt is above its tokens.
const estimateFactor = 1.15

// Quotas measures how well Forebay and the usual clients use a deployment's quota. All run at the
// same time, each at a deployment of its own.
func Quotas(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	const perMinute = 1_200_000
	minutes := b.Size(2, 1)
	t = measure.Table{
		Title: "A deployment's quota over HTTP",
		Text: fmt.Sprintf(`Chat jobs of heavy-tailed sizes that need %d minutes and 2 seconds of a deployment's %s tokens a minute, against
`+"`forebay sim`"+` in a process of its own that counts as Azure OpenAI does, in whole minutes from the start of the run, and charges prompts
%.0f %% more than their tokens, give or take a tenth: its estimate is not the client's. Forebay: two
processes on one PostgreSQL that know tokens_per_minute and requests_per_minute, one of which gets the jobs by bulk submit.
Beside it, each with a deployment of its own and at the same time: 8 calls at a time that wait as they are told; 50 with exponential
back-off and jitter that honour Retry-After ten times; and a client that keeps count of tokens and requests a minute itself, as the
well-known cookbook script does. Ratio: time to the last result by what the quota, flowing evenly, needs for the tokens of the answers.
Wasted: tokens charged for calls without an answer. Faults: the reference script with a second for each of its minutes%s.`,
			minutes, measure.Format(perMinute), 100*(estimateFactor-1), map[bool]string{true: ", at half of that"}[b.Quick]),
		Columns: []string{"ratio", "seconds", "429 %", "wasted %", "failed jobs", "calls", "highest window / quota"},
	}
	contenders := []quotaContender{{name: forebayName}}
	if b.Peers {
		contenders = append(contenders, quotaContender{"8 at a time", pool(8, patient)},
			quotaContender{"50 with back-off and Retry-After", pool(50, obedient)}, quotaContender{"cookbook client", cookbook})
	}
	scale := float64(minutes) / 2 / 60
	r := quotaRun{b: b, jobs: makePrompts(7, int64(perMinute*(float64(minutes)+quotaShare)))}
	var deployments []serving.SimulatedQuota
	for i := range contenders {
		for _, faults := range []bool{false, true} {
			q := serving.SimulatedQuota{Name: fmt.Sprintf("d%d-%v", i, faults), TokensPerMinute: perMinute, EstimateFactor: estimateFactor}
			deployments = append(deployments, q)
			r.turns = append(r.turns, quotaTurn{quotaContender: contenders[i], quota: q, faults: faults})
		}
	}
	if r.simulator, err = serving.StartSimulator(ctx, deployments...); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, r.simulator.Close()) }()
	if t.Rows, err = r.all(ctx, scale); err != nil {
		return t, err
	}
	clean, faulty := forebayName+", clean", forebayName+", faults"
	t.Expect("clean: ratio", t.Median(clean, "ratio"), "<", 1.02)
	t.Expect("clean: 429s in %", t.Median(clean, "429 %"), "<", 0.1)
	t.Expect("with faults: ratio", t.Median(faulty, "ratio"), "<", 1.03)
	t.Expect("with faults: 429s in %", t.Median(faulty, "429 %"), "<", 0.5)
	t.Expect("with faults: wasted tokens in %", t.Median(faulty, "wasted %"), "<", 2)
	t.Expect("failed jobs of both", t.Median(clean, "failed jobs")+t.Median(faulty, "failed jobs"), "<", 1)
	t.Note("The targets are those of a run of two hours. In one of %d minutes a second of start-up, of the last call or of a breaker that opens for its usual 5 s weighs %.1f %%.",
		minutes, 100/(60*float64(minutes)))
	t.Note("load average after the run: %s", measure.FirstLine("/proc/loadavg"))
	return t, nil
}

const forebayName = "Forebay"

type quotaContender struct {
	name string
	run  strategy // nil: Forebay
}

type quotaTurn struct {
	quotaContender
	quota    serving.SimulatedQuota
	faults   bool
	services []*serving.Service
}

type quotaRun struct {
	b         *measure.Bench
	simulator *serving.Simulator
	jobs      prompts
	turns     []quotaTurn
}

// all runs everybody at the same time and returns a row for each.
func (r *quotaRun) all(ctx context.Context, scale float64) (rows []measure.Row, err error) {
	defer func() {
		for _, turn := range r.turns {
			for _, s := range turn.services {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for i := range r.turns {
		if turn := &r.turns[i]; turn.run == nil {
			if turn.services, err = r.start(ctx, turn.quota); err != nil {
				return nil, err
			}
		}
	}
	for _, turn := range r.turns {
		if turn.faults {
			if err := r.simulator.Script(ctx, turn.quota.Name, "reference", scale); err != nil {
				return nil, err
			}
		}
	}
	if err := r.simulator.Restart(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	var all sync.WaitGroup
	failed, errs, took := make([]int, len(r.turns)), make([]error, len(r.turns)), make([]time.Duration, len(r.turns))
	for i, turn := range r.turns {
		all.Go(func() {
			if turn.run == nil {
				failed[i], errs[i] = r.forebay(ctx, turn.services)
			} else {
				e := &endpoint{serving.NewClient(), r.simulator.URL + "/openai/deployments/" + turn.quota.Name + "/chat/completions?api-version=2024-10-21",
					turn.quota.TokensPerMinute, turn.quota.RequestsPerMinute()}
				failed[i], errs[i] = turn.run(ctx, e, r.jobs)
				e.CloseIdleConnections()
			}
			took[i] = time.Since(begun)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	report, err := r.simulator.Stats(ctx)
	if err != nil {
		return nil, err
	}
	script, err := modelsim.NamedScript("reference")
	if err != nil {
		return nil, err
	}
	for i, turn := range r.turns {
		name, faults := turn.name+", clean", modelsim.Script(nil)
		if turn.faults {
			name, faults = turn.name+", faults", script.Scaled(scale)
		}
		s := report.Deployments[turn.quota.Name]
		bound := fluidBound(faults, s.TokensAdmitted-s.TokensWasted, turn.quota.TokensPerMinute)
		m := measure.Sample{"seconds": took[i].Seconds(), "ratio": took[i].Seconds() / bound.Seconds(),
			"429 %": 100 * float64(serving.Refused(s)) / float64(s.Calls), "wasted %": 100 * float64(s.TokensWasted) / float64(s.TokensAdmitted),
			"failed jobs": float64(failed[i]), "calls": float64(s.Calls),
			"highest window / quota": float64(s.HighestWindow) / float64(turn.quota.TokensPerMinute)}
		if failed[i] > 0 {
			delete(m, "ratio") // who gives work up is not fast
		}
		rows = append(rows, measure.Row{Name: name, Samples: []measure.Sample{m}})
	}
	return rows, nil
}

// start starts two servers on a database of their own.
func (r *quotaRun) start(ctx context.Context, q serving.SimulatedQuota) (services []*serving.Service, err error) {
	pg, err := r.b.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	at, err := pg.Place(ctx)
	if err != nil {
		return nil, err
	}
	first, err := serving.StartServiceFor(ctx, at, server.Queue{Concurrency: measure.Workers}, r.simulator.Configured(q))
	if err != nil {
		return nil, errors.Join(err, at.Release())
	}
	first.Release = at.Release // it closes last
	second, err := serving.StartServiceFor(ctx, at, server.Queue{Concurrency: measure.Workers}, r.simulator.Configured(q))
	if err != nil {
		return []*serving.Service{first}, err
	}
	return []*serving.Service{second, first}, nil
}

// forebay submits the jobs to one server and waits until none is live.
func (r *quotaRun) forebay(ctx context.Context, services []*serving.Service) (failed int, err error) {
	s := services[0]
	for body := range serving.BulkBodies(r.jobs.bodies) {
		if _, err := s.PostBody(ctx, s.URL+"/v1/jobs/bulk", "application/x-ndjson", body); err != nil {
			return 0, err
		}
	}
	q, err := s.Drained(ctx)
	return int(q.DeadLetter + q.Quarantine), err
}

// makePrompts makes jobs that together are charged so many tokens. The sizes of prompts are
// lognormal, some of them very large, and answers have up to 200 to 1,600 tokens. A job has about
// 1,450 tokens on average.
func makePrompts(seed uint64, tokens int64) (p prompts) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for total := 0.0; total < float64(tokens); {
		size := int(min(math.Exp(rng.NormFloat64()*1.1), 14) * 380)
		output := []int{200, 400, 600, 900, 1600}[rng.IntN(5)]
		words := strings.Repeat("The tide comes in twice a day. ", size*4/31+1)[:size*4]
		p.bodies = append(p.bodies, fmt.Appendf(nil, `{"messages":[{"role":"user","content":"%d %s"}],"max_tokens":%d}`, len(p.bodies), words, output))
		p.cost = append(p.cost, int64(size+4+output))
		total += float64(size+4)*estimateFactor + float64(output)
	}
	return p
}

// fluidBound is how long the quota alone, flowing evenly, needs for so many tokens.
func fluidBound(faults modelsim.Script, tokens int64, perMinute int) time.Duration {
	const step = 10 * time.Millisecond
	left, at := float64(tokens), time.Duration(0)
	for left > 0 {
		if c := faults.At(at); !c.Outage {
			errors := 0.0
			for _, part := range faults {
				if at >= time.Duration(part.From) && at < time.Duration(part.To) {
					for _, share := range part.Errors {
						errors += share
					}
				}
			}
			left -= float64(perMinute) * step.Minutes() * c.Quota * (1 - errors)
		}
		at += step
	}
	return at
}
