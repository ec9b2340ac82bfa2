package filter

import (
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func TestParametersStandForTheirValues(t *testing.T) {
	at := time.Date(2026, 11, 26, 1, 2, 3, 0, time.UTC)
	settings := forebay.RuleSettings{
		SQLFilter: "colour LIKE @like AND size > @size AND weight = @weight AND sold_at = @at AND @yes AND -@size < 0",
		SQLFilterParameters: forebay.Properties{
			"@like": "gr%", "@size": int64(3), "@weight": 2.5, "@at": at, "@yes": true, "@unused": "",
		},
		SQLAction:           "SET colour = @colour SET size = size + @more",
		SQLActionParameters: forebay.Properties{"@colour": "it's \"red\"", "@more": int64(1)},
	}
	rule, err := Compile("r", settings)
	if err != nil {
		t.Fatal(err)
	}
	m := &Message{MessageID: "m", Properties: forebay.Properties{"colour": "green", "size": int64(4), "weight": 2.5, "sold_at": at}}
	copies, err := Select([]*Rule{rule}, m)
	if err != nil || len(copies) != 1 {
		t.Fatalf("there are %d copies, %v", len(copies), err)
	}
	if got := copies[0].Message.Properties; got["colour"] != "it's \"red\"" || got["size"] != int64(5) {
		t.Errorf("the copy has %v", got)
	}
	m.Properties["size"] = int64(3)
	if copies, err := Select([]*Rule{rule}, m); err != nil || len(copies) != 0 {
		t.Errorf("there are %d copies of a small one, %v", len(copies), err)
	}
	if got := rule.Filter.(*Condition).String(); !strings.Contains(got, "LIKE @like") || strings.Contains(got, "gr%") {
		t.Errorf("the canonical form is %s", got)
	}
}

func TestParametersThatAreWrong(t *testing.T) {
	one := forebay.Properties{"@a": int64(1)}
	for name, c := range map[string]struct {
		settings forebay.RuleSettings
		want     string
	}{
		"no value":        {forebay.RuleSettings{SQLFilter: "a = @b", SQLFilterParameters: one}, "no value is given for the parameter @b"},
		"other text's":    {forebay.RuleSettings{SQLFilter: "a = 1", SQLAction: "SET a = @a", SQLFilterParameters: one}, "no value is given for the parameter @a"},
		"no text":         {forebay.RuleSettings{SQLFilterParameters: one}, "sql_filter_parameters: needs sql_filter"},
		"no @":            {forebay.RuleSettings{SQLFilter: "a = 1", SQLFilterParameters: forebay.Properties{"a": true}}, "names that begin with @"},
		"no name":         {forebay.RuleSettings{SQLFilter: "a = @", SQLFilterParameters: one}, "@ begins the name of a parameter"},
		"no such type":    {forebay.RuleSettings{SQLFilter: "a = @a", SQLFilterParameters: forebay.Properties{"@a": struct{}{}}}, "has a type that is none of"},
		"too large":       {forebay.RuleSettings{SQLFilter: "a = @a", SQLFilterParameters: forebay.Properties{"@a": strings.Repeat("x", forebay.MaxPropertyBytes)}}, "may have at most"},
		"set":             {forebay.RuleSettings{SQLAction: "SET @a = 1", SQLActionParameters: one}, "expected the name of a property, found @a"},
		"not a condition": {forebay.RuleSettings{SQLFilter: "@a", SQLFilterParameters: one}, "expected a condition, found a value"},
	} {
		if _, err := Compile("r", c.settings); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
