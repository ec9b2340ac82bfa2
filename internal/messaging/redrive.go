package messaging

import (
	"cmp"
	"context"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

// deadStep is how many dead letters one transaction redrives or purges.
const deadStep = 200

// Get returns one message of an entity, in any state, without receiving it.
func (s Messages) Get(ctx context.Context, tenant, path string, seq int64) (m forebay.Message, err error) {
	messages, _, err := s.Peek(ctx, tenant, path, PeekFilter{From: seq, Limit: 1})
	if err == nil && (len(messages) == 0 || messages[0].SequenceNumber != seq) {
		err = forebay.ErrNotFound
	}
	if err != nil {
		return m, err
	}
	return messages[0], nil
}

// Redrive sends dead letters of a queue or subscription back to it. Each gets a new sequence
// number and a delivery count of 0. path may name the entity or its dead-letter subqueue.
func (s DeadLetters) Redrive(ctx context.Context, tenant, path string, req forebay.RedriveMessagesRequest) (report forebay.RedrivenMessages, err error) {
	edit, err := s.edit(req)
	if err != nil {
		return report, err
	}
	report.Redriven, report.UpTo, err = s.each(ctx, tenant, path, req.DeadMessageFilter, func(q bus.MessageQueue, sel bus.DeadMessages) (bus.DeadStep, error) {
		return s.store.DeadLetters().Redrive(ctx, q, sel, edit)
	})
	report.More = report.UpTo > 0
	return report, err
}

// Purge deletes dead letters of a queue or subscription.
func (s DeadLetters) Purge(ctx context.Context, tenant, path string, filter forebay.DeadMessageFilter) (report forebay.PurgedMessages, err error) {
	report.Purged, report.UpTo, err = s.each(ctx, tenant, path, filter, func(q bus.MessageQueue, sel bus.DeadMessages) (bus.DeadStep, error) {
		return s.store.DeadLetters().Purge(ctx, q, sel)
	})
	report.More = report.UpTo > 0
	return report, err
}

// each takes steps over the selected dead letters until all are done, or as many as one call
// may take. If more may be left, upTo is the highest number that they can have.
func (s DeadLetters) each(ctx context.Context, tenant, path string, f forebay.DeadMessageFilter, do func(bus.MessageQueue, bus.DeadMessages) (bus.DeadStep, error)) (done int, upTo int64, err error) {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return 0, 0, err
	}
	if e.IsTopic {
		return 0, 0, forebay.Errorf(forebay.CodeNotSupported, "a topic has no dead letters; its subscriptions do")
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
		do = func(q bus.MessageQueue, sel bus.DeadMessages) (bus.DeadStep, error) {
			return s.store.DeadLetters().Count(ctx, q, sel)
		}
	}
	sel := bus.DeadMessages{Numbers: f.SequenceNumbers, Reason: f.Reason, Until: f.UpTo}
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
	case len(req.SequenceNumbers) != 1 || req.DryRun:
		return nil, forebay.Invalid("edit", "goes with exactly one sequence number, and not with dry_run")
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
		return c.CheckSize("edit", s.maxBytes)
	}, nil
}
