package flows

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// Sizes of a drawing, in pixels.
const (
	nodeWidth  = 168
	nodeHeight = 46
	gapX       = 56
	gapY       = 16
	margin     = 8
	maxLabel   = 22 // characters
)

// marks tell states apart without colour.
var marks = map[string]string{"waiting": "…", "running": "▶", "succeeded": "✓", "failed": "✕", "skipped": "–"}

// layers puts each step one layer behind the last of those that it waits for. Within a layer a
// step stands at the mean place of those.
func layers(steps []forebay.WorkflowStep) [][]int {
	number := map[string]int{}
	for i, s := range steps {
		number[s.Name] = i
	}
	depth := make([]int, len(steps))
	for range steps { // steps may stand in any order; there are no cycles
		changed := false
		for i, s := range steps {
			for _, before := range s.After {
				if d := depth[number[before]] + 1; d > depth[i] && d < len(steps) {
					depth[i], changed = d, true
				}
			}
		}
		if !changed {
			break
		}
	}
	var list [][]int
	place := make([]float64, len(steps))
	for d := 0; ; d++ {
		var layer []int
		for i := range steps {
			if depth[i] == d {
				layer = append(layer, i)
			}
		}
		if layer == nil {
			return list
		}
		want := func(i int) float64 {
			if len(steps[i].After) == 0 {
				return float64(i)
			}
			sum := 0.0
			for _, before := range steps[i].After {
				sum += place[number[before]]
			}
			return sum / float64(len(steps[i].After))
		}
		slices.SortStableFunc(layer, func(a, b int) int {
			switch x, y := want(a), want(b); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		for at, i := range layer {
			place[i] = float64(at) - float64(len(layer)-1)/2
		}
		list = append(list, layer)
	}
}

// drawGraph draws the steps from left to right, with the states that are known.
func drawGraph(name string, steps []forebay.WorkflowStep, states map[string]string) template.HTML {
	list := layers(steps)
	tallest := 0
	for _, layer := range list {
		tallest = max(tallest, len(layer))
	}
	width := 2*margin + len(list)*nodeWidth + max(0, len(list)-1)*gapX
	height := 2*margin + tallest*nodeHeight + max(0, tallest-1)*gapY
	type point struct{ x, y int }
	places := map[string]point{}
	for d, layer := range list {
		top := (height - len(layer)*nodeHeight - (len(layer)-1)*gapY) / 2
		for at, i := range layer {
			places[steps[i].Name] = point{margin + d*(nodeWidth+gapX), top + at*(nodeHeight+gapY)}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" width="%d" height="%d" viewBox="0 0 %d %d" aria-label="%s">`, width, height, width, height,
		escape("The graph of the workflow "+name+"; the table below says the same"))
	for _, s := range steps {
		to := places[s.Name]
		for _, before := range s.After {
			from := places[before]
			x1, y1, x2, y2 := from.x+nodeWidth, from.y+nodeHeight/2, to.x, to.y+nodeHeight/2
			bend := max(gapX/2, (x2-x1)/2)
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d"/><path class="tip" d="M%d %dl-7 -4v8z"/>`, x1, y1, x1+bend, y1, x2-bend, y2, x2-6, y2, x2, y2)
		}
	}
	for _, s := range steps {
		p, state := places[s.Name], states[s.Name]
		if _, known := marks[state]; !known {
			state = ""
		}
		first, second := s.Name, s.Task
		if state != "" {
			first = marks[state] + " " + first
		}
		if s.ForEach {
			second = "each: " + second
		}
		if s.Conditional {
			second = "if … " + second
		}
		title := s.Name + ": calls " + s.Task
		if state != "" {
			title += ", " + state
		}
		fmt.Fprintf(&b, `<g class="%s"><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="5"/><text class="name" x="%d" y="%d">%s</text><text x="%d" y="%d">%s</text></g>`,
			strings.TrimSpace("step "+state), escape(title), p.x, p.y, nodeWidth, nodeHeight, p.x+10, p.y+19, escape(short(first)), p.x+10, p.y+36, escape(short(second)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers, fixed words and escaped texts
}

func escape(s string) string { return template.HTMLEscapeString(kit.Clean(s)) }

func short(s string) string {
	if r := []rune(s); len(r) > maxLabel {
		return string(r[:maxLabel-1]) + "…"
	}
	return s
}
