package jsoncheck

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func nested(opens, closes string, levels int) string {
	return strings.Repeat(opens, levels) + strings.Repeat(closes, levels)
}

func TestCheck(t *testing.T) {
	for _, good := range []string{
		`null`, `"text"`, ` {"a":[1,2,{"b":"c"}]} `, "\t\r\n1\n", `"\u0000"`, `"\ud800"`, `"[[[["`, `"\\\"[["`,
		nested("[", "]", forebay.MaxJSONDepth), "[" + nested("[", "]", 40) + "," + nested("[", "]", 40) + "]",
		`["` + strings.Repeat("[", 1000) + `"]`,
	} {
		if err := Check("input", []byte(good)); err != nil {
			t.Errorf("%.60q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " ", "{", `{"a":1,}`, `{} {}`, "nul", "'a'", "\"\xff\"", "\xef\xbb\xbf{}", `"` + "\n" + `"`, "\x00",
		"\u00a0{}", "{}\u3000", "\v1", "1\f", // space to Unicode, not to JSON
		nested("[", "]", forebay.MaxJSONDepth+1), nested(`{"a":`, "}", 1_000_000), strings.Repeat("[", 1_000_000),
	} {
		err := Check("input", []byte(bad))
		if forebay.CodeOf(err) != forebay.CodeInvalidJSON || !strings.HasPrefix(err.Error(), "input: ") {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}

// An error says where to look.
func TestCheckSaysWhere(t *testing.T) {
	for bad, want := range map[string]string{
		`{"a":1,}`:                              "input: is not valid JSON from line 1, character 8 on",
		"{\n  \"ä\": 'x'\n}":                    "input: is not valid JSON from line 2, character 8 on",
		`{"a":1} more`:                          "input: is not valid JSON from line 1, character 9 on",
		`{"a":[1`:                               "input: is not valid JSON: it ends too early",
		"\xef\xbb\xbf{}":                        "input: is not valid JSON: it begins with a byte order mark",
		"{" + strings.Repeat(" ", mostSearched): "input: is not valid JSON",
	} {
		if err := Check("input", []byte(bad)); err == nil || err.Error() != want {
			t.Errorf("%.60q: %v, want %s", bad, err, want)
		}
	}
}

// What Check accepts can be embedded in an answer and read again, and is no deeper than allowed.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\\"[",null]}`, `"\u0000"`, "\u00a01", nested("[", "]", 65), "\"\xff\"", "1 2", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		if valid := json.Valid(b); Valid(b) != valid {
			t.Errorf("%q: valid is %t", b, !valid)
		}
		err := Check("input", b)
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
