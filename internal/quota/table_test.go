package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

const tpm = 240_000

// result is what a strategy reached, averaged over seeds: makespan over the fluid bound, share of
// calls that were refused, tokens charged for nothing as a share of those that were needed.
type result struct {
	ratio, throttled, wasted, failed float64
	worst                            float64 // of ratio
}

func (r result) String() string {
	return fmt.Sprintf("%.3f (%.3f) 429 %.2f%% waste %.2f%% failed %.1f", r.ratio, r.worst, 100*r.throttled, 100*r.wasted, r.failed)
}

func azure() *server { return &server{name: "fixed window", quota: tpm} }

func faulty() *server {
	v := azure()
	v.faults.parts = theFaults
	return v
}

var azureLimits = quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: tpm, RequestsPerMinute: 1440}

// measure runs a strategy over seeds.
func measure(t testing.TB, seeds int, newServer func() *server, run func(*simulation)) result {
	t.Helper()
	var r result
	for seed := range seeds {
		v := newServer()
		s := newSimulation(uint64(seed+1), jobCount(), v)
		run(s)
		s.run()
		if s.open > 0 {
			t.Fatalf("%d jobs are still open after a day", s.open)
		}
		total := int64(0)
		for _, j := range s.jobs {
			total += j.charge(v.charging)
		}
		ratio := float64(s.lastDone-epoch) / float64(v.faults.bound(total, v.quota))
		r.ratio += ratio
		r.worst = max(r.worst, ratio)
		r.throttled += float64(s.throttled) / float64(s.calls)
		r.wasted += float64(s.wasted) / float64(total)
		r.failed += float64(s.failed)
	}
	n := float64(seeds)
	r.ratio, r.throttled, r.wasted, r.failed = r.ratio/n, r.throttled/n, r.wasted/n, r.failed/n
	return r
}

func jobCount() int { return 10_000 }

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func withForebay(limits quota.Limits) func(*simulation) {
	return func(s *simulation) { runForebay(s, limits, 1, 256) }
}

func TestTable(t *testing.T) {
	seeds := 3
	start := time.Now()
	rows := []struct {
		name string
		run  func(*simulation)
	}{
		{"inline retry, 6 s × 3, 50 workers", func(s *simulation) { (&pool{s: s, workers: 50, again: inline}).run() }},
		{"fixed concurrency 5", func(s *simulation) { (&pool{s: s, workers: 5, again: s.patient}).run() }},
		{"tuned concurrency 14", func(s *simulation) { (&pool{s: s, workers: 14, again: s.patient}).run() }},
		{"50 workers, exponential × 6", func(s *simulation) { (&pool{s: s, workers: 50, again: s.exponential}).run() }},
		{"50 workers, retry-after × 10", func(s *simulation) { (&pool{s: s, workers: 50, again: s.obedient}).run() }},
		{"cookbook script", func(s *simulation) { (&cookbook{s: s}).run() }},
		{"oracle", func(s *simulation) { (&oracle{s: s}).run() }},
		{"forebay", withForebay(azureLimits)},
	}
	for _, row := range rows {
		clean := measure(t, seeds, azure, row.run)
		faults := measure(t, seeds, faulty, row.run)
		t.Logf("%-36s clean %v | faults %v  [%v]", row.name, clean, faults, time.Since(start))
	}
}

func TestKinds(t *testing.T) {
	for _, v := range kinds() {
		r := measure(t, 3, v.server, withForebay(v.limits))
		t.Logf("%-36s %v", v.name, r)
	}
}

type kind struct {
	name   string
	server func() *server
	limits quota.Limits
}

func kinds() []kind {
	ptu := azureLimits
	ptu.Accounting = quota.AccountAzurePTU
	openai := azureLimits
	openai.Accounting = quota.AccountOpenAI
	anthropic := quota.Limits{Accounting: quota.AccountAnthropic, TokensPerMinute: tpm, OutputTokensPerMinute: 80_000, RequestsPerMinute: 1440}
	return []kind{
		{"fixed window", azure, azureLimits},
		{"rolling window", func() *server { return &server{quota: tpm, counting: rollingWindow} }, azureLimits},
		{"rolling, counts refused calls", func() *server { return &server{quota: tpm, counting: rollingWindow, countsRefused: true} }, azureLimits},
		{"10-second bucket", func() *server { return &server{quota: tpm, counting: tenSeconds} }, azureLimits},
		{"no headers", func() *server { return &server{quota: tpm, silent: true} }, azureLimits},
		{"no headers, rolling", func() *server { return &server{quota: tpm, silent: true, counting: rollingWindow} }, azureLimits},
		{"no headers, 10-second bucket", func() *server { return &server{quota: tpm, silent: true, counting: tenSeconds} }, azureLimits},
		{"RPM in 1-second slices", func() *server { return &server{quota: tpm, requests: 120} }, quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: tpm, RequestsPerMinute: 120}},
		{"PTU leaky bucket", func() *server { return &server{quota: tpm, counting: leakyBucket, settles: true} }, ptu},
		{"OpenAI", func() *server { return &server{quota: tpm, counting: refilled, charging: chargeLarger} }, openai},
		{"Anthropic", func() *server { return &server{quota: tpm, output: 80_000, counting: refilled, charging: chargePrompt} }, anthropic},
	}
}
