package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
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

// Outage measures what an outage of all deployments does, and what comes after it.
func Outage(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	down, waiting := time.Duration(b.Size(120, 30))*time.Second, b.Size(5000, 2500)
	t = measure.Table{
		Title: "All deployments down",
		Text: fmt.Sprintf(`One server with 256 places on PostgreSQL with two deployments of %s tokens a minute each, simulated in a process of their own, and jobs of
%s tokens. First it works at its quota for 15 s; then every connection to either is closed for %v, while %s jobs wait; then both are
well again until all jobs are done. All the time %d more jobs are submitted each second over HTTP, each timed from when it was due.
Full rate: when for the first time what was admitted within 5 s was %.0f %% of what both quotas give in that time, or more; the
time is that of the beginning of these 5 s.`,
			measure.Format(outagePerMinute), measure.Format(outageCost), down, measure.Format(float64(waiting)), outageSubmits, 100*fullRate),
		Columns: []string{"submit p50 ms", "submit p99 ms", "calls", "server CPU ms/s", "highest window / quota"},
	}
	r := outageRun{b: b, down: down, waiting: waiting}
	if err := r.start(ctx); err != nil {
		return t, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.run(ctx, &t); err != nil {
		return t, err
	}
	before, during := t.Median(outageBefore, "submit p99 ms"), t.Median(outageDuring, "submit p99 ms")
	t.Expect("submit p99 during the outage / before it", during/before, "<", 1.5)
	t.Note("load average after the run: %s", measure.FirstLine("/proc/loadavg"))
	return t, nil
}

const (
	outageBefore = "before"
	outageDuring = "during the outage"
	outageAfter  = "after it, until full rate"
)

type outageRun struct {
	b         *measure.Bench
	down      time.Duration
	waiting   int
	quotas    []serving.SimulatedQuota
	simulator *serving.Simulator
	server    *serving.Service
	jobs      int // submitted
}

func (r *outageRun) start(ctx context.Context) (err error) {
	r.quotas = []serving.SimulatedQuota{{Name: "east", TokensPerMinute: outagePerMinute, Phase: 20 * time.Second}, {Name: "west", TokensPerMinute: outagePerMinute, Phase: 50 * time.Second}}
	if r.simulator, err = serving.StartSimulator(ctx, r.quotas...); err != nil {
		return err
	}
	pg, err := r.b.Postgres(ctx)
	if err != nil {
		return err
	}
	at, err := pg.Place(ctx)
	if err != nil {
		return err
	}
	if r.server, err = serving.StartServiceFor(ctx, at, server.Queue{Concurrency: 256}, r.simulator.Configured(r.quotas[0]), r.simulator.Configured(r.quotas[1])); err != nil {
		return errors.Join(err, at.Release())
	}
	r.server.Release = at.Release
	return nil
}

func (r *outageRun) close() (err error) {
	if r.server != nil {
		err = r.server.Close()
	}
	if r.simulator != nil {
		err = errors.Join(err, r.simulator.Close())
	}
	return err
}

// outageInput is a job that is charged outageCost tokens.
var outageInput = json.RawMessage(fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],"max_tokens":300}`, measure.Quoted((outageCost-300-3)*4)))

// stats is both deployments together.
func (r *outageRun) stats(ctx context.Context) (sum modelsim.Stats, err error) {
	report, err := r.simulator.Stats(ctx)
	for _, s := range report.Deployments {
		sum.Calls += s.Calls
		sum.Answered += s.Answered
		sum.Outage += s.Outage
		sum.TokensAdmitted += s.TokensAdmitted - s.TokensWasted
		sum.HighestWindow = max(sum.HighestWindow, s.HighestWindow)
		sum.HighestRolling += serving.Refused(s)
	}
	return sum, err
}

func (r *outageRun) submit(ctx context.Context, jobs int) error {
	r.jobs += jobs
	inputs := make([]json.RawMessage, jobs)
	for i := range inputs {
		inputs[i] = outageInput
	}
	for body := range serving.BulkBodies(inputs) {
		if _, err := r.server.PostBody(ctx, r.server.URL+"/v1/jobs/bulk", "application/x-ndjson", body); err != nil {
			return err
		}
	}
	return nil
}

// phase submits at its pace until f has returned, and says what was measured meanwhile.
func (r *outageRun) phase(ctx context.Context, t *measure.Table, name string, f func(context.Context) error) error {
	before, err := r.stats(ctx)
	if err != nil {
		return err
	}
	used, err := measure.UsageOf(r.server.PID)
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
	usedAfter, err := measure.UsageOf(r.server.PID)
	if err != nil {
		return err
	}
	after, err := r.stats(ctx)
	if err != nil {
		return err
	}
	slices.Sort(took)
	t.Rows = append(t.Rows, measure.Row{Name: name, Samples: []measure.Sample{{"submit p50 ms": measure.Percentile(took, 0.5), "submit p99 ms": measure.Percentile(took, 0.99),
		"calls": float64(after.Calls - before.Calls), "server CPU ms/s": (usedAfter.CPU - used.CPU).Seconds() * 1000 / lasted.Seconds(),
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
		if _, err := r.server.PostBody(ctx, r.server.URL+"/v1/jobs", "application/json", body); err != nil {
			return took, err
		}
		r.jobs++
		took = append(took, time.Since(due))
	}
}

func (r *outageRun) run(ctx context.Context, t *measure.Table) error {
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
	if err := r.simulator.Script(ctx, "", "[{outage: true}]", 1); err != nil {
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
	if err := r.simulator.Script(ctx, "", "none", 1); err != nil {
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
	if q, err = r.server.Drained(ctx); err != nil {
		return err
	}
	end, err := r.stats(ctx)
	if err != nil {
		return err
	}
	t.Expect("failed jobs of "+measure.Format(float64(r.jobs)), float64(q.DeadLetter+q.Quarantine), "<", 1)
	t.Expect("calls a minute at each deployment while it was down, after the first 5 s", float64(last.Calls-first.Calls)/(r.down-5*time.Second).Minutes()/2, "<", 16)
	t.Expect("seconds until full rate after the outage", full.Seconds(), "<", 15)
	t.Expect("highest window as a share of the quota", float64(end.HighestWindow)/outagePerMinute, "<", 1.0001)
	t.Note("429s: %d of %d calls", end.HighestRolling, end.Calls)
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
