package bus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// A refusal must come before the first change: the transaction has other callers too. So all
// steps are checked, and then done. Nothing changes the rows that they name in between.

// sqlScheduled finds a message that is scheduled. Its flow is scheduledFlow.
const sqlScheduled = "SELECT 1 FROM messages WHERE seq = ? AND subqueue + 0 = ? AND flow + 0 = 1"

// checkedStep is a step that can be done.
type checkedStep struct {
	*Step
	queue  MessageQueue // as it stands now
	held   HeldMessage
	merged mergedProperties
}

// commit does the steps of a commit, or none.
func (t *Tx) commit(c *commit) ([][]int64, error) {
	sends := slices.Clone(c.sends) // the transaction may be tried again
	steps, err := t.checkCommit(c, sends)
	if err != nil {
		return nil, err
	}
	if err := t.Interleave(len(steps), func(i int) error { return t.do(&steps[i]) }); err != nil {
		return nil, err
	}
	if err := t.arrivals.sendAll(sends); err != nil {
		return nil, err
	}
	seqs := make([][]int64, len(c.steps))
	for i := range c.steps {
		if s := &c.steps[i]; s.Kind == StepSend {
			at := c.place[i]
			seqs[i] = sends[at.send].sent.seqs[at.from : at.from+len(s.Messages)]
		}
	}
	return seqs, nil
}

// checkCommit returns the steps that do not send, or the first refusal. It changes nothing.
func (t *Tx) checkCommit(c *commit, sends []sending) ([]checkedStep, error) {
	var steps []checkedStep
	var of []int // the step of each check
	for i := range c.steps {
		if c.steps[i].Kind != StepSend {
			steps, of = append(steps, checkedStep{Step: &c.steps[i]}), append(of, i)
		}
	}
	for i := range sends {
		of = append(of, c.first(i))
	}
	refusals := make([]*forebay.Error, len(of))
	err := t.Interleave(len(of), func(i int) error {
		var err error
		if i < len(steps) {
			err = t.checkStep(&steps[i])
		} else {
			err = t.arrivals.check(&sends[i-len(steps)])
		}
		if errors.As(err, &refusals[i]) {
			err = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, refused := range refusals {
		if refused == errTopicChanged {
			return nil, refused
		}
		if refused != nil {
			return nil, rules.InField(fmt.Sprintf("steps[%d]", of[i]), refused)
		}
	}
	var copies commitCopies
	for i := range sends {
		if err := copies.add(sends[i].picks); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (t *Tx) checkStep(s *checkedStep) (err error) {
	found := false
	if s.queue, found, err = t.MessageQueue(s.Queue.No); err != nil { // a queue that is gone has no messages
		return err
	}
	switch s.Kind {
	case StepState:
		_, _, err = t.sessions.lockEnd(s.Queue, s.Session)
		return err
	case StepCancel:
		scheduled, err := t.any(sqlScheduled, s.Seq, int64(s.Queue.Subqueue(false)))
		if err == nil && !scheduled {
			err = ErrNotScheduled(s.Queue)
		}
		return err
	}
	s.held, err = t.Deliveries.find(s.subqueue(), s.Lock)
	if err == nil && found && s.Kind != StepAbandon && s.Kind != StepRelease && !s.queue.Status.Receives() {
		err = entity.ErrReceiveDisabled
	}
	if err == nil && len(s.Changed) > 0 {
		s.merged, err = t.Deliveries.merge(s.Lock.Seq, s.Changed)
	}
	return err
}

// do does a step that was checked.
func (t *Tx) do(s *checkedStep) error {
	if len(s.Changed) > 0 {
		if err := t.Deliveries.setProperties(s.Lock.Seq, s.merged); err != nil {
			return err
		}
	}
	if err := t.used(s.queue); err != nil {
		return err
	}
	switch s.Kind {
	case StepState:
		return t.sessions.setState(s.Session, s.State)
	case StepCancel:
		return t.DeleteMessage(s.Seq)
	case StepComplete:
		return t.DeleteMessage(s.Lock.Seq)
	case StepAbandon:
		return t.Deliveries.abandon(s.queue, s.subqueue(), s.held)
	case StepRelease:
		return t.Deliveries.release(s.subqueue(), s.held)
	case StepDefer:
		return t.Deliveries.unlock(s.held, s.held.Subqueue.Deferred(), 0)
	case StepDeadLetter:
		return t.DeadLetter(s.Lock.Seq, s.subqueue(), s.Why)
	}
	return fmt.Errorf("a step of kind %d", s.Kind)
}
