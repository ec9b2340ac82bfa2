package flows

import (
	"fmt"
	"html/template"
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
	bendHeight = 10
	tipLength  = 7
	maxLabel   = 19 // characters
)

// marks tell states apart without colour.
var marks = map[string]string{"waiting": "…", "running": "▶", "succeeded": "✓", "failed": "✕", "skipped": "–"}

// tall is the height of a layer.
func tall(layer []place) int {
	height := max(0, len(layer)-1) * gapY
	for _, p := range layer {
		if p.bend {
			height += bendHeight
		} else {
			height += nodeHeight
		}
	}
	return height
}

// drawGraph draws the steps from left to right, with the states that are known.
func drawGraph(name string, steps []forebay.WorkflowStep, states map[string]string) template.HTML {
	l := newLayout(steps)
	width := 2*margin + len(l.layers)*nodeWidth + max(0, len(l.layers)-1)*gapX
	height := 0
	for _, layer := range l.layers {
		height = max(height, tall(layer)+2*margin)
	}
	type point struct{ x, y int }
	places := map[place]point{}
	bends := make([][]point, len(steps)) // of the edges that leave a step
	for d, layer := range l.layers {
		y := (height - tall(layer)) / 2
		for _, p := range layer {
			at := point{margin + d*(nodeWidth+gapX), y}
			if p.bend {
				bends[p.step] = append(bends[p.step], point{at.x, y + bendHeight/2})
				y += bendHeight + gapY
				continue
			}
			places[p] = at
			y += nodeHeight + gapY
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" width="%d" height="%d" viewBox="0 0 %d %d" aria-label="%s">`, width, height, width, height,
		escape("The graph of the workflow "+name+"; the table below says the same"))
	for i := range steps {
		end := places[place{step: i}]
		end.y += nodeHeight / 2
		for _, n := range l.before[i] {
			from := places[place{step: n}]
			x, y := from.x+nodeWidth, from.y+nodeHeight/2
			fmt.Fprintf(&b, `<path d="M%d %d`, x, y)
			to := func(x2, y2 int) {
				bend := max(gapX/2, (x2-x)/2)
				fmt.Fprintf(&b, "C%d %d %d %d %d %d", x+bend, y, x2-bend, y2, x2, y2)
				x, y = x2, y2
			}
			for _, p := range bends[n] {
				if p.x < end.x {
					to(p.x, p.y)
					fmt.Fprintf(&b, "H%d", p.x+nodeWidth)
					x = p.x + nodeWidth
				}
			}
			to(end.x-tipLength, end.y)
			fmt.Fprintf(&b, `"/><path class="tip" d="M%d %dl-%d -4v8z"/>`, end.x, end.y, tipLength)
		}
	}
	for i, s := range steps {
		p, state := places[place{step: i}], states[s.Name]
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
