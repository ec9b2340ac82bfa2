package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

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

// windows measures how Forebay uses deployments that count otherwise than it was told. Each kind,
// circumstance and seed has a deployment and two processes of its own.
func windows(ctx context.Context, b *bench) (t table, err error) {
	const perMinute = 600_000
	seeds, minutes := b.size(3, 1), b.size(2, 1)
	t = table{
		title: "Kinds of windows over HTTP",
		text: fmt.Sprintf(`The jobs of the experiment above that need %d minutes and 2 seconds of a deployment's %s tokens a minute (70 %% of them
beside a client that takes 30 %%), two processes on one PostgreSQL, and `+"`forebay sim`"+` in a process of its own. All circumstances
of a kind run at the same time, one seed after the other. Ratio: time to the last result by what the quota, flowing evenly, needs for the tokens of the answers and
of the other client. Spent: others have used the whole quota before the start, and there is twice the work; not where windows begin anew.`,
			minutes, format(perMinute)),
		columns: []string{"ratio", "429 %", "wasted %", "failed jobs", "calls"},
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
					quota: simulatedQuota{name: fmt.Sprintf("d%d", len(turns)), tokensPerMinute: perMinute, kind: kind.kind, requests: kind.requests,
						options: kind.options + c.options, phase: time.Duration(7+17*seed) * time.Second, estimateFactor: estimateFactor},
					jobs: makePrompts(uint64(11+seed), int64(perMinute*(minutes+quotaShare)*share)),
				})
			}
			rows, err := runWindows(ctx, b, turns)
			if err != nil {
				return t, err
			}
			t.rows = append(t.rows, rows...)
		}
	}
	worst := func(column string) (most float64) {
		for _, r := range t.rows {
			most = max(most, t.median(r.name, column))
		}
		return most
	}
	t.expect("the worst ratio", worst("ratio"), "<", 1.1)
	t.expect("the worst wasted %", worst("wasted %"), "<", 2)
	t.expect("failed jobs", worst("failed jobs"), "<", 1)
	t.note("load average after the run: %s", firstLine("/proc/loadavg"))
	return t, nil
}

type windowTurn struct {
	row   string
	quota simulatedQuota
	jobs  prompts
}

// runWindows runs turns at the same time and returns a row for each.
func runWindows(ctx context.Context, b *bench, turns []windowTurn) (rows []row, err error) {
	var quotas []simulatedQuota
	for _, turn := range turns {
		quotas = append(quotas, turn.quota)
	}
	s, err := startSimulator(ctx, quotas...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	services := make([][]*service, len(turns))
	defer func() {
		for _, pair := range services {
			for _, one := range pair {
				err = errors.Join(err, one.close())
			}
		}
	}()
	for i, turn := range turns {
		run := quotaRun{b: b, simulator: s}
		if services[i], err = run.start(ctx, turn.quota); err != nil {
			return nil, err
		}
	}
	if err := s.restart(ctx); err != nil {
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
	report, err := s.stats(ctx)
	if err != nil {
		return nil, err
	}
	for i, turn := range turns {
		d := report.Deployments[turn.quota.name]
		bound := fluidBound(nil, d.TokensAdmitted-d.TokensWasted+d.ForeignTokens, turn.quota.tokensPerMinute)
		rows = append(rows, row{turn.row, []sample{{"ratio": took[i].Seconds() / bound.Seconds(),
			"429 %": 100 * float64(refused(d)) / float64(max(d.Calls, 1)), "wasted %": 100 * float64(d.TokensWasted) / float64(max(d.TokensAdmitted, 1)),
			"failed jobs": float64(failed[i]), "calls": float64(d.Calls)}}})
	}
	return rows, nil
}
