package filter

import (
	"strconv"
	"strings"
	"unicode"
)

// The levels of the grammar, from the loosest.
const (
	levelOr = iota
	levelAnd
	levelNot
	levelComparison
	levelSum
	levelProduct
	levelSign
	levelPrimary
)

func level(x expr) int {
	switch x := x.(type) {
	case *literal:
		switch v := x.value.(type) {
		case int64:
			if v < 0 {
				return levelSign
			}
		case float64:
			if v < 0 {
				return levelSign
			}
		}
	case *unary:
		if x.op == opNot {
			return levelNot
		}
		return levelSign
	case *binary:
		switch x.op {
		case opOr:
			return levelOr
		case opAnd:
			return levelAnd
		case opAdd, opSubtract:
			return levelSum
		case opMultiply, opDivide, opModulo:
			return levelProduct
		}
		return levelComparison
	case *like, *in, *isNull:
		return levelComparison
	}
	return levelPrimary
}

// formatter writes the canonical form.
type formatter struct{ strings.Builder }

func formatExpr(x expr) string {
	var f formatter
	f.expr(x)
	return f.String()
}

// words writes them one after another.
func (f *formatter) words(words ...string) {
	for _, w := range words {
		f.WriteString(w)
	}
}

// operand writes x where the grammar has an expression of at least that level.
func (f *formatter) operand(x expr, least int) {
	if level(x) >= least {
		f.expr(x)
		return
	}
	f.words("(")
	f.expr(x)
	f.words(")")
}

func (f *formatter) expr(x expr) {
	switch x := x.(type) {
	case *literal:
		f.literal(x.value)
	case *parameter:
		f.words(x.name)
	case *property:
		f.property(x)
	case *namedProperty:
		f.words("property(")
		f.operand(x.name, levelSum)
		f.words(")")
	case newID:
		f.words("newid()")
	case *exists:
		f.words("EXISTS(")
		f.property(x.property)
		f.words(")")
	case *unary:
		f.unary(x)
	case *binary:
		f.binary(x)
	case *isNull:
		f.operand(x.x, levelSum)
		f.words(" IS", not(x.negated), " NULL")
	case *like:
		f.operand(x.x, levelSum)
		f.words(not(x.negated), " LIKE ")
		f.operand(x.pattern, levelSum)
		if x.escape != nil {
			f.words(" ESCAPE ")
			f.operand(x.escape, levelSum)
		}
	case *in:
		f.in(x)
	}
}

func not(negated bool) string {
	if negated {
		return " NOT"
	}
	return ""
}

func (f *formatter) unary(x *unary) {
	if x.op == opNot {
		f.words("NOT ")
		f.operand(x.x, levelNot)
		return
	}
	f.words(string(x.op))
	least := levelSign
	if _, constant := x.x.(*literal); constant && level(x.x) == levelPrimary {
		least = levelPrimary + 1 // else the sign would become the number's own
	}
	f.operand(x.x, least)
}

func (f *formatter) binary(x *binary) {
	own := level(x)
	left, right := own, own+1
	if own == levelComparison {
		left = own + 1 // they do not chain
	}
	f.operand(x.x, left)
	f.words(" ", string(x.op), " ")
	f.operand(x.y, right)
}

func (f *formatter) in(x *in) {
	f.operand(x.x, levelSum)
	f.words(not(x.negated), " IN (")
	for i, item := range x.list {
		if i > 0 {
			f.words(", ")
		}
		f.operand(item, levelSum)
	}
	f.words(")")
}

func (f *formatter) literal(v any) {
	switch v := v.(type) {
	case nil:
		f.words("NULL")
	case bool:
		f.words(strings.ToUpper(strconv.FormatBool(v)))
	case int64:
		f.words(strconv.FormatInt(v, 10))
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		f.words(text)
	case string:
		f.words("'", strings.ReplaceAll(v, "'", "''"), "'")
	}
}

func (f *formatter) property(p *property) {
	if p.system != nil {
		f.words("sys.", p.system.name)
		return
	}
	if isRegular(p.name) {
		f.words(p.name)
		return
	}
	f.words("[", strings.ReplaceAll(p.name, "]", "]]"), "]")
}

// isRegular reports whether the name needs no brackets.
func isRegular(name string) bool {
	if _, reserved := keyword(name); reserved {
		return false
	}
	for i, r := range name {
		if !unicode.IsLetter(r) && (i == 0 || r != '_' && !unicode.IsDigit(r)) {
			return false
		}
	}
	return true
}
