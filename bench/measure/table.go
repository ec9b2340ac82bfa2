package measure

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample is what one round of one contender measured, by column.
type Sample map[string]float64

// Contender is measured in turns with the others of its table.
type Contender struct {
	Name  string
	Round func(context.Context) (Sample, error)
}

// Table is what an experiment found.
type Table struct {
	Title    string
	Text     string // what was measured, and how
	Columns  []string
	Rows     []Row
	verdicts []string
}

// Row is what a contender, or a part of a measurement, came to.
type Row struct {
	Name    string
	Samples []Sample
}

// OnlyContenders selects contenders by a text in their name; "" selects all.
var OnlyContenders string

// TakeTurns runs the rounds of all contenders, alternating.
func (t *Table) TakeTurns(ctx context.Context, rounds int, contenders ...Contender) error {
	contenders = slices.DeleteFunc(contenders, func(c Contender) bool { return !strings.Contains(c.Name, OnlyContenders) })
	if len(contenders) == 0 {
		return fmt.Errorf("no contender has %q in its name", OnlyContenders)
	}
	t.Rows = make([]Row, len(contenders))
	for n := range rounds {
		for i, c := range contenders {
			runtime.GC() // what the round before left must not be this one's burden
			s, err := c.Round(ctx)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, c.Name, err)
			}
			t.Rows[i].Name = c.Name
			t.Rows[i].Samples = append(t.Rows[i].Samples, s)
		}
	}
	return nil
}

// Median returns a contender's median in a column; NaN if it has none.
func (t *Table) Median(name, column string) float64 {
	for _, r := range t.Rows {
		if r.Name == name {
			mid, _, _ := r.Spread(column)
			return mid
		}
	}
	return math.NaN()
}

// Spread returns a column's median, lowest and highest value; NaN if there is none.
func (r Row) Spread(column string) (median, low, high float64) {
	var values []float64
	for _, s := range r.Samples {
		if v, ok := s[column]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]
}

// Expect adds a verdict: value compared with the target, which it must reach, or stay under.
func (t *Table) Expect(what string, value float64, sign string, target float64) {
	met := sign == "≥" && value >= target || sign == "≤" && value <= target || sign == "<" && value < target
	word := "missed"
	switch {
	case math.IsNaN(value):
		return // the yardstick was left out
	case met:
		word = "met"
	}
	t.verdicts = append(t.verdicts, fmt.Sprintf("%s: **%s** (target %s %s: %s)", what, Format(value), sign, Format(target), word))
}

// Note adds a remark below the table.
func (t *Table) Note(format string, args ...any) {
	t.verdicts = append(t.verdicts, fmt.Sprintf(format, args...))
}

// Markdown writes the table as a section of the report.
func (t *Table) Markdown(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| |", t.Title, t.Text)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.Columns)) + "\n")
	rounds := 0
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "| %s |", r.Name)
		for _, c := range t.Columns {
			fmt.Fprintf(&b, " %s |", r.cell(c))
		}
		b.WriteString("\n")
		rounds = max(rounds, len(r.Samples))
	}
	b.WriteString("\n")
	for _, v := range t.verdicts {
		fmt.Fprintf(&b, "- %s\n", v)
	}
	fmt.Fprintf(&b, "- rounds: %d, in %.0f s\n", rounds, took.Seconds())
	return b.String()
}

func (r Row) cell(column string) string {
	median, low, high := r.Spread(column)
	switch {
	case math.IsNaN(median):
		return "–"
	case len(r.Samples) == 1:
		return Format(median)
	}
	return fmt.Sprintf("%s (%s–%s)", Format(median), Format(low), Format(high))
}

// Format writes three significant digits or more, and groups thousands.
func Format(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case math.Abs(v) < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v < 0 {
		return "-" + digits
	}
	return digits
}
