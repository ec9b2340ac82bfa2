package quota_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay/internal/quota"
)

// reload stores the state and reads it back, as happens between any two transactions.
func reload(t interface{ Fatalf(string, ...any) }, s *quota.State) *quota.State {
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var back quota.State
	if err := back.UnmarshalBinary(b); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if again, _ := back.MarshalBinary(); !bytes.Equal(b, again) {
		t.Fatalf("the state changed when it was stored")
	}
	return &back
}

// TestWindowNeverExceedsLimit: whatever is asked for and whenever, nobody reserves more than the
// limit within 60 seconds. A single request that is larger is the exception.
func TestWindowNeverExceedsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := quota.Limits{
			Accounting:        rapid.SampledFrom([]quota.Accounting{quota.AccountAzureOpenAI, quota.AccountOpenAI, quota.AccountAnthropic}).Draw(t, "accounting"),
			TokensPerMinute:   rapid.Int64Range(1000, 100_000).Draw(t, "tokens"),
			RequestsPerMinute: rapid.Int64Range(0, 60).Draw(t, "requests"),
		}
		s, now := new(quota.State), int64(epoch)
		var made []quota.Reservation
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now += rapid.Int64Range(0, 5000).Draw(t, "later")
			r := quota.Request{PromptTokens: rapid.Int64Range(0, 3000).Draw(t, "prompt"), MaxOutputTokens: rapid.Int64Range(1, 3000).Draw(t, "output")}
			res, v := s.Reserve(now, limits, r)
			s = reload(t, s)
			if !v.Admitted() {
				if v.RetryAt <= now {
					t.Fatalf("refused at %d until %d", now, v.RetryAt)
				}
				continue
			}
			made = append(made, res)
			var sum quota.Amount
			n := 0
			for i := len(made) - 1; i >= 0 && made[i].At > now-60_000; i-- {
				sum[quota.Tokens] += made[i].Amount[quota.Tokens]
				sum[quota.Requests]++
				if made[i].Amount[quota.Tokens] > 0 {
					n++
				}
			}
			if n > 1 && sum[quota.Tokens] > limits.TokensPerMinute || limits.RequestsPerMinute > 0 && sum[quota.Requests] > limits.RequestsPerMinute {
				t.Fatalf("%v reserved within a minute, limits %+v", sum, limits)
			}
		}
	})
}

// TestNothingIsKeptOutsideTheStore runs two states side by side, one of which is stored and read
// back at each step: they decide alike, whatever happens.
func TestNothingIsKeptOutsideTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := quota.Limits{Accounting: quota.Accounting(rapid.IntRange(0, 4).Draw(t, "accounting")),
			TokensPerMinute:       rapid.SampledFrom([]int64{0, 20_000, 200_000}).Draw(t, "tokens"),
			OutputTokensPerMinute: rapid.SampledFrom([]int64{0, 10_000}).Draw(t, "output tokens"),
			RequestsPerMinute:     rapid.SampledFrom([]int64{0, 60}).Draw(t, "requests")}
		kept, stored, now := new(quota.State), new(quota.State), int64(epoch)
		seed := rapid.Uint64().Draw(t, "seed")
		one, two := rand.New(rand.NewPCG(seed, 1)).Float64, rand.New(rand.NewPCG(seed, 1)).Float64
		var out []quota.Reservation
		id := int64(0)
		var line []quota.Candidate
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += rapid.Int64Range(-50, 4000).Draw(t, "later")
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 || len(out) == 0 {
				for len(line) < 6 {
					id++
					line = append(line, quota.Candidate{ID: id, Request: quota.Request{
						PromptTokens: rapid.Int64Range(1, 9000).Draw(t, "prompt"), MaxOutputTokens: rapid.Int64Range(0, 900).Draw(t, "output"),
						Source: quota.SourceOf(rapid.Int64Range(0, 20).Draw(t, "tenant"), "chat")}})
				}
				a, b := kept.Admit(now, l, line, 3), stored.Admit(now, l, line, 3)
				var left []quota.Candidate
				for i := range a {
					if a[i] != b[i] {
						t.Fatalf("candidate %d: %+v and %+v", i, a[i], b[i])
					}
					if a[i].Admitted() {
						out = append(out, a[i].Reservation)
					} else {
						left = append(left, line[i])
					}
				}
				line = left
			} else {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				o := quota.Outcome{Kind: quota.OutcomeKind(rapid.IntRange(0, 9).Draw(t, "outcome")),
					Denial: quota.Denial(rapid.IntRange(1, 3).Draw(t, "denial")), Certain: rapid.Bool().Draw(t, "certain"),
					RetryAfter: time.Duration(rapid.IntRange(0, 4000).Draw(t, "wait")) * time.Millisecond,
					Usage:      quota.Usage{PromptTokens: rapid.Int64Range(0, 9000).Draw(t, "used"), OutputTokens: rapid.Int64Range(0, 900).Draw(t, "produced")},
					Headers: quota.Headers{Limit: quota.Amount{rapid.SampledFrom([]int64{-1, 0, 50_000, 200_000}).Draw(t, "limit")},
						Remaining: quota.Amount{rapid.Int64Range(-1, 60_000).Draw(t, "remaining")},
						Reset:     [3]time.Duration{time.Duration(rapid.Int64Range(0, 60).Draw(t, "reset")) * time.Second}}}
				kept.Feedback(now, l, out[i], o, one)
				stored.Feedback(now, l, out[i], o, two)
				if o.Kind != quota.HeadersArrived {
					out = append(out[:i], out[i+1:]...)
				}
			}
			if a, b := kept.Status(now, l), stored.Status(now, l); a != b {
				t.Fatalf("%+v and %+v", a, b)
			}
			if !slices.Equal(kept.Changes(), stored.Changes()) {
				t.Fatal("different changes")
			}
			stored = reload(t, stored)
		}
	})
}

// TestFewProbesAtATime: while the breaker is not closed, few calls are out to find out: three,
// and one more for each that went well. None is while it is open. A probe that nobody hears of is
// given up after ten seconds.
func TestFewProbesAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Float64
		s, now := new(quota.State), int64(epoch)
		limits := quota.Limits{}
		var out []quota.Reservation
		var until int64 // of the breaker when it was last open
		passed := 0     // probes that went well since then
		for range rapid.IntRange(20, 300).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3000).Draw(t, "later")
			before := s.Status(now, limits)
			if before.Breaker == quota.Open {
				until, passed = before.BreakerUntil, 0
			}
			if rapid.Bool().Draw(t, "call") || len(out) == 0 {
				res, v := s.Reserve(now, limits, quota.Request{})
				if v.Admitted() {
					if before.Breaker == quota.Open && now < before.BreakerUntil {
						t.Fatalf("a call through an open breaker")
					}
					if res.Probe != (before.Breaker != quota.Closed) {
						t.Fatalf("breaker %v, probe %t", before.Breaker, res.Probe)
					}
					if res.Probe {
						underWay := 0
						for _, o := range out {
							if o.Probe && now-o.At < 10_000 && o.At >= until {
								underWay++
							}
						}
						if underWay > 2+passed {
							t.Fatalf("%d probes at a time", underWay+1)
						}
					}
					out = append(out, res)
				}
			} else {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				kind := rapid.SampledFrom([]quota.OutcomeKind{quota.Succeeded, quota.Transient, quota.Transient, quota.Permanent, quota.NotSent, quota.ThrottledRequests, quota.Denied}).Draw(t, "outcome")
				if kind == quota.Succeeded {
					passed++ // or it was none
				}
				s.Feedback(now, limits, out[i], quota.Outcome{Kind: kind, Denial: quota.Unpaid, Certain: rapid.Bool().Draw(t, "certain"), RetryAfter: time.Millisecond}, rnd)
				out = append(out[:i], out[i+1:]...)
			}
			s = reload(t, s)
		}
	})
}

// FuzzUnmarshalBinary: bytes that are not a state give an error and a state that works; those that
// are one give a state that works.
func FuzzUnmarshalBinary(f *testing.F) {
	var s quota.State
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		res, _ := s.Reserve(epoch+int64(i)*700, azureLimits, quota.Request{PromptTokens: 1000})
		s.Feedback(epoch+int64(i)*700+300, azureLimits, res, quota.Outcome{Kind: quota.OutcomeKind(i % 10), Denial: quota.NotFound, RetryAfter: time.Second}, rng.Float64)
	}
	b, _ := s.MarshalBinary()
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte{})
	f.Add([]byte{1})
	empty, _ := new(quota.State).MarshalBinary()
	f.Add(empty)
	f.Fuzz(func(t *testing.T, data []byte) {
		var s quota.State
		err := s.UnmarshalBinary(data)
		if err != nil {
			b, _ := s.MarshalBinary()
			if !bytes.Equal(b, empty) {
				t.Fatal("not a fresh state after an error")
			}
		}
		now := int64(epoch)
		for i := range 12 {
			res, v := s.Reserve(now, azureLimits, quota.Request{PromptTokens: 500, MaxOutputTokens: 100})
			if v.Admitted() {
				h := quota.Headers{Limit: quota.Amount{tpm}, Remaining: quota.Amount{tpm / 2}}
				s.Feedback(now, azureLimits, res, quota.Outcome{Kind: quota.OutcomeKind(i % 10), Denial: quota.NotFound, Certain: true, Headers: h}, rng.Float64)
			}
			s.Status(now, azureLimits)
			s.Drain(now, azureLimits, 1e6, 100)
			now += 10_000
		}
		// However it was, it lets calls go again after a while.
		s.Resume()
		admitted := false
		for range 400 {
			now += 30_000
			res, v := s.Reserve(now, azureLimits, quota.Request{PromptTokens: 500, MaxOutputTokens: 100})
			if v.Admitted() {
				s.Feedback(now, azureLimits, res, quota.Outcome{Kind: quota.Succeeded}, rng.Float64)
				admitted = true
			}
		}
		if !admitted {
			t.Fatalf("stuck: %+v", s.Status(now, azureLimits))
		}
		reload(t, &s)
	})
}

// TestStoredSize keeps the state of a deployment at full speed small.
func TestStoredSize(t *testing.T) {
	s := busy(quota.AccountAnthropic)
	b, _ := s.MarshalBinary()
	t.Logf("%d bytes", len(b))
	if len(b) > 2400 {
		t.Errorf("%d bytes", len(b))
	}
}

// busy returns the state of a deployment of 10 M tokens a minute with 60 calls a second for a
// minute.
func busy(a quota.Accounting) *quota.State {
	var s quota.State
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 3600 {
		res, _ := s.Reserve(epoch+int64(i)*17, busyLimits(a), quota.Request{PromptTokens: 2000, MaxOutputTokens: 700})
		s.Feedback(epoch+int64(i)*17+5, busyLimits(a), res, quota.Outcome{Kind: quota.Succeeded,
			Usage: quota.Usage{PromptTokens: 2100, OutputTokens: 300}}, rng.Float64)
	}
	return &s
}

func busyLimits(a quota.Accounting) quota.Limits {
	return quota.Limits{Accounting: a, TokensPerMinute: 10_000_000, OutputTokensPerMinute: 4_000_000, RequestsPerMinute: 6000}
}

// BenchmarkCall is what deciding about one call costs, and hearing how it ended.
func BenchmarkCall(b *testing.B) {
	s, limits, now := busy(quota.AccountAzureOpenAI), busyLimits(quota.AccountAzureOpenAI), int64(epoch+61_000)
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		now += 17
		res, _ := s.Reserve(now, limits, quota.Request{PromptTokens: 2000, MaxOutputTokens: 700})
		s.Feedback(now+5, limits, res, quota.Outcome{Kind: quota.Succeeded}, rng.Float64)
	}
}

// BenchmarkStore is what a transaction adds, however many calls it decides about: the state is
// read and stored.
func BenchmarkStore(b *testing.B) {
	stored, _ := busy(quota.AccountAzureOpenAI).MarshalBinary()
	var s quota.State
	b.ReportAllocs()
	for b.Loop() {
		_ = s.UnmarshalBinary(stored)
		stored, _ = s.AppendBinary(stored[:0])
	}
}
