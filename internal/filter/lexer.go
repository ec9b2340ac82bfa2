package filter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/forebayhq/forebay"
)

type tokenKind uint8

const (
	tokenEnd        tokenKind = iota
	tokenSymbol               // text is the symbol
	tokenKeyword              // text is in upper case
	tokenName                 // a regular identifier
	tokenQuotedName           // [in brackets] or "in quotation marks"; text is without them
	tokenString
	tokenInteger // text holds digits only: whether they fit is known with their sign
	tokenFloat
	tokenParameter // text is the name with its @
)

type token struct {
	kind  tokenKind
	at    int // the character it begins at, counted from 1
	text  string
	value float64 // of tokenFloat
}

// is reports whether the token is that symbol or keyword.
func (t token) is(text string) bool {
	return (t.kind == tokenSymbol || t.kind == tokenKeyword) && t.text == text
}

// describe names the token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokenEnd:
		return "the end"
	case tokenString:
		return "a string"
	case tokenSymbol, tokenKeyword, tokenParameter:
		return t.text
	case tokenName, tokenQuotedName:
		return "the name " + strconv.Quote(t.text)
	}
	return "a number"
}

var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "LIKE": true, "ESCAPE": true, "IN": true, "EXISTS": true, "IS": true,
	"NULL": true, "TRUE": true, "FALSE": true, "SET": true, "REMOVE": true,
}

// keyword returns the keyword that the identifier is, in upper case.
func keyword(s string) (string, bool) {
	if len(s) > len("ESCAPE") {
		return "", false
	}
	upper := strings.ToUpper(s)
	return upper, keywords[upper]
}

// tokens splits a text; the last token is tokenEnd.
func tokens(source string) ([]token, error) {
	l := lexer{source: []rune(source)}
	var all []token
	for {
		t, err := l.next()
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		if t.kind == tokenEnd {
			return all, nil
		}
	}
}

type lexer struct {
	source []rune
	pos    int
}

// peek returns the rune that many places ahead, 0 past the end.
func (l *lexer) peek(ahead int) rune {
	if i := l.pos + ahead; i < len(l.source) {
		return l.source[i]
	}
	return 0
}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.source) && unicode.IsSpace(l.source[l.pos]) {
		l.pos++
	}
	t := token{at: l.pos + 1}
	if l.pos == len(l.source) {
		return t, nil
	}
	switch r := l.peek(0); {
	case r == '\'':
		return l.quoted(t, tokenString, r, "string")
	case r == '"':
		return l.quoted(t, tokenQuotedName, r, "name")
	case r == '[':
		return l.quoted(t, tokenQuotedName, ']', "name")
	case isDigit(r), r == '.' && isDigit(l.peek(1)):
		return l.number(t)
	case unicode.IsLetter(r):
		return l.word(t)
	case r == '@':
		return l.parameter(t)
	}
	return l.symbol(t)
}

// quoted reads to the closing rune, which stands for itself when doubled.
func (l *lexer) quoted(t token, kind tokenKind, closing rune, what string) (token, error) {
	var text strings.Builder
	for l.pos++; l.pos < len(l.source); l.pos++ {
		if r := l.source[l.pos]; r != closing {
			text.WriteRune(r)
			continue
		}
		if l.peek(1) != closing {
			l.pos++
			t.kind, t.text = kind, text.String()
			if kind == tokenQuotedName && !forebay.ValidText(t.text, forebay.MaxMetadataKeyBytes) {
				return t, &SyntaxError{t.at, fmt.Sprintf("the name is empty, longer than %d bytes or not clean text", forebay.MaxMetadataKeyBytes)}
			}
			return t, nil
		}
		text.WriteRune(closing)
		l.pos++
	}
	return t, &SyntaxError{t.at, fmt.Sprintf("the %s has no closing %c", what, closing)}
}

func (l *lexer) number(t token) (token, error) {
	start := l.pos
	t.kind = tokenInteger
	l.digits()
	if l.peek(0) == '.' {
		t.kind = tokenFloat
		l.pos++
		l.digits()
	}
	if r := l.peek(0); r == 'e' || r == 'E' {
		sign := 1
		if s := l.peek(1); s == '+' || s == '-' {
			sign = 2
		}
		if isDigit(l.peek(sign)) {
			t.kind = tokenFloat
			l.pos += sign
			l.digits()
		}
	}
	if r := l.peek(0); r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) {
		return t, &SyntaxError{l.pos + 1, fmt.Sprintf("%q does not belong to a number", r)}
	}
	t.text = string(l.source[start:l.pos])
	if t.kind == tokenFloat {
		var err error
		if t.value, err = strconv.ParseFloat(t.text, 64); err != nil || math.IsInf(t.value, 0) {
			return t, &SyntaxError{t.at, "the number is out of range"}
		}
	}
	return t, nil
}

func (l *lexer) digits() {
	for isDigit(l.peek(0)) {
		l.pos++
	}
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func (l *lexer) word(t token) (token, error) {
	start := l.pos
	for r := l.peek(0); r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r); r = l.peek(0) {
		l.pos++
	}
	t.kind, t.text = tokenName, string(l.source[start:l.pos])
	if upper, ok := keyword(t.text); ok {
		t.kind, t.text = tokenKeyword, upper
	} else if len(t.text) > forebay.MaxMetadataKeyBytes {
		return t, &SyntaxError{t.at, fmt.Sprintf("the name is longer than %d bytes", forebay.MaxMetadataKeyBytes)}
	}
	return t, nil
}

// parameter reads @ and a name.
func (l *lexer) parameter(t token) (token, error) {
	start := l.pos
	l.pos++
	for r := l.peek(0); r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r); r = l.peek(0) {
		l.pos++
	}
	t.kind, t.text = tokenParameter, string(l.source[start:l.pos])
	if len(t.text) == len("@") || len(t.text) > forebay.MaxMetadataKeyBytes {
		return t, &SyntaxError{t.at, fmt.Sprintf("@ begins the name of a parameter of at most %d bytes", forebay.MaxMetadataKeyBytes)}
	}
	return t, nil
}

func (l *lexer) symbol(t token) (token, error) {
	t.kind = tokenSymbol
	switch pair := string([]rune{l.peek(0), l.peek(1)}); pair {
	case "<>", "<=", ">=", "!=":
		l.pos += 2
		if t.text = pair; pair == "!=" {
			t.text = "<>"
		}
		return t, nil
	}
	r := l.peek(0)
	if !strings.ContainsRune("=<>+-*/%(),;.", r) {
		return t, &SyntaxError{t.at, fmt.Sprintf("%q means nothing here", r)}
	}
	l.pos++
	t.text = string(r)
	return t, nil
}
