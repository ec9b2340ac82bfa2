package messaging

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/dead"
)

// deadStep is how many dead letters one transaction redrives or purges.
const deadStep = 200

// Get returns one message of an entity, in any state, without receiving it.
func (s Messages) Get(ctx context.Context, tenant, path string, seq int64) (m forebay.Message, err error) {
	messages, _, err := s.Peek(ctx, tenant, path, PeekFilter{From: seq, Limit: 1})
	if err == nil && (len(messages) == 0 || messages[0].SequenceNumber != seq) {
		err = forebay.Errorf(forebay.CodeNotFound, "there is no message %d there", seq)
	}
	if err != nil {
		return m, err
	}
	m = messages[0]
	body := m.BodyBase64
	if m.Body != nil {
		body = []byte(*m.Body)
	}
	m.ETag = contentTag(m.Body != nil, body, m.Properties)
	return m, nil
}

// contentTag is the entity tag of what an edit may change. Who holds a message may change its
// properties as it is given back.
func contentTag(text bool, body []byte, properties forebay.Properties) string {
	if len(properties) == 0 {
		properties = nil
	}
	return forebay.ETagOf(text, string(body), properties)
}

// onCondition has an edit check a condition about the message first. The check is made in the
// transaction that redrives.
func onCondition(condition forebay.Condition, edit func(*bus.MessageContent) error) (func(*bus.MessageContent) error, error) {
	switch {
	case condition.Empty():
		return edit, nil
	case edit == nil:
		return nil, forebay.Invalid("If-Match", "goes with an edit of one message")
	}
	return func(c *bus.MessageContent) error {
		var properties forebay.Properties
		if c.Properties != nil {
			if err := json.Unmarshal(c.Properties, &properties); err != nil {
				return err
			}
		}
		if err := condition.Check(contentTag(c.Text, c.Body, properties)); err != nil {
			return err
		}
		return edit(c)
	}, nil
}

// Redrive sends dead letters of a queue or subscription back to it. Each gets a new sequence
// number and a delivery count of 0. With a rate each is a scheduled message until its time comes.
// path may name the entity or its dead-letter subqueue.
func (s DeadLetters) Redrive(ctx context.Context, tenant, path string, req forebay.RedriveMessagesRequest) (report forebay.RedrivenMessages, err error) {
	edit, err := s.edit(req)
	if err == nil {
		edit, err = onCondition(forebay.ConditionOf(ctx), edit)
	}
	if err != nil {
		return report, err
	}
	pace, err := paceOf(req)
	if err == nil {
		err = s.limits.CheckSchedule(ctx, tenant, "first_at", req.FirstAt, time.Now())
	}
	if err != nil {
		return report, err
	}
	if edit != nil && req.DryRun {
		if err := s.tryEdit(ctx, tenant, path, req.SequenceNumbers[0], edit); err != nil {
			return report, err
		}
	}
	if pace.Every > 0 && !req.DryRun {
		done, err := s.takeScheduled(ctx, tenant, path, &req, pace)
		if err != nil {
			return report, err
		}
		defer done()
	}
	report.Redriven, report.UpTo, err = s.each(ctx, tenant, path, req.DeadMessageFilter, func(q bus.MessageQueue, sel dead.Selection) (dead.Step, error) {
		step, err := s.store.DeadLetters().Redrive(ctx, q, sel, pace, edit)
		if err == nil {
			pace.First = step.Next
		}
		return step, err
	})
	if err == nil && report.Redriven == 0 {
		err = forebay.ConditionOf(ctx).Check("") // it is not there, or somebody holds it
	}
	if report.More = report.UpTo > 0; report.More && pace.Every > 0 && !req.DryRun {
		report.NextAt = &pace.First
	}
	return report, err
}

// takeScheduled reserves what a redrive at a rate needs of the tenant's limits on scheduled
// messages. It limits the redrive to the messages that are there now.
func (s DeadLetters) takeScheduled(ctx context.Context, tenant, path string, req *forebay.RedriveMessagesRequest, pace dead.Pace) (done func(), err error) {
	if s.limits == nil {
		return func() {}, nil
	}
	count := req.DeadMessageFilter
	count.DryRun = true
	n, _, err := s.each(ctx, tenant, path, count, nil)
	if err != nil || n == 0 {
		return func() {}, err
	}
	if len(req.SequenceNumbers) == 0 {
		req.MaxMessages = n
	}
	now := s.store.Now()
	first, scheduled := now, n-1 // the first goes at once
	if pace.First.After(now) {
		first, scheduled = pace.First, n
	}
	last := first.Add(time.Duration(n-1) * pace.Every)
	if err := s.limits.CheckSchedule(ctx, tenant, "rate_per_second", &last, now); err != nil {
		return nil, err
	}
	return s.limits.Take(ctx, tenant, forebay.LimitScheduled, int64(scheduled))
}

// Bounds of a redrive's rate, in messages a second.
const (
	minRate = 0.001
	maxRate = 1000
)

// paceOf returns how fast a redrive is to be.
func paceOf(req forebay.RedriveMessagesRequest) (pace dead.Pace, err error) {
	switch {
	case req.RatePerSecond == 0 && req.FirstAt != nil:
		return pace, forebay.Invalid("first_at", "goes with rate_per_second only")
	case req.RatePerSecond == 0:
		return pace, nil
	case !(req.RatePerSecond >= minRate && req.RatePerSecond <= maxRate):
		return pace, forebay.Invalid("rate_per_second", "goes from %g to %d, or is 0 for all at once", minRate, maxRate)
	}
	pace.Every = time.Duration(float64(time.Second) / req.RatePerSecond)
	if req.FirstAt != nil {
		if pace.First = *req.FirstAt; pace.First.Year() < 1970 || pace.First.Year() > 9998 { // the others come later
			return pace, forebay.Invalid("first_at", "lies outside the years 1970 to 9998")
		}
	}
	return pace, nil
}

// tryEdit returns the error that a redrive with the edit would. It changes nothing.
func (s DeadLetters) tryEdit(ctx context.Context, tenant, path string, number int64, edit func(*bus.MessageContent) error) error {
	e, err := s.entityNow(ctx, tenant, path)
	if err != nil {
		return err
	}
	found, _, _, err := s.store.Peek(ctx, bus.PeekQuery{Subqueue: e.Subqueue(true), From: number, Limit: 1, AtLeast: 1})
	if err != nil || len(found) == 0 || found[0].Seq != number {
		return err // there is nothing to edit, which the report says
	}
	if err = edit(&found[0].MessageContent); err == nil && e.MaxMessage > 0 {
		err = found[0].CheckSize("edit", e.MaxMessage)
	}
	return err
}

// Groups counts the dead letters of a queue or subscription by reason. path may name the entity
// or its dead-letter subqueue.
func (s DeadLetters) Groups(ctx context.Context, tenant, path string) (forebay.DeadMessageGroups, error) {
	e, err := s.ofDead(ctx, tenant, path)
	if err != nil {
		return forebay.DeadMessageGroups{}, err
	}
	return s.store.DeadLetters().Groups(ctx, e.MessageQueue)
}

// Bounds of what GroupsOfAll looks at.
const (
	maxDeadQueues        = 1000
	maxDeadTopics        = 200
	maxDeadSubscriptions = 1000 // of all topics together
)

// GroupsOfAll counts the dead letters of a tenant's queues and subscriptions by queue and reason.
// It looks at a bounded number of them.
func (s DeadLetters) GroupsOfAll(ctx context.Context, tenant string) (groups forebay.DeadMessageGroups, err error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return groups, err
	}
	list, err := s.store.Entities().Page(ctx, no, false, 0, maxDeadQueues)
	if err != nil {
		return groups, err
	}
	topics, err := s.store.Entities().Page(ctx, no, true, 0, maxDeadTopics+1)
	if err != nil {
		return groups, err
	}
	whole := len(list) < maxDeadQueues && len(topics) <= maxDeadTopics
	for left := maxDeadSubscriptions; len(topics) > 0 && left > 0; topics = topics[1:] {
		subscriptions, err := s.store.Entities().SubscriptionPage(ctx, topics[0], 0, left)
		if err != nil {
			return groups, err
		}
		list, left = append(list, subscriptions...), left-len(subscriptions)
		whole = whole && left > 0
	}
	groups, err = s.store.DeadLetters().GroupsOf(ctx, list)
	groups.Complete = groups.Complete && whole
	return groups, err
}

// ofDead finds what a path names, which has a dead-letter subqueue.
func (s DeadLetters) ofDead(ctx context.Context, tenant, path string) (namedQueue, error) {
	e, err := s.entityNow(ctx, tenant, path)
	if err == nil && e.IsTopic {
		err = forebay.Errorf(forebay.CodeNotSupported, "a topic has no dead letters; its subscriptions do")
	}
	return e, err
}

// Purge deletes dead letters of a queue or subscription.
func (s DeadLetters) Purge(ctx context.Context, tenant, path string, filter forebay.DeadMessageFilter) (report forebay.PurgedMessages, err error) {
	report.Purged, report.UpTo, err = s.each(ctx, tenant, path, filter, func(q bus.MessageQueue, sel dead.Selection) (dead.Step, error) {
		return s.store.DeadLetters().Purge(ctx, q, sel)
	})
	report.More = report.UpTo > 0
	return report, err
}

// each takes steps over the selected dead letters until all are done, or as many as one call
// may take. If more may be left, upTo is the highest number that they can have.
func (s DeadLetters) each(ctx context.Context, tenant, path string, f forebay.DeadMessageFilter, do func(bus.MessageQueue, dead.Selection) (dead.Step, error)) (done int, upTo int64, err error) {
	e, err := s.ofDead(ctx, tenant, path)
	if err != nil {
		return 0, 0, err
	}
	limit := cmp.Or(f.MaxMessages, 1000)
	ways := 0
	for _, chosen := range []bool{len(f.SequenceNumbers) > 0, f.Reason != "", f.All} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways != 1:
		return 0, 0, forebay.Invalid("body", "must hold one of sequence_numbers, reason and all: true")
	case len(f.SequenceNumbers) > forebay.MaxMessagesPerCall:
		return 0, 0, forebay.Invalid("sequence_numbers", "has %d numbers; the limit is %d", len(f.SequenceNumbers), forebay.MaxMessagesPerCall)
	case f.UpTo < 0:
		return 0, 0, forebay.Invalid("up_to", "must not be negative")
	case limit < 1 || limit > forebay.MaxDeadMessagesPerCall:
		return 0, 0, forebay.Invalid("max_messages", "goes from 1 to %d", forebay.MaxDeadMessagesPerCall)
	}
	if f.DryRun {
		do = func(q bus.MessageQueue, sel dead.Selection) (dead.Step, error) {
			return s.store.DeadLetters().Count(ctx, q, sel)
		}
	}
	sel := dead.Selection{Numbers: f.SequenceNumbers, Reason: f.Reason, Until: f.UpTo}
	for {
		sel.Limit = min(deadStep, limit-done)
		step, err := do(e.MessageQueue, sel)
		done += step.Done
		switch {
		case err != nil || !step.More:
			return done, 0, err
		case done >= limit:
			return done, step.Until, nil
		}
		sel.After, sel.Until = step.After, step.Until
	}
}

// edit returns the function that changes a message as asked for; nil: nothing is to be changed.
func (s DeadLetters) edit(req forebay.RedriveMessagesRequest) (func(*bus.MessageContent) error, error) {
	e := req.Edit
	switch {
	case e == nil:
		return nil, nil
	case len(req.SequenceNumbers) != 1:
		return nil, forebay.Invalid("edit", "goes with exactly one sequence number")
	case e.Body != nil && e.BodyBase64 != nil:
		return nil, forebay.Invalid("edit.body", "must not be given beside body_base64")
	case e.Body != nil && !utf8.ValidString(*e.Body):
		return nil, forebay.Invalid("edit.body", "is not valid UTF-8; send bytes as body_base64")
	}
	if err := e.Properties.Check(); err != nil {
		return nil, err
	}
	return func(c *bus.MessageContent) error {
		switch {
		case e.Body != nil:
			c.Text, c.Body = true, []byte(*e.Body)
		case e.BodyBase64 != nil:
			c.Text, c.Body = false, e.BodyBase64
		}
		if e.Properties != nil {
			if err := c.SetProperties(e.Properties); err != nil {
				return err
			}
		}
		most := s.maxBytes
		if c.AMQP != nil { // which is partly stored twice
			most *= storedBySent
		}
		return c.CheckSize("edit", most)
	}, nil
}
