package filter

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

var sampleUUID = forebay.UUID{0x12, 0x34, 15: 0xff}

func sample() *Message {
	return &Message{
		MessageID: "m-1", CorrelationID: "c-1", Subject: "red order", To: "store", ContentType: "text/plain",
		EnqueuedTime: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), TimeToLive: 90 * time.Second, Size: 77,
		Properties: forebay.Properties{
			"color": "blue", "Quantity": int64(10), "price": 2.5, "urgent": true, "calm": false, "empty": "",
			"due": time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "raw": []byte{1, 2}, "id": sampleUUID,
			"min": int64(math.MinInt64), "max": int64(math.MaxInt64), "with space": int64(1), "a]b": int64(2), "nan": math.NaN(),
			"percent": "100%", "pattern": "b%e", "sys.trap": "user's",
		},
	}
}

// evaluate returns "true", "false", "unknown" or the beginning of an error.
func evaluate(t *testing.T, source string, m *Message) string {
	t.Helper()
	c, err := ParseCondition(source, nil)
	if err != nil {
		return "syntax: " + err.Error()
	}
	truth, err := c.Evaluate(m)
	if err != nil {
		return "error: " + err.Error()
	}
	return truth.String()
}

func TestConditions(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		// comparisons and their promotions
		{"color = 'blue'", "true"},
		{"color = 'Blue'", "false"},
		{"COLOR = 'blue'", "true"},
		{"color <> 'red'", "true"},
		{"color != 'blue'", "false"},
		{"color < 'red'", "true"},
		{"color >= 'blue' and color <= 'blue'", "true"},
		{"quantity = 10", "true"},
		{"quantity = 10.0", "true"},
		{"10.5 > quantity", "true"},
		{"price > 2", "true"},
		{"price < quantity", "true"},
		{"price = 25E-1", "true"},
		{"urgent = TRUE", "true"},
		{"urgent <> calm", "true"},
		{"due < '2026-03-01T00:00:00.001Z'", "true"},
		{"'2026-03-01T02:00:00+02:00' = due", "true"},
		{"id = '12340000-0000-0000-0000-0000000000FF'", "true"},
		{"raw = raw", "true"},
		{"nan = nan", "false"},
		{"nan <> nan", "true"},
		{"nan < 1 OR nan >= 1", "false"},
		{"color = 5", "error: a string and an integer cannot be compared"},
		{"urgent = 1", "error: a boolean and an integer cannot be compared"},
		{"urgent > calm", "error: a boolean has no order: > cannot be asked"},
		{"id < id", "error: a UUID has no order: < cannot be asked"},
		{"raw > raw", "error: bytes has no order: > cannot be asked"},
		{"due = 'soon'", "error: the string that is compared with a time holds none"},
		{"id = 'soon'", "error: the string that is compared with a UUID holds none"},
		{"due = 1", "error: a time and an integer cannot be compared"},
		// arithmetic and binding
		{"1 + 2 * 3 = 7", "true"},
		{"(1 + 2) * 3 = 9", "true"},
		{"10 - 4 - 3 = 3", "true"},
		{"20 / 2 / 5 = 2", "true"},
		{"7 / 2 = 3", "true"},
		{"-7 / 2 = -3", "true"},
		{"7.0 / 2 = 3.5", "true"},
		{"-7 % 3 = -1", "true"},
		{"7.5 % 2 = 1.5", "true"},
		{"2 * price = 5", "true"},
		{"-quantity = -10 AND +quantity = 10 AND - -quantity = 10", "true"},
		{"-price = -2.5", "true"},
		{"'a' + 'b' = 'ab'", "true"},
		{"color + '!' = 'blue!'", "true"},
		{"1 / 0 = 1", "error: an integer is divided by zero"},
		{"1 % 0 = 1", "error: an integer is divided by zero"},
		{"1.0 / 0 > 1", "true"},
		{"max + 1 > 0", "error: an integer overflows at +"},
		{"min - 1 < 0", "error: an integer overflows at -"},
		{"max * 2 > 0", "error: an integer overflows at *"},
		{"min * -1 > 0", "error: an integer overflows at *"},
		{"-1 * min > 0", "error: an integer overflows at *"},
		{"min / -1 > 0", "error: an integer overflows at /"},
		{"min % -1 = 0", "true"},
		{"-min > 0", "error: an integer overflows at -"},
		{"min = -9223372036854775808", "true"},
		{"max + min = -1", "true"},
		{"color * 2 = 1", "error: a string and an integer do not go with *"},
		{"color + 2 = 'blue2'", "error: a string and an integer do not go with +"},
		{"color - 'b' = ''", "error: a string and a string do not go with -"},
		{"-color = 1", "error: - cannot stand before a string"},
		{"+urgent = 1", "error: + cannot stand before a boolean"},
		// conditions
		{"urgent", "true"},
		{"urgent AND NOT calm", "true"},
		{"TRUE", "true"},
		{"NOT TRUE OR TRUE", "true"},
		{"NOT (TRUE OR TRUE)", "false"},
		{"NULL", "unknown"},
		{"color", "error: a condition is needed, not a string"},
		{"NOT quantity", "error: a condition is needed, not an integer"},
		{"calm AND color", "false"},
		{"urgent OR color", "true"},
		{"missing AND color", "error: a condition is needed, not a string"},
		// scopes, names, functions
		{"user.color = 'blue'", "true"},
		{"USER.Color = 'blue'", "true"},
		{"[color] = 'blue'", "true"},
		{"\"color\" = 'blue'", "true"},
		{"[with space] = 1 AND user.[a]]b] = 2", "true"},
		{"sys.Label = 'red order'", "true"},
		{"sys.subject = 'red order' AND SYS.message_id = 'm-1' AND sys.correlationid = 'c-1' AND sys.content_type = 'text/plain'", "true"},
		{"sys.To LIKE 's%' AND sys.[To] = 'store'", "true"},
		{"sys.ReplyTo IS NULL AND sys.SessionId IS NULL AND sys.To IS NOT NULL", "true"},
		{"sys.EnqueuedTimeUtc < '2026-03-02T00:00:00Z' AND sys.enqueued_time > due", "true"},
		{"sys.TimeToLive = 90 AND sys.Size > 76", "true"},
		{"sys.ScheduledEnqueueTimeUtc IS NULL", "true"},
		{"sys.Colour = 1", `syntax: at character 5: there is no system property "Colour"`},
		{"property('color') = 'blue' AND p('COLOR') = 'blue' AND p('user.' + 'color') = 'blue'", "true"},
		{"p('sys.Label') = 'red order'", "true"},
		{"p('sys.trap') IS NULL", "error: there is no such system property"},
		{"[sys.trap] = 'user''s'", "true"},
		{"p(missing) IS NULL", "true"},
		{"p(5) IS NULL", "error: property() needs a string, not an integer"},
		{"newid() <> newid() AND newid() <> id", "true"},
		// presence
		{"EXISTS(color) AND EXISTS (user.Quantity) AND EXISTS(sys.To) AND EXISTS(empty)", "true"},
		{"EXISTS(missing) OR EXISTS(sys.ReplyTo)", "false"},
		{"NOT EXISTS(missing)", "true"},
		{"color IS NULL", "false"},
		{"missing IS NULL AND color IS NOT NULL", "true"},
		// IN
		{"color IN ('red', 'blue')", "true"},
		{"color NOT IN ('red', 'blue')", "false"},
		{"color NOT IN ('red')", "true"},
		{"quantity IN (1, 9 + 1)", "true"},
		{"missing IN (1, 2)", "unknown"},
		{"missing NOT IN (1, 2)", "unknown"},
		{"quantity IN (1, missing)", "unknown"},
		{"quantity NOT IN (1, missing)", "unknown"},
		{"quantity IN (missing, 10)", "true"},
		{"quantity IN (10, 'x')", "true"},
		{"quantity IN ('x', 10)", "error: an integer and a string cannot be compared"},
		// LIKE
		{"color LIKE 'b%'", "true"},
		{"color LIKE 'B%'", "false"},
		{"color NOT LIKE '%z%'", "true"},
		{"color LIKE 'bl_e'", "true"},
		{"color LIKE pattern", "true"},
		{"percent LIKE '100\\%' ESCAPE '\\'", "true"},
		{"color LIKE 'blu\\e' ESCAPE '\\'", "true"},
		{"percent LIKE '10!%' ESCAPE '!'", "false"},
		{"missing LIKE '%'", "unknown"},
		{"color LIKE missing", "unknown"},
		{"color LIKE '%' ESCAPE missing", "unknown"},
		{"color NOT LIKE NULL", "unknown"},
		{"quantity LIKE '1%'", "error: LIKE needs a string, not an integer"},
		{"color LIKE quantity", "error: the pattern of LIKE must be a string, not an integer"},
		{"color LIKE '%' ESCAPE color", "error: ESCAPE needs a string of one character"},
		{"color LIKE 1", "syntax: at character 12: the pattern of LIKE must be a string, not an integer"},
		{"color LIKE '%' ESCAPE 'ab'", "syntax: at character 12: ESCAPE needs a string of one character"},
		{"color LIKE 'a!' ESCAPE '!'", "syntax: at character 12: the pattern of LIKE ends with its escape character"},
	} {
		if got := evaluate(t, c.source, sample()); got != c.want {
			t.Errorf("%s\n  is %s\n  expected %s", c.source, got, c.want)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"", "at character 1: expected a value or a condition, found the end"},
		{"   ", "at character 4: expected a value or a condition, found the end"},
		{"a =", "at character 4: expected a value or a condition, found the end"},
		{"a = 1 b", `at character 7: expected an operator, found the name "b"`},
		{"a = 1)", "at character 6: expected an operator, found )"},
		{"(a = 1", "at character 7: expected ), found the end"},
		{"a = 1 = 1", "at character 7: expected an operator, found ="},
		{"a == 1", "at character 4: expected a value or a condition, found ="},
		{"1", "at character 1: expected a condition, found a value"},
		{"a + 1", "at character 1: expected a condition, found a value"},
		{"a = 1 AND 'x'", "at character 11: expected a condition, found a value"},
		{"NOT 1", "at character 5: expected a condition, found a value"},
		{"(a = 1) + 1 = 2", "at character 1: expected a value, found a condition"},
		{"(a = 1) = TRUE", "at character 1: expected a value, found a condition"},
		{"a IN (b = 1)", "at character 9: expected ), found ="},
		{"a IN ((b = 1))", "at character 7: expected a value, found a condition"},
		{"a IN ()", "at character 7: expected a value or a condition, found )"},
		{"a IN (1,", "at character 9: expected a value or a condition, found the end"},
		{"a IN 1", "at character 6: expected (, found a number"},
		{"a NOT = 1", "at character 7: expected LIKE or IN, found ="},
		{"a IS 1", "at character 6: expected NULL, found a number"},
		{"1 IS NULL", "at character 1: IS NULL asks about a property"},
		{"EXISTS a", `at character 8: expected (, found the name "a"`},
		{"EXISTS('a')", "at character 8: expected the name of a property, found a string"},
		{"'open", "at character 1: the string has no closing '"},
		{"[open", "at character 1: the name has no closing ]"},
		{"a = 'it''s", "at character 5: the string has no closing '"},
		{"[] = 1", "at character 1: the name is empty, longer than 128 bytes or not clean text"},
		{strings.Repeat("n", 129) + " = 1", "at character 1: the name is longer than 128 bytes"},
		{"a = 12x", "at character 7: 'x' does not belong to a number"},
		{"a = 1.2.3", "at character 8: '.' does not belong to a number"},
		{"a = 9223372036854775808", "at character 5: the integer is out of range"},
		{"a = -9223372036854775809", "at character 6: the integer is out of range"},
		{"a = 1E999", "at character 5: the number is out of range"},
		{"ä = @p", "at character 5: no value is given for the parameter @p"},
		{"a # 1", "at character 3: '#' means nothing here"},
		{"_a = 1", "at character 1: '_' means nothing here"},
		{"and = 1", "at character 1: expected a value or a condition, found AND"},
		{"other.a = 1", "at character 1: the scope of a property is sys or user; a name with a dot stands in [brackets]"},
		{"[sys].a = 1", "at character 1: the scope of a property is sys or user; a name with a dot stands in [brackets]"},
		{"user.like = 1", "at character 6: expected the name of a property, found LIKE"},
		{"upper(a) = 'A'", "at character 1: there is no function upper; there are newid, property and p"},
		{"newid(1) = a", "at character 7: expected ), found a number"},
		{"a = 'x\x00'", "at character 7: holds a zero character"},
		{"a = '\xff'", "at character 6: is not valid UTF-8"},
		{"a = '" + strings.Repeat("é", 1019) + "'", "at character 1025: is longer than 1024 characters"},
		{strings.Repeat("(", 65), "at character 66: is nested deeper than 64 levels"},
		{strings.Repeat("NOT ", 65) + "a", "at character 261: is nested deeper than 64 levels"},
		{"a = " + strings.Repeat("+", 65) + "1", "at character 70: is nested deeper than 64 levels"},
		{"a = " + strings.Repeat("p(", 65), "at character 135: is nested deeper than 64 levels"},
	} {
		_, err := ParseCondition(c.source, nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("%.60q: %v\n  expected %s", c.source, err, c.want)
		}
	}
	if _, err := ParseCondition("a = '"+strings.Repeat("é", 1018)+"'", nil); err != nil {
		t.Errorf("1024 characters: %v", err)
	}
}

// The tables of three-valued logic, with every operand on either side.
func TestThreeValuedLogic(t *testing.T) {
	values := map[string]string{"T": "1 = 1", "F": "1 = 2", "U": "missing = 1"}
	names := map[string]string{"T": "true", "F": "false", "U": "unknown"}
	tables := map[string]map[string]string{
		"AND": {"TT": "T", "TF": "F", "TU": "U", "FT": "F", "FF": "F", "FU": "F", "UT": "U", "UF": "F", "UU": "U"},
		"OR":  {"TT": "T", "TF": "T", "TU": "T", "FT": "T", "FF": "F", "FU": "U", "UT": "T", "UF": "U", "UU": "U"},
	}
	for op, table := range tables {
		for operands, want := range table {
			source := fmt.Sprintf("%s %s %s", values[operands[:1]], op, values[operands[1:]])
			if got := evaluate(t, source, sample()); got != names[want] {
				t.Errorf("%s is %s, expected %s", source, got, names[want])
			}
		}
	}
	for operand, want := range map[string]string{"T": "F", "F": "T", "U": "U"} {
		if got := evaluate(t, "NOT "+values[operand], sample()); got != names[want] {
			t.Errorf("NOT %s is %s, expected %s", operand, got, names[want])
		}
	}
	for _, op := range []string{"=", "<>", "<", "<=", ">", ">="} {
		for _, source := range []string{"missing %s 1", "1 %s missing", "missing %s missing", "1 %s NULL", "1 + missing %s 1", "-missing %s 1"} {
			if got := evaluate(t, fmt.Sprintf(source, op), sample()); got != "unknown" {
				t.Errorf("%s is %s", fmt.Sprintf(source, op), got)
			}
		}
	}
	for _, op := range []string{"+", "-", "*", "/", "%"} {
		for _, source := range []string{"missing %s 0 = 1", "1 %s missing = 1", "color %s missing = 1"} {
			if got := evaluate(t, fmt.Sprintf(source, op), sample()); got != "unknown" {
				t.Errorf("%s is %s", fmt.Sprintf(source, op), got)
			}
		}
	}
}

func TestNamesThatDifferInCaseOnly(t *testing.T) {
	m := &Message{Properties: forebay.Properties{"Color": int64(1), "COLOR": int64(2), "color": int64(3)}}
	for source, want := range map[string]string{"color = 3": "true", "COLOR = 2": "true", "Color = 1": "true", "cOLOR = 2": "true"} {
		if got := evaluate(t, source, m); got != want {
			t.Errorf("%s is %s", source, got)
		}
	}
}

func TestCanonicalForm(t *testing.T) {
	for source, want := range map[string]string{
		"a=1 and(b=2 or c=3)":            "a = 1 AND (b = 2 OR c = 3)",
		"((a=1) and b=2) or c=3":         "a = 1 AND b = 2 OR c = 3",
		"a - (b - c) = (a - b) - c":      "a - (b - c) = a - b - c",
		"-(5) = - 5":                     "-(5) = -5",
		"not not (a = 1)":                "NOT NOT a = 1",
		"not (a = 1 and b)":              "NOT (a = 1 AND b)",
		"user.a != 1.50":                 "a <> 1.5",
		"SYS.message_id='x'":             "sys.MessageId = 'x'",
		"[and] = 1e3 and [x y] = '''q'":  "[and] = 1000.0 AND [x y] = '''q'",
		"\"a\"\"]\" is not null":         "[a\"]]] IS NOT NULL",
		"p('x') not in (1 , null, true)": "property('x') NOT IN (1, NULL, TRUE)",
		"a not like 'x' escape '!'":      "a NOT LIKE 'x' ESCAPE '!'",
		"exists(sys.subject)":            "EXISTS(sys.Label)",
		"a * -b % +c = newid ( )":        "a * -b % +c = newid()",
	} {
		c, err := ParseCondition(source, nil)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := c.String(); got != want {
			t.Errorf("%s\n  is %s\n  expected %s", source, got, want)
		}
	}
}

// A pattern that is slow on purpose soon ends with an error.
func TestSlowPattern(t *testing.T) {
	m := &Message{Properties: forebay.Properties{"a": strings.Repeat("x", forebay.MaxPropertyBytes)}}
	pattern := "%" + strings.Repeat("_", 500) + "y"
	if got := evaluate(t, "a LIKE '"+pattern+"'", m); got != "error: LIKE takes too long for this pattern and string" {
		t.Error(got)
	}
	if got := evaluate(t, "a LIKE '%y%' OR a LIKE '%z%' OR a LIKE '%x'", m); got != "true" {
		t.Error(got)
	}
}

func BenchmarkCondition(b *testing.B) {
	c, err := ParseCondition("color IN ('red', 'blue') AND quantity * 2 >= 20 AND sys.Label LIKE '%order%'", nil)
	if err != nil {
		b.Fatal(err)
	}
	m := sample()
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := c.Matches(m); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
