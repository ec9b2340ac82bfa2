package forebay_test

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"default": true, "A": true, "0": true, "gpt-4o_mini.v2": true, strings.Repeat("a", forebay.MaxNameBytes): true,
		"": false, ".a": false, "-a": false, "_a": false, "$retry": false, "a/b": false, "a b": false, "ä": false,
		"a\x00": false, "a\n": false, strings.Repeat("a", forebay.MaxNameBytes+1): false,
	} {
		if got := forebay.ValidName(name); got != want {
			t.Errorf("ValidName(%q) is %t", name, got)
		}
	}
}

func TestValidText(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "order 17/b": true, "größe": true, "日本": true, strings.Repeat("a", 20): true,
		"": false, strings.Repeat("a", 21): false, "a\x00": false, "a\r\nb": false, "\x7f": false, "\xff": false,
		"a\u0085b": false, "a\u009b31m": false, // C1 controls: next line, and what begins a terminal sequence
	} {
		if got := forebay.ValidText(text, 20); got != want {
			t.Errorf("ValidText(%q) is %t", text, got)
		}
	}
}
