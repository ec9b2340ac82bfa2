package content

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// Text has no control characters but tabs and ends of lines, whatever stands before or behind.
func TestTextHasNoControlCharacters(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if !utf8.ValidRune(r) {
			continue
		}
		want := r == '\t' || r == '\n' || r == '\r' || !unicode.IsControl(r)
		if got := looksLikeText([]byte("a" + string(r) + "ü")); got != want {
			t.Fatalf("%U counts as text: %t", r, got)
		}
	}
	for _, bad := range []string{"\xc2", "a\xff", "\xc2\x20"} {
		if looksLikeText([]byte(bad)) {
			t.Errorf("%q counts as text", bad)
		}
	}
}
