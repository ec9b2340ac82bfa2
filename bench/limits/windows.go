package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// windowKinds are the ways in which the deployments of this experiment count.
var windowKinds = []struct {
	name     string
	kind     modelsim.Kind
	requests int // a minute; 0: many
	options  string
}{
	{name: "fixed minute", kind: modelsim.KindAzure},
	{name: "rolling minute", kind: modelsim.KindRolling},
	{name: "token bucket", kind: modelsim.KindOpenAI},
	{name: "slices of ten seconds", kind: modelsim.KindAzure, options: ", token_slice: 10s"},
	{name: "requests by the second", kind: modelsim.KindAzure, requests: 900, options: ", request_slice: 1s"},
}

// windowCircumstances make each of them harder to use.
var windowCircumstances = []struct{ name, options string }{
	{"alone", ""},
	{"150 ms", ", round_trip: 150ms"},
	{"400 ms", ", round_trip: 400ms"},
	{"foreign 30 %", ", foreign_share: 0.3"},
	{"spent", ", spent_share: 1"},
}

// Windows measures how Forebay uses deployments that count otherwise than it was told. Each kind,
// circumstance and seed has a deployment and two processes of its own.
func Windows(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	const perMinute = 600_000
	seeds, minutes := b.Size(3, 1), b.Size(2, 1)
	t = measure.Table{
		Title: "Kinds of windows over HTTP",
		Text: fmt.Sprintf(`The jobs of the experiment above that need %d minutes and 2 seconds of a deployment's %s tokens a minute (70 %% of them
beside a client that takes 30 %%), two processes on one PostgreSQL, and `+"`forebay sim`"+` in a process of its own. All circumstances
of a kind run at the same time, one seed after the other. Ratio: time to the last result by what the quota, flowing evenly, needs for the tokens of the answers and
of the other client. Spent: others have used the whole quota before the start, and there is twice the work; not where windows begin anew.`,
			minutes, measure.Format(perMinute)),
		Columns: []string{"ratio", "429 %", "wasted %", "failed jobs", "calls"},
	}
	for _, kind := range windowKinds {
		for seed := range seeds {
			var turns []windowTurn
			for _, c := range windowCircumstances {
				if strings.Contains(c.options, "spent") && kind.kind == modelsim.KindAzure {
					continue
				}
				share, minutes := 1.0, float64(minutes)
				switch {
				case strings.Contains(c.options, "foreign"):
					share = 0.7
				case strings.Contains(c.options, "spent"): // the first seconds weigh less
					minutes *= 2
				}
				turns = append(turns, windowTurn{
					row: fmt.Sprintf("%s, %s, seed %d", kind.name, c.name, seed+1),
					quota: serving.SimulatedQuota{Name: fmt.Sprintf("d%d", len(turns)), TokensPerMinute: perMinute, Kind: kind.kind, Requests: kind.requests,
						Options: kind.options + c.options, Phase: time.Duration(7+17*seed) * time.Second, EstimateFactor: estimateFactor},
					jobs: makePrompts(uint64(11+seed), int64(perMinute*(minutes+quotaShare)*share)),
				})
			}
			rows, err := runWindows(ctx, b, turns)
			if err != nil {
				return t, err
			}
			t.Rows = append(t.Rows, rows...)
		}
	}
	worst := func(column string) (most float64) {
		for _, r := range t.Rows {
			most = max(most, t.Median(r.Name, column))
		}
		return most
	}
	t.Expect("the worst ratio", worst("ratio"), "<", 1.1)
	t.Expect("the worst wasted %", worst("wasted %"), "<", 2)
	t.Expect("failed jobs", worst("failed jobs"), "<", 1)
	t.Note("load average after the run: %s", measure.FirstLine("/proc/loadavg"))
	return t, nil
}

type windowTurn struct {
	row   string
	quota serving.SimulatedQuota
	jobs  prompts
}

// runWindows runs turns at the same time and returns a row for each.
func runWindows(ctx context.Context, b *measure.Bench, turns []windowTurn) (rows []measure.Row, err error) {
	var quotas []serving.SimulatedQuota
	for _, turn := range turns {
		quotas = append(quotas, turn.quota)
	}
	s, err := serving.StartSimulator(ctx, quotas...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	services := make([][]*serving.Service, len(turns))
	defer func() {
		for _, pair := range services {
			for _, one := range pair {
				err = errors.Join(err, one.Close())
			}
		}
	}()
	for i, turn := range turns {
		run := quotaRun{b: b, simulator: s}
		if services[i], err = run.start(ctx, turn.quota); err != nil {
			return nil, err
		}
	}
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	var all sync.WaitGroup
	failed, errs, took := make([]int, len(turns)), make([]error, len(turns)), make([]time.Duration, len(turns))
	for i, turn := range turns {
		all.Go(func() {
			run := quotaRun{b: b, simulator: s, jobs: turn.jobs}
			failed[i], errs[i] = run.forebay(ctx, services[i])
			took[i] = time.Since(begun)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	report, err := s.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i, turn := range turns {
		d := report.Deployments[turn.quota.Name]
		bound := fluidBound(nil, d.TokensAdmitted-d.TokensWasted+d.ForeignTokens, turn.quota.TokensPerMinute)
		rows = append(rows, measure.Row{Name: turn.row, Samples: []measure.Sample{{"ratio": took[i].Seconds() / bound.Seconds(),
			"429 %": 100 * float64(serving.Refused(d)) / float64(max(d.Calls, 1)), "wasted %": 100 * float64(d.TokensWasted) / float64(max(d.TokensAdmitted, 1)),
			"failed jobs": float64(failed[i]), "calls": float64(d.Calls)}}})
	}
	return rows, nil
}
