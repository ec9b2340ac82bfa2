package filter

import (
	"crypto/rand"
	"strings"

	"github.com/forebayhq/forebay"
)

// expr is a node of a parsed text. Its value is a string, int64, float64, bool, time.Time, []byte
// or forebay.UUID, or nil for unknown, which NULL is too.
type expr interface {
	eval(*evaluation) (any, error)
	kind() kind
}

// evaluation is one evaluation for one message.
type evaluation struct {
	message *Message
	steps   int // LIKE may still take
	other   int // steps that were taken beside
}

// newEvaluation begins one, and spent ends it.
func newEvaluation(m *Message) *evaluation { return &evaluation{message: m, steps: maxLikeSteps} }

func (e *evaluation) spent() { e.message.spend(evaluationSteps + e.other + maxLikeSteps - e.steps) }

// passes counts the steps of reading through values.
func (e *evaluation) passes(values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			e.other += len(v) / bytesPerStep
		case []byte:
			e.other += len(v) / bytesPerStep
		}
	}
}

// kind says whether an expression is a condition.
type kind uint8

const (
	kindEither kind = iota // known only with the message
	kindCondition
	kindValue
)

type operator string

const (
	opOr       operator = "OR"
	opAnd      operator = "AND"
	opNot      operator = "NOT"
	opEqual    operator = "="
	opNotEqual operator = "<>"
	opLess     operator = "<"
	opLessEq   operator = "<="
	opMore     operator = ">"
	opMoreEq   operator = ">="
	opAdd      operator = "+"
	opSubtract operator = "-"
	opMultiply operator = "*"
	opDivide   operator = "/"
	opModulo   operator = "%"
)

var comparisons = []operator{opEqual, opNotEqual, opLess, opLessEq, opMore, opMoreEq}

type (
	literal struct{ value any }
	// parameter is @name in the text, with the value that the rule gives it.
	parameter struct {
		name string
		literal
	}
	property struct {
		system       *systemProperty // nil: a user property
		name, folded string          // of a user property
	}
	// namedProperty is property(name).
	namedProperty struct{ name expr }
	newID         struct{}
	unary         struct {
		op operator
		x  expr
	}
	binary struct {
		op   operator
		x, y expr
	}
	isNull struct {
		x       expr
		negated bool
	}
	in struct {
		x       expr
		list    []expr
		negated bool
	}
	exists struct{ property *property }
)

func userProperty(name string) *property { return &property{name: name, folded: strings.ToLower(name)} }

func (x *literal) kind() kind {
	switch x.value.(type) {
	case bool, nil:
		return kindEither
	}
	return kindValue
}
func (*property) kind() kind      { return kindEither }
func (*namedProperty) kind() kind { return kindEither }
func (newID) kind() kind          { return kindValue }
func (*isNull) kind() kind        { return kindCondition }
func (*in) kind() kind            { return kindCondition }
func (*exists) kind() kind        { return kindCondition }

func (x *unary) kind() kind {
	if x.op == opNot {
		return kindCondition
	}
	return kindValue
}

func (x *binary) kind() kind {
	switch x.op {
	case opAdd, opSubtract, opMultiply, opDivide, opModulo:
		return kindValue
	}
	return kindCondition
}

func (x *literal) eval(*evaluation) (any, error) { return x.value, nil }

func (x *property) eval(e *evaluation) (any, error) {
	if x.system != nil {
		return x.system.get(e.message), nil
	}
	return e.message.user(x.name, x.folded), nil
}

// eval reads the name as it would be written in the text: sys.<name> is a system property.
func (x *namedProperty) eval(e *evaluation) (any, error) {
	v, err := x.name.eval(e)
	if v == nil || err != nil {
		return nil, err
	}
	name, ok := v.(string)
	if !ok {
		return nil, evaluationErrorf("property() needs a string, not %s", typeName(v))
	}
	scope, inner, scoped := strings.Cut(name, ".")
	switch {
	case scoped && strings.EqualFold(scope, "sys"):
		if system := systemPropertyOf(inner); system != nil {
			return system.get(e.message), nil
		}
		return nil, evaluationErrorf("there is no such system property")
	case scoped && strings.EqualFold(scope, "user"):
		name = inner
	}
	return e.message.user(name, strings.ToLower(name)), nil
}

func (newID) eval(*evaluation) (any, error) {
	var id forebay.UUID
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id, nil
}

func (x *unary) eval(e *evaluation) (any, error) {
	v, err := x.x.eval(e)
	if v == nil || err != nil {
		return nil, err
	}
	if x.op == opNot {
		truth, err := truthOf(v)
		return truth == False, err
	}
	switch v := v.(type) {
	case int64:
		if x.op == opAdd {
			return v, nil
		}
		return arithmeticInt(opSubtract, 0, v)
	case float64:
		if x.op == opAdd {
			return v, nil
		}
		return -v, nil
	}
	return nil, evaluationErrorf("%s cannot stand before %s", x.op, typeName(v))
}

func (x *binary) eval(e *evaluation) (any, error) {
	if x.op == opAnd || x.op == opOr {
		return x.connect(e)
	}
	a, err := x.x.eval(e)
	if err != nil {
		return nil, err
	}
	b, err := x.y.eval(e)
	if a == nil || b == nil || err != nil {
		return nil, err
	}
	e.passes(a, b)
	if x.kind() == kindValue {
		return arithmetic(x.op, a, b)
	}
	return compare(x.op, a, b)
}

// connect is AND or OR. It does not evaluate the right side if the left one decides.
func (x *binary) connect(e *evaluation) (any, error) {
	decides := False
	if x.op == opOr {
		decides = True
	}
	a, err := evalTruth(x.x, e)
	if err != nil || a == decides {
		return a.value(), err
	}
	b, err := evalTruth(x.y, e)
	if err != nil || b == decides {
		return b.value(), err
	}
	if a == Unknown || b == Unknown {
		return nil, nil
	}
	return b.value(), nil
}

func (x *isNull) eval(e *evaluation) (any, error) {
	v, err := x.x.eval(e)
	return (v == nil) != x.negated, err
}

func (x *exists) eval(e *evaluation) (any, error) {
	v, err := x.property.eval(e)
	return v != nil, err
}

// eval is = with each of the list, joined by OR.
func (x *in) eval(e *evaluation) (any, error) {
	v, err := x.x.eval(e)
	if v == nil || err != nil {
		return nil, err
	}
	unknown := false
	for _, item := range x.list {
		w, err := item.eval(e)
		if err != nil {
			return nil, err
		}
		if w == nil {
			unknown = true
			continue
		}
		e.passes(w)
		equal, err := compare(opEqual, v, w)
		if err != nil {
			return nil, err
		}
		if equal {
			return !x.negated, nil
		}
	}
	if unknown {
		return nil, nil
	}
	return x.negated, nil
}

func evalTruth(x expr, e *evaluation) (Truth, error) {
	v, err := x.eval(e)
	if err != nil {
		return Unknown, err
	}
	return truthOf(v)
}

// truthOf reads a value as a condition.
func truthOf(v any) (Truth, error) {
	switch v := v.(type) {
	case nil:
		return Unknown, nil
	case bool:
		if v {
			return True, nil
		}
		return False, nil
	}
	return Unknown, evaluationErrorf("a condition is needed, not %s", typeName(v))
}

// value is the truth value as an expression has it.
func (t Truth) value() any {
	if t == Unknown {
		return nil
	}
	return t == True
}
