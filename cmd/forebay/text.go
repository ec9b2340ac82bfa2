package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How values are written in tables. What is absent is "".

// clean keeps texts from elsewhere from steering the terminal.
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

// shortJSON is a value in few characters.
func shortJSON(v json.RawMessage, n int) string {
	if string(v) == "null" {
		return ""
	}
	return shorten(string(v), n)
}

// instant is a local time.
func (a *app) instant(t time.Time) string { return t.In(a.zone).Format("2006-01-02 15:04:05") }

// when is a local time and how long ago that was.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return a.instant(t) + " (" + a.age(t) + ")"
}

func (a *app) whenPtr(t *time.Time) string { return ifSet(t, a.when) }

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

func (a *app) agePtr(t *time.Time) string { return ifSet(t, a.age) }

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
	return ifSet(s, func(s float64) string { return span(time.Duration(s * float64(time.Second))) })
}

// took is the time between two moments.
func took(from, to time.Time) string { return to.Sub(from).Round(time.Millisecond).String() }

func count(n int64) string { return strconv.FormatInt(n, 10) }

// counted is a count that may have stopped at its limit: "10000+".
func counted(n int64, capped bool) string {
	if capped && n > 0 {
		return count(n) + "+"
	}
	return count(n)
}

// share is a part of a whole in percent.
func share(n, of int64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f%%)", 100*float64(n)/float64(of))
}

// yes is the word if something is so.
func yes(is bool, word string) string {
	if is {
		return word
	}
	return ""
}

// ifSet is the text of a value, if there is one.
func ifSet[T any](v *T, text func(T) string) string {
	if v == nil {
		return ""
	}
	return text(*v)
}

func orEmpty[T ~string](s *T) string { return ifSet(s, func(s T) string { return string(s) }) }

// mapFields are the entries of a map, in the order of their names.
func mapFields[V any](prefix string, entries map[string]V) (fields []field) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fields = append(fields, field{prefix + " " + name, shorten(fmt.Sprint(entries[name]), 200)})
	}
	return fields
}
