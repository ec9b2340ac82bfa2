package filter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
)

// parser is a recursive descent over the tokens. The levels, from the loosest: OR, AND, NOT,
// comparisons, sums, products, signs.
type parser struct {
	tokens     []token
	pos        int
	depth      int
	parameters forebay.Properties
}

// operand is a parsed expression and the character it begins at.
type operand struct {
	expr
	at int
}

func parseCondition(source string, parameters forebay.Properties) (*Condition, error) {
	p, err := newParser(source, parameters)
	if err != nil {
		return nil, err
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEnd {
		return nil, p.unexpected("an operator")
	}
	if err := asCondition(root); err != nil {
		return nil, err
	}
	return &Condition{root.expr}, nil
}

func newParser(source string, parameters forebay.Properties) (*parser, error) {
	all, err := tokens(source)
	return &parser{tokens: all, parameters: parameters}, err
}

func (p *parser) peek() token { return p.tokens[p.pos] }

// accept takes the next token if it is that symbol or keyword.
func (p *parser) accept(text string) bool {
	if !p.peek().is(text) {
		return false
	}
	p.pos++
	return true
}

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return p.unexpected(text)
	}
	return nil
}

func (p *parser) unexpected(wanted string) error {
	t := p.peek()
	return &SyntaxError{t.at, fmt.Sprintf("expected %s, found %s", wanted, t.describe())}
}

// nest runs parse one level deeper.
func (p *parser) nest(parse func() (operand, error)) (operand, error) {
	if p.depth == maxDepth {
		return operand{}, &SyntaxError{p.peek().at, fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
	}
	p.depth++
	defer func() { p.depth-- }()
	return parse()
}

// asCondition refuses what can be neither true nor false, asValue what has no other value.
func asCondition(x operand) error {
	if x.kind() == kindValue {
		return &SyntaxError{x.at, "expected a condition, found a value"}
	}
	return nil
}

func asValue(x operand) error {
	if x.kind() == kindCondition {
		return &SyntaxError{x.at, "expected a value, found a condition"}
	}
	return nil
}

// chain parses operands of one level, which operators of that level join from the left.
func (p *parser) chain(level func() (operand, error), check func(operand) error, operators ...operator) (operand, error) {
	x, err := level()
	if err != nil {
		return x, err
	}
	for {
		op, found := p.acceptOperator(operators)
		if !found {
			return x, nil
		}
		y, err := level()
		if err != nil {
			return y, err
		}
		if err := check(x); err != nil {
			return x, err
		}
		if err := check(y); err != nil {
			return y, err
		}
		x.expr = &binary{op, x.expr, y.expr}
	}
}

func (p *parser) acceptOperator(operators []operator) (operator, bool) {
	for _, op := range operators {
		if p.accept(string(op)) {
			return op, true
		}
	}
	return "", false
}

func (p *parser) or() (operand, error)  { return p.chain(p.and, asCondition, opOr) }
func (p *parser) and() (operand, error) { return p.chain(p.not, asCondition, opAnd) }

func (p *parser) not() (operand, error) {
	at := p.peek().at
	if !p.accept("NOT") {
		return p.comparison()
	}
	x, err := p.nest(p.not)
	if err == nil {
		err = asCondition(x)
	}
	return operand{&unary{opNot, x.expr}, at}, err
}

// comparison parses a value and what is asked of it. Comparisons do not chain.
func (p *parser) comparison() (operand, error) {
	x, err := p.sum()
	if err != nil {
		return x, err
	}
	if op, found := p.acceptOperator(comparisons); found {
		y, err := p.value()
		if err == nil {
			err = asValue(x)
		}
		return operand{&binary{op, x.expr, y}, x.at}, err
	}
	if p.accept("IS") {
		return p.isNull(x)
	}
	negated := p.peek().is("NOT")
	if negated {
		p.pos++
	}
	switch {
	case p.accept("LIKE"):
		return p.like(x, negated)
	case p.accept("IN"):
		return p.in(x, negated)
	case negated:
		return x, p.unexpected("LIKE or IN")
	}
	return x, nil
}

// value parses an operand that must be a value.
func (p *parser) value() (expr, error) {
	x, err := p.sum()
	if err == nil {
		err = asValue(x)
	}
	return x.expr, err
}

func (p *parser) isNull(x operand) (operand, error) {
	negated := p.accept("NOT")
	if err := p.expect("NULL"); err != nil {
		return x, err
	}
	switch x.expr.(type) {
	case *property, *namedProperty:
		return operand{&isNull{x.expr, negated}, x.at}, nil
	}
	return x, &SyntaxError{x.at, "IS NULL asks about a property"}
}

func (p *parser) like(x operand, negated bool) (operand, error) {
	if err := asValue(x); err != nil {
		return x, err
	}
	at := p.peek().at
	l := &like{x: x.expr, negated: negated}
	var err error
	if l.pattern, err = p.value(); err != nil {
		return x, err
	}
	if p.accept("ESCAPE") {
		if l.escape, err = p.value(); err != nil {
			return x, err
		}
	}
	if err := l.prepare(); err != nil {
		return x, &SyntaxError{at, err.Error()}
	}
	return operand{l, x.at}, nil
}

func (p *parser) in(x operand, negated bool) (operand, error) {
	if err := asValue(x); err != nil {
		return x, err
	}
	if err := p.expect("("); err != nil {
		return x, err
	}
	n := &in{x: x.expr, negated: negated}
	for {
		item, err := p.value()
		if err != nil {
			return x, err
		}
		n.list = append(n.list, item)
		if !p.accept(",") {
			return operand{n, x.at}, p.expect(")")
		}
	}
}

func (p *parser) sum() (operand, error) { return p.chain(p.product, asValue, opAdd, opSubtract) }
func (p *parser) product() (operand, error) {
	return p.chain(p.sign, asValue, opMultiply, opDivide, opModulo)
}

// sign parses + and -. A minus directly before a number belongs to it, so that the smallest
// integer can be written.
func (p *parser) sign() (operand, error) {
	t := p.peek()
	var op operator
	switch {
	case p.accept("-"):
		op = opSubtract
		switch number := p.peek(); number.kind {
		case tokenInteger:
			p.pos++
			v, err := integer(number, "-")
			return operand{v, t.at}, err
		case tokenFloat:
			p.pos++
			return operand{&literal{-number.value}, t.at}, nil
		}
	case p.accept("+"):
		op = opAdd
	default:
		return p.primary()
	}
	x, err := p.nest(p.sign)
	if err == nil {
		err = asValue(x)
	}
	return operand{&unary{op, x.expr}, t.at}, err
}

func integer(t token, sign string) (expr, error) {
	v, err := strconv.ParseInt(sign+t.text, 10, 64)
	if err != nil {
		return nil, &SyntaxError{t.at, "the integer is out of range"}
	}
	return &literal{v}, nil
}

func (p *parser) primary() (operand, error) {
	t := p.peek()
	x := operand{at: t.at}
	var err error
	switch {
	case t.kind == tokenName || t.kind == tokenQuotedName:
		x.expr, err = p.nameOrFunction()
		return x, err
	case t.kind == tokenString:
		x.expr = &literal{t.text}
	case t.kind == tokenInteger:
		x.expr, err = integer(t, "")
	case t.kind == tokenFloat:
		x.expr = &literal{t.value}
	case t.kind == tokenParameter:
		value, given := p.parameters[t.text]
		if !given {
			return x, &SyntaxError{t.at, fmt.Sprintf("no value is given for the parameter %s", t.text)}
		}
		x.expr = &parameter{t.text, literal{value}}
	case t.is("TRUE"), t.is("FALSE"):
		x.expr = &literal{t.text == "TRUE"}
	case t.is("NULL"):
		x.expr = &literal{nil}
	case t.is("EXISTS"):
		p.pos++
		x.expr, err = p.exists()
		return x, err
	case t.is("("):
		p.pos++
		if x, err = p.nest(p.or); err != nil {
			return x, err
		}
		x.at = t.at
		return x, p.expect(")")
	default:
		return x, p.unexpected("a value or a condition")
	}
	p.pos++
	return x, err
}

func (p *parser) exists() (expr, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	prop, err := p.property()
	if err != nil {
		return nil, err
	}
	return &exists{prop}, p.expect(")")
}

func (p *parser) nameOrFunction() (expr, error) {
	name := p.peek()
	if name.kind == tokenQuotedName || !p.tokens[p.pos+1].is("(") {
		return p.property()
	}
	p.pos += 2
	switch strings.ToLower(name.text) {
	case "newid":
		return newID{}, p.expect(")")
	case "property", "p":
		x, err := p.nest(p.sum)
		if err == nil {
			err = asValue(x)
		}
		if err != nil {
			return nil, err
		}
		return &namedProperty{x.expr}, p.expect(")")
	}
	return nil, &SyntaxError{name.at, fmt.Sprintf("there is no function %s; there are newid, property and p", name.text)}
}

// property parses [<scope> .] <name>.
func (p *parser) property() (*property, error) {
	name := p.peek()
	if name.kind != tokenName && name.kind != tokenQuotedName {
		return nil, p.unexpected("the name of a property")
	}
	p.pos++
	if !p.accept(".") {
		return userProperty(name.text), nil
	}
	scope := strings.ToLower(name.text)
	if name.kind == tokenQuotedName || scope != "sys" && scope != "user" {
		return nil, &SyntaxError{name.at, "the scope of a property is sys or user; a name with a dot stands in [brackets]"}
	}
	inner := p.peek()
	if inner.kind != tokenName && inner.kind != tokenQuotedName {
		return nil, p.unexpected("the name of a property")
	}
	p.pos++
	if scope == "user" {
		return userProperty(inner.text), nil
	}
	system := systemPropertyOf(inner.text)
	if system == nil {
		return nil, &SyntaxError{inner.at, fmt.Sprintf("there is no system property %q", inner.text)}
	}
	return &property{system: system}, nil
}
