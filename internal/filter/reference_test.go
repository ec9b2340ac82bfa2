package filter

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/filter/filtertest"
)

// drawMessage draws a message, as this package sees it and as the reference does.
func drawMessage(t *rapid.T) (*Message, *filtertest.Message) {
	m := &Message{MessageID: "m", Subject: filtertest.DrawSystem(t), CorrelationID: filtertest.DrawSystem(t), To: filtertest.DrawSystem(t),
		ContentType: filtertest.DrawSystem(t), Properties: filtertest.DrawProperties(t)}
	return m, asReference(m)
}

func asReference(m *Message) *filtertest.Message {
	return &filtertest.Message{User: lowered(m.Properties), System: map[string]string{
		"MessageId": m.MessageID, "Label": m.Subject, "CorrelationId": m.CorrelationID, "To": m.To, "ContentType": m.ContentType}}
}

// lowered are the properties by their names in lower case.
func lowered(p forebay.Properties) map[string]any {
	by := map[string]any{}
	for name, value := range p {
		by[strings.ToLower(name)] = value
	}
	return by
}

// Conditions select what the reference says, and cannot be evaluated where it says so; also in
// their canonical form.
func TestConditionsAgainstTheReference(t *testing.T) {
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 { // a run of a few is as quick as one
			compareCondition(t, outcomes)
		}
	})
	for _, outcome := range []string{"error", "true", "false", "unknown"} {
		if outcomes[outcome] < 100 { // of 4,000
			t.Errorf("%d were %s", outcomes[outcome], outcome)
		}
	}
}

func compareCondition(t *rapid.T, outcomes map[string]int) {
	reference := filtertest.DrawCondition(t)
	c, err := ParseCondition(reference.String(), nil)
	if err != nil {
		t.Fatalf("%s: %v", reference, err)
	}
	again, err := parseCondition(c.String(), nil)
	if err != nil {
		t.Fatalf("%s reads as %s: %v", reference, c, err)
	}
	for range 4 {
		m, seen := drawMessage(t)
		want, wantErr := reference.Truth(seen)
		for _, c := range []*Condition{c, again} {
			got, err := c.Evaluate(m)
			if got.value() != want || (err != nil) != (wantErr != nil) {
				t.Fatalf("%s\n  is %v (%v), expected %v (%v)\n  of %+v", reference, got, err, want, wantErr, m)
			}
		}
		if wantErr != nil {
			outcomes["error"]++
		} else {
			outcomes[truthNamed(want)]++
		}
	}
}

func truthNamed(truth any) string {
	switch truth {
	case true:
		return "true"
	case false:
		return "false"
	}
	return "unknown"
}

// Actions leave what the reference leaves.
func TestActionsAgainstTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			compareAction(t)
		}
	})
}

func compareAction(t *rapid.T) {
	reference := filtertest.DrawAction(t)
	a, err := ParseAction(reference.String(), nil)
	if err != nil {
		t.Fatalf("%s: %v", reference, err)
	}
	m, seen := drawMessage(t)
	want, wantErr := reference.Apply(seen)
	got, err := a.Apply(m)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%s: %v, expected %v\n  of %+v", reference, err, wantErr, m)
	}
	if err != nil {
		return
	}
	if left := asReference(got); !maps.Equal(left.System, want.System) || !filtertest.SameProperties(left.User, want.User) {
		t.Fatalf("%s\n  leaves %+v\n  expected %+v\n  of %+v", reference, left, want, m)
	}
}
