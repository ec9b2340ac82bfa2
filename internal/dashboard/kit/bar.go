package kit

import (
	"fmt"
	"html/template"
	"strings"
)

const barWidth, barHeight = 200, 12

// Bar draws how much of something is used: the used part, what is held, a mark at a learned
// limit, all of a quota. Values of 0 are unknown. label says the same in words.
func Bar(label string, used, held, limit, whole any) template.HTML {
	u, h, l, w := float64(integer(used)), float64(integer(held)), float64(integer(limit)), float64(integer(whole))
	scale := max(w, l, u+h)
	if scale <= 0 {
		scale = 1
	}
	x := func(v float64) float64 { return v / scale * barWidth }
	tone := "used"
	if bound := l; (bound > 0 && u+h >= 0.95*bound) || (bound == 0 && w > 0 && u+h >= 0.95*w) {
		tone = "used full"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="bar" role="img" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-label="%s">`, barWidth, barHeight, template.HTMLEscapeString(label))
	fmt.Fprintf(&b, `<title>%s</title><rect class="whole" width="%d" height="%d"/>`, template.HTMLEscapeString(label), barWidth, barHeight)
	fmt.Fprintf(&b, `<rect class="%s" width="%.1f" height="%d"/>`, tone, x(u), barHeight)
	if h > 0 {
		fmt.Fprintf(&b, `<rect class="held" x="%.1f" width="%.1f" height="%d"/>`, x(u), x(h), barHeight)
	}
	if l > 0 && l < scale {
		fmt.Fprintf(&b, `<rect class="limit" x="%.1f" width="2" height="%d"/>`, x(l)-1, barHeight)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and an escaped label
}

// Span is a part of a row of a timeline.
type Span struct {
	Kind       string // its class: wait, throttle, delay, call, run, …
	Label      string
	Start, End float64 // from 0 to 1 of the whole
	Href       string  // "": it is no link
}

// Timeline draws spans side by side on one row.
func Timeline(label string, spans []Span) template.HTML {
	const width, height = 1000, 18
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="timeline" role="img" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-label="%s">`, width, height, template.HTMLEscapeString(label))
	for _, s := range spans {
		x := min(max(s.Start, 0), 1) * width
		w := max(min(max(s.End, 0), 1)*width-x, 2)
		if s.Href != "" {
			fmt.Fprintf(&b, `<a href="%s">`, template.HTMLEscapeString(s.Href))
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`,
			template.HTMLEscapeString(s.Kind), x, w, height, template.HTMLEscapeString(Clean(s.Label)))
		if s.Href != "" {
			b.WriteString(`</a>`)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped labels
}
