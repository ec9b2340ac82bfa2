package rules

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/filter"
	"github.com/forebayhq/forebay/internal/turns"
)

// maxExplainedBytes is the size at which an explanation adds no more copies.
const maxExplainedBytes = 1 << 20

// explaining judges one message for somebody who asks which rules select it.
type explaining struct {
	view  *filter.Message
	bytes int // of all copies so far
}

// Explain says what rules make of a message that arrives at that time, in Unix milliseconds. The
// rules are the extra one, unless it is nil, and those of all subscriptions, or of the chosen
// one. name returns the name of a subscription. It is ErrSteps if judging would take too long.
func (t *Topic[Q]) Explain(ctx context.Context, m *message.Content, at int64, extra *forebay.RuleSettings, chosen string, name func(Q) string) (test forebay.RuleTest, err error) {
	turn := turns.Begin(ctx)
	defer turn.End()
	content := *m
	content.TTL = message.Lifetime(t.DefaultTTL, m.TTL)
	view, err := content.View(at)
	if err != nil {
		return test, err
	}
	left := MaxSteps
	view.Steps, view.Pause = &left, turn.Pause
	e := &explaining{view: view}
	if extra != nil {
		rule, err := filter.Compile("rule", *extra)
		if err != nil {
			return test, InField("rule", err)
		}
		v, _, err := e.rule(rule)
		if err != nil {
			return test, err
		}
		test.Rule = &v
	}
	subs := make([]*Subscription[Q], len(t.Subscriptions))
	for i := range t.Subscriptions {
		subs[i] = &t.Subscriptions[i]
	}
	slices.SortFunc(subs, func(a, b *Subscription[Q]) int { return strings.Compare(name(a.Queue), name(b.Queue)) })
	test.Subscriptions = []forebay.SubscriptionTest{}
	judged := 0
	for _, sub := range subs {
		if chosen != "" && name(sub.Queue) != chosen {
			continue
		}
		if judged > 0 && judged+len(sub.compiled) > forebay.MaxRulesPerTest {
			test.More = true
			break
		}
		judged += len(sub.compiled)
		one, err := e.rules(sub.compiled, sub.DeadLetterFilterErrors)
		if err != nil {
			return test, err
		}
		one.Subscription = name(sub.Queue)
		test.Subscriptions = append(test.Subscriptions, one)
	}
	return test, nil
}

// Try says what one rule makes of a message that arrives now.
func Try(settings forebay.RuleSettings, m forebay.NewMessage) (v forebay.RuleVerdict, err error) {
	rule, err := filter.Compile("-", settings)
	if err != nil {
		return v, err
	}
	content, err := message.New(&m, forebay.DefaultMaxMessageBytes)
	if err != nil {
		return v, err
	}
	view, err := content.View(time.Now().UnixMilli())
	if err != nil {
		return v, err
	}
	v, _, err = (&explaining{view: view}).rule(rule)
	return v, err
}

// rules judges the rules of one subscription.
func (e *explaining) rules(rules []*filter.Rule, deadLetters bool) (s forebay.SubscriptionTest, err error) {
	s.Rules = make([]forebay.RuleVerdict, len(rules))
	plain := false
	for i, r := range rules {
		v, tooLarge, err := e.rule(r)
		if err != nil {
			return s, err
		}
		s.Rules[i] = v
		switch {
		case v.Result == forebay.RuleFailed:
			judged := r.Action != nil || !plain // one plain copy suffices
			s.DeadLettered = s.DeadLettered || tooLarge || deadLetters && judged
		case v.Result == forebay.RuleSelected && r.Action != nil:
			s.Copies++
		case v.Result == forebay.RuleSelected && !plain:
			plain = true
			s.Copies++
		}
	}
	return s, nil
}

func (e *explaining) rule(r *filter.Rule) (v forebay.RuleVerdict, tooLarge bool, err error) {
	found, err := r.Explain(e.view)
	switch {
	case errors.Is(err, filter.ErrSteps):
		return v, false, ErrSteps
	case err != nil:
		return v, false, err
	}
	v = forebay.RuleVerdict{Rule: r.Name, Result: forebay.RuleNotSelected, Why: found.Why}
	if found.Err != nil {
		v.Result, v.Why = forebay.RuleFailed, found.Err.Error()
	}
	if found.Selected {
		v.Result = forebay.RuleSelected
		v.Copy = e.copy(found.Changed)
	}
	return v, found.TooLarge, nil
}

// copy returns a changed copy, or nil if there is none, or if the answer is long enough.
func (e *explaining) copy(m *filter.Message) *forebay.NewMessage {
	if m == nil || e.bytes > maxExplainedBytes {
		return nil
	}
	c := &forebay.NewMessage{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, SessionID: m.SessionID, Subject: m.Subject, To: m.To, ReplyTo: m.ReplyTo,
		ReplyToSessionID: m.ReplyToSessionID, ContentType: m.ContentType, PartitionKey: m.PartitionKey, Properties: m.Properties,
	}
	data, err := json.Marshal(c)
	if err != nil { // a property that was checked
		return nil
	}
	e.bytes += len(data)
	return c
}
