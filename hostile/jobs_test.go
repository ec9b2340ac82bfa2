//go:build hostile

package hostile

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// goodJobs are what the victim submits beside poisoned ones and beside a flood.
const goodJobs = 200

// callLog notes whose job each call of the model was for, by what stands before the first dash.
type callLog struct {
	mu    sync.Mutex
	calls []string
}

func (l *callLog) note(c modelsim.Call) string {
	who, _, _ := strings.Cut(c.Marker, "-")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, who)
	return who
}

// take returns the calls so far and forgets them.
func (l *callLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

func (l *callLog) count(who string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c == who {
			n++
		}
	}
	return n
}

// many submits jobs with markers of that prefix at once.
func (s *Target) many(p Party, n int, prefix string, more map[string]any) {
	s.Helper()
	accepted, err := p.bulk(s.Context(), bulkLines(n, func(int) map[string]any {
		line := map[string]any{"task": "chat", "input": modelsim.Marked(unique(prefix), "please")}
		for k, v := range more {
			line[k] = v
		}
		return line
	}))
	if err != nil || accepted != n {
		s.Fatalf("%d of %d jobs were accepted: %v", accepted, n, err)
	}
}

// finished counts a party's jobs in one status, up to the largest page.
func (s *Target) finished(p Party, status forebay.Status) int {
	s.Helper()
	var page forebay.Page[forebay.Job]
	p.must(s, "GET", "/v1/jobs?limit=500&status="+string(status), nil, &page)
	return len(page.Items)
}

// Twelve jobs whose calls always fail hold up no other tenant's, and all of them end.
func TestPoisonedJobs(t *testing.T) {
	for name, reply := range map[string]func(modelsim.Call) modelsim.Reply{
		"500": func(modelsim.Call) modelsim.Reply {
			return modelsim.Reply{Status: http.StatusInternalServerError, Message: "no"}
		},
		"truncated": func(c modelsim.Call) modelsim.Reply {
			if c.Stream {
				return modelsim.Reply{Body: []byte(`data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"del`)}
			}
			return modelsim.Reply{Body: []byte(`{"id":"x","object":"chat.completion","choices":[{"index":0,"mess`)}
		},
	} {
		t.Run(name, func(t *testing.T) { onEngines(t, func(t *testing.T, postgres bool) { poisoned(t, postgres, reply) }) })
	}
}

func poisoned(t *testing.T, postgres bool, reply func(modelsim.Call) modelsim.Reply) {
	var log callLog
	takes := size(480*time.Millisecond, 30*time.Millisecond)
	target := Start(t, TargetOptions{Postgres: postgres, Config: settings{"queues": settings{"default": settings{
		"concurrency": 8, "retry": settings{"policy": "fixed", "first": "200ms", "max": "1s", "attempts": size(5, 2)}}}},
		Model: func(c modelsim.Call) modelsim.Reply {
			if log.note(c) == "poison" {
				return reply(c)
			}
			return modelsim.Reply{Delay: takes}
		}})
	goodLimit, poisonedLimit := size(patience, 20*time.Second), size(5*patience, 30*time.Second)
	good := func() time.Duration {
		had, begun := target.finished(target.victim(), forebay.StatusSucceeded), time.Now()
		target.many(target.victim(), goodJobs, "good", nil)
		if !within(t.Context(), goodLimit, func() bool { return target.finished(target.victim(), forebay.StatusSucceeded) == had+goodJobs }) {
			t.Errorf("%d of %d good jobs are done after %s", target.finished(target.victim(), forebay.StatusSucceeded)-had, goodJobs, goodLimit)
		}
		return time.Since(begun)
	}
	// A page has 500 jobs, so this may be measured twice.
	alone := good()
	target.many(target.attacker(), 12, "poison", nil)
	target.until("each poisoned job is called", patience, func() bool { return log.count("poison") >= 6 })
	beside := good()
	reportTest(t, alone, beside)
	// A deployment whose calls all fail may be left alone for the first pause of its breaker, 5 s.
	// In the full form the jobs alone take long enough that half as much again covers it.
	if limit := max(alone*3/2, alone+size(noticeable, 8*time.Second)); beside > limit {
		t.Errorf("%d good jobs took %s beside 12 poisoned ones and %s alone; the limit is %s", goodJobs, short(beside), short(alone), short(limit))
	}
	if !within(t.Context(), poisonedLimit, func() bool { return target.finished(target.attacker(), forebay.StatusFailed) == 12 }) {
		t.Errorf("%d of 12 poisoned jobs have ended after %s", target.finished(target.attacker(), forebay.StatusFailed), poisonedLimit)
	}
}

// A tenant that submits 20 failing jobs a second does not keep another tenant from the
// deployment. The breaker may open until a call of the other tenant has succeeded, so only the
// time after that counts.
func TestTrickleOfPoison(t *testing.T) {
	onEngines(t, func(t *testing.T, postgres bool) {
		var log callLog
		target := Start(t, TargetOptions{Postgres: postgres, Model: func(c modelsim.Call) modelsim.Reply {
			if log.note(c) == "poison" {
				return modelsim.Reply{Status: http.StatusInternalServerError, Message: "no"}
			}
			return modelsim.Reply{Delay: 100 * time.Millisecond}
		}})
		const perSecond = 10
		length := size(30*time.Second, 5*time.Second)
		victim := newVictim(target, perSecond, 100)
		quiet := victim.window(t.Context(), length)

		trickle, stop := context.WithCancel(t.Context())
		var trickling sync.WaitGroup
		trickling.Go(func() {
			pace := time.NewTicker(time.Second / 20)
			defer pace.Stop()
			for trickle.Err() == nil {
				target.attacker().call(trickle, http.MethodPost, "/v1/jobs",
					forebay.SubmitRequest{Task: "chat", Input: text(modelsim.Marked(unique("poison"), "please"))})
				select {
				case <-pace.C:
				case <-trickle.Done():
				}
			}
		})
		t.Cleanup(func() { stop(); trickling.Wait() })
		target.until("poisoned jobs are called", patience, func() bool { return log.count("poison") >= 3 })
		first := victim.window(t.Context(), length)
		poisoned := log.count("poison")
		attacked := victim.window(t.Context(), length)
		called := log.count("poison") - poisoned
		reportTest(t, p99(quiet.Start), p99(attacked.Start))
		t.Logf("p99 from submit to call: %s quiet, %s at first, %s attacked; %d calls of poisoned jobs meanwhile",
			short(p99(quiet.Start)), short(p99(first.Start)), short(p99(attacked.Start)), called)
		if called < int(length.Seconds()) {
			t.Errorf("poisoned jobs were called %d times in %s: that is no attack", called, length)
		}
		// A breaker pauses for 1.6 s at least: this tells one from a busy machine.
		if limit := max(2*p99(quiet.Start), 4*noticeable); p99(attacked.Start) > limit {
			t.Errorf("p99 from submit to call is %s, quiet %s; the limit is %s", short(p99(attacked.Start)), short(p99(quiet.Start)), short(limit))
		}
		for _, fault := range victim.check(t.Context()) {
			t.Error(fault)
		}
	})
}

// A tenant with the same weight gets its half of the calls, whatever the other has waiting.
func TestWeights(t *testing.T) {
	onEngines(t, func(t *testing.T, postgres bool) {
		reportTest(t)
		var log callLog
		target := Start(t, TargetOptions{Postgres: postgres, Config: settings{"queues": settings{"default": settings{"concurrency": 4}}},
			Model: func(c modelsim.Call) modelsim.Reply { log.note(c); return modelsim.Reply{Delay: 10 * time.Millisecond} }})
		backlog := size(20_000, 4_000)
		target.admin().must(t, "POST", "/v1/tenants/"+attackerTenant+"/pause", nil, nil)
		for range backlog / 1000 {
			target.many(target.attacker(), 1000, "flood", nil)
		}
		// Old enough for some levels of priority, in the full form.
		pause(t.Context(), size(65*time.Second, time.Millisecond))
		target.many(target.attacker(), 1000, "flood", map[string]any{"priority": 9})
		target.admin().must(t, "POST", "/v1/tenants/"+attackerTenant+"/resume", nil, nil)
		target.until("the attacker's jobs run", patience, func() bool { return log.count("flood") > 20 })
		log.take()
		target.many(target.victim(), goodJobs, "good", nil)
		within(t.Context(), patience, func() bool { return log.count("good") == goodJobs })
		calls := log.take()
		first, last := slices.Index(calls, "good"), len(calls)-1
		for last > 0 && calls[last] != "good" {
			last--
		}
		if first < 0 {
			t.Fatalf("none of the victim's jobs has begun after %s, and %d of the attacker's", patience, len(calls))
		}
		share, n := 0.0, last-first+1
		for _, who := range calls[first : last+1] {
			if who == "good" {
				share += 1 / float64(n)
			}
		}
		t.Logf("the victim had %.3f of %d calls while it had jobs waiting", share, n)
		if share < 0.45 {
			t.Errorf("the victim had %.3f of the calls while it had jobs waiting, of its half", share)
		}
	})
}

// onEngines runs a test on SQLite, and in the full form on PostgreSQL too.
func onEngines(t *testing.T, test func(t *testing.T, postgres bool)) {
	t.Run("SQLite", func(t *testing.T) { test(t, false) })
	if !testing.Short() {
		t.Run("PostgreSQL", func(t *testing.T) { test(t, true) })
	}
}
