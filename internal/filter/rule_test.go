package filter

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestActions(t *testing.T) {
	for _, c := range []struct {
		source, want string // the error, or ""
		set          forebay.Properties
		removed      string
	}{
		{source: "SET color = 'red'", set: forebay.Properties{"color": "red"}},
		{source: "set COLOR = 'red';", set: forebay.Properties{"color": "red"}},
		{source: "SET quantity = quantity / 3", set: forebay.Properties{"Quantity": int64(3)}},
		{source: "SET price = 4", set: forebay.Properties{"price": 4.0}},
		{source: "SET quantity = 'many'", set: forebay.Properties{"Quantity": "many"}},
		{source: "SET a = 1, b = a + 1; SET c = b * 2 REMOVE a", set: forebay.Properties{"b": int64(2), "c": int64(4)}},
		{source: "SET a = 1, REMOVE a, SET a = 2", set: forebay.Properties{"a": int64(2)}},
		{source: "REMOVE color, user.PRICE", removed: "color price"},
		{source: "REMOVE missing; SET color = missing", removed: "color"},
		{source: "SET color = NULL; SET COLOR = 1", removed: "color", set: forebay.Properties{"COLOR": int64(1)}},
		{source: "SET [new name] = sys.Label + '!'", set: forebay.Properties{"new name": "red order!"}},
		{source: "SET a = TRUE; SET b = due; SET c = sys.EnqueuedTimeUtc", set: forebay.Properties{"a": true, "b": sample().Properties["due"], "c": sample().EnqueuedTime}},
		{source: "SET a = 1 / 0", want: "an integer is divided by zero"},
		{source: "SET a = color * 2", want: "a string and an integer do not go with *"},
		{source: "SET sys.Label = 5", want: "sys.Label takes a string, not an integer"},
		{source: "SET sys.MessageId = missing", want: "sys.MessageId cannot be empty"},
		{source: "SET sys.MessageId = ''", want: "sys.MessageId cannot be empty"},
		{source: "SET sys.SessionId = '" + strings.Repeat("s", 129) + "'", want: "sys.SessionId takes at most 128 characters"},
		{source: "SET sys.To = 'a\nb'", want: "sys.To takes at most 32768 bytes without control characters"},
		{source: "SET a = '" + strings.Repeat("x", 500) + "';" + strings.Repeat("SET a = a + a;", 30), want: "the joined string has more than 32768 bytes"},
		{source: "SET a = '" + strings.Repeat("x", 512) + "';" + strings.Repeat("SET a = a + a;", 5) + "SET b=a,c=a,d=a,e=a", want: "the action leaves properties that are not allowed: application_properties: may have at most 65536 bytes together"},
	} {
		a, err := ParseAction(c.source, nil)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		m := sample()
		changed, err := a.Apply(m)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%.80s: %v, expected %q", c.source, err, c.want)
		}
		if !maps.EqualFunc(m.Properties, sample().Properties, same) {
			t.Errorf("%s changed the message itself", c.source)
		}
		if err != nil {
			continue
		}
		want := sample().Properties
		for _, name := range strings.Fields(c.removed) {
			delete(want, name)
		}
		maps.Copy(want, c.set)
		if !maps.EqualFunc(changed.Properties, want, same) {
			t.Errorf("%s: %v", c.source, changed.Properties)
		}
	}
}

// same takes values of one type that are equal, and NaN as equal to itself.
func same(a, b any) bool {
	return typeName(a) == typeName(b) && (sameValue(a, b) || a != a && b != b) //nolint:gocritic // NaN
}

func TestActionOnSystemProperties(t *testing.T) {
	a, err := ParseAction(`SET sys.Subject = 'blue', sys.reply_to = user.color; SET sys.MessageId = id; SET sys.SessionId = 's',
		sys.CorrelationId = sys.MessageId; REMOVE sys.To; SET sys.ContentType = NULL`, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Apply(sample())
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "blue" || m.ReplyTo != "blue" || m.MessageID != sampleUUID.String() || m.SessionID != "s" ||
		m.CorrelationID != sampleUUID.String() || m.To != "" || m.ContentType != "" {
		t.Errorf("%+v", m)
	}
}

func TestActionSyntax(t *testing.T) {
	for source, want := range map[string]string{
		"":                        "at character 1: expected SET or REMOVE, found the end",
		"a = 1":                   `at character 1: expected SET or REMOVE, found the name "a"`,
		"SET a":                   "at character 6: expected =, found the end",
		"SET a = ":                "at character 9: expected a value or a condition, found the end",
		"SET a = 1 2":             "at character 11: expected SET or REMOVE, found a number",
		"SET a = b = 1":           "at character 11: expected SET or REMOVE, found =",
		"SET a = (b = 1)":         "at character 9: expected a value, found a condition",
		"SET a = NOT b":           "at character 9: expected a value or a condition, found NOT",
		"SET 'a' = 1":             "at character 5: expected the name of a property, found a string",
		"SET a = 1,":              "at character 11: expected the name of a property, found the end",
		"SET a = 1;;":             "at character 11: expected SET or REMOVE, found ;",
		"REMOVE":                  "at character 7: expected the name of a property, found the end",
		"REMOVE sys.MessageId":    "at character 8: sys.MessageId cannot be removed",
		"SET sys.Size = 1":        "at character 5: sys.Size cannot be changed; what can: ContentType, CorrelationId, Label, MessageId, PartitionKey, ReplyTo, ReplyToSessionId, SessionId, To",
		"SET sys.Colour = 1":      `at character 9: there is no system property "Colour"`,
		strings.Repeat("a", 1025): "at character 1025: is longer than 1024 characters",
	} {
		if _, err := ParseAction(source, nil); err == nil || err.Error() != want {
			t.Errorf("%.40q: %v, expected %s", source, err, want)
		}
	}
	a, err := ParseAction("set a=1,b=-(2+3) remove c , d;", nil)
	if err != nil || a.String() != "SET a = 1; SET b = -(2 + 3); REMOVE c; REMOVE d" {
		t.Errorf("%v (%v)", a, err)
	}
}

func TestCorrelation(t *testing.T) {
	for _, c := range []struct {
		filter forebay.CorrelationFilter
		want   bool
	}{
		{forebay.CorrelationFilter{CorrelationID: "c-1"}, true},
		{forebay.CorrelationFilter{CorrelationID: "C-1"}, false},
		{forebay.CorrelationFilter{CorrelationID: "c-1", Subject: "red order", MessageID: "m-1", To: "store", ContentType: "text/plain"}, true},
		{forebay.CorrelationFilter{CorrelationID: "c-1", ReplyTo: "x"}, false},
		{forebay.CorrelationFilter{SessionID: "x"}, false},
		{forebay.CorrelationFilter{ReplyToSessionID: "x"}, false},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"COLOR": "blue", "quantity": int64(10), "price": 2.5, "urgent": true}}, true},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"color": "Blue"}}, false},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"quantity": 10.0}}, true},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"quantity": "10"}}, false},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"id": sampleUUID, "due": sample().Properties["due"], "raw": []byte{1, 2}}}, true},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"id": sampleUUID.String()}}, false},
		{forebay.CorrelationFilter{Properties: forebay.Properties{"missing": ""}}, false},
		{forebay.CorrelationFilter{To: "store", Properties: forebay.Properties{"color": "red"}}, false},
	} {
		f, err := NewCorrelation(c.filter)
		if err != nil {
			t.Errorf("%+v: %v", c.filter, err)
			continue
		}
		if got, err := f.Matches(sample()); got != c.want || err != nil {
			t.Errorf("%+v: %t (%v)", c.filter, got, err)
		}
	}
}

func TestCompile(t *testing.T) {
	yes := true
	for _, c := range []struct {
		rule forebay.RuleSettings
		want string
	}{
		{forebay.RuleSettings{SQLFilter: "a = "}, "sql_filter: at character 5: expected a value or a condition, found the end"},
		{forebay.RuleSettings{SQLAction: "SET"}, "sql_action: at character 4: expected the name of a property, found the end"},
		{forebay.RuleSettings{SQLFilter: "a = 1", BooleanFilter: &yes}, "a rule has one of sql_filter, correlation_filter and boolean_filter"},
		{forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{}}, "correlation_filter: must name at least one property"},
		{forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{To: "\n"}}, "correlation_filter.to: may have at most 32768 bytes without control characters"},
		{forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{Properties: forebay.Properties{"a": 1}}}, "correlation_filter.application_properties: holds a name"},
	} {
		_, err := Compile("r", c.rule)
		if err == nil || forebay.CodeOf(err) != forebay.CodeInvalidRequest || !strings.HasPrefix(err.Error(), strings.Split(c.want, ": holds")[0]) {
			t.Errorf("%+v: %v", c.rule, err)
		}
	}
}

func TestSelect(t *testing.T) {
	no := false
	compile := func(name string, s forebay.RuleSettings) *Rule {
		r, err := Compile(name, s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	blue := compile("blue", forebay.RuleSettings{SQLFilter: "color = 'blue'"})
	all := compile("all", forebay.RuleSettings{})
	none := compile("none", forebay.RuleSettings{BooleanFilter: &no})
	mark := compile("mark", forebay.RuleSettings{SQLFilter: "quantity > 5", SQLAction: "SET marked = TRUE; SET rulename = 'x'"})
	halve := compile("halve", forebay.RuleSettings{SQLAction: "SET quantity = quantity / 2"})
	broken := compile("broken", forebay.RuleSettings{SQLFilter: "color > 5"})
	bad := compile("bad", forebay.RuleSettings{SQLAction: "SET x = color - 1"})

	for _, c := range []struct {
		rules []*Rule
		names string // of the copies' rules
		err   string
	}{
		{nil, "", ""},
		{[]*Rule{none}, "", ""},
		{[]*Rule{none, blue, all}, "(plain)", ""},
		{[]*Rule{mark, all, halve, blue, none}, "mark (plain) halve", ""},
		{[]*Rule{broken, all}, "(plain)", "the filter of rule broken: a string and an integer cannot be compared"},
		{[]*Rule{all, broken}, "(plain)", ""}, // a copy is certain already
		{[]*Rule{bad, mark, broken}, "mark", "the action of rule bad: a string and an integer do not go with -"},
	} {
		m := sample()
		copies, err := Select(c.rules, m)
		var names []string
		for _, made := range copies {
			name := made.Rule
			if name == "" {
				if name = "(plain)"; made.Message != m {
					t.Error("the plain copy is not the message")
				}
			} else if stamped := made.Message.user("RuleName", "rulename"); stamped != name {
				t.Errorf("RuleName is %v, expected %s", stamped, name)
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("copies %q, expected %q", got, c.names)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("error %v, expected %q", err, c.err)
		}
		if !maps.EqualFunc(m.Properties, sample().Properties, same) {
			t.Error("the message itself was changed")
		}
	}
}

// The steps of all rules are counted together, and none is asked once they are used up.
func TestSelectWithinSteps(t *testing.T) {
	var rules []*Rule
	for _, text := range []string{"p = 'x'", "p LIKE '%ab'"} {
		r, err := Compile("r", forebay.RuleSettings{SQLFilter: text})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	left := 10_000
	m := &Message{Properties: forebay.Properties{"p": strings.Repeat("a", 3000)}, Steps: &left}
	if _, err := Select(rules, m); err != nil || left > 7000-2*evaluationSteps || left < 0 {
		t.Errorf("%d steps are left (%v)", left, err)
	}
	var err error
	for range 3 {
		_, err = Select(rules, m)
	}
	if !errors.Is(err, ErrSteps) || left >= 0 {
		t.Errorf("%d steps are left (%v)", left, err)
	}
}

// Whoever judges pauses before each rule, and a pause that fails ends it.
// A LIKE that takes milliseconds pauses meanwhile, and ends with whoever wants to know.
func TestLikePauses(t *testing.T) {
	r, err := Compile("r", forebay.RuleSettings{SQLFilter: "p LIKE '%" + strings.Repeat("a", 900) + "b'"})
	if err != nil {
		t.Fatal(err)
	}
	pauses, last, stop := 0, 0, errors.New("stop")
	m := &Message{Properties: forebay.Properties{"p": strings.Repeat("a", 30_000)}, Pause: func() error {
		if pauses++; pauses == last {
			return stop
		}
		return nil
	}}
	var refused *EvaluationError
	if _, err := Select([]*Rule{r}, m); !errors.As(err, &refused) || pauses < maxLikeSteps/pauseSteps {
		t.Errorf("%d pauses (%v)", pauses, err)
	}
	last = pauses + 5
	if copies, err := Select([]*Rule{r}, m); !errors.Is(err, ErrStopped) || !errors.Is(err, stop) || copies != nil || pauses != last {
		t.Errorf("%d pauses, %v, %v", pauses, copies, err)
	}
}

func TestSelectPausesBetweenRules(t *testing.T) {
	rules := make([]*Rule, 5)
	for i := range rules {
		rules[i] = &Rule{Name: "r", Filter: Constant(false)}
	}
	pauses, stop := 0, errors.New("stop")
	m := &Message{Pause: func() error {
		if pauses++; pauses == 7 {
			return stop
		}
		return nil
	}}
	if _, err := Select(rules, m); err != nil || pauses != 5 {
		t.Errorf("%d pauses (%v)", pauses, err)
	}
	if copies, err := Select(rules, m); !errors.Is(err, ErrStopped) || !errors.Is(err, stop) || copies != nil || pauses != 7 {
		t.Errorf("%d pauses, %v, %v", pauses, copies, err)
	}
}
