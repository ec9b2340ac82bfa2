package jobs

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelays(t *testing.T) {
	linear := RetryPolicy{Backoff: Linear, First: time.Second, Max: 3 * time.Second}
	fixed := RetryPolicy{Backoff: Fixed, First: time.Second, Max: 3 * time.Second}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second, 9: 3 * time.Second} {
		if got := linear.Delay(n); got != want {
			t.Errorf("linear delay %d is %s, expected %s", n, got, want)
		}
		if got := fixed.Delay(n); got != time.Second {
			t.Errorf("fixed delay %d is %s", n, got)
		}
	}
}

func TestExponentialDelayStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := RetryPolicy{
			Backoff: Exponential, First: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "first")),
			Coefficient: rapid.Float64Range(1, 100).Draw(t, "coefficient"), Max: time.Hour,
		}
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		if d := p.Delay(n); d < 0 || d > p.Max {
			t.Fatalf("delay %d is %s", n, d)
		}
		asked := time.Duration(rapid.Int64Range(1, int64(2*time.Hour)).Draw(t, "asked"))
		if d := p.after(asked, n); d < min(asked, longestRetryAfter) || d > longestRetryAfter*11/10 {
			t.Fatalf("the provider asked for %s and got %s", asked, d)
		}
	})
}

// The mean of a full-jitter delay is half of what it has grown to.
func TestFullJitterIsUniform(t *testing.T) {
	p := RetryPolicy{Backoff: Exponential, First: time.Second, Coefficient: 2, Max: time.Hour}
	var sum time.Duration
	const draws = 20_000
	for range draws {
		sum += p.Delay(3)
	}
	if mean := sum / draws; mean < 1900*time.Millisecond || mean > 2100*time.Millisecond {
		t.Errorf("the mean delay after the third attempt is %s, expected about 2s", mean)
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add("")
	f.Add(EncodeCursor(1))
	f.Add(EncodeCursor(1 << 40))
	f.Add("AQAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, cursor string) {
		seq, err := DecodeCursor(cursor)
		if err == nil && cursor != "" && (seq <= 0 || EncodeCursor(seq) != cursor) {
			t.Errorf("%q was read as %d", cursor, seq)
		}
	})
}

func FuzzTraceparent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, s string) {
		if validTraceparent(s) && len(s) != 55 {
			t.Errorf("%q passed", s)
		}
	})
}
