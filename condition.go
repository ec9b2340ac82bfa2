package forebay

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MaxETags is how many entity tags an If-Match may list.
const MaxETags = 16

// AnyETag is the tag of [Condition.Match] that every state has.
const AnyETag = "*"

// Tagged is part of whatever can be changed or deleted on a condition.
type Tagged struct {
	ETag string `json:"etag,omitempty" doc:"entity tag of the settings, for If-Match; counts and use do not change it"`
}

// EntityTag returns the entity tag, or "" if there is none.
func (t Tagged) EntityTag() string { return t.ETag }

// ETagOf returns a strong entity tag (RFC 9110, section 8.8.3) of a state: a hash of its JSON.
// States that differ have different tags. The state must hold no secret that could be guessed.
func ETagOf(state ...any) string {
	text, err := json.Marshal(state)
	if err != nil {
		panic(fmt.Errorf("marshal the state of an entity tag: %w", err)) // plain values: cannot happen
	}
	hash := sha256.Sum256(text)
	return `"` + base64.RawURLEncoding.EncodeToString(hash[:16]) + `"`
}

// Condition says what the state of a resource must be for a request to change it (RFC 9110,
// section 13.1). The zero value demands nothing. A transition checks it in the transaction that
// writes, so nothing comes between.
type Condition struct {
	// Match are entity tags: the resource exists and has one of them. [AnyETag] only demands that
	// it exists. Empty: any state will do.
	Match []string
	// New demands that there is no such resource.
	New bool
}

// IfMatch is the condition that a resource has the entity tag.
func IfMatch(etag string) Condition { return Condition{Match: []string{etag}} }

// IfNew is the condition that there is no such resource.
func IfNew() Condition { return Condition{New: true} }

// Empty reports whether nothing is demanded.
func (c Condition) Empty() bool { return len(c.Match) == 0 && !c.New }

// Check compares the condition with the entity tag of the present state, which is "" where there
// is no resource. The error is CodePreconditionFailed.
func (c Condition) Check(etag string) error {
	switch {
	case c.New && etag != "":
		return &Error{Code: CodePreconditionFailed, Field: "If-None-Match", Message: "there is one already; nothing was changed"}
	case len(c.Match) > 0 && etag == "":
		return &Error{Code: CodePreconditionFailed, Field: "If-Match", Message: "there is none; nothing was changed"}
	case len(c.Match) > 0 && !slices.Contains(c.Match, AnyETag) && !slices.Contains(c.Match, etag):
		return &Error{Code: CodePreconditionFailed, Field: "If-Match", Message: "it has changed since: its entity tag is another; nothing was changed"}
	}
	return nil
}

// ParseCondition reads the fields If-Match and If-None-Match of a request that changes something.
// Of If-None-Match it takes only "*". A weak tag matches nothing (RFC 9110, section 13.1.1).
func ParseCondition(ifMatch, ifNoneMatch []string) (c Condition, err error) {
	if len(ifNoneMatch) > 0 {
		if strings.TrimSpace(strings.Join(ifNoneMatch, ",")) != AnyETag {
			return c, Invalid("If-None-Match", "must be * here: there is no such resource yet")
		}
		c.New = true
	}
	if len(ifMatch) == 0 {
		return c, nil
	}
	if c.New {
		return c, Invalid("If-Match", "and If-None-Match exclude each other")
	}
	text := strings.Trim(strings.Join(ifMatch, ","), " \t")
	if text == AnyETag {
		c.Match = []string{AnyETag}
		return c, nil
	}
	for text != "" {
		tag, rest, ok := cutETag(text)
		if !ok {
			return c, Invalid("If-Match", "must be * or entity tags in double quotes, separated by commas")
		}
		if text = rest; len(c.Match) == MaxETags {
			return c, Invalid("If-Match", "may list %d entity tags at most", MaxETags)
		}
		c.Match = append(c.Match, tag)
	}
	if len(c.Match) == 0 {
		return c, Invalid("If-Match", "is empty")
	}
	return c, nil
}

// cutETag takes the first entity tag of a list, and the comma behind it.
func cutETag(text string) (tag, rest string, ok bool) {
	opaque := strings.TrimPrefix(text, "W/")
	if !strings.HasPrefix(opaque, `"`) {
		return "", "", false
	}
	end := strings.IndexByte(opaque[1:], '"')
	if end < 0 {
		return "", "", false
	}
	end += len(text) - len(opaque) + 2
	tag, rest = text[:end], strings.TrimLeft(text[end:], " \t")
	if strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", "", false
	}
	if rest == "" {
		return tag, "", true
	}
	rest, ok = strings.CutPrefix(rest, ",")
	return tag, strings.TrimLeft(rest, " \t,"), ok
}

type conditionKey struct{}

// WithCondition returns a context with a condition. In package client it is sent with requests
// that change something. In the server it says what a transition must check.
func WithCondition(ctx context.Context, c Condition) context.Context {
	return context.WithValue(ctx, conditionKey{}, c)
}

// ConditionOf returns the condition of the context.
func ConditionOf(ctx context.Context) Condition {
	c, _ := ctx.Value(conditionKey{}).(Condition)
	return c
}
