package modelsim_test

import (
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/modelsim"
)

// A meter and a script need no server and no clock: a simulation drives them through two hours.
func ExampleMeter() {
	script, err := modelsim.NamedScript("reference")
	if err != nil {
		panic(err)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := modelsim.NewMeter(modelsim.Quota{Kind: modelsim.KindAzure, TokensPerMinute: 240_000}, begin)
	admitted, refused := 0, 0
	for second := range 7200 {
		now := begin.Add(time.Duration(second) * time.Second)
		c := script.At(now.Sub(begin))
		m.SetFactor(now, c.Quota, c.QuotaShown)
		switch {
		case c.Outage:
		case m.Admit(now, modelsim.Cost{Prompt: 3000, Output: 1000}).Admitted:
			admitted++
		default:
			refused++
		}
	}
	fmt.Println(admitted, "admitted,", refused, "refused")
	// Output: 6660 admitted, 360 refused
}

// A service is driven the same way, in the order of time. This makes one call every ten seconds
// for two and a half hours. In one of the hours half of them fail.
func ExampleService() {
	d := modelsim.DefaultDeployment()
	d.Faults = modelsim.Script{{From: modelsim.Duration(time.Hour), To: modelsim.Duration(2 * time.Hour), Errors: modelsim.Rates{503: 0.5}}}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := modelsim.NewService(d, 1, begin)
	if err != nil {
		panic(err)
	}
	var busy time.Duration
	for i := range 900 {
		now := begin.Add(time.Duration(i) * 10 * time.Second)
		call := s.Begin(now, modelsim.Cost{Prompt: s.Estimate(1000, uint64(i)), Output: 500})
		used := modelsim.Used{Prompt: 1000}
		if call.Outcome == modelsim.Answered {
			used.Output, _ = s.Length(uint64(i), 500)
		}
		took := s.Duration(used.Output, call.Conditions)
		busy += took
		s.End(now.Add(took), call, call.Outcome, used)
	}
	st := s.Stats()
	fmt.Println(st.Answered, "answered,", st.Errors[503], "failed,", st.TokensWasted, "tokens wasted")
	fmt.Println("mean latency", (busy / 900).Round(100*time.Millisecond))
	// Output:
	// 722 answered, 178 failed, 267000 tokens wasted
	// mean latency 1.9s
}
