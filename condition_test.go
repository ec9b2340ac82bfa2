package forebay_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestConditionsOfHeaders(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"x", `, forebay.MaxETags+1), ", ")
	for _, c := range []struct {
		match, noneMatch []string
		want             []string
		isNew            bool
		field            string // of the error; "": none
	}{
		{},
		{match: []string{`"a"`}, want: []string{`"a"`}},
		{match: []string{` "a" ,"b"`, `"c"`}, want: []string{`"a"`, `"b"`, `"c"`}},
		{match: []string{`"a, b"`}, want: []string{`"a, b"`}, field: "If-Match"}, // a tag holds no space
		{match: []string{`"a,b"`}, want: []string{`"a,b"`}},
		{match: []string{`"a",, "b"`}, want: []string{`"a"`, `"b"`}},
		{match: []string{`W/"a"`}, want: []string{`W/"a"`}},
		{match: []string{" * "}, want: []string{"*"}},
		{match: []string{`""`}, want: []string{`""`}},
		{noneMatch: []string{"*"}, isNew: true},
		{match: []string{""}, field: "If-Match"},
		{match: []string{"a"}, field: "If-Match"},
		{match: []string{`"a`}, field: "If-Match"},
		{match: []string{`"a" "b"`}, field: "If-Match"},
		{match: []string{`*, "a"`}, field: "If-Match"},
		{match: []string{"\"a\x01\""}, field: "If-Match"},
		{match: []string{many}, field: "If-Match"},
		{noneMatch: []string{`"a"`}, field: "If-None-Match"},
		{noneMatch: []string{""}, field: "If-None-Match"},
		{match: []string{`"a"`}, noneMatch: []string{"*"}, field: "If-Match"},
	} {
		got, err := forebay.ParseCondition(c.match, c.noneMatch)
		field := ""
		if e, ok := err.(*forebay.Error); ok {
			field = e.Field
		}
		if field != c.field || err == nil && (!slices.Equal(got.Match, c.want) || got.New != c.isNew) {
			t.Errorf("%q %q: %+v, %v", c.match, c.noneMatch, got, err)
		}
	}
}

func TestConditionCheck(t *testing.T) {
	const tag, other, gone = `"a"`, `"b"`, ""
	for _, c := range []struct {
		condition forebay.Condition
		holds     []string
	}{
		{forebay.Condition{}, []string{tag, other, gone}},
		{forebay.IfMatch(tag), []string{tag}},
		{forebay.Condition{Match: []string{other, tag}}, []string{tag, other}},
		{forebay.IfMatch("W/" + tag), nil},
		{forebay.IfMatch(""), nil},
		{forebay.IfMatch(forebay.AnyETag), []string{tag, other}},
		{forebay.IfNew(), []string{gone}},
	} {
		for _, present := range []string{tag, other, gone} {
			err := c.condition.Check(present)
			if holds := slices.Contains(c.holds, present); holds != (err == nil) || !holds && forebay.CodeOf(err) != forebay.CodePreconditionFailed {
				t.Errorf("%+v of %q: %v", c.condition, present, err)
			}
		}
	}
}

func FuzzParseCondition(f *testing.F) {
	for _, seed := range []string{"*", `"a"`, `W/"a", "b"`, `"a`, `,`, `"a""b"`} {
		f.Add(seed, "")
	}
	f.Add("", "*")
	f.Fuzz(func(t *testing.T, match, noneMatch string) {
		got, err := forebay.ParseCondition([]string{match}, []string{noneMatch})
		if err != nil {
			return
		}
		if got.Empty() || len(got.Match) > forebay.MaxETags || got.New && len(got.Match) > 0 {
			t.Errorf("%q %q: %+v", match, noneMatch, got)
		}
		// What was read is read again, as the client writes it.
		again, err := forebay.ParseCondition([]string{strings.Join(got.Match, ", ")}, []string{map[bool]string{true: "*"}[got.New]})
		if !got.New && (err != nil || !slices.Equal(again.Match, got.Match)) {
			t.Errorf("%q, then %q: %v", got.Match, again.Match, err)
		}
		for _, tag := range got.Match {
			if got.Check(tag) != nil && tag != forebay.AnyETag {
				t.Errorf("%q does not match itself", tag)
			}
		}
	})
}
