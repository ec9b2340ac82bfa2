package kit

import (
	"fmt"
	"html/template"
	"strings"
)

// Column is a bar of a chart. Bad is the part of Value that did not go well.
type Column struct {
	Label      string // says in words what the column shows
	Value, Bad float64
}

// Chart draws columns side by side, the highest as high as the chart. label says the same of
// all of them in words.
func Chart(label string, columns []Column) template.HTML {
	const width, height = 1000.0, 100.0
	highest := 0.0
	for _, c := range columns {
		highest = max(highest, c.Value)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" role="img" viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" aria-label="%s">`, width, height, template.HTMLEscapeString(Clean(label)))
	slot := width / float64(max(len(columns), 1))
	for i, c := range columns {
		if c.Value <= 0 {
			continue
		}
		x, w := slot*float64(i)+slot*0.08, slot*0.84
		h := max(c.Value/highest*height, 1)
		fmt.Fprintf(&b, `<g><title>%s</title><rect x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, template.HTMLEscapeString(Clean(c.Label)), x, height-h, w, h)
		if bad := c.Bad / highest * height; bad > 0 {
			fmt.Fprintf(&b, `<rect class="bad" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, x, height-bad, w, bad)
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and escaped labels
}
