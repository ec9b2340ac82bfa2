package modelsim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/sleep"
)

var hello = chat("", "Hello.")

func taskError(t *testing.T, err error) *forebay.TaskError {
	t.Helper()
	var e *forebay.TaskError
	if !errors.As(err, &e) {
		t.Fatalf("%v is no TaskError", err)
	}
	return e
}

func TestLatencyAndJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, ProviderOptions{Faults: ProviderFaults{Latency: 2 * time.Second, Jitter: time.Second}})
		var took []time.Duration
		for range 2 {
			start := time.Now()
			if _, err := p.Chat(t.Context(), hello); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		for _, d := range took {
			if d < 2*time.Second || d > 3*time.Second {
				t.Errorf("took %s", d)
			}
		}
		if took[0] == took[1] {
			t.Errorf("no jitter: %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := p.Embed(ctx, model.EmbedRequest{Inputs: []string{"x"}})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestFaultsByKind(t *testing.T) {
	for name, tt := range map[string]struct {
		faults ProviderFaults
		class  forebay.ErrorClass
		code   string
		after  time.Duration // how long the call takes
		seen   func(Stats) int64
	}{
		"throttle":  {ProviderFaults{ThrottleRate: 1, RetryAfter: 7 * time.Second}, forebay.ClassThrottled, "rate_limited", 0, func(st Stats) int64 { return st.Throttled[throttledByScript] }},
		"error":     {ProviderFaults{ErrorRate: 1, Latency: time.Second}, forebay.ClassTransient, "server_error", time.Second, func(st Stats) int64 { return st.Errors[500] }},
		"hang":      {ProviderFaults{HangRate: 1}, forebay.ClassTransient, "idle_timeout", 30 * time.Second, func(st Stats) int64 { return st.Hung }},
		"malformed": {ProviderFaults{MalformedRate: 1}, forebay.ClassTransient, "malformed_response", 0, func(st Stats) int64 { return st.Malformed }},
		"refused":   {ProviderFaults{RefusePhrases: []string{"HELL"}}, forebay.ClassPermanent, "content_filter", 0, func(st Stats) int64 { return st.Filtered }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(t, ProviderOptions{Faults: tt.faults})
				start := time.Now()
				_, err := p.Chat(t.Context(), hello)
				e := taskError(t, err)
				if e.Class != tt.class || e.Code != tt.code || e.RetryAfter != tt.faults.RetryAfter || time.Since(start) != tt.after {
					t.Errorf("%+v after %s", e, time.Since(start))
				}
				if st := p.service.Stats(); tt.seen(st) != 1 || st.Calls != 1 || st.Answered != 0 || st.InFlight != 0 {
					t.Errorf("stats %+v", st)
				}
			})
		})
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, ProviderOptions{IdleTimeout: time.Hour, Faults: ProviderFaults{HangRate: 1}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		if _, err := p.Chat(ctx, hello); !errors.Is(err, context.Canceled) || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if _, err := p.Chat(ctx, hello); !errors.Is(err, context.Canceled) || p.service.Stats().Calls != 1 {
			t.Errorf("a call under an ended context: %v, %+v", err, p.service.Stats())
		}
	})
}

// outcomes is what a run of calls met, one letter each.
func outcomes(t *testing.T, p *Provider, n int) string {
	var b strings.Builder
	for range n {
		_, err := p.Chat(t.Context(), hello)
		if err == nil {
			b.WriteByte('.')
		} else {
			b.WriteByte(taskError(t, err).Code[0])
		}
	}
	return b.String()
}

func TestFaultsRepeatBySeed(t *testing.T) {
	f := ProviderFaults{Seed: 7, ThrottleRate: 0.2, ErrorRate: 0.2, MalformedRate: 0.1}
	first := outcomes(t, newProvider(t, ProviderOptions{Faults: f}), 1000)
	p := newProvider(t, ProviderOptions{Faults: ProviderFaults{Seed: 8, ThrottleRate: 0.2, ErrorRate: 0.2, MalformedRate: 0.1}})
	if outcomes(t, p, 1000) == first {
		t.Error("another seed gave the same faults")
	}
	if err := p.SetFaults(f); err != nil {
		t.Fatal(err)
	}
	if outcomes(t, p, 1000) != first {
		t.Error("the same seed gave other faults")
	}
	for letter, share := range map[string]float64{".": 0.5, "r": 0.2, "s": 0.2, "m": 0.1} {
		if got := float64(strings.Count(first, letter)) / 1000; math.Abs(got-share) > 0.05 {
			t.Errorf("%q: a share of %.3f, want about %.1f", letter, got, share)
		}
	}
	f.Latency = time.Nanosecond // what is not a rate moves no fault
	if err := p.SetFaults(f); err != nil {
		t.Fatal(err)
	}
	if outcomes(t, p, 1000) != first {
		t.Error("latency changed which calls fail")
	}
}

func TestRequestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, ProviderOptions{Faults: ProviderFaults{RequestsPerMinute: 60}})
		if got := outcomes(t, p, 12); got != "..........rr" {
			t.Fatalf("burst: %s", got)
		}
		_, err := p.Chat(t.Context(), hello)
		e := taskError(t, err)
		if e.Class != forebay.ClassThrottled || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
			t.Fatalf("%+v", e)
		}
		if err := sleep.For(t.Context(), e.RetryAfter); err != nil {
			t.Fatal(err)
		}
		if got := outcomes(t, p, 2); got != ".r" {
			t.Errorf("after Retry-After: %s", got)
		}
		// Over a long time the quota is kept exactly: a client that always waits as told.
		p = newProvider(t, ProviderOptions{Faults: ProviderFaults{RequestsPerMinute: 7}})
		done, end := 0, time.Now().Add(10*time.Minute)
		for time.Now().Before(end) {
			if _, err := p.Chat(t.Context(), hello); err != nil {
				if err := sleep.For(t.Context(), taskError(t, err).RetryAfter); err != nil {
					t.Fatal(err)
				}
				continue
			}
			done++
		}
		if done < 69 || done > 72 {
			t.Errorf("%d calls in ten minutes of 7", done)
		}
	})
}

func TestValidate(t *testing.T) {
	for field, f := range map[string]ProviderFaults{
		"throttle_rate": {ThrottleRate: -0.1}, "error_rate": {ErrorRate: 1.1}, "hang_rate": {HangRate: math.NaN()}, "malformed_rate": {MalformedRate: math.Inf(1)},
		"latency": {Latency: -1}, "jitter": {Jitter: 11 * time.Minute}, "retry_after": {RetryAfter: time.Hour},
		"requests_per_minute": {RequestsPerMinute: -1}, "refuse_phrases": {RefusePhrases: []string{" "}},
	} {
		var e *forebay.Error
		if !errors.As(f.Validate(), &e) || e.Field != field {
			t.Errorf("%s: %v", field, f.Validate())
		}
	}
	p := newProvider(t, ProviderOptions{Faults: ProviderFaults{ErrorRate: 1}})
	if err := p.SetFaults(ProviderFaults{ThrottleRate: 0.6, ErrorRate: 0.6}); err == nil {
		t.Error("rates above 1 together were accepted")
	}
	if p.Faults().ErrorRate != 1 {
		t.Errorf("refused faults took effect: %+v", p.Faults())
	}
}

func TestFaultsJSON(t *testing.T) {
	f := ProviderFaults{Seed: 3, Latency: 250 * time.Millisecond, Jitter: time.Second, ThrottleRate: 0.25, RetryAfter: 2 * time.Second,
		ErrorRate: 0.1, HangRate: 0.05, MalformedRate: 0.01, RequestsPerMinute: 600, RefusePhrases: []string{"boom"}}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seed":3,"latency":"250ms","jitter":"1s","throttle_rate":0.25,"retry_after":"2s","error_rate":0.1,"hang_rate":0.05,"malformed_rate":0.01,"requests_per_minute":600,"refuse_phrases":["boom"]}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
	var back ProviderFaults
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("%+v, %v", back, err)
	}
	for in, field := range map[string]string{
		`{"latency":"soon"}`: "latency", `{"jitter":5}`: "jitter", `{"speed":1}`: "speed", `{"error_rate":"much"}`: "error_rate",
		`{"seed":-1}`: "seed", `{"refuse_phrases":[1]}`: "refuse_phrases",
	} {
		var e *forebay.Error
		if err := json.Unmarshal([]byte(in), &back); !errors.As(err, &e) || !strings.HasPrefix(e.Field, field) {
			t.Errorf("%s: %v", in, err)
		}
	}
	if !reflect.DeepEqual(back, f) {
		t.Errorf("a broken value changed the faults: %+v", back)
	}
}
