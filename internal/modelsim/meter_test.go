package modelsim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// step is one call to a meter and what it must say.
type step struct {
	at      time.Duration
	cost    Cost
	used    *Used // settle the call at once
	refused Dimension
	wait    time.Duration
	never   bool
}

func drive(t *testing.T, m *Meter, steps []step) {
	t.Helper()
	for i, s := range steps {
		v := m.Admit(at(s.at), s.cost)
		if v.Admitted != (s.refused == "") || v.Refused != s.refused || v.RetryAfter != s.wait || v.Oversize != s.never {
			t.Fatalf("call %d at %v: %+v, want refused %q for %v", i, s.at, v, s.refused, s.wait)
		}
		if s.used != nil {
			m.Settle(at(s.at), v, *s.used)
		}
	}
}

func TestAzureCountsInFixedWindows(t *testing.T) {
	m := NewMeter(Quota{Kind: KindAzure, TokensPerMinute: 1000, Phase: 17 * time.Second}, epoch)
	drive(t, m, []step{
		{at: 0, cost: Cost{Prompt: 100, Output: 400}, used: &Used{Prompt: 100, Output: 5}}, // nothing is given back
		{at: time.Second, cost: Cost{Prompt: 500}},
		{at: 2 * time.Second, cost: Cost{Prompt: 1}, refused: Tokens, wait: 15 * time.Second},
		{at: 17 * time.Second, cost: Cost{Prompt: 1000}}, // the window ended, whole and at once
		{at: 18 * time.Second, cost: Cost{Prompt: 1}, refused: Tokens, wait: 59 * time.Second},
		{at: 76999 * time.Millisecond, cost: Cost{Prompt: 1}, refused: Tokens, wait: time.Millisecond},
		{at: 77 * time.Second, cost: Cost{Prompt: 999, Output: 1}},
		{at: 20 * time.Minute, cost: Cost{Prompt: 900, Output: 101}, refused: Tokens, wait: 24 * time.Hour, never: true},
		{at: 20 * time.Minute, cost: Cost{Prompt: 1000}}, // what was refused does not count
	})
}

func TestRequestsAreCountedInSlices(t *testing.T) {
	q := Quota{Kind: KindAzure, RequestsPerMinute: 120, RequestSlice: time.Second}
	drive(t, NewMeter(q, epoch), []step{
		{at: 0}, {at: 0}, {at: 300 * time.Millisecond, refused: Requests, wait: 700 * time.Millisecond},
		{at: time.Second}, {at: 1900 * time.Millisecond}, {at: 1999 * time.Millisecond, refused: Requests, wait: time.Millisecond},
	})
	q.RequestSlice = 10 * time.Second
	m := NewMeter(q, epoch)
	for range 20 {
		drive(t, m, []step{{at: time.Second}})
	}
	drive(t, m, []step{{at: time.Second, refused: Requests, wait: 9 * time.Second}, {at: 10 * time.Second}})
	if r := m.State(at(10 * time.Second)).Requests; *r != (Reading{120, 20, 19, 10 * time.Second}) {
		t.Errorf("state %+v", r)
	}
	// A slice that may not even hold one request is as long as one request takes.
	drive(t, NewMeter(Quota{Kind: KindAzure, RequestsPerMinute: 6, RequestSlice: time.Second}, epoch), []step{
		{at: 0}, {at: time.Second, refused: Requests, wait: 9 * time.Second}, {at: 10 * time.Second},
	})
}

func TestARefusalForOneDimensionUsesNeither(t *testing.T) {
	m := NewMeter(Quota{Kind: KindAzure, TokensPerMinute: 100, RequestsPerMinute: 2}, epoch)
	drive(t, m, []step{
		{cost: Cost{Prompt: 60}},
		{cost: Cost{Prompt: 60}, refused: Tokens, wait: time.Minute},
		{cost: Cost{Prompt: 40}},
		{at: time.Second, cost: Cost{Prompt: 1}, refused: Requests, wait: 59 * time.Second},
	})
}

func TestRollingWindow(t *testing.T) {
	m := NewMeter(Quota{Kind: KindRolling, TokensPerMinute: 1000}, epoch)
	drive(t, m, []step{
		{at: 0, cost: Cost{Prompt: 400}},
		{at: 20 * time.Second, cost: Cost{Prompt: 500}},
		{at: 30 * time.Second, cost: Cost{Prompt: 400}, refused: Tokens, wait: 30 * time.Second},
		{at: 30 * time.Second, cost: Cost{Prompt: 600}, refused: Tokens, wait: 50 * time.Second},
		{at: 30 * time.Second, cost: Cost{Prompt: 100}},
		{at: 59 * time.Second, cost: Cost{Prompt: 1}, refused: Tokens, wait: time.Second},
		{at: 60 * time.Second, cost: Cost{Prompt: 400}},
	})
}

func TestRollingWindowThatCountsRejectedCalls(t *testing.T) {
	m := NewMeter(Quota{Kind: KindRollingRejected, TokensPerMinute: 1000}, epoch)
	drive(t, m, []step{
		{at: 0, cost: Cost{Prompt: 900}},
		// Refused and counted: 1,100, of which the call itself leaves last.
		{at: 10 * time.Second, cost: Cost{Prompt: 200}, refused: Tokens, wait: 50 * time.Second},
		// So the window is not free when the first call leaves it: 200 + 900 are more than 1,000.
		{at: 60 * time.Second, cost: Cost{Prompt: 900}, refused: Tokens, wait: time.Minute},
		// Whoever waits as long as told is admitted.
		{at: 120 * time.Second, cost: Cost{Prompt: 900}},
	})
}

func TestTenSecondBucket(t *testing.T) {
	m := NewMeter(Quota{Kind: KindBucket, TokensPerMinute: 6000}, epoch) // holds 1,000, 100 come back each second
	drive(t, m, []step{
		{at: 0, cost: Cost{Prompt: 1000}},
		{at: time.Second, cost: Cost{Prompt: 101}, refused: Tokens, wait: 10 * time.Millisecond},
		{at: time.Second, cost: Cost{Prompt: 100}},
		{at: 2 * time.Second, cost: Cost{Prompt: 3000}, refused: Tokens, wait: 9 * time.Second}, // goes only when nothing else is there
		{at: 11 * time.Second, cost: Cost{Prompt: 3000}},
		{at: 12 * time.Second, cost: Cost{Prompt: 1000}, refused: Tokens, wait: 29 * time.Second}, // and is paid for
		{at: 12 * time.Second, cost: Cost{Prompt: 6001}, refused: Tokens, wait: 24 * time.Hour, never: true},
	})
}

// The numbers are of a 429 of OpenAI's: limit 30,000, used 29,937, requested 385, again in 644 ms.
func TestOpenAIChargesTheLargerAndRefillsSteadily(t *testing.T) {
	m := NewMeter(Quota{Kind: KindOpenAI, TokensPerMinute: 30_000}, epoch)
	drive(t, m, []step{
		{cost: Cost{Prompt: 29_937, Output: 20_000}},
		{cost: Cost{Prompt: 12, Output: 385}, refused: Tokens, wait: 644 * time.Millisecond},
		{at: 644 * time.Millisecond, cost: Cost{Prompt: 385, Output: 12}, used: &Used{}}, // nothing is given back
		{at: 644 * time.Millisecond, cost: Cost{Prompt: 1}, refused: Tokens, wait: 2 * time.Millisecond},
		{at: time.Hour, cost: Cost{Prompt: 31_538}, refused: Tokens, wait: 24 * time.Hour, never: true},
	})
}

func TestPTUIsCorrectedBothWays(t *testing.T) {
	m := NewMeter(Quota{Kind: KindPTU, TokensPerMinute: 6000}, epoch)
	v := m.Admit(at(0), Cost{Prompt: 3000, Cached: 1000, Output: 3000})
	if !v.Admitted || v.Charged != 5000 || math.Abs(m.State(at(0)).Utilization-5000.0/6000) > 1e-9 {
		t.Fatalf("%+v, state %+v", v, m.State(at(0)))
	}
	// Under 100 % anything goes, and takes it over.
	w := m.Admit(at(0), Cost{Prompt: 100, Output: 4000})
	if x := m.Admit(at(0), Cost{Prompt: 1}); !w.Admitted || x.Admitted || x.RetryAfter != 31*time.Second || m.State(at(0)).Utilization <= 1.5 {
		t.Fatalf("%+v, then %+v", w, x)
	}
	m.Settle(at(0), v, Used{Prompt: 3000, Cached: 1000, Output: 100}) // 2,900 less
	if x := m.Admit(at(0), Cost{Prompt: 1}); x.RetryAfter != 2*time.Second {
		t.Fatalf("%+v", x)
	}
	m.Settle(at(0), w, Used{Prompt: 700, Output: 4000}) // 600 more
	if x := m.Admit(at(0), Cost{Prompt: 1}); x.RetryAfter != 8*time.Second {
		t.Fatalf("%+v", x)
	}
	if x := m.Admit(at(8*time.Second+time.Millisecond), Cost{Prompt: 1}); !x.Admitted {
		t.Fatalf("%+v", x)
	}
}

func TestAnthropicCountsInputAndOutputApart(t *testing.T) {
	m := NewMeter(Quota{Kind: KindAnthropic, TokensPerMinute: 6000, OutputPerMinute: 600, RequestsPerMinute: 60}, epoch)
	v := m.Admit(at(0), Cost{Prompt: 5000, Cached: 1000, Output: 100_000}) // max_tokens costs nothing
	if !v.Admitted || v.Charged != 4000 {
		t.Fatalf("%+v", v)
	}
	m.Settle(at(0), v, Used{Prompt: 4000, Cached: 1000, Output: 900}) // 3,000 in the end; 300 output over the limit
	drive(t, m, []step{
		{cost: Cost{Prompt: 1}, refused: OutputTokens, wait: 30 * time.Second},
		{cost: Cost{Prompt: 6000}, refused: InputTokens, wait: 30 * time.Second}, // the first of two that are as long
		{at: 31 * time.Second, cost: Cost{Prompt: 6000}},
		{at: 31 * time.Second, cost: Cost{Prompt: 6001}, refused: InputTokens, wait: 24 * time.Hour, never: true},
	})
	s := m.State(at(31 * time.Second))
	if s.Tokens != nil || *s.Input != (Reading{6000, 6000, 0, time.Minute}) || *s.Output != (Reading{600, 600, 10, 59 * time.Second}) || s.Requests.Remaining != 59 {
		t.Errorf("state %+v %+v %+v", s.Input, s.Output, s.Requests)
	}
}

func TestAQuotaThatIsCut(t *testing.T) {
	m := NewMeter(Quota{Kind: KindAzure, TokensPerMinute: 1000}, epoch)
	m.SetFactor(at(0), 0.6, false)
	drive(t, m, []step{{cost: Cost{Prompt: 500}}, {cost: Cost{Prompt: 200}, refused: Tokens, wait: time.Minute}})
	if r := *m.State(at(0)).Tokens; r.PerMinute != 1000 || r.Remaining != 500 {
		t.Errorf("hidden, it says %+v", r)
	}
	m.SetFactor(at(0), 0.6, true)
	if r := *m.State(at(0)).Tokens; r.PerMinute != 600 || r.Remaining != 100 {
		t.Errorf("shown, it says %+v", r)
	}
	// A call that the whole quota would hold is not shut out.
	drive(t, m, []step{
		{cost: Cost{Prompt: 900}, refused: Tokens, wait: time.Minute},
		{at: time.Minute, cost: Cost{Prompt: 900}},
	})
	m.SetFactor(at(time.Minute), 1, true)
	drive(t, m, []step{{at: time.Minute, cost: Cost{Prompt: 100}}})

	leaky := NewMeter(Quota{Kind: KindOpenAI, TokensPerMinute: 6000}, epoch)
	leaky.SetFactor(at(0), 0.5, false)
	drive(t, leaky, []step{
		{cost: Cost{Prompt: 3000}},
		{cost: Cost{Prompt: 50}, refused: Tokens, wait: time.Second}, // it also refills half as fast
		{at: time.Second, cost: Cost{Prompt: 50}},
	})
}

// For every kind, a window admits no more than the quota, and whoever waits as long as a refusal
// says is admitted.
func TestEveryKindKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(Kinds).Draw(t, "kind")
		const limit = 10_000
		phase := time.Duration(rapid.IntRange(0, 59_999).Draw(t, "phase")) * time.Millisecond
		q := Quota{Kind: kind, TokensPerMinute: limit, RequestsPerMinute: 100, OutputPerMinute: 2000, RequestSlice: 10 * time.Second, Phase: phase}
		m := NewMeter(q, epoch)
		now := epoch
		windows := map[int]int{}
		total := 0
		for i := range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "gap")) * time.Millisecond)
			c := Cost{Prompt: rapid.IntRange(1, 4000).Draw(t, "prompt"), Output: rapid.IntRange(0, 4000).Draw(t, "output")}
			v := m.Admit(now, c)
			if !v.Admitted {
				if v.RetryAfter <= 0 || v.RetryAfter > 10*time.Minute {
					t.Fatalf("call %d refused: %+v", i, v)
				}
				now = now.Add(v.RetryAfter)
				if v = m.Admit(now, c); !v.Admitted && v.RetryAfter > time.Millisecond {
					t.Fatalf("call %d came when it was told to and is refused again: %+v", i, v)
				}
			}
			if v.Admitted {
				total += v.Charged
				windows[int((now.Sub(epoch)-phase+time.Hour)/time.Minute)] += v.Charged
				m.Settle(now, v, Used{Prompt: c.Prompt, Output: c.Output / 2})
			}
		}
		for w, n := range windows {
			if kind == KindAzure && n > limit {
				t.Fatalf("window %d admitted %d", w, n)
			}
		}
		if most := int(now.Sub(epoch).Minutes()*limit) + 2*limit; kind != KindPTU && total > most {
			t.Fatalf("%d admitted in %v", total, now.Sub(epoch))
		}
	})
}

func TestARollingWindowStaysSmall(t *testing.T) {
	w := &rollingWindow{length: time.Minute}
	for i := range 200_000 {
		w.add(at(time.Duration(i)*10*time.Microsecond), 1) // two seconds
	}
	if len(w.list) > 2001 || w.used(at(2*time.Second)) != 200_000 {
		t.Errorf("%d entries, %v used", len(w.list), w.used(at(2*time.Second)))
	}
	if n := w.used(at(62 * time.Second)); n != 0 {
		t.Errorf("%v used after it all", n)
	}
}

func BenchmarkMeter(b *testing.B) {
	for _, kind := range Kinds {
		b.Run(fmt.Sprint(kind), func(b *testing.B) {
			m := NewMeter(Quota{Kind: kind, TokensPerMinute: 1 << 40, RequestsPerMinute: 1 << 30, OutputPerMinute: 1 << 40}, epoch)
			now := epoch
			for b.Loop() {
				now = now.Add(100 * time.Microsecond)
				m.Settle(now, m.Admit(now, Cost{Prompt: 100, Output: 100}), Used{Prompt: 100, Output: 10})
			}
		})
	}
}
