package flows

import (
	"cmp"
	"slices"

	"github.com/forebayhq/forebay"
)

// layout is where the steps of a graph stand: a layer for each depth, from left to right.
type layout struct {
	steps  []forebay.WorkflowStep
	before [][]int // the steps that each waits for, without those that others imply
	depth  []int
	layers [][]place
}

// place is a step, or a bend of the edges that lead from a step to later layers.
type place struct {
	step int
	bend bool
}

// maxBends bounds a drawing: with more, long edges are straight.
const maxBends = 200

// newLayout puts each step one layer behind the last of those that it waits for.
func newLayout(steps []forebay.WorkflowStep) *layout {
	l := &layout{steps: steps, before: make([][]int, len(steps)), depth: make([]int, len(steps))}
	number := map[string]int{}
	for i, s := range steps {
		number[s.Name] = i
	}
	reach := make([]map[int]bool, len(steps)) // what each step waits for, at any distance
	var visit func(i int)
	visit = func(i int) {
		if reach[i] != nil {
			return
		}
		reach[i] = map[int]bool{}
		for _, name := range steps[i].After {
			n, ok := number[name]
			if !ok || n == i {
				continue
			}
			visit(n)
			l.depth[i] = max(l.depth[i], l.depth[n]+1)
			reach[i][n] = true
			for far := range reach[n] {
				reach[i][far] = true
			}
		}
	}
	for i := range steps {
		visit(i)
	}
	for i, s := range steps {
		for _, name := range s.After {
			n, ok := number[name]
			implied := slices.ContainsFunc(s.After, func(other string) bool {
				o, ok := number[other]
				return ok && reach[o][n]
			})
			if ok && n != i && !implied {
				l.before[i] = append(l.before[i], n)
			}
		}
	}
	l.order()
	return l
}

// order fills the layers. In each a place stands near the mean of those that lead to it.
func (l *layout) order() {
	last := make([]int, len(l.steps)) // deepest layer that an edge of the step leads to
	bends, deepest := 0, 0
	for i := range l.steps {
		deepest = max(deepest, l.depth[i])
		for _, n := range l.before[i] {
			last[n] = max(last[n], l.depth[i])
		}
	}
	for i := range l.steps {
		bends += max(0, last[i]-l.depth[i]-1)
	}
	height := map[place]float64{}
	for d := 0; d <= deepest && len(l.steps) > 0; d++ {
		want := map[place]float64{}
		var layer []place
		for i := range l.steps {
			switch at := (place{step: i}); {
			case l.depth[i] == d:
				sum := 0.0
				for _, n := range l.before[i] {
					sum += height[place{n, l.depth[n] < d-1 && bends <= maxBends}]
				}
				want[at] = sum / float64(max(1, len(l.before[i])))
				layer = append(layer, at)
			case l.depth[i] < d && last[i] > d && bends <= maxBends:
				at.bend = true
				want[at] = height[place{i, l.depth[i] < d-1}]
				layer = append(layer, at)
			}
		}
		slices.SortStableFunc(layer, func(a, b place) int { return cmp.Compare(want[a], want[b]) })
		for at, p := range layer {
			height[p] = float64(at) - float64(len(layer)-1)/2
		}
		l.layers = append(l.layers, layer)
	}
}
