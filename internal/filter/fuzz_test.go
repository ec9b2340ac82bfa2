package filter

import (
	"math"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// naiveLike is the definition of LIKE, rune by rune.
func naiveLike(pattern likePattern, text []rune) bool {
	if len(pattern) == 0 {
		return len(text) == 0
	}
	if pattern[0].wildcard == '%' {
		return naiveLike(pattern[1:], text) || len(text) > 0 && naiveLike(pattern, text[1:])
	}
	return len(text) > 0 && (pattern[0].wildcard == '_' || pattern[0].literal == text[0]) && naiveLike(pattern[1:], text[1:])
}

func FuzzLike(f *testing.F) {
	for _, seed := range [][2]string{{"%a_b%", "xxaabb"}, {"", ""}, {"%", ""}, {"_%_", "é"}, {"a!%", "a%"}, {"%ab%abc", "ababcababc"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 24 || !utf8.ValidString(pattern) || !utf8.ValidString(text) {
			return // the naive one is exponential
		}
		compiled, err := compileLike(pattern, "!")
		if err != nil {
			return
		}
		steps := maxLikeSteps
		got, err := compiled.match(text, &steps, nil)
		if want := naiveLike(compiled, []rune(text)); got != want || err != nil {
			t.Errorf("%q LIKE %q is %t (%v), expected %t", text, pattern, got, err, want)
		}
	})
}

var fuzzParameters = forebay.Properties{"@s": "%e%", "@i": int64(-7), "@x": 2.5, "@yes": true, "@at": time.UnixMilli(7)}

// fuzzMessages have the names a, b and c with values of every type.
func fuzzMessages(text string, i int64, x float64) []*Message {
	if !utf8.ValidString(text) {
		text = "?"
	}
	values := []any{text, i, x, i%2 == 0, time.UnixMilli(i % (1 << 45)), []byte(text), forebay.UUID{byte(i)}, math.NaN(), nil}
	var messages []*Message
	for n := range values {
		m := &Message{MessageID: "m", Subject: text, EnqueuedTime: time.UnixMilli(0), Properties: forebay.Properties{}}
		for k, name := range []string{"a", "b", "C"} {
			if v := values[(n*(k+1)+k)%len(values)]; v != nil {
				m.Properties[name] = v
			}
		}
		messages = append(messages, m)
	}
	return messages
}

func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		"a = 1 AND (b <> 'x' OR NOT c)", "-(5) + -a * 2 % 3 >= 1.5E3", "a NOT LIKE '%x_' ESCAPE '!' OR sys.Label IN ('q', b, NULL)",
		"EXISTS([a b]]c]) AND user.a IS NOT NULL", "p('sys.To') = newid()", "\"x\"\"y\" - (b - c) / a < - -9223372036854775808",
		"((((a))))", "NOT NOT a", "'it''s' + b LIKE a", "a = @i OR b LIKE @s OR -@x < c AND @yes",
	} {
		f.Add(seed, "text", int64(7), 2.5)
	}
	f.Fuzz(func(t *testing.T, source, text string, i int64, x float64) {
		c, err := ParseCondition(source, fuzzParameters)
		if err != nil {
			return
		}
		again, err := parseCondition(c.String(), fuzzParameters)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%q\n  reads as %s\n  which reads as %v (%v)", source, c, again, err)
		}
		for _, m := range fuzzMessages(text, i, x) {
			truth, err := c.Evaluate(m)
			truth2, err2 := again.Evaluate(m)
			if truth != truth2 || (err == nil) != (err2 == nil) || err != nil && truth != Unknown {
				t.Errorf("%s is %v (%v), then %v (%v)", c, truth, err, truth2, err2)
			}
		}
	})
}

func FuzzAction(f *testing.F) {
	for _, seed := range []string{
		"SET a = 1, b = a + 1; REMOVE c", "SET sys.Label = a + 'x' SET [a b] = -b REMOVE sys.To", "REMOVE a, REMOVE b; SET c = NULL", "SET a=@s SET b = @i + @x",
	} {
		f.Add(seed, "text", int64(7), 2.5)
	}
	f.Fuzz(func(t *testing.T, source, text string, i int64, x float64) {
		a, err := ParseAction(source, fuzzParameters)
		if err != nil {
			return
		}
		again, err := parseAction(a.String(), fuzzParameters)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%q\n  reads as %s\n  which reads as %v (%v)", source, a, again, err)
		}
		for _, m := range fuzzMessages(text, i, x) {
			changed, err := a.Apply(m)
			if err != nil {
				continue
			}
			if err := changed.Properties.Check(); err != nil || changed.MessageID == "" {
				t.Errorf("%s leaves %+v: %v", a, changed, err)
			}
		}
	})
}
