// Package filter evaluates the rules of a subscription: filters select messages, and actions
// change the copies.
//
// A rule has one filter (SQL, correlation or constant) and may have a SQL action. Both SQL
// languages are those of Azure Service Bus (service-bus-messaging-sql-filter,
// service-bus-messaging-sql-rule-action). A condition is true, false or unknown, and only true
// selects. A property that a message lacks, and NULL, make an expression unknown. Operators bind
// as in C#. An int64 with a float64 is a float64. Other types do not mix: that is an
// [EvaluationError], not false.
//
// AND and OR do not evaluate their right side if the left one decides. LIKE and IN do not
// evaluate it if the left one is unknown.
//
// A text may hold parameters, such as @region. A rule gives their values, of any type of property.
//
// Where the documentation leaves room, this package decides as follows. Strings also compare by
// <, in the order of their bytes, and + joins two of them. A time or a UUID compares with a
// string that holds one, since neither has a literal of its own. Integer overflow is an error.
// TRUE, FALSE and a boolean property are conditions.
package filter

import (
	"fmt"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

const (
	// MaxCharacters is how long a filter or an action may be (service-bus-quotas).
	MaxCharacters = 1024
	// maxDepth bounds the nesting of parentheses and prefix operators, and so the parser's stack.
	maxDepth = 64
)

// Truth is the outcome of a condition. The zero value is Unknown.
type Truth int8

// The three truth values.
const (
	False   Truth = -1
	Unknown Truth = 0
	True    Truth = 1
)

func (t Truth) String() string {
	switch t {
	case False:
		return "false"
	case True:
		return "true"
	}
	return "unknown"
}

// SyntaxError says why a text is not a condition or action, and where.
type SyntaxError struct {
	At      int // the character, counted from 1
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("at character %d: %s", e.At, e.Message) }

// EvaluationError says why a condition or action cannot be evaluated for a message. It contains
// no value of the message.
type EvaluationError struct {
	Message  string
	TooLarge bool // a value, or all properties together, would outgrow what a message may have
}

func (e *EvaluationError) Error() string { return e.Message }

func evaluationErrorf(format string, args ...any) error {
	return &EvaluationError{Message: fmt.Sprintf(format, args...)}
}

// Condition is a SQL filter. It may be used concurrently.
type Condition struct{ root expr }

// ParseCondition reads a SQL filter of at most MaxCharacters, with the values of its parameters by
// their names, which begin with @. The error is a *SyntaxError.
func ParseCondition(source string, parameters forebay.Properties) (*Condition, error) {
	if err := checkSource(source); err != nil {
		return nil, err
	}
	return parseCondition(source, parameters)
}

// Evaluate says whether the condition holds for the message; the error is an *EvaluationError.
func (c *Condition) Evaluate(m *Message) (Truth, error) {
	e := newEvaluation(m)
	defer e.spent()
	v, err := c.root.eval(e)
	if err != nil {
		return Unknown, err
	}
	return truthOf(v)
}

// Matches reports whether the condition is true.
func (c *Condition) Matches(m *Message) (bool, error) {
	truth, err := c.Evaluate(m)
	return truth == True, err
}

// String returns the condition in its canonical form, with no more parentheses than it needs.
func (c *Condition) String() string { return formatExpr(c.root) }

// checkSource refuses a text that is too long, or that some database cannot store.
func checkSource(source string) error {
	at := 0
	for i, r := range source {
		at++
		if at > MaxCharacters {
			return &SyntaxError{at, fmt.Sprintf("is longer than %d characters", MaxCharacters)}
		}
		if r == 0 {
			return &SyntaxError{at, "holds a zero character"}
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(source[i:]); size <= 1 {
				return &SyntaxError{at, "is not valid UTF-8"}
			}
		}
	}
	return nil
}
