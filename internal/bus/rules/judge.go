package rules

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/filter"
	"github.com/forebayhq/forebay/internal/turns"
)

// Judgement is what a topic of that version makes of the messages of one call.
type Judgement[Q any] struct {
	Version int64
	Copies  [][]Copy[Q] // of each message
	FanOut  FanOut
}

// Rows is how many rows so many messages become in one transaction. Messages with many copies
// wait in the topic, so their copies do not count.
func (j *Judgement[Q]) Rows(messages int) int {
	if j == nil || j.InBatches() {
		return messages
	}
	for _, copies := range j.Copies {
		if len(copies) <= BatchCopies {
			messages += len(copies)
		}
	}
	return messages
}

// InBatches reports whether the copies of several messages are too many for one transaction.
func (j *Judgement[Q]) InBatches() bool {
	return j != nil && len(j.Copies) > 1 && j.FanOut.Copies > FullCopies
}

// Judge applies the rules to messages that arrive at that time, in Unix milliseconds. All of them
// are judged, or none. It pauses when its turn is over.
func (t *Topic[Q]) Judge(ctx context.Context, messages []message.Content, at int64) (*Judgement[Q], error) {
	j := &Judgement[Q]{Version: t.Version, Copies: make([][]Copy[Q], len(messages))}
	turn := turns.Begin(ctx)
	defer turn.End()
	for i := range messages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left := MaxSteps - j.FanOut.Steps
		before := left
		var err error
		j.Copies[i], err = t.Pick(&messages[i], at, &j.FanOut, &left, turn)
		if j.FanOut.Steps += before - left; err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Pick returns the copies that the subscriptions get of a message at that time. It adds them to
// fanOut and takes the steps that judging needs off left. It adds no copies and returns ErrFanOut
// or ErrSteps if that would be too much.
//
// Without fanOut it picks any number. Then a subscription whose rules need more steps than are
// left counts as one whose rules cannot judge the message. Within transactions turn is nil.
// Elsewhere Pick pauses when the turn is over.
func (t *Topic[Q]) Pick(m *message.Content, at int64, fanOut *FanOut, left *int, turn *turns.Turn) ([]Copy[Q], error) {
	picks := []Copy[Q]{}
	if len(t.Subscriptions) == 0 {
		return picks, nil
	}
	content := *m
	content.TTL = message.Lifetime(t.DefaultTTL, m.TTL)
	var total FanOut
	if fanOut != nil {
		total = *fanOut
	}
	size := content.Size()
	j := judging[Q]{at: at, left: left, skips: fanOut == nil, turn: turn}
	err := j.each(t.Subscriptions, &content, func(c Copy[Q]) error {
		if total.Add(1, size); fanOut != nil && total.Exhausted() {
			return ErrFanOut
		}
		picks = append(picks, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if fanOut != nil {
		*fanOut = total
	}
	return picks, nil
}

// errEnough ends a selection that has all the copies it may take.
var errEnough = errors.New("enough copies")

// PickSome returns the copies for the subscriptions from that number on, in the order of their
// numbers. It returns at most most of them, but always all for one subscription, and whether
// there are more. Where the rules of a subscription need more steps than are left, it skips that
// subscription if skips says so. Otherwise it returns the copies found before, or ErrSteps if
// there are none.
func (t *Topic[Q]) PickSome(m *message.Content, at, from int64, most int, left *int, skips bool, turn *turns.Turn) (picks []Copy[Q], more bool, err error) {
	var rest []*Subscription[Q]
	for i := range t.Subscriptions {
		if t.Subscriptions[i].No >= from {
			rest = append(rest, &t.Subscriptions[i])
		}
	}
	slices.SortFunc(rest, func(a, b *Subscription[Q]) int { return cmp.Compare(a.No, b.No) })
	content := *m
	content.TTL = message.Lifetime(t.DefaultTTL, content.TTL)
	j := judging[Q]{at: at, left: left, skips: skips, turn: turn}
	for _, sub := range rest {
		err = j.sub(sub, &content, func(c Copy[Q]) error {
			if len(picks) >= most && picks[len(picks)-1].To.No != c.To.No {
				return errEnough
			}
			picks = append(picks, c)
			return nil
		})
		if err != nil {
			break
		}
	}
	if errors.Is(err, errEnough) || errors.Is(err, ErrSteps) && len(picks) > 0 {
		return picks, true, nil
	}
	return picks, false, err
}

// InOrder returns copies in the order of their subscriptions' numbers.
func InOrder[Q any](copies []Copy[Q]) []Copy[Q] {
	copies = slices.Clone(copies)
	slices.SortStableFunc(copies, func(a, b Copy[Q]) int { return cmp.Compare(a.To.No, b.To.No) })
	return copies
}

// From returns those of the copies, which are in order, whose subscriptions have that number or a
// higher one. It returns at most most of them, but all for one subscription, and whether there
// are more.
func From[Q any](copies []Copy[Q], no int64, most int) (some []Copy[Q], more bool) {
	from, _ := slices.BinarySearchFunc(copies, no, func(c Copy[Q], no int64) int { return cmp.Compare(c.To.No, no) })
	copies = copies[from:]
	to := min(most, len(copies))
	for to < len(copies) && copies[to].To.No == copies[to-1].To.No {
		to++
	}
	return copies[:to], to < len(copies)
}

// judging applies the rules of subscriptions to one message.
type judging[Q any] struct {
	at    int64
	left  *int // steps
	skips bool // goes on without subscriptions whose rules need more steps than are left
	turn  *turns.Turn
	view  *filter.Message // nil until rules need it
}

func (j *judging[Q]) each(subscriptions []Subscription[Q], content *message.Content, give func(Copy[Q]) error) error {
	for i := range subscriptions {
		if err := j.sub(&subscriptions[i], content, give); err != nil {
			return err
		}
	}
	return nil
}

// sub calls give for each copy that a subscription gets.
func (j *judging[Q]) sub(sub *Subscription[Q], content *message.Content, give func(Copy[Q]) error) error {
	if sub.all {
		return give(Copy[Q]{To: sub, Content: content})
	}
	if j.view == nil {
		view, err := content.View(j.at)
		if err != nil {
			return err
		}
		if view.Steps = j.left; j.turn != nil {
			view.Pause = j.turn.Pause
		}
		j.view = view
	}
	copies, ruleErr := filter.Select(sub.compiled, j.view)
	if errors.Is(ruleErr, filter.ErrSteps) && !j.skips {
		return ErrSteps
	}
	if errors.Is(ruleErr, filter.ErrStopped) {
		return ruleErr
	}
	for _, selected := range copies {
		c := Copy[Q]{To: sub, Content: content}
		switch {
		case selected.TooLarge != "":
			c.Why = &message.DeadLettering{Reason: forebay.ReasonHeaderSize, Description: selected.TooLarge}
		case selected.Rule != "":
			var err error
			if c.Content, err = content.Changed(selected.Message); err != nil {
				return err
			}
		}
		if err := give(c); err != nil {
			return err
		}
	}
	if ruleErr != nil && sub.DeadLetterFilterErrors {
		return give(Copy[Q]{sub, content, &message.DeadLettering{Reason: forebay.ReasonFilter, Description: ruleErr.Error()}})
	}
	return nil
}
