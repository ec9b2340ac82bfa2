package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
)

// value is the value of a flag. keep parses and stores it.
type value struct {
	kind    string   // its type, as help shows it
	initial string   // its default, as help shows it
	choices []string // the possible values, for shell completion; may be nil
	keep    func(string) error
}

func (v *value) Set(text string) error { return v.keep(text) }
func (v *value) String() string        { return v.initial }
func (v *value) Type() string          { return v.kind }

// A Parser parses the value of a flag.
type Parser[T any] struct {
	kind string // as help shows it
	read func(string) (T, error)
}

// Parsers of plain values.
var (
	AnyText       = Parser[string]{"string", func(text string) (string, error) { return text, nil }}
	WholeNumber   = Parser[int]{"int", strconv.Atoi}
	WholeNumber64 = Parser[int64]{"int64", func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }}
	Number        = Parser[float64]{"float64", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }}
)

// UpTo parses a whole number from 0 to most. The error message has about0 after the 0.
func UpTo(most int64, about0 string) Parser[int64] {
	return Parser[int64]{"int64", func(text string) (int64, error) {
		n, err := WholeNumber64.read(text)
		if err == nil && (n < 0 || n > most) {
			err = flagProblem(fmt.Sprintf("goes from 0%s to %d", about0, most))
		}
		return n, err
	}}
}

// Dollars parses an amount in US dollars.
var Dollars = Parser[forebay.Money]{"float64", func(text string) (forebay.Money, error) {
	usd, err := strconv.ParseFloat(text, 64)
	if err == nil && !(usd >= 0 && usd <= float64(forebay.MaxBudgetUSD)/float64(forebay.Dollar)) {
		err = flagProblem("goes from 0 to a billion US dollars")
	}
	if err != nil {
		return 0, err
	}
	return forebay.USD(usd), nil
}}

// OptionalFlag adds a flag whose target stays nil unless the command line has the flag.
func OptionalFlag[T any](flags *pflag.FlagSet, to **T, name string, parse Parser[T], help string) {
	flags.Var(&value{kind: parse.kind, keep: func(text string) error {
		v, err := parse.read(text)
		*to = &v
		return err
	}}, name, help)
}

// OptionalBool is OptionalFlag for a flag that needs no value.
func OptionalBool(flags *pflag.FlagSet, to **bool, name, help string) {
	OptionalFlag(flags, to, name, Parser[bool]{"bool", strconv.ParseBool}, help)
	flags.Lookup(name).NoOptDefVal = "true"
}

// SecondsFlag adds a flag for a duration and stores it as a number of seconds.
func SecondsFlag(flags *pflag.FlagSet, to *float64, name string, initial time.Duration, help string) {
	shown := ""
	if initial > 0 {
		shown = Span(initial)
	}
	*to = initial.Seconds()
	flags.Var(&value{kind: "duration", initial: shown, keep: func(text string) error {
		d, err := parseDuration(text)
		*to = d.Seconds()
		return err
	}}, name, help)
}

// WaitFlag adds the flag --wait for how long a request waits at the server.
func WaitFlag(flags *pflag.FlagSet, to *string, help string) {
	flags.Var(&value{kind: "duration", keep: func(text string) error {
		d, err := parseDuration(text)
		*to = d.String()
		return err
	}}, "wait", help)
}

// TimeFlag adds a flag for a time, or for a duration from now.
func (a *App) TimeFlag(flags *pflag.FlagSet, to **time.Time, name, help string) {
	a.addTime(flags, to, name, help, 1)
}

// PastFlag adds a flag for a time, or for how long ago that was.
func (a *App) PastFlag(flags *pflag.FlagSet, to **time.Time, name, help string) {
	a.addTime(flags, to, name, help, -1)
}

func (a *App) addTime(flags *pflag.FlagSet, to **time.Time, name, help string, direction time.Duration) {
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
			t = a.Now().Add(direction * d).UTC()
		}
		*to = &t
		return nil
	}}, name, help)
}

// parseDuration is time.ParseDuration with days and without negative durations.
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

// StatusFlag adds --status. It takes a comma-separated list of statuses, in upper or lower case.
func StatusFlag[S ~string](flags *pflag.FlagSet, to *[]S, statuses []S) {
	v := &value{kind: "strings", choices: Texts(statuses)}
	v.keep = func(text string) error {
		if text == "" {
			return nil
		}
		for name := range strings.SplitSeq(text, ",") {
			i := slices.IndexFunc(statuses, func(s S) bool { return strings.EqualFold(string(s), name) })
			if i < 0 {
				return flagProblem(fmt.Sprintf("takes no %q here; there are %s", name, Joined(statuses)))
			}
			*to = append(*to, statuses[i])
		}
		return nil
	}
	flags.Var(v, "status", "only these: "+Joined(statuses))
}

// PairsFlag adds a flag that takes one pair such as name=value each time it is given.
func PairsFlag(flags *pflag.FlagSet, name, pair, help string, add func(name, value string) error) {
	flags.Var(&value{kind: "stringArray", keep: func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return flagProblem(fmt.Sprintf("must be %s, not %q", pair, text))
		}
		return add(key, value)
	}}, name, pair+help+"; may be repeated")
}

// ExactlyOne returns an error unless exactly one of several things was said. missing and several
// are the messages for none and for more than one.
func ExactlyOne(missing, several string, said ...bool) error {
	n := 0
	for _, one := range said {
		if one {
			n++
		}
	}
	switch n {
	case 0:
		return Usagef("%s", missing)
	case 1:
		return nil
	}
	return Usagef("%s", several)
}

// Texts returns values as plain strings.
func Texts[S ~string](values []S) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return names
}

// Joined returns values as a list for people.
func Joined[S ~string](values []S) string { return strings.Join(Texts(values), ", ") }

// AllTenantsFlag adds --all-tenants.
func AllTenantsFlag(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, "all-tenants", false, "of every tenant; needs a key with the scope view")
}

// MetadataFlag adds --metadata.
func MetadataFlag(flags *pflag.FlagSet, to *map[string]string, help string) {
	PairsFlag(flags, "metadata", "key=value", help, func(key, value string) error {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		return nil
	})
}
