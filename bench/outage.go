package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

const (
	outagePerMinute = 2_400_000 // tokens, of each of two deployments
	outageCost      = 1000      // tokens of each job
	outageSubmits   = 20        // a second, beside what waits
	fullRate        = 0.9       // of the quota
)

// outage measures what an outage of all deployments does, and what comes after it.
func outage(ctx context.Context, b *bench) (t table, err error) {
	down, waiting := time.Duration(b.size(120, 30))*time.Second, b.size(5000, 2500)
	t = table{
		title: "All deployments down",
		text: fmt.Sprintf(`One server with 256 places on PostgreSQL with two deployments of %s tokens a minute each, simulated in a process of their own, and jobs of
%s tokens. First it works at its quota for 15 s; then every connection to either is closed for %v, while %s jobs wait; then both are
well again until all jobs are done. All the time %d more jobs are submitted each second over HTTP, each timed from when it was due.
Full rate: when for the first time what was admitted within 5 s was %.0f %% of what both quotas give in that time, or more; the
time is that of the beginning of these 5 s.`,
			format(outagePerMinute), format(outageCost), down, format(float64(waiting)), outageSubmits, 100*fullRate),
		columns: []string{"submit p50 ms", "submit p99 ms", "calls", "server CPU ms/s", "highest window / quota"},
	}
	r := outageRun{b: b, down: down, waiting: waiting}
	if err := r.start(ctx); err != nil {
		return t, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.run(ctx, &t); err != nil {
		return t, err
	}
	before, during := t.median(outageBefore, "submit p99 ms"), t.median(outageDuring, "submit p99 ms")
	t.expect("submit p99 during the outage / before it", during/before, "<", 1.5)
	t.note("load average after the run: %s", firstLine("/proc/loadavg"))
	return t, nil
}

const (
	outageBefore = "before"
	outageDuring = "during the outage"
	outageAfter  = "after it, until full rate"
)

type outageRun struct {
	b         *bench
	down      time.Duration
	waiting   int
	quotas    []simulatedQuota
	simulator *simulator
	server    *service
	jobs      int // submitted
}

func (r *outageRun) start(ctx context.Context) (err error) {
	r.quotas = []simulatedQuota{{name: "east", tokensPerMinute: outagePerMinute, phase: 20 * time.Second}, {name: "west", tokensPerMinute: outagePerMinute, phase: 50 * time.Second}}
	if r.simulator, err = startSimulator(ctx, r.quotas...); err != nil {
		return err
	}
	pg, err := r.b.postgres(ctx)
	if err != nil {
		return err
	}
	at, err := pg.place(ctx)
	if err != nil {
		return err
	}
	if r.server, err = startServiceFor(ctx, at, server.Queue{Concurrency: 256}, r.simulator.configured(r.quotas[0]), r.simulator.configured(r.quotas[1])); err != nil {
		return errors.Join(err, at.release())
	}
	r.server.release = at.release
	return nil
}

func (r *outageRun) close() (err error) {
	if r.server != nil {
		err = r.server.close()
	}
	if r.simulator != nil {
		err = errors.Join(err, r.simulator.close())
	}
	return err
}

// outageInput is a job that is charged outageCost tokens.
var outageInput = json.RawMessage(fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],"max_tokens":300}`, quoted((outageCost-300-3)*4)))

// outageStats is both deployments together.
func (r *outageRun) stats(ctx context.Context) (sum modelsim.Stats, err error) {
	report, err := r.simulator.stats(ctx)
	for _, s := range report.Deployments {
		sum.Calls += s.Calls
		sum.Answered += s.Answered
		sum.Outage += s.Outage
		sum.TokensAdmitted += s.TokensAdmitted - s.TokensWasted
		sum.HighestWindow = max(sum.HighestWindow, s.HighestWindow)
		sum.HighestRolling += refused(s)
	}
	return sum, err
}

func (r *outageRun) submit(ctx context.Context, jobs int) error {
	r.jobs += jobs
	inputs := make([]json.RawMessage, jobs)
	for i := range inputs {
		inputs[i] = outageInput
	}
	for body := range bulkBodies(inputs) {
		if _, err := r.server.post(ctx, r.server.url+"/v1/jobs/bulk", "application/x-ndjson", body); err != nil {
			return err
		}
	}
	return nil
}

// phase submits at its pace until f has returned, and says what was measured meanwhile.
func (r *outageRun) phase(ctx context.Context, t *table, name string, f func(context.Context) error) error {
	before, err := r.stats(ctx)
	if err != nil {
		return err
	}
	used, err := usageOf(r.server.pid)
	if err != nil {
		return err
	}
	begun := time.Now()
	over, stop := context.WithCancel(ctx)
	var submitting sync.WaitGroup
	var took []time.Duration
	var failed error
	submitting.Go(func() { took, failed = r.submitPaced(ctx, over.Done()) })
	err = f(ctx)
	stop()
	submitting.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	lasted := time.Since(begun)
	usedAfter, err := usageOf(r.server.pid)
	if err != nil {
		return err
	}
	after, err := r.stats(ctx)
	if err != nil {
		return err
	}
	slices.Sort(took)
	t.rows = append(t.rows, row{name, []sample{{"submit p50 ms": percentile(took, 0.5), "submit p99 ms": percentile(took, 0.99),
		"calls": float64(after.Calls - before.Calls), "server CPU ms/s": (usedAfter.cpu - used.cpu).Seconds() * 1000 / lasted.Seconds(),
		"highest window / quota": float64(after.HighestWindow) / outagePerMinute}}})
	return nil
}

// submitPaced submits single jobs until over is closed. Each is timed from when it was due.
func (r *outageRun) submitPaced(ctx context.Context, over <-chan struct{}) (took []time.Duration, err error) {
	body := fmt.Appendf(nil, `{"task":"chat","input":%s}`, outageInput)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for due := time.Now(); ; due = due.Add(time.Second / outageSubmits) {
		tick.Reset(time.Until(due))
		select {
		case <-tick.C:
		case <-over:
			return took, nil
		}
		if _, err := r.server.post(ctx, r.server.url+"/v1/jobs", "application/json", body); err != nil {
			return took, err
		}
		r.jobs++
		took = append(took, time.Since(due))
	}
}

func (r *outageRun) run(ctx context.Context, t *table) error {
	const working = 15 * time.Second
	perSecond := 2 * outagePerMinute / 60 / outageCost
	if err := r.submit(ctx, perSecond*25); err != nil {
		return err
	}
	if err := r.phase(ctx, t, outageBefore, func(ctx context.Context) error { return sleep.For(ctx, working) }); err != nil {
		return err
	}
	if err := r.submit(ctx, r.waiting); err != nil {
		return err
	}
	if err := r.simulator.script(ctx, "", "[{outage: true}]", 1); err != nil {
		return err
	}
	var first, last modelsim.Stats
	err := r.phase(ctx, t, outageDuring, func(ctx context.Context) (err error) {
		if err = sleep.For(ctx, 5*time.Second); err == nil {
			if first, err = r.stats(ctx); err == nil {
				if err = sleep.For(ctx, r.down-5*time.Second); err == nil {
					last, err = r.stats(ctx)
				}
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.simulator.script(ctx, "", "none", 1); err != nil {
		return err
	}
	full, q, err := time.Duration(0), forebay.QueueInfo{}, error(nil)
	after := func(ctx context.Context) (err error) {
		full, err = r.untilFull(ctx, float64(perSecond*outageCost))
		return err
	}
	if err = r.phase(ctx, t, outageAfter, after); err != nil {
		return err
	}
	if q, err = r.server.drained(ctx); err != nil {
		return err
	}
	end, err := r.stats(ctx)
	if err != nil {
		return err
	}
	t.expect("failed jobs of "+format(float64(r.jobs)), float64(q.DeadLetter+q.Quarantine), "<", 1)
	t.expect("calls a minute at each deployment while it was down, after the first 5 s", float64(last.Calls-first.Calls)/(r.down-5*time.Second).Minutes()/2, "<", 16)
	t.expect("seconds until full rate after the outage", full.Seconds(), "<", 15)
	t.expect("highest window as a share of the quota", float64(end.HighestWindow)/outagePerMinute, "<", 1.0001)
	t.note("429s: %d of %d calls", end.HighestRolling, end.Calls)
	return nil
}

// untilFull returns how long it takes until calls are admitted at the full rate, in tokens a
// second.
func (r *outageRun) untilFull(ctx context.Context, rate float64) (time.Duration, error) {
	const (
		span = 5 * time.Second
		each = 100 * time.Millisecond
	)
	var admitted []int64
	begun := time.Now()
	var times []time.Duration
	for {
		s, err := r.stats(ctx)
		if err != nil {
			return 0, err
		}
		admitted, times = append(admitted, s.TokensAdmitted), append(times, time.Since(begun))
		for now := times[len(times)-1]; now-times[0] > span; admitted, times = admitted[1:], times[1:] {
			if float64(s.TokensAdmitted-admitted[0]) >= fullRate*rate*(now-times[0]).Seconds() {
				return times[0], nil
			}
		}
		if err := sleep.For(ctx, each); err != nil {
			return 0, fmt.Errorf("the full rate was not reached: %w", err)
		}
	}
}
