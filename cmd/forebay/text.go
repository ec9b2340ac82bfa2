package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forebayhq/forebay/internal/command"
)

// How values are written in tables. What is absent is "".

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
func (a *app) instant(t time.Time) string { return t.In(a.Zone).Format("2006-01-02 15:04:05") }

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
	if d := a.Now().Sub(t); d >= 0 {
		return command.Span(d) + " ago"
	}
	return "in " + command.Span(t.Sub(a.Now()))
}

func (a *app) agePtr(t *time.Time) string { return ifSet(t, a.age) }

func seconds(s *float64) string {
	return ifSet(s, func(s float64) string { return command.Span(time.Duration(s * float64(time.Second))) })
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
func mapFields[V any](prefix string, entries map[string]V) (fields []command.Field) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fields = append(fields, command.Field{prefix + " " + name, shorten(fmt.Sprint(entries[name]), 200)})
	}
	return fields
}
