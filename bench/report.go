package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what one round of one contender measured, by column.
type sample map[string]float64

// contender is measured in turns with the others of its table.
type contender struct {
	name  string
	round func(context.Context) (sample, error)
}

// table is what an experiment found.
type table struct {
	title    string
	text     string // what was measured, and how
	columns  []string
	rows     []row
	verdicts []string
}

type row struct {
	name    string
	samples []sample
}

// onlyContenders selects contenders by a text in their name; "" selects all.
var onlyContenders string

// takeTurns runs the rounds of all contenders, alternating.
func (t *table) takeTurns(ctx context.Context, rounds int, contenders ...contender) error {
	contenders = slices.DeleteFunc(contenders, func(c contender) bool { return !strings.Contains(c.name, onlyContenders) })
	if len(contenders) == 0 {
		return fmt.Errorf("no contender has %q in its name", onlyContenders)
	}
	t.rows = make([]row, len(contenders))
	for n := range rounds {
		for i, c := range contenders {
			runtime.GC() // what the round before left must not be this one's burden
			s, err := c.round(ctx)
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, c.name, err)
			}
			t.rows[i].name = c.name
			t.rows[i].samples = append(t.rows[i].samples, s)
		}
	}
	return nil
}

// median returns a contender's median in a column; NaN if it has none.
func (t *table) median(name, column string) float64 {
	for _, r := range t.rows {
		if r.name == name {
			mid, _, _ := r.spread(column)
			return mid
		}
	}
	return math.NaN()
}

func (r row) spread(column string) (median, low, high float64) {
	var values []float64
	for _, s := range r.samples {
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

// expect adds a verdict: value compared with the target, which it must reach, or stay under.
func (t *table) expect(what string, value float64, sign string, target float64) {
	met := sign == "≥" && value >= target || sign == "≤" && value <= target || sign == "<" && value < target
	word := "missed"
	switch {
	case math.IsNaN(value):
		return // the yardstick was left out
	case met:
		word = "met"
	}
	t.verdicts = append(t.verdicts, fmt.Sprintf("%s: **%s** (target %s %s: %s)", what, format(value), sign, format(target), word))
}

func (t *table) note(format string, args ...any) {
	t.verdicts = append(t.verdicts, fmt.Sprintf(format, args...))
}

func (t *table) markdown(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| |", t.title, t.text)
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.columns)) + "\n")
	rounds := 0
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, c := range t.columns {
			fmt.Fprintf(&b, " %s |", r.cell(c))
		}
		b.WriteString("\n")
		rounds = max(rounds, len(r.samples))
	}
	b.WriteString("\n")
	for _, v := range t.verdicts {
		fmt.Fprintf(&b, "- %s\n", v)
	}
	fmt.Fprintf(&b, "- rounds: %d, in %.0f s\n", rounds, took.Seconds())
	return b.String()
}

func (r row) cell(column string) string {
	median, low, high := r.spread(column)
	switch {
	case math.IsNaN(median):
		return "–"
	case len(r.samples) == 1:
		return format(median)
	}
	return fmt.Sprintf("%s (%s–%s)", format(median), format(low), format(high))
}

// format writes three significant digits or more, and groups thousands.
func format(v float64) string {
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

// percentile returns the value that a share p of the sorted durations does not exceed, in
// milliseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := min(len(sorted)-1, int(math.Ceil(p*float64(len(sorted))))-1)
	return sorted[max(0, i)].Seconds() * 1000
}

// describeMachine says what the figures were measured on.
func describeMachine(b *bench) string {
	how := "full run"
	if b.quick {
		how = "quick run: less work and fewer rounds"
	}
	return fmt.Sprintf(`# Benchmark results

- date: %s (%s)
- processor: %s, %d cores
- kernel: %s
- file system of the data: %s
- Go: %s
- load average before the run: %s
`, time.Now().UTC().Format("2006-01-02 15:04 MST"), how, field("/proc/cpuinfo", "model name"), runtime.NumCPU(),
		firstLine("/proc/sys/kernel/osrelease"), fileSystem(b.dir), runtime.Version(), firstLine("/proc/loadavg"))
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// field returns the first "key : value" of a file in /proc.
func field(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// fileSystem returns the type of the file system that holds the folder: that of the longest mount
// point above it.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	best, kind := "", ""
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && len(f[1]) >= len(best) && strings.HasPrefix(dir+"/", strings.TrimSuffix(f[1], "/")+"/") {
			best, kind = f[1], f[2]
		}
	}
	return cmp.Or(kind, "unknown")
}
