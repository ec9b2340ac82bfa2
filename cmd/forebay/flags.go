package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/command"
)

// Flags that several commands have.

// beforeFlag adds --before. It selects things by the time they were created, dead-lettered or the
// like.
func beforeFlag(a *command.App, flags *pflag.FlagSet, to **time.Time, things string) {
	a.PastFlag(flags, to, "before", "only "+things+" before this time, or longer ago than this")
}

// periodFlags add --before and --after.
func periodFlags(a *command.App, flags *pflag.FlagSet, before, after **time.Time, things string) {
	beforeFlag(a, flags, before, things)
	a.PastFlag(flags, after, "after", "only "+things+" since this time, or in the last so much time")
}

// allFlag adds --all, which selects all things of a kind.
func allFlag(flags *pflag.FlagSet, to *bool, what string) {
	flags.BoolVar(to, "all", false, "all "+what)
}

// dryRunFlag adds --dry-run.
func dryRunFlag(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, "dry-run", false, "only say what would happen, and change nothing")
}

// maxFlag adds --max, which bounds how many things are changed.
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
