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

func TestValidEntityName(t *testing.T) {
	for name, want := range map[string]bool{
		"orders": true, "eu/orders": true, "eu/west/Orders_2.v-1": true, "0/1": true, "subscriptions": true, "subscriptions/a": true,
		"a/my-subscriptions": true, "contracts~order-submitted": true, "a/~": true, strings.Repeat("a", forebay.MaxEntityBytes): true, strings.Repeat("a/", 129) + "ab": true,
		"": false, "/": false, "/a": false, "a/": false, "a//b": false, "a/.": false, "a/../b": false, "a/...": false, ".a": false, "-a/b": false, "~a": false,
		"a/subscriptions": false, "a/Subscriptions/b": false, "a/b/subscriptions/c": false, "a/$deadletterqueue": false, "a/$retry": false,
		"a b": false, "a/ä": false, "a%2Fb": false, "a\\b": false, "a/b\n": false, strings.Repeat("a", forebay.MaxEntityBytes+1): false,
	} {
		if got := forebay.ValidEntityName(name); got != want {
			t.Errorf("ValidEntityName(%q) is %t", name, got)
		}
	}
}

func TestCutEntityPath(t *testing.T) {
	for path, want := range map[string][3]string{
		"q": {"q"}, "q/$deadletterqueue": {"q", "", "$deadletterqueue"}, "": {}, "a/b/c": {"a/b/c"}, "a/b/$DeadLetterQueue": {"a/b", "", "$DeadLetterQueue"},
		"t/subscriptions/s": {"t", "s"}, "t/Subscriptions/s/$DeadLetterQueue": {"t", "s", "$DeadLetterQueue"}, "a/b/SUBSCRIPTIONS/s": {"a/b", "s"},
		"t/subscriptions/s/a/b": {"t", "s", "a/b"}, "a/subscriptions/b/subscriptions/c": {"a", "b", "subscriptions/c"},
		"a/$deadletterqueue/b": {"a", "", "$deadletterqueue/b"}, "subscriptions/subscriptions/s": {"subscriptions", "s"}, "/subscriptions/s": {"", "s"},
	} {
		if name, subscription, subqueue := forebay.CutEntityPath(path); [3]string{name, subscription, subqueue} != want {
			t.Errorf("%q is %q, %q and %q", path, name, subscription, subqueue)
		}
	}
	for _, path := range []string{"q/", "t/subscriptions", "t/subscriptions/", "t/subscriptions/s/", "t/subscriptions//s", "q//$deadletterqueue"} {
		if name, subscription, subqueue := forebay.CutEntityPath(path); forebay.ValidEntityName(name) {
			t.Errorf("%q is %q, %q and %q", path, name, subscription, subqueue)
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
