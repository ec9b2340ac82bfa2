package model

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// routedBy is a router of one model over three deployments: dear and fast, cheap, and free of
// charge for prompts.
func routedBy(t *testing.T, route Route, weights ...int) *Router {
	t.Helper()
	deployment := func(name string, price forebay.Price) *Deployment {
		return &Deployment{Name: name, Provider: &scripted{}, Price: price, MaxOutputTokens: 1000}
	}
	r, err := NewRouter(map[string]Model{"chat": {Route: route, Weights: weights, Deployments: []*Deployment{
		deployment("dear", forebay.Price{Input: 10, Output: 30}),
		deployment("cheap", forebay.Price{Input: 1, Output: 2}),
		deployment("output", forebay.Price{Output: 8}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func order(r *Router, need forebay.CallEstimate) string {
	var names []string
	for _, d := range r.Options("chat", need) {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

func TestRouteByOrderAndPrice(t *testing.T) {
	short := forebay.CallEstimate{PromptTokens: 100, MaxOutputTokens: 1000}
	long := forebay.CallEstimate{PromptTokens: 100_000, MaxOutputTokens: 100}
	for _, c := range []struct {
		route Route
		need  forebay.CallEstimate
		want  string
	}{
		{"", short, "dear cheap output"},
		{RouteOrder, long, "dear cheap output"},
		{RoutePrice, short, "cheap output dear"},
		{RoutePrice, long, "output cheap dear"},
		// With the deployments' own limits of output.
		{RoutePrice, forebay.CallEstimate{PromptTokens: 100}, "cheap output dear"},
		// Without output.
		{RoutePrice, forebay.CallEstimate{PromptTokens: 100, MaxOutputTokens: -1}, "output cheap dear"},
	} {
		if got := order(routedBy(t, c.route), c.need); got != c.want {
			t.Errorf("by %q, %+v: %s, want %s", c.route, c.need, got, c.want)
		}
	}
	if got := routedBy(t, RoutePrice).Options("nope", short); got != nil {
		t.Errorf("a model that is not known has %v", got)
	}
}

func TestRouteByWeight(t *testing.T) {
	r := routedBy(t, RouteWeighted, 6, 3, 1)
	const draws = 20_000
	first, second := map[string]int{}, map[string]int{}
	for range draws {
		o := r.Options("chat", forebay.CallEstimate{})
		if len(o) != 3 || o[0] == o[1] || o[1] == o[2] || o[0] == o[2] {
			t.Fatalf("drew %v", o)
		}
		first[o[0].Name]++
		if o[0].Name == "dear" {
			second[o[1].Name]++
		}
	}
	share := func(n, of int, want float64) {
		t.Helper()
		if got := float64(n) / float64(of); got < want-0.02 || got > want+0.02 {
			t.Errorf("a share of %.3f, want %.2f", got, want)
		}
	}
	share(first["dear"], draws, 0.6)
	share(first["cheap"], draws, 0.3)
	share(first["output"], draws, 0.1)
	share(second["cheap"], first["dear"], 0.75)
}

// slow is a provider whose calls take so long for each token.
func slow(r *Router, name string, perToken time.Duration) {
	for _, l := range r.lanes {
		if l.Name == name {
			l.pace.add(100*perToken, 80)
		}
	}
}

func TestRouteByLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routedBy(t, RouteLatency)
		firsts := func() map[string]int {
			n := map[string]int{}
			for range 5000 {
				n[r.Options("chat", forebay.CallEstimate{})[0].Name]++
			}
			return n
		}
		slow(r, "dear", 30*time.Millisecond)
		slow(r, "cheap", 20*time.Millisecond)
		if n := firsts(); n["output"] < 4800 || n["output"] == 5000 {
			t.Errorf("one that was not called yet is first %v times", n)
		}
		slow(r, "output", 50*time.Millisecond)
		if n := firsts(); n["cheap"] < 4800 || n["dear"] < 10 || n["output"] < 10 {
			t.Errorf("the fastest is first, the others now and then: %v", n)
		}
		for range 30 {
			slow(r, "cheap", 90*time.Millisecond)
		}
		if n := firsts(); n["dear"] < 4800 {
			t.Errorf("what became slow is first %v times", n)
		}
	})
}

// What a call takes is measured where it succeeds: one that fails at once is not fast.
func TestPaceIsOfCallsThatSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, east, _ := twoDeployments(t)
		east.err = &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeUnavailable}
		_, _, _ = r.Chat(t.Context(), "chat", say("hi"))
		if got := r.lanes[0].pace.get(); got != 0 {
			t.Errorf("a failure is measured: %d", got)
		}
		east.err, east.enter, east.leave = nil, make(chan struct{}), make(chan struct{})
		go func() {
			<-east.enter
			<-time.After(2 * time.Second)
			east.leave <- struct{}{}
		}()
		_, _, _ = r.Chat(t.Context(), "chat", say("hi"))
		if got := time.Duration(r.lanes[0].pace.get()); got != 100*time.Millisecond {
			t.Errorf("two seconds without output are %v a token", got)
		}
	})
}
