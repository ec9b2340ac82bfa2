package model

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

// Route is the order in which the deployments of a model are tried. A call goes to the first one
// that admits it now.
type Route string

const (
	// RouteOrder tries them as they are listed.
	RouteOrder Route = "order"
	// RouteWeighted draws the order at random, by the weights of the deployments.
	RouteWeighted Route = "weighted"
	// RoutePrice begins with the deployment that is estimated to be cheapest for the call.
	RoutePrice Route = "price"
	// RouteLatency begins with the deployment that was fastest in recent calls of this process.
	RouteLatency Route = "latency"
)

// Routes lists them all.
var Routes = []Route{RouteOrder, RouteWeighted, RoutePrice, RouteLatency}

// Model lists the deployments of a logical model.
type Model struct {
	Deployments []*Deployment
	Route       Route // "": RouteOrder
	Weights     []int // for RouteWeighted, one for each deployment
}

// explore is the share of calls for which RouteLatency begins with another deployment, to notice
// one that has become faster.
const explore = 0.02

// Serves reports whether there is a logical model of that name.
func (r *Router) Serves(model string) bool { return r.models[model] != nil }

// Options returns the deployments of a model in the order in which a call with this need may try
// them. It returns none for an unknown model; the call then reports that.
func (r *Router) Options(model string, need forebay.CallEstimate) []*Deployment {
	m := r.models[model]
	if m == nil {
		return nil
	}
	if m.Route == RouteOrder {
		return m.Deployments
	}
	lanes := slices.Clone(m.lanes)
	switch m.Route {
	case RouteWeighted:
		shuffle(lanes, slices.Clone(m.Weights))
	case RoutePrice:
		slices.SortStableFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.cost(need), b.cost(need)) })
	case RouteLatency:
		slices.SortStableFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.pace.get(), b.pace.get()) })
		if other := 1 + rand.IntN(max(len(lanes)-1, 1)); other < len(lanes) && rand.Float64() < explore {
			lanes[0], lanes[other] = lanes[other], lanes[0]
		}
	}
	deployments := make([]*Deployment, len(lanes))
	for i, l := range lanes {
		deployments[i] = l.Deployment
	}
	return deployments
}

// cost is the estimated maximum cost of a call.
func (l *lane) cost(need forebay.CallEstimate) forebay.Money {
	output := need.MaxOutputTokens
	switch {
	case output < 0:
		output = 0
	case output == 0:
		output = int64(l.outputLimit())
	}
	return l.Price.Cost(forebay.TokenUsage{InputTokens: need.PromptTokens, OutputTokens: output})
}

// outputLimit is the output limit that an estimate assumes for a request without one.
func (l *lane) outputLimit() int {
	if l.MaxOutputTokens > 0 {
		return l.MaxOutputTokens
	}
	return assumedOutputTokens
}

// shuffle draws the order of lanes at random by their weights.
func shuffle(lanes []*lane, weights []int) {
	total := 0
	for _, w := range weights {
		total += w
	}
	for i := range lanes[:max(len(lanes)-1, 0)] {
		at, drawn := i, rand.IntN(total)
		for drawn >= weights[at] {
			drawn -= weights[at]
			at++
		}
		total -= weights[at]
		lanes[i], lanes[at] = lanes[at], lanes[i]
		weights[i], weights[at] = weights[at], weights[i]
	}
}

// pace is the recent average time of calls for each token of output, in nanoseconds; 0 means no
// calls. It need not be exact, so concurrent updates may overwrite each other.
type pace struct{ average atomic.Int64 }

func (p *pace) get() int64 { return p.average.Load() }

// add includes a call that succeeded. Every call takes some time that does not depend on its
// output, which counts as extra tokens.
func (p *pace) add(took time.Duration, output int64) {
	const fixed, memory = 20, 10
	sample := max(took.Nanoseconds()/(fixed+output), 1)
	if old := p.average.Load(); old > 0 {
		sample = old + (sample-old)/memory
	}
	p.average.Store(max(sample, 1))
}
