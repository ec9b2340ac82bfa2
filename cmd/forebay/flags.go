package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
)

// formerNames are flags that were renamed, so that the same thing has one name everywhere.
var formerNames = map[string]pflag.NormalizedName{
	"created-after": "after", "created-before": "before",
	"delete-when-idle": "auto-delete-on-idle", "session": "require-session",
}

// currentName has former names of flags go on to work.
func currentName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if current, ok := formerNames[name]; ok {
		return current
	}
	return pflag.NormalizedName(name)
}

// value is a flag's value that keep reads and stores.
type value struct {
	kind    string   // its type, as help shows it
	initial string   // its default, as help shows it
	choices []string // what it may be; nil: help does not say
	keep    func(string) error
}

func (v *value) Set(text string) error { return v.keep(text) }
func (v *value) String() string        { return v.initial }
func (v *value) Type() string          { return v.kind }

// A parser reads values of a flag. Its kind is their type, as help shows it.
type parser[T any] struct {
	kind string
	read func(string) (T, error)
}

var (
	anyText       = parser[string]{"string", func(text string) (string, error) { return text, nil }}
	wholeNumber   = parser[int]{"int", strconv.Atoi}
	wholeNumber64 = parser[int64]{"int64", func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }}
	number        = parser[float64]{"float64", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }}
)

// upTo reads a whole number from 0 to most. about0 is what the message says behind 0.
func upTo(most int64, about0 string) parser[int64] {
	return parser[int64]{"int64", func(text string) (int64, error) {
		n, err := wholeNumber64.read(text)
		if err == nil && (n < 0 || n > most) {
			err = flagProblem(fmt.Sprintf("goes from 0%s to %d", about0, most))
		}
		return n, err
	}}
}

// dollars reads an amount of money.
var dollars = parser[forebay.Money]{"float64", func(text string) (forebay.Money, error) {
	usd, err := strconv.ParseFloat(text, 64)
	if err == nil && !(usd >= 0 && usd <= float64(forebay.MaxBudgetUSD)/float64(forebay.Dollar)) {
		err = flagProblem("goes from 0 to a billion US dollars")
	}
	if err != nil {
		return 0, err
	}
	return forebay.USD(usd), nil
}}

// optionalFlag adds a flag whose target stays nil unless the command line has the flag.
func optionalFlag[T any](flags *pflag.FlagSet, to **T, name string, parse parser[T], help string) {
	flags.Var(&value{kind: parse.kind, keep: func(text string) error {
		v, err := parse.read(text)
		*to = &v
		return err
	}}, name, help)
}

// optionalBool is optionalFlag for a flag that needs no value.
func optionalBool(flags *pflag.FlagSet, to **bool, name, help string) {
	optionalFlag(flags, to, name, parser[bool]{"bool", strconv.ParseBool}, help)
	flags.Lookup(name).NoOptDefVal = "true"
}

// secondsFlag adds a flag for a duration, which is kept as a number of seconds.
func secondsFlag(flags *pflag.FlagSet, to *float64, name string, initial time.Duration, help string) {
	shown := ""
	if initial > 0 {
		shown = span(initial)
	}
	*to = initial.Seconds()
	flags.Var(&value{kind: "duration", initial: shown, keep: func(text string) error {
		d, err := parseDuration(text)
		*to = d.Seconds()
		return err
	}}, name, help)
}

// timeFlag adds a flag for a time, or for a duration from now.
func (a *app) timeFlag(flags *pflag.FlagSet, to **time.Time, name, help string) {
	a.addTime(flags, to, name, help, 1)
}

// pastFlag adds a flag for a time, or for how long ago that was.
func (a *app) pastFlag(flags *pflag.FlagSet, to **time.Time, name, help string) {
	a.addTime(flags, to, name, help, -1)
}

func (a *app) addTime(flags *pflag.FlagSet, to **time.Time, name, help string, direction time.Duration) {
	flags.Var(&value{kind: "string", keep: func(text string) error {
		if *to = nil; text == "" {
			return nil
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			d, err := parseDuration(text)
			if err != nil {
				return flagProblem(fmt.Sprintf(
					"must be a duration such as 90d, 24h or 10m, or a time such as 2030-01-02T15:04:05Z, not %q", text))
			}
			t = a.now().Add(direction * d).UTC()
		}
		*to = &t
		return nil
	}}, name, help)
}

// beforeFlag adds --before, which selects things by when they were created, dead-lettered and so
// on.
func (a *app) beforeFlag(flags *pflag.FlagSet, to **time.Time, things string) {
	a.pastFlag(flags, to, "before", "only "+things+" before this time, or longer ago than this")
}

// periodFlags add --before and --after.
func (a *app) periodFlags(flags *pflag.FlagSet, before, after **time.Time, things string) {
	a.beforeFlag(flags, before, things)
	a.pastFlag(flags, after, "after", "only "+things+" since this time, or in the last so much time")
}

// parseDuration is time.ParseDuration with days, and without negative durations.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, isDays := strings.CutSuffix(s, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", s)
	}
	return d, err
}

// statusFlag adds --status, which takes some of the statuses in upper or lower case.
func statusFlag[S ~string](flags *pflag.FlagSet, to *[]S, statuses []S) {
	v := &value{kind: "strings", choices: texts(statuses)}
	v.keep = func(text string) error {
		if text == "" {
			return nil
		}
		for name := range strings.SplitSeq(text, ",") {
			i := slices.IndexFunc(statuses, func(s S) bool { return strings.EqualFold(string(s), name) })
			if i < 0 {
				return flagProblem(fmt.Sprintf("takes no %q here; there are %s", name, joined(statuses)))
			}
			*to = append(*to, statuses[i])
		}
		return nil
	}
	flags.Var(v, "status", "only these: "+joined(statuses))
}

// pairsFlag adds a flag that takes pairs such as name=value, one at a time.
func pairsFlag(flags *pflag.FlagSet, name, pair, help string, add func(name, value string) error) {
	flags.Var(&value{kind: "stringArray", keep: func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return flagProblem(fmt.Sprintf("must be %s, not %q", pair, text))
		}
		return add(key, value)
	}}, name, pair+help+"; may be repeated")
}

// metadataFlag adds --metadata.
func metadataFlag(flags *pflag.FlagSet, to *map[string]string, help string) {
	pairsFlag(flags, "metadata", "key=value", help, func(key, value string) error {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		return nil
	})
}

// The flags of commands that change many things at once.

func allFlag(flags *pflag.FlagSet, to *bool, what string) {
	flags.BoolVar(to, "all", false, "all "+what)
}

func dryRunFlag(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, "dry-run", false, "only count, and change nothing")
}

func maxFlag(flags *pflag.FlagSet, to *int) {
	flags.IntVar(to, "max", 0, "at most this many (default: all)")
}

// setDefault changes the default of a flag that exists.
func setDefault(flags *pflag.FlagSet, name, text string) {
	flag := flags.Lookup(name)
	if err := flag.Value.Set(text); err != nil {
		panic(err)
	}
	flag.DefValue = text
}

// exactlyOne refuses a command line that says none of some things, or several that exclude each
// other.
func exactlyOne(missing, several string, said ...bool) error {
	n := 0
	for _, one := range said {
		if one {
			n++
		}
	}
	switch n {
	case 0:
		return usagef("%s", missing)
	case 1:
		return nil
	}
	return usagef("%s", several)
}

func texts[S ~string](values []S) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return names
}

func joined[S ~string](values []S) string { return strings.Join(texts(values), ", ") }
