package main

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	outputTable = "table"
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

// column is one column of a table of Ts.
type column[T any] struct {
	title string
	cell  func(T) string
}

// printList prints items as they come, at most limit of them when that is positive. Columns get their
// widths when the list ends.
func printList[T any](a *app, items iter.Seq2[T, error], limit int, columns []column[T]) error {
	p, finish := listPrinter(a, columns)
	n := 0
	for item, err := range items {
		if err != nil {
			return err
		}
		if err := p(item); err != nil {
			return err
		}
		if n++; n == limit {
			break
		}
	}
	return finish()
}

func listPrinter[T any](a *app, columns []column[T]) (item func(T) error, finish func() error) {
	switch a.output {
	case outputJSONL:
		return func(v T) error { return writeJSON(a.out, v, "") }, func() error { return nil }
	case outputJSON:
		all := []T{}
		return func(v T) error { all = append(all, v); return nil }, func() error { return writeJSON(a.out, all, "  ") }
	}
	t := newTable(a.out)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	t.row(titles...)
	return func(v T) error {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.cell(v)
		}
		t.row(cells...)
		return nil
	}, t.flush
}

// printOne prints one thing: as rows of name and value, or as JSON.
func (a *app) printOne(v any, rows [][2]string) error {
	switch a.output {
	case outputJSONL:
		return writeJSON(a.out, v, "")
	case outputJSON:
		return writeJSON(a.out, v, "  ")
	}
	t := newTable(a.out)
	for _, row := range rows {
		if row[1] != "" {
			t.row(row[0], row[1])
		}
	}
	return t.flush()
}

// table aligns columns two spaces apart.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer) *table { return &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) // errors stay with the writer until flush
}

func (t *table) flush() error { return t.w.Flush() }

// clean keeps what comes from elsewhere from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case steersTerminal(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// shorten cuts a text to n runes.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// when is a local time and how long ago that was.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(a.zone).Format("2006-01-02 15:04:05") + " (" + a.age(t) + ")"
}

func (a *app) whenPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return a.when(*t)
}

// age is a distance from now, such as "3m ago" or "in 2h".
func (a *app) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := a.now().Sub(t); d >= 0 {
		return span(d) + " ago"
	}
	return "in " + span(t.Sub(a.now()))
}

func (a *app) agePtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return a.age(*t)
}

// span is a duration in its largest unit.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return span(time.Duration(*s * float64(time.Second)))
}

func orEmpty[T ~string](s *T) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

// all turns a slice into the sequence that printList takes.
func all[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}
