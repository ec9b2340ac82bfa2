package filtertest

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
)

// systemNames are the system properties that conditions ask for, each as it may be written.
var systemNames = map[string][]string{
	"Label": {"sys.Label", "SYS.label", "sys.[Label]", "sys.Subject"}, "MessageId": {"sys.MessageId", "sys.message_id"},
	"CorrelationId": {"sys.CorrelationId"}, "To": {"sys.To", "sys.\"to\""}, "ContentType": {"sys.ContentType", "sys.content_type"},
}

// userNames are the user properties, each as it may be written, and what they hold as a rule. No
// message has the one that holds nothing.
var userNames = map[string]struct {
	holds   string
	written []string
}{
	"n": {"number", []string{"n", "N", "user.n", "[n]"}}, "amount": {"number", []string{"amount", "USER.Amount"}},
	"color": {"text", []string{"color", "Color", "\"color\""}}, "first name": {"text", []string{"[first name]", "user.[First Name]"}},
	"and": {"text", []string{"[and]", "user.\"AND\""}}, "a]b": {"flag", []string{"[a]]b]"}}, "urgent": {"flag", []string{"urgent", "user.URGENT"}},
	"due": {"other", []string{"due"}}, "key": {"other", []string{"key"}}, "missing": {"", []string{"missing", "user.[Missing]"}},
}

var (
	texts   = []string{"", "a", "ab", "b", "red", "re%", "r_d", "!", "é", "it's", "RED", "2026-03-01T00:00:00Z", "12340000-0000-0000-0000-0000000000ff"}
	numbers = []any{int64(0), int64(1), int64(2), int64(-1), int64(-3), int64(7), int64(math.MaxInt64), int64(math.MinInt64), 0.5, 2.0, -7.25, 1e300}
	others  = []any{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 0, 0, 0, 1e6, time.UTC), forebay.UUID{0x12, 0x34, 15: 0xff}, forebay.UUID{1}, []byte("a"), []byte{}}
)

func drawOf(t *rapid.T, holds string) any {
	switch holds {
	case "number":
		return rapid.SampledFrom(numbers).Draw(t, "number")
	case "text":
		return rapid.SampledFrom(texts).Draw(t, "text")
	case "flag":
		return rapid.Bool().Draw(t, "flag")
	}
	return rapid.SampledFrom(others).Draw(t, "other")
}

// oneIn is true once in n draws, about.
func oneIn(t *rapid.T, n int) bool {
	return rapid.IntRange(0, n-1).Draw(t, "one in "+strconv.Itoa(n)) == n-1
}

// kindOf is what a value is to hold: as a rule what its neighbour holds.
func kindOf(t *rapid.T, holds string) string {
	if holds == "" || oneIn(t, 12) {
		return rapid.SampledFrom([]string{"number", "number", "text", "text", "flag", "other"}).Draw(t, "holds")
	}
	return holds
}

// DrawProperties draws the user properties of a message; some of the names have none.
func DrawProperties(t *rapid.T) forebay.Properties {
	p := forebay.Properties{}
	for _, name := range slices.Sorted(maps.Keys(userNames)) {
		if holds := userNames[name].holds; holds != "" && !oneIn(t, 3) {
			p[name] = drawOf(t, kindOf(t, holds))
		}
	}
	return p
}

// DrawSystem draws the text of a system property.
func DrawSystem(t *rapid.T) string { return rapid.SampledFrom(texts).Draw(t, "system") }

// DrawCondition draws a condition of at most forebay's and Service Bus's 1,024 characters.
func DrawCondition(t *rapid.T) *Expr {
	for depth := rapid.IntRange(0, 4).Draw(t, "depth"); ; depth-- {
		if e := drawCondition(t, depth); len([]rune(e.String())) <= 1024 || depth == 0 {
			return e
		}
	}
}

func drawCondition(t *rapid.T, depth int) *Expr {
	e := &Expr{wrapped: oneIn(t, 10)}
	kinds := []string{"=", "=", "IN", "LIKE", "LIKE", "IS NULL", "EXISTS", "flag"}
	if depth > 0 {
		kinds = append(kinds, "AND", "AND", "AND", "OR", "OR", "OR", "NOT", "NOT")
	}
	switch e.op = rapid.SampledFrom(kinds).Draw(t, "condition"); e.op {
	case "AND", "OR":
		e.args = []*Expr{drawCondition(t, depth-1), drawCondition(t, depth-1)}
	case "NOT":
		e.args = []*Expr{drawCondition(t, depth-1)}
	case "=":
		holds := kindOf(t, "")
		operators := []string{"=", "<>", "<", "<=", ">", ">="}
		if holds == "flag" {
			operators = operators[:2]
		}
		e.op = rapid.SampledFrom(operators).Draw(t, "operator")
		e.args = []*Expr{drawValue(t, depth, holds), drawValue(t, depth, holds)}
	case "IN":
		holds := kindOf(t, "")
		e.not, e.args = oneIn(t, 2), []*Expr{drawValue(t, 0, holds)}
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			e.args = append(e.args, drawValue(t, depth, holds))
		}
	case "LIKE":
		e.not, e.args = oneIn(t, 3), []*Expr{drawValue(t, depth, "text"), drawPattern(t)}
		if oneIn(t, 2) {
			e.args = append(e.args, drawEscape(t, e.args[1]))
		}
	case "IS NULL", "EXISTS":
		e.not = e.op == "IS NULL" && oneIn(t, 2)
		e.args = []*Expr{drawProperty(t, kindOf(t, ""))}
	default:
		if e = drawProperty(t, "flag"); oneIn(t, 4) {
			e = drawLiteral(t, "flag")
		}
		return e
	}
	if e.spelled = e.op; oneIn(t, 3) {
		e.spelled = strings.ToLower(e.op)
	}
	if e.op == "<>" && oneIn(t, 2) {
		e.spelled = "!="
	}
	return e
}

// drawPattern draws a pattern; one that is written out must not end in what may be its escape
// character, which no parser takes.
func drawPattern(t *rapid.T) *Expr {
	if oneIn(t, 4) {
		return drawProperty(t, kindOf(t, "text"))
	}
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"%", "_", "r", "e", "d", "a", "b", "é", "!%", "!_", "!!", "''"}), 0, 5).Draw(t, "pattern")
	return textLiteral(strings.ReplaceAll(strings.Join(pieces, ""), "''", "'"))
}

func drawEscape(t *rapid.T, pattern *Expr) *Expr {
	if p, constant := pattern.literal.(string); constant && danglesIn([]rune(p), '!') || oneIn(t, 8) {
		return drawProperty(t, "text")
	}
	return textLiteral("!")
}

func drawValue(t *rapid.T, depth int, holds string) *Expr {
	holds = kindOf(t, holds)
	if depth > 0 && (holds == "number" && oneIn(t, 2) || holds == "text" && oneIn(t, 4)) {
		e := &Expr{wrapped: oneIn(t, 10)}
		if holds == "text" {
			e.op = "+"
		} else {
			e.op = rapid.SampledFrom([]string{"+", "-", "*", "/", "%", "negative"}).Draw(t, "arithmetic")
		}
		e.spelled = e.op
		if e.args = []*Expr{drawValue(t, depth-1, holds)}; e.op != "negative" {
			e.args = append(e.args, drawValue(t, depth-1, holds))
		}
		return e
	}
	if holds == "other" || oneIn(t, 2) {
		return drawProperty(t, holds)
	}
	return drawLiteral(t, holds)
}

func drawProperty(t *rapid.T, holds string) *Expr {
	if holds == "text" && oneIn(t, 3) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(systemNames))).Draw(t, "system property")
		return &Expr{op: "system", name: name, spelled: rapid.SampledFrom(systemNames[name]).Draw(t, "written")}
	}
	var names []string
	for name, p := range userNames {
		if p.holds == holds || p.holds == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := rapid.SampledFrom(names).Draw(t, "property")
	return &Expr{op: "user", name: name, spelled: rapid.SampledFrom(userNames[name].written).Draw(t, "written")}
}

func drawLiteral(t *rapid.T, holds string) *Expr {
	if oneIn(t, 15) {
		return &Expr{op: "literal", spelled: "NULL"}
	}
	switch v := drawOf(t, holds).(type) {
	case string:
		return textLiteral(v)
	case bool:
		return &Expr{op: "literal", literal: v, spelled: strings.ToUpper(strconv.FormatBool(v))}
	case int64:
		return &Expr{op: "literal", literal: v, spelled: strconv.FormatInt(v, 10)}
	case float64:
		text := strconv.FormatFloat(v, 'f', 2, 64)
		if v > 1e6 {
			text = strconv.FormatFloat(v, 'E', 3, 64)
		}
		return &Expr{op: "literal", literal: v, spelled: text}
	}
	return textLiteral(rapid.SampledFrom(texts).Draw(t, "text"))
}

func textLiteral(s string) *Expr {
	return &Expr{op: "literal", literal: s, spelled: "'" + strings.ReplaceAll(s, "'", "''") + "'"}
}
