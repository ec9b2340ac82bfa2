package quota_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay/internal/quota"
)

// Calls may be heard of after the clock was set back, or by a state that began after they did.
// What their headers say is then stored as well.
func TestFeedbackOfCallsFromBeforeIsStored(t *testing.T) {
	l := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 100_000, RequestsPerMinute: 600}
	o := quota.Outcome{Kind: quota.Succeeded, Headers: quota.Headers{Limit: quota.Amount{100_000, 600}, Remaining: quota.Amount{90_000, 3},
		Reset: [3]time.Duration{time.Minute, time.Second}}}
	var s quota.State
	var made []quota.Reservation
	for i := range int64(10) {
		made = append(made, call(t, &s, epoch+i*2000, l, quota.Request{PromptTokens: 100}))
	}
	back := s.Clone()
	for i, r := range made {
		back.Feedback(epoch-3*3600_000+int64(i), l, r, o, half)
		back = reload(t, back)
	}
	anew := new(quota.State)
	for _, r := range made {
		anew.Feedback(epoch+20_000, l, r, o, half)
		anew = reload(t, anew)
	}
}

// TestWhateverCallsTellCanBeStored: no answer of a provider, no clock and no late feedback makes a
// state that cannot be read again.
func TestWhateverCallsTellCanBeStored(t *testing.T) {
	waits := []time.Duration{0, 0, 1, time.Millisecond, 337 * time.Millisecond, time.Second, 4 * time.Second, 9300 * time.Millisecond, 10 * time.Second,
		11 * time.Second, time.Minute, time.Hour - 1, time.Hour, 2 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}
	amounts := []int64{-1, 0, 1, 3, 7, 50, 5000, 200_000, 1 << 30, 1 << 45, 1<<63 - 1}
	rapid.Check(t, func(t *rapid.T) {
		l := quota.Limits{Accounting: quota.Accounting(rapid.IntRange(0, 4).Draw(t, "accounting")),
			TokensPerMinute:       rapid.SampledFrom([]int64{0, 20_000, 200_000}).Draw(t, "tokens"),
			OutputTokensPerMinute: rapid.SampledFrom([]int64{0, 10_000}).Draw(t, "output tokens"),
			RequestsPerMinute:     rapid.SampledFrom([]int64{0, 60, 600}).Draw(t, "requests")}
		s, now := new(quota.State), int64(epoch)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Float64
		amount := func(name string) (a quota.Amount) {
			for d := range a {
				a[d] = rapid.SampledFrom(amounts).Draw(t, name)
			}
			return a
		}
		var out []quota.Reservation
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 10, 10, 700, 700, 2000, 15_000, 61_000, 700_000, -20, -5000, -90_000, -10_000_000}).Draw(t, "later")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				s = new(quota.State) // one that was not known, while calls are under way
			case 1, 2, 3, 4:
				r := quota.Request{PromptTokens: rapid.SampledFrom([]int64{0, 1, 20, 3000, 1 << 24, 1 << 62}).Draw(t, "prompt"),
					MaxOutputTokens: rapid.SampledFrom([]int64{-1, 0, 500, 1 << 62}).Draw(t, "output"), Source: rapid.Int64Range(-1, 20).Draw(t, "source")}
				for range rapid.IntRange(1, 12).Draw(t, "calls") {
					if res, v := s.Reserve(now, l, r); v.Admitted() {
						res.Tenant, res.Again = rapid.Int64Range(0, 3).Draw(t, "tenant"), rapid.Bool().Draw(t, "again")
						out = append(out, res)
					}
				}
			default:
				if len(out) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				o := quota.Outcome{Kind: quota.OutcomeKind(rapid.IntRange(0, 9).Draw(t, "outcome")),
					Denial: quota.Denial(rapid.IntRange(1, 3).Draw(t, "denial")), Certain: rapid.Bool().Draw(t, "certain"),
					RetryAfter: rapid.SampledFrom(waits).Draw(t, "wait"),
					Usage:      quota.Usage{PromptTokens: rapid.SampledFrom(amounts).Draw(t, "used"), OutputTokens: rapid.SampledFrom(amounts).Draw(t, "produced")},
					Headers:    quota.Headers{Limit: amount("limit"), Remaining: amount("remaining")}}
				for d := range o.Headers.Reset {
					o.Headers.Reset[d] = rapid.SampledFrom(waits).Draw(t, "reset")
				}
				s.Feedback(now, l, out[i], o, rnd)
				if o.Kind != quota.HeadersArrived {
					out = append(out[:i], out[i+1:]...)
				}
			}
			s = reload(t, s)
		}
	})
}
