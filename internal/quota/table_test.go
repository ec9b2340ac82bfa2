package quota_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

const tpm = 240_000

// result is what a strategy reached, as the mean over seeds. Makespan alone does not tell
// strategies apart.
type result struct {
	ratio     float64 // makespan / fluid bound
	worst     float64 // the largest of it
	throttled float64 // share of the calls that were refused
	wasted    float64 // tokens charged for nothing / tokens needed
	failed    float64 // jobs
}

func (r result) String() string {
	return fmt.Sprintf("ratio %.3f (worst %.3f), 429 %.2f %%, wasted %.2f %%, failed %.1f",
		r.ratio, r.worst, 100*r.throttled, 100*r.wasted, r.failed)
}

// atMost fails the test where a result is worse than the bar.
func (r result) atMost(t *testing.T, name string, bar result) {
	t.Helper()
	if r.ratio > bar.ratio || r.throttled > bar.throttled || r.wasted > bar.wasted || r.failed > bar.failed {
		t.Errorf("%s: %v; the bar is %v", name, r, bar)
	}
}

func azure() *server { return &server{quota: tpm} }

func faulty() *server {
	v := azure()
	v.faults.parts = theFaults
	return v
}

var azureLimits = quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: tpm, RequestsPerMinute: 1440}

// seeds is how many there are, beginning with 1. A run depends on its seed and on the code alone.
// FOREBAY_SEEDS is another number, such as the three of the documents.
func seeds() int {
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_SEEDS")); err == nil {
		return max(n, 1)
	}
	return 1
}

// measure runs a strategy with 10,000 jobs over seeds.
func measure(t *testing.T, newServer func() *server, run func(*simulation)) result {
	t.Helper()
	return measureOver(t, seeds(), newServer, run)
}

func measureOver(t *testing.T, seeds int, newServer func() *server, run func(*simulation)) result {
	t.Helper()
	results := make([]result, seeds)
	var all sync.WaitGroup
	for seed := range results {
		all.Go(func() {
			v := newServer()
			s := newSimulation(uint64(seed+1), 10_000, v)
			run(s)
			s.run()
			if s.open > 0 {
				t.Errorf("%d jobs are still open after a day", s.open)
			}
			needed, settled := int64(0), int64(0)
			for _, j := range s.jobs {
				needed += j.charge(v.charging)
				settled += j.charge(v.charging)
				if v.settles {
					settled -= j.most() - j.produced
				}
			}
			ratio := float64(s.lastDone-epoch) / float64(v.faults.bound(settled, v.quota))
			results[seed] = result{ratio: ratio, worst: ratio, throttled: float64(s.throttled) / float64(s.calls),
				wasted: float64(s.wasted) / float64(needed), failed: float64(s.failed)}
		})
	}
	all.Wait()
	var mean result
	n := float64(len(results))
	for _, r := range results {
		mean.ratio += r.ratio / n
		mean.worst = max(mean.worst, r.worst)
		mean.throttled += r.throttled / n
		mean.wasted += r.wasted / n
		mean.failed += r.failed / n
	}
	return mean
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func withForebay(limits quota.Limits) func(*simulation) {
	return func(s *simulation) { runWorkers(s, limits, 1, 256) }
}

// TestStrategies prints how this control and those in use today do with a deployment that counts
// in fixed minutes, without and with faults. It holds this one to its bars.
func TestStrategies(t *testing.T) {
	t.Parallel()
	strategies := []struct {
		name string
		run  func(*simulation)
	}{
		{"inline retry, 6 s × 3, 50 workers", func(s *simulation) { (&pool{s: s, size: 50, again: inline}).run() }},
		{"fixed concurrency 5", func(s *simulation) { (&pool{s: s, size: 5, again: s.patient}).run() }},
		{"tuned concurrency 14", func(s *simulation) { (&pool{s: s, size: 14, again: s.patient}).run() }},
		{"50 workers, exponential + jitter × 6", func(s *simulation) { (&pool{s: s, size: 50, again: s.exponential}).run() }},
		{"50 workers, honours retry-after × 10", func(s *simulation) { (&pool{s: s, size: 50, again: s.obedient}).run() }},
		{"the well-known cookbook script", func(s *simulation) { (&cookbook{s: s}).run() }},
		{"Forebay", withForebay(azureLimits)},
		{"oracle", func(s *simulation) { (&oracle{s: s}).run() }},
	}
	var table strings.Builder
	reached := map[string][2]result{}
	enough := max(seeds(), 2) // the bar is for a mean: the first seed alone wastes 2.04 %
	for _, row := range strategies {
		clean, faults := measureOver(t, enough, azure, row.run), measureOver(t, enough, faulty, row.run)
		reached[row.name] = [2]result{clean, faults}
		ratios := fmt.Sprintf("%.3f | %.3f", clean.ratio, faults.ratio)
		if clean.failed+faults.failed > 100 { // it was so soon over because it gave up
			ratios = "– | –"
		}
		fmt.Fprintf(&table, "| %s | %s | %.2f | %.2f | %.2f | %.1f |\n", row.name, ratios,
			100*clean.throttled, 100*faults.throttled, 100*faults.wasted, faults.failed)
	}
	t.Logf("\n| strategy | clean | faults | 429 %% clean | 429 %% faults | waste %% | failed |\n|---|---|---|---|---|---|---|\n%s", table.String())

	own := reached["Forebay"]
	own[0].atMost(t, "clean", azureBar.clean)
	own[1].atMost(t, "faults", azureBar.faults)
	// The simulation is hard enough: what is known to go wrong goes wrong in it, and the bound is
	// one.
	if r := reached["inline retry, 6 s × 3, 50 workers"][1]; r.failed < 1000 {
		t.Errorf("inline retry lost only %.0f jobs", r.failed)
	}
	if r := reached["fixed concurrency 5"][0]; r.ratio < 1.5 {
		t.Errorf("five at a time took only %.3f of the bound", r.ratio)
	}
	for name, r := range reached {
		if r[0].failed == 0 && r[0].ratio < 0.98 {
			t.Errorf("%s was faster than can be: %v", name, r[0])
		}
	}
}

// bars are what the control must reach when all is well, and with the faults.
type bars struct{ clean, faults result }

var azureBar = bars{result{ratio: 1.02, throttled: 0.001}, result{ratio: 1.03, throttled: 0.005, wasted: 0.02}}

// TestServerKinds runs the control, told nothing but the quota, against providers that count
// otherwise. Faults may cost them no more than what is allowed to be lost to not knowing how they
// count.
func TestServerKinds(t *testing.T) {
	t.Parallel()
	limits := func(a quota.Accounting) quota.Limits {
		l := azureLimits
		l.Accounting = a
		return l
	}
	anthropic := limits(quota.AccountAnthropic)
	anthropic.OutputTokensPerMinute = 80_000
	fewRequests := azureLimits
	fewRequests.RequestsPerMinute = 120
	someRequests, noRequests := azureLimits, azureLimits
	someRequests.RequestsPerMinute, noRequests.RequestsPerMinute = 240, 0
	atMost := func(ratio float64) bars {
		// Nine seeds waste 1.9 % on average, and a seed in ten of those without headers loses one
		// of its 10,000 jobs.
		return bars{result{ratio: ratio, throttled: 0.03}, result{ratio: ratio, throttled: 0.03, wasted: 0.022, failed: 0.34}}
	}
	bar := atMost(1.10)
	wasteful := bar // what a failed call costs is not known here: 2.1 % in the mean of nine seeds, 2.4 % in that of three
	wasteful.faults.wasted = 0.026
	for _, kind := range []struct {
		name   string
		server server
		limits quota.Limits
		bars   bars
	}{
		{"rolling window", server{counting: rollingWindow}, azureLimits, bar},
		{"rolling window that counts refused calls", server{counting: rollingWindow, countsRefused: true}, azureLimits, bar},
		{"10-second bucket", server{counting: tenSeconds}, azureLimits, atMost(1.12)}, // a job that is held keeps others from its place
		{"no headers", server{silent: true}, azureLimits, bar},
		{"no headers, rolling window", server{counting: rollingWindow, silent: true}, azureLimits, bar},
		// Nothing tells that a bucket is full, and single jobs need half of one.
		{"no headers, 10-second bucket", server{counting: tenSeconds, silent: true}, azureLimits, atMost(1.2)},
		{"two requests in each second", server{requests: 120}, fewRequests, bar},
		{"headers of a second's requests", server{requests: 1440, tellsOfSlice: true}, azureLimits, azureBar},
		{"headers of ten seconds' requests", server{requests: 240, requestSlice: 10_000, tellsOfSlice: true}, someRequests, azureBar},
		{"headers of requests, no limit configured", server{requests: 1440, tellsOfSlice: true}, noRequests, azureBar},
		{"PTU, leaky bucket", server{counting: leakyBucket, settles: true}, limits(quota.AccountAzurePTU), bar},
		{"OpenAI, continuous bucket", server{counting: refilled, charging: chargeLarger}, limits(quota.AccountOpenAI), bar},
		{"Anthropic, continuous buckets", server{output: 80_000, counting: refilled, charging: chargePrompt}, anthropic, wasteful},
	} {
		with := func(parts []fault) func() *server {
			return func() *server { v := kind.server; v.quota, v.faults.parts = tpm, parts; return &v }
		}
		clean, faults := measure(t, with(nil), withForebay(kind.limits)), measure(t, with(theFaults), withForebay(kind.limits))
		t.Logf("%-42s %v; faults: %v", kind.name, clean, faults)
		clean.atMost(t, kind.name, kind.bars.clean)
		faults.atMost(t, kind.name+", faults", kind.bars.faults)
	}
}

// TestProcesses shares one stored state among four processes, one of which is killed.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		server func() *server
		bar    float64 // of refused calls
	}{{"clean", azure, 0.002}, {"faults", faulty, 0.005}} {
		one := measure(t, c.server, func(s *simulation) { runWorkers(s, azureLimits, 1, 256) })
		four := measure(t, c.server, func(s *simulation) {
			f := runWorkers(s, azureLimits, 4, 64)
			s.after(2_000_000, func() { f.kill(2, 60_000) })
		})
		t.Logf("%s: one process %v; four, one killed: %v", c.name, one, four)
		four.atMost(t, c.name, result{ratio: one.ratio * 1.01, throttled: c.bar, wasted: 0.02})
	}
}

// TestOutage takes the deployment away for two minutes.
func TestOutage(t *testing.T) {
	t.Parallel()
	const begin, end = 600, 720
	probes, runs := 0, seeds()*3
	for seed := range runs {
		v := azure()
		v.faults.parts = []fault{{from: begin, to: end, down: true, refuses: seed%2 == 0}}
		s := newSimulation(uint64(seed), 5000, v)
		f := runWorkers(s, azureLimits, 1, 64)
		var before, during, after int
		s.at(epoch+(begin+15)*1000, func() { before = s.calls })
		s.at(epoch+end*1000, func() { during = s.calls - before })
		s.at(epoch+(end+15)*1000, func() { before = s.calls })
		s.at(epoch+(end+75)*1000, func() { after = s.calls - before })
		s.run()
		closed := int64(0)
		for _, c := range f.changes {
			if c.Kind == quota.BreakerClosed {
				closed = c.At - epoch - end*1000
			}
		}
		// An outage that looks mixed at first, for calls that began before it end well in it, is
		// probed more often.
		probes += during
		if s.failed > 0 || during > 60 || closed <= 0 || closed > 15_000 || after < 60 || s.throttled > 5 {
			t.Errorf("seed %d: %d jobs failed, %d calls in the last 105 s of the outage, closed %d ms after it, %d calls in the next minute, %d refused",
				seed, s.failed, during, closed, after, s.throttled)
		}
	}
	t.Logf("%d probes in %d runs", probes, runs)
	if probes > 20*runs {
		t.Errorf("%d calls in the last 105 s of %d outages", probes, runs)
	}
}

// TestFirstMinutes: a deployment so large that its first minute's quota is spent before much is
// known of how it counts is not called beyond it.
func TestFirstMinutes(t *testing.T) {
	t.Parallel()
	const large = 1_200_000
	calls, refused := 0, 0
	for seed := range uint64(20) {
		s := newSimulation(seed, 2*large*10_000/admissionTokens, &server{quota: large})
		s.server.phase = -epoch % 60_000 // its minute begins with the first call
		for _, j := range s.jobs {
			j.guess = max(j.prompt*17/20, 1)
		}
		runWorkers(s, quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: large, RequestsPerMinute: 7200}, 2, 256)
		s.run()
		calls, refused = calls+s.calls, refused+s.throttled
	}
	if share := float64(refused) / float64(calls); share > 0.001 {
		t.Errorf("%d of %d calls were refused, %.2f %%", refused, calls, 100*share)
	}
}
