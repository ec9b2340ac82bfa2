package modelsim

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Another client takes about its share of each minute, whatever the quota.
func TestForeignClient(t *testing.T) {
	for _, perMinute := range []int{600, 600_000, maxPerMinute} {
		d := DefaultDeployment()
		d.TokensPerMinute, d.RequestsPerMinute, d.ForeignShare = perMinute, 0, 0.3
		start := time.Unix(0, 0)
		s, err := NewService(d, 1, start)
		if err != nil {
			t.Fatal(err)
		}
		const minutes = 20
		for at := time.Duration(0); at <= minutes*time.Minute; at += 10 * time.Second {
			a := s.Begin(start.Add(at), Cost{})
			s.End(start.Add(at), a, a.Outcome, Used{})
		}
		share := float64(s.Stats().ForeignTokens) / minutes / float64(perMinute)
		if share < 0.25 || share > 0.35 {
			t.Errorf("it took %.2f of %d tokens a minute", share, perMinute)
		}
	}
}

// Quota that was used before the start is missing at first. A rolling window regains it evenly, a
// fixed one at its end.
func TestSpentQuota(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		half int // remains after half a minute
	}{{KindAzure, 0}, {KindRolling, 500}, {KindOpenAI, 500}} {
		d := DefaultDeployment()
		d.Kind, d.TokensPerMinute, d.SpentShare, d.Phase = c.kind, 1000, 1, Duration(45*time.Second)
		start := time.Unix(0, 0)
		s, err := NewService(d, 1, start)
		if err != nil {
			t.Fatal(err)
		}
		if a := s.Begin(start, Cost{Prompt: 100}); a.Outcome != Throttled {
			t.Errorf("%s: %+v", c.kind, a)
		}
		a := s.Begin(start.Add(30*time.Second), Cost{Prompt: 0})
		if off := a.State.Tokens.Remaining - c.half; off < -20 || off > 20 {
			t.Errorf("%s: %d remain after half a minute, not %d", c.kind, a.State.Tokens.Remaining, c.half)
		}
	}
}

// Tokens are counted in windows of ten seconds, each with a sixth of the minute.
func TestTokenSlice(t *testing.T) {
	d := DefaultDeployment()
	d.TokensPerMinute, d.TokenSlice, d.Phase = 6000, Duration(10*time.Second), Duration(3*time.Second)
	start := time.Unix(0, 0)
	s, err := NewService(d, 1, start)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at   time.Duration
		want Outcome
	}{{0, Answered}, {time.Second, Throttled}, {3 * time.Second, Answered}, {12 * time.Second, Throttled}, {13 * time.Second, Answered}} {
		if a := s.Begin(start.Add(step.at), Cost{Prompt: 600}); a.Outcome != step.want {
			t.Errorf("at %v: %v", step.at, a.Outcome)
		}
	}
}

// A call takes at least the network's delay.
func TestRoundTrip(t *testing.T) {
	d := DefaultDeployment()
	d.FirstToken, d.TokensPerSecond, d.RoundTrip = 0, 0, Duration(50*time.Millisecond)
	s, err := NewServer(ServerOptions{Deployments: []Deployment{d}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.NewReader(`{"model":"sim","messages":[{"role":"user","content":"hello"}],"max_tokens":5}`)
	began, w := time.Now(), httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", body))
	if took := time.Since(began); w.Code != http.StatusOK || took < 50*time.Millisecond {
		t.Errorf("status %d after %v", w.Code, took)
	}
}
