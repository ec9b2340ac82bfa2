package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The functions below write values for tables. They return "" for an absent value.

// Clean replaces the characters of a text that a terminal could act on.
func Clean(s string) string {
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

// CleanLines is Clean, and keeps the ends of lines.
func CleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Clean(line)
	}
	return strings.Join(lines, "\n")
}

// Shorten cuts a text to n runes. The last one is then an ellipsis.
func Shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// ShortJSON is Shorten for a JSON value, with "" for null.
func ShortJSON(v json.RawMessage, n int) string {
	if string(v) == "null" {
		return ""
	}
	return Shorten(string(v), n)
}

// Instant writes a time in the zone of the tables.
func (a *App) Instant(t time.Time) string { return t.In(a.Zone).Format("2006-01-02 15:04:05") }

// When writes a time and its distance from now.
func (a *App) When(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return a.Instant(t) + " (" + a.Age(t) + ")"
}

// WhenPtr is When for a time that may be absent.
func (a *App) WhenPtr(t *time.Time) string { return IfSet(t, a.When) }

// Age writes the distance of a time from now, such as "3m ago" or "in 2h".
func (a *App) Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := a.Now().Sub(t); d >= 0 {
		return Span(d) + " ago"
	}
	return "in " + Span(t.Sub(a.Now()))
}

// AgePtr is Age for a time that may be absent.
func (a *App) AgePtr(t *time.Time) string { return IfSet(t, a.Age) }

// Span writes a duration in its largest unit, such as "3m".
func Span(d time.Duration) string {
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

// Seconds is Span for a number of seconds that may be absent.
func Seconds(s *float64) string {
	return IfSet(s, func(s float64) string { return Span(time.Duration(s * float64(time.Second))) })
}

// Took writes the time between two moments.
func Took(from, to time.Time) string { return to.Sub(from).Round(time.Millisecond).String() }

// Count writes a number.
func Count(n int64) string { return strconv.FormatInt(n, 10) }

// Counted writes a count. capped says that counting stopped at a limit, as in "10000+".
func Counted(n int64, capped bool) string {
	if capped && n > 0 {
		return Count(n) + "+"
	}
	return Count(n)
}

// Percent writes a part of a whole in percent and parentheses, after a space.
func Percent(n, of int64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f%%)", 100*float64(n)/float64(of))
}

// IfTrue returns the word if a condition holds.
func IfTrue(is bool, word string) string {
	if is {
		return word
	}
	return ""
}

// IfSet returns the text of a value that may be absent.
func IfSet[T any](v *T, text func(T) string) string {
	if v == nil {
		return ""
	}
	return text(*v)
}

// OrEmpty returns a text that may be absent.
func OrEmpty[T ~string](s *T) string { return IfSet(s, func(s T) string { return string(s) }) }

// MapFields returns a field for each entry of a map, sorted by key.
func MapFields[V any](prefix string, entries map[string]V) (fields []Field) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fields = append(fields, Field{prefix + " " + name, Shorten(fmt.Sprint(entries[name]), 200)})
	}
	return fields
}
