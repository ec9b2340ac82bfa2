package main

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// Texts of deltas are written one after the other, without what came before and without what a
// terminal acts on.
func TestDeltasInATable(t *testing.T) {
	var out strings.Builder
	p := deltaPrinter{call: &command.Call{App: &command.App{Out: &out, Output: command.OutputTable}}}
	for _, d := range []forebay.Delta{
		{Attempt: 1, Text: "one\n"}, {Attempt: 1, Text: "one\ntwo"}, {Attempt: 1, Offset: 7, Text: "\x1b[2J"}, {Attempt: 1, Offset: 20, Text: "later"},
		{Attempt: 2, Text: "anew"},
	} {
		d.Generation = 1
		p.print(d)
	}
	if err := p.endLine(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "one\ntwo\uFFFD[2J[…]later\nanew\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
