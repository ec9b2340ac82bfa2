// Package filtertest is a reference for tests of SQL filters and actions. A random condition is a
// tree. It is printed as SQL, and evaluated as a tree, as Service Bus documents its language
// (service-bus-messaging-sql-filter, service-bus-messaging-sql-rule-action). The package shares
// no code with what it tests. It has no lexer and no parser, and its own LIKE and arithmetic.
package filtertest

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// Message is what a condition is asked about. Names of User are in lower case.
type Message struct {
	System map[string]string // by Service Bus's names; "" and absent: nothing
	User   map[string]any
}

// Expr is a condition, or a value. Its own value is nil where it is unknown.
type Expr struct {
	op      string // literal, system, user, IS NULL, EXISTS, LIKE, IN, negative, an operator
	spelled string // of what is no operand: a literal, the name of a property, an operator
	literal any
	name    string
	args    []*Expr
	not     bool // NOT LIKE, NOT IN, IS NOT NULL
	wrapped bool // in parentheses that it may not need
}

// ErrEvaluation says that something cannot be evaluated: types that do not go together, or an
// overflow.
var ErrEvaluation = errors.New("cannot be evaluated")

// levels are the precedences of operators. An expression without one needs no parentheses.
var levels = map[string]int{
	"OR": 1, "AND": 2, "NOT": 3, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "LIKE": 4, "IN": 4, "IS NULL": 4,
	"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "negative": 7,
}

const (
	levelSum     = 5
	levelSign    = 7
	levelPrimary = 8
)

func (e *Expr) level() int {
	if level, ok := levels[e.op]; ok && !e.wrapped {
		return level
	}
	return levelPrimary
}

// String is the condition as SQL.
func (e *Expr) String() string { return e.within(0) }

// within prints the expression, in parentheses if it binds less strongly than the level.
func (e *Expr) within(level int) string {
	text := e.text()
	if e.wrapped || e.level() < level {
		return "(" + text + ")"
	}
	return text
}

func (e *Expr) text() string {
	not := ""
	if e.not {
		not = "NOT "
	}
	level := levels[e.op]
	switch e.op {
	case "literal", "system", "user":
		return e.spelled
	case "EXISTS":
		return e.spelled + "(" + e.args[0].spelled + ")"
	case "IS NULL":
		return e.args[0].within(levelSum) + " IS " + not + "NULL"
	case "LIKE":
		text := e.args[0].within(levelSum) + " " + not + e.spelled + " " + e.args[1].within(levelSum)
		if len(e.args) == 3 {
			text += " ESCAPE " + e.args[2].within(levelSum)
		}
		return text
	case "IN":
		var list []string
		for _, item := range e.args[1:] {
			list = append(list, item.within(levelSum))
		}
		return e.args[0].within(levelSum) + " " + not + e.spelled + " (" + strings.Join(list, ", ") + ")"
	case "NOT":
		return e.spelled + " " + e.args[0].within(level)
	case "negative": // apart from its operand, which may begin with another
		return "- " + e.args[0].within(levelSign)
	case "=", "<>", "<", "<=", ">", ">=":
		return e.args[0].within(levelSum) + " " + e.spelled + " " + e.args[1].within(levelSum)
	}
	return e.args[0].within(level) + " " + e.spelled + " " + e.args[1].within(level+1) // joins from the left
}

// Truth returns the value of a condition for the message: true, false, or nil if it is unknown.
// The error is ErrEvaluation.
func (e *Expr) Truth(m *Message) (any, error) {
	v, err := e.Value(m)
	if _, is := v.(bool); err == nil && v != nil && !is {
		err = ErrEvaluation
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Value evaluates the expression for the message; the error is ErrEvaluation.
func (e *Expr) Value(m *Message) (any, error) {
	switch e.op {
	case "literal":
		return e.literal, nil
	case "system":
		if text := m.System[e.name]; text != "" {
			return text, nil
		}
		return nil, nil
	case "user":
		return m.User[e.name], nil
	case "EXISTS", "IS NULL":
		v, err := e.args[0].Value(m)
		return (v == nil) == (e.op == "IS NULL" && !e.not), err
	case "AND", "OR":
		return e.connect(m)
	case "NOT":
		v, err := e.args[0].Truth(m)
		return negate(v), err
	case "LIKE":
		v, err := e.like(m)
		if e.not {
			v = negate(v)
		}
		return v, err
	case "IN":
		v, err := e.in(m)
		if e.not {
			v = negate(v)
		}
		return v, err
	}
	var values []any
	for _, arg := range e.args {
		v, err := arg.Value(m)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	for _, v := range values {
		if v == nil {
			return nil, nil
		}
	}
	switch e.op {
	case "negative":
		if x, ok := values[0].(float64); ok {
			return -x, nil
		}
		if _, ok := values[0].(int64); !ok {
			return nil, ErrEvaluation
		}
		return calculate("-", int64(0), values[0])
	case "+", "-", "*", "/", "%":
		return calculate(e.op, values[0], values[1])
	}
	return compare(e.op, values[0], values[1])
}

func negate(truth any) any {
	if known, ok := truth.(bool); ok {
		return !known
	}
	return nil
}

// connect follows the tables of three-valued logic. It does not evaluate the right side if the
// left one decides.
func (e *Expr) connect(m *Message) (any, error) {
	decides := e.op == "OR"
	a, err := e.args[0].Truth(m)
	if err != nil || a == decides {
		return a, err
	}
	b, err := e.args[1].Truth(m)
	switch {
	case err != nil:
		return nil, err
	case b == decides:
		return decides, nil
	case a == nil || b == nil:
		return nil, nil
	}
	return !decides, nil
}

// in compares with each of the list by =, joined by OR. An unknown value compares with none.
func (e *Expr) in(m *Message) (any, error) {
	x, err := e.args[0].Value(m)
	if x == nil || err != nil {
		return nil, err
	}
	var found any = false
	for _, item := range e.args[1:] {
		v, err := item.Value(m)
		if err != nil {
			return nil, err
		}
		if v == nil {
			found = nil
			continue
		}
		if equal, err := compare("=", x, v); err != nil || equal == true {
			return equal, err
		}
	}
	return found, nil
}

// like is unknown once text, pattern or escape character is.
func (e *Expr) like(m *Message) (any, error) {
	var texts []any
	for _, arg := range e.args {
		v, err := arg.Value(m)
		if v == nil || err != nil {
			return nil, err
		}
		texts = append(texts, v)
	}
	var runes [][]rune
	for _, v := range texts {
		text, ok := v.(string)
		if !ok {
			return nil, ErrEvaluation
		}
		runes = append(runes, []rune(text))
	}
	escape := rune(-1)
	if len(runes) == 3 {
		if len(runes[2]) != 1 {
			return nil, ErrEvaluation
		}
		escape = runes[2][0]
		if danglesIn(runes[1], escape) {
			return nil, ErrEvaluation
		}
	}
	return covers(runes[1], runes[0], escape), nil
}

// danglesIn reports whether a pattern ends in an escape character that escapes nothing.
func danglesIn(pattern []rune, escape rune) bool {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == escape {
			if i++; i == len(pattern) {
				return true
			}
		}
	}
	return false
}

// covers is the definition of LIKE, rune by rune.
func covers(pattern, text []rune, escape rune) bool {
	if len(pattern) == 0 {
		return len(text) == 0
	}
	switch pattern[0] {
	case escape:
		pattern = pattern[1:]
	case '%':
		return covers(pattern[1:], text, escape) || len(text) > 0 && covers(pattern, text[1:], escape)
	case '_':
		return len(text) > 0 && covers(pattern[1:], text[1:], escape)
	}
	return len(text) > 0 && pattern[0] == text[0] && covers(pattern[1:], text[1:], escape)
}

// compare compares two known values. Numbers compare as such, strings by their bytes; a time and
// a UUID also compare with a string that holds one.
func compare(op string, a, b any) (any, error) {
	order, ordered, known := 0, true, true
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		if !ok {
			return nil, ErrEvaluation
		}
		i, whole := a.(int64)
		j, both := b.(int64)
		switch {
		case whole && both:
			order = big.NewInt(i).Cmp(big.NewInt(j))
		case math.IsNaN(x) || math.IsNaN(y):
			known = false
		default:
			order = big.NewFloat(x).Cmp(big.NewFloat(y))
		}
	} else if _, is := a.(time.Time); is || isTime(b) {
		x, err := asTime(a)
		y, err2 := asTime(b)
		if err != nil || err2 != nil {
			return nil, ErrEvaluation
		}
		order = x.Compare(y)
	} else if _, is := a.(forebay.UUID); is || isUUID(b) {
		x, err := asUUID(a)
		y, err2 := asUUID(b)
		if err != nil || err2 != nil {
			return nil, ErrEvaluation
		}
		order, ordered = bytes.Compare(x[:], y[:]), false
	} else {
		switch x := a.(type) {
		case string:
			y, ok := b.(string)
			if !ok {
				return nil, ErrEvaluation
			}
			order = strings.Compare(x, y)
		case bool:
			y, ok := b.(bool)
			if !ok {
				return nil, ErrEvaluation
			}
			if ordered = false; x != y {
				order = 1
			}
		case []byte:
			y, ok := b.([]byte)
			if !ok {
				return nil, ErrEvaluation
			}
			order, ordered = bytes.Compare(x, y), false
		}
	}
	switch op {
	case "=":
		return known && order == 0, nil
	case "<>":
		return !known || order != 0, nil
	}
	if !ordered {
		return nil, ErrEvaluation
	}
	return known && map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op], nil
}

func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func isTime(v any) bool { _, is := v.(time.Time); return is }
func isUUID(v any) bool { _, is := v.(forebay.UUID); return is }

func asTime(v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v, nil
	case string:
		return time.Parse(time.RFC3339Nano, v)
	}
	return time.Time{}, ErrEvaluation
}

func asUUID(v any) (forebay.UUID, error) {
	switch v := v.(type) {
	case forebay.UUID:
		return v, nil
	case string:
		return forebay.ParseUUID(v)
	}
	return forebay.UUID{}, ErrEvaluation
}

// calculate does arithmetic with two known values. Integers have no bounds, but their result must
// fit.
func calculate(op string, a, b any) (any, error) {
	s, text := a.(string)
	if t, both := b.(string); text && both && op == "+" {
		return s + t, nil
	}
	x, ok := asFloat(a)
	y, ok2 := asFloat(b)
	if !ok || !ok2 {
		return nil, ErrEvaluation
	}
	i, whole := a.(int64)
	j, both := b.(int64)
	if whole && both {
		m, n, result := big.NewInt(i), big.NewInt(j), new(big.Int)
		switch op {
		case "+":
			result.Add(m, n)
		case "-":
			result.Sub(m, n)
		case "*":
			result.Mul(m, n)
		default:
			if j == 0 {
				return nil, ErrEvaluation
			}
			if result.Quo(m, n); op == "%" {
				result.Rem(m, n)
			}
		}
		if !result.IsInt64() {
			return nil, ErrEvaluation
		}
		return result.Int64(), nil
	}
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "/":
		return x / y, nil
	}
	return math.Mod(x, y), nil
}

// SameProperties reports whether both have the same names with the same values, where NaN is the
// same as NaN.
func SameProperties(a, b map[string]any) bool {
	return maps.EqualFunc(a, b, func(v, w any) bool {
		switch x := v.(type) {
		case float64:
			y, is := w.(float64)
			return is && (x == y || math.IsNaN(x) && math.IsNaN(y))
		case time.Time:
			y, is := w.(time.Time)
			return is && x.Equal(y)
		case []byte:
			y, is := w.([]byte)
			return is && bytes.Equal(x, y)
		}
		return v == w
	})
}
