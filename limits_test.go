package forebay_test

import (
	"bytes"
	"encoding/json"
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

func nested(opens, closes string, levels int) string {
	return strings.Repeat(opens, levels) + strings.Repeat(closes, levels)
}

func TestCheckJSON(t *testing.T) {
	for _, good := range []string{
		`null`, `"text"`, ` {"a":[1,2,{"b":"c"}]} `, "\t\r\n1\n", `"\u0000"`, `"\ud800"`, `"[[[["`, `"\\\"[["`,
		nested("[", "]", forebay.MaxJSONDepth), "[" + nested("[", "]", 40) + "," + nested("[", "]", 40) + "]",
		`["` + strings.Repeat("[", 1000) + `"]`,
	} {
		if err := forebay.CheckJSON("input", []byte(good)); err != nil {
			t.Errorf("%.60q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " ", "{", `{"a":1,}`, `{} {}`, "nul", "'a'", "\"\xff\"", "\xef\xbb\xbf{}", `"` + "\n" + `"`, "\x00",
		"\u00a0{}", "{}\u3000", "\v1", "1\f", // space to Unicode, not to JSON
		nested("[", "]", forebay.MaxJSONDepth+1), nested(`{"a":`, "}", 1_000_000), strings.Repeat("[", 1_000_000),
	} {
		err := forebay.CheckJSON("input", []byte(bad))
		if forebay.CodeOf(err) != forebay.CodeInvalidJSON || !strings.HasPrefix(err.Error(), "input: ") {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

// What CheckJSON accepts can be embedded in an answer and read again, and is no deeper than allowed.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\\"[",null]}`, `"\u0000"`, "\u00a01", nested("[", "]", 65), "\"\xff\"", "1 2", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		err := forebay.CheckJSON("input", b)
		if !bytes.Equal(b, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if forebay.CodeOf(err) != forebay.CodeInvalidJSON {
				t.Errorf("code %s", forebay.CodeOf(err))
			}
			if json.Valid(b) && bytes.Equal(b, bytes.ToValidUTF8(b, nil)) && depth(t, b) <= forebay.MaxJSONDepth {
				t.Errorf("%q is refused: %v", b, err)
			}
			return
		}
		if _, err := json.Marshal(json.RawMessage(b)); err != nil {
			t.Errorf("%q is accepted and cannot be embedded: %v", b, err)
		}
		if d := depth(t, b); d > forebay.MaxJSONDepth {
			t.Errorf("%q is accepted with a depth of %d", b, d)
		}
	})
}

// depth measures nesting by the tokens of encoding/json.
func depth(t *testing.T, b []byte) int {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	now, deepest := 0, 0
	for {
		token, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			now++
			deepest = max(deepest, now)
		case json.Delim(']'), json.Delim('}'):
			now--
		}
	}
}
