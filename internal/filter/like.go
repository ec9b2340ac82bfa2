package filter

import "unicode/utf8"

// maxLikeSteps bounds all LIKE of one evaluation. It is many times what ordinary patterns need.
const maxLikeSteps = 1 << 18

// pauseSteps take about a tenth of a millisecond.
const pauseSteps = 1 << 13

// like is x [NOT] LIKE pattern [ESCAPE escape].
type like struct {
	x, pattern, escape expr
	negated            bool
	prepared           likePattern // where pattern and escape are constants; else nil
}

// likeElement is one rune, or one of the two wildcards.
type likeElement struct {
	wildcard rune // '%', '_' or 0
	literal  rune
}

type likePattern []likeElement

func (*like) kind() kind { return kindCondition }

// prepare compiles a constant pattern.
func (x *like) prepare() error {
	pattern, ok := x.pattern.(*literal)
	if !ok || pattern.value == nil {
		return nil
	}
	var escape any
	if x.escape != nil {
		constant, ok := x.escape.(*literal)
		if !ok || constant.value == nil {
			return nil
		}
		escape = constant.value
	}
	var err error
	x.prepared, err = compileLike(pattern.value, escape)
	return err
}

// compileLike reads a pattern; the escape character is nil where there is none.
func compileLike(pattern, escape any) (likePattern, error) {
	text, ok := pattern.(string)
	if !ok {
		return nil, evaluationErrorf("the pattern of LIKE must be a string, not %s", typeName(pattern))
	}
	escaping := rune(-1)
	if escape != nil {
		s, ok := escape.(string)
		if !ok || utf8.RuneCountInString(s) != 1 {
			return nil, evaluationErrorf("ESCAPE needs a string of one character")
		}
		escaping, _ = utf8.DecodeRuneInString(s)
	}
	compiled := likePattern{}
	escaped := false
	for _, r := range text {
		switch {
		case escaped:
			compiled = append(compiled, likeElement{literal: r})
			escaped = false
		case r == escaping:
			escaped = true
		case r == '%' && len(compiled) > 0 && compiled[len(compiled)-1].wildcard == '%':
		case r == '%', r == '_':
			compiled = append(compiled, likeElement{wildcard: r})
		default:
			compiled = append(compiled, likeElement{literal: r})
		}
	}
	if escaped {
		return nil, evaluationErrorf("the pattern of LIKE ends with its escape character")
	}
	return compiled, nil
}

func (x *like) eval(e *evaluation) (any, error) {
	v, err := x.x.eval(e)
	if v == nil || err != nil {
		return nil, err
	}
	pattern := x.prepared
	if pattern == nil {
		if pattern, err = x.compile(e); pattern == nil || err != nil {
			return nil, err
		}
	}
	text, ok := v.(string)
	if !ok {
		return nil, evaluationErrorf("LIKE needs a string, not %s", typeName(v))
	}
	matched, err := pattern.match(text, &e.steps, e.message.Pause)
	return matched != x.negated, err
}

// compile evaluates pattern and escape character; nil without an error means that one is unknown.
func (x *like) compile(e *evaluation) (likePattern, error) {
	pattern, err := x.pattern.eval(e)
	if pattern == nil || err != nil {
		return nil, err
	}
	if text, ok := pattern.(string); ok {
		e.other += len(text)
	}
	if x.escape == nil {
		return compileLike(pattern, nil)
	}
	escape, err := x.escape.eval(e)
	if escape == nil || err != nil {
		return nil, err
	}
	return compileLike(pattern, escape)
}

// match reports whether the pattern covers the whole text. On a mismatch only the latest % takes
// one more rune: whatever an earlier one could reach, the latest can too. It calls pause now and
// then.
func (p likePattern) match(text string, steps *int, pause func() error) (bool, error) {
	at, next := 0, 0         // in text and pattern
	retryAt, retry := -1, -1 // where the latest % is tried again
	for at < len(text) {
		if *steps--; *steps < 0 {
			return false, evaluationErrorf("LIKE takes too long for this pattern and string")
		}
		if pause != nil && *steps%pauseSteps == 0 {
			if err := pause(); err != nil {
				return false, stopped(err)
			}
		}
		r, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case next < len(p) && p[next].wildcard == '%':
			retry, retryAt = next, at
			next++
			continue
		case next < len(p) && (p[next].wildcard == '_' || p[next].literal == r && p[next].wildcard == 0):
			at += size
			next++
			continue
		case retry < 0:
			return false, nil
		}
		_, size = utf8.DecodeRuneInString(text[retryAt:])
		retryAt += size
		at, next = retryAt, retry+1
	}
	for next < len(p) && p[next].wildcard == '%' {
		next++
	}
	return next == len(p), nil
}
