package messaging

import (
	"context"
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Step is one of several that happen together or not at all. The zero value of a field that its
// kind does not name is left out.
type Step struct {
	Kind bus.StepKind
	Path string // of the queue or topic, the subscription, or the subqueue

	// Messages are what bus.StepSend sends. Numbers are nil, or those that were taken for them.
	Messages []bus.MessageContent
	Numbers  []bus.Number

	Token string             // of the lock, or of the session for bus.StepState
	How   forebay.Settlement // of kinds that settle
	Seq   int64              // of the scheduled message, for bus.StepCancel
	State []byte             // for bus.StepState
}

// Weight is how many steps it counts for in a transaction, and its bytes.
func (s *Step) Weight() (steps int, bytes int64) {
	plain := bus.Step{Messages: s.Messages, Changed: s.How.Properties, Why: bus.DeadLettering{Reason: s.How.Reason, Description: s.How.Description}, State: s.State}
	return plain.Weight()
}

// Check refuses a step that cannot be done whatever else a transaction does: the entity does not
// exist, or the step is malformed. Locks and limits are for Commit.
func (s Transactions) Check(ctx context.Context, tenant string, step Step) error {
	_, err := s.resolve(ctx, tenant, &step)
	return err
}

// TakeNumbers takes sequence numbers for messages that a step to the path will schedule.
func (s Transactions) TakeNumbers(ctx context.Context, tenant, path string, n int) ([]bus.Number, error) {
	e, err := s.target(ctx, tenant, path)
	if err != nil {
		return nil, err
	}
	return bus.TakeNumbers(ctx, s.store, e.Tenant, n)
}

// Commit does all steps, or none, in one transaction of the database, and returns once they are on
// disk. A refusal is that of the single step, with steps[i] before its field. The result has the
// sequence numbers of messages that were sent, by step.
func (s Transactions) Commit(ctx context.Context, tenant string, steps []Step) (seqs [][]int64, err error) {
	err = s.again(tenant, func() error {
		seqs, err = s.commit(ctx, tenant, steps)
		return err
	})
	return seqs, err
}

func (s Transactions) commit(ctx context.Context, tenant string, steps []Step) ([][]int64, error) {
	all := make([]bus.Step, len(steps))
	var sends []toQueue
	weight, bytes := 0, int64(0)
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	for i := range steps {
		n, size := steps[i].Weight()
		weight, bytes = weight+n, bytes+size
		if err := bus.CheckCommit(weight, bytes); err != nil {
			return nil, err
		}
		var err error
		if all[i], err = s.resolve(ctx, tenant, &steps[i]); err != nil {
			return nil, inStep(err, i)
		}
		switch to := &all[i]; to.Kind {
		case bus.StepSend:
			sends = append(sends, toQueue{to.Queue, to.Messages})
		case bus.StepState:
			done, err := s.takeState(ctx, tenant, to.Queue, to.Session, int64(len(to.State)))
			if err != nil {
				return nil, inStep(err, i)
			}
			ends = append(ends, done)
		}
	}
	done, err := s.takeMessages(ctx, tenant, sends...)
	if err != nil {
		return nil, err
	}
	ends = append(ends, done)
	seqs, err := s.store.Commit(ctx, all)
	for i := range all {
		s.noteGone(all[i].Queue, err)
	}
	return seqs, err
}

func inStep(err error, i int) error { return rules.InField(fmt.Sprintf("steps[%d]", i), err) }

// target finds a queue or a topic that can be sent to.
func (s *entities) target(ctx context.Context, tenant, path string) (namedQueue, error) {
	e, err := s.sendable(ctx, tenant, path)
	if err == nil {
		err = e.checkSend()
	}
	return e, err
}

// sendable finds a queue or a topic, and other entities that are not sent to.
func (s *entities) sendable(ctx context.Context, tenant, path string) (namedQueue, error) {
	e, err := s.entity(ctx, tenant, path)
	if forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		return e, err
	}
	topic, topicErr := s.topic(ctx, tenant, path)
	if errors.Is(topicErr, entity.ErrNoTopic) { // the path names nothing at all
		return e, err
	}
	return namedQueue{topic, false}, topicErr
}

// resolve finds what a step is about and checks it like the single operation.
func (s *entities) resolve(ctx context.Context, tenant string, step *Step) (bus.Step, error) {
	to := bus.Step{Kind: step.Kind}
	switch step.Kind {
	case bus.StepSend:
		e, err := s.target(ctx, tenant, step.Path)
		if err != nil {
			return to, err
		}
		to.Queue, to.Messages, to.Numbers = e.MessageQueue, step.Messages, step.Numbers
		switch {
		case len(step.Messages) == 0:
			return to, forebay.Invalid("messages", "must be at least 1")
		case step.Numbers != nil && len(step.Numbers) != len(step.Messages):
			return to, forebay.Invalid("messages", "must be as many as the numbers that were taken for them")
		}
		return to, s.checkContents(e.MessageQueue, step.Messages)
	case bus.StepCancel:
		e, err := s.sendable(ctx, tenant, step.Path)
		to.Queue, to.Seq = e.MessageQueue, step.Seq
		if err == nil && e.deadLetter {
			err = bus.ErrNotScheduled(e.MessageQueue)
		}
		return to, err
	case bus.StepState:
		e, lock, err := s.session(ctx, tenant, step.Path, step.Token)
		to.Queue, to.Session, to.State = e.MessageQueue, lock, step.State
		if err == nil {
			err = checkState(step.State)
		}
		return to, err
	case bus.StepComplete, bus.StepAbandon, bus.StepRelease, bus.StepDefer, bus.StepDeadLetter:
		e, lock, err := s.settlement(ctx, tenant, step.Path, step.Token, step.Kind, step.How)
		to.Queue, to.DeadLetters, to.Lock, to.Changed = e.MessageQueue, e.deadLetter, lock, step.How.Properties
		to.Why = message.DeadLettering{Reason: step.How.Reason, Description: step.How.Description}
		return to, err
	}
	return to, forebay.Invalid("kind", "is none of a transaction")
}
