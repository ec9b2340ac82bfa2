package bus

import (
	"context"
	"fmt"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Bounds of one commit. Everybody waits for its transaction. Service Bus takes 100 messages in a
// transaction (service-bus-quotas).
const (
	MaxCommitSteps  = 500     // messages that are sent, and other steps
	MaxCommitBytes  = 4 << 20 // of messages, changed properties and states
	MaxCommitCopies = rules.FullCopies
)

// StepKind says what a step does.
type StepKind int

// The kinds of steps. From StepComplete to StepDeadLetter they settle a message.
const (
	StepSend StepKind = iota
	StepCancel
	StepState
	StepComplete
	StepAbandon
	StepRelease
	StepDefer
	StepDeadLetter
)

func (k StepKind) settles() bool { return k >= StepComplete }

// Step is one of those that [Store.Commit] takes together. Queue is set in all of them.
type Step struct {
	Kind  StepKind
	Queue MessageQueue

	// Of StepSend. Numbers are nil, or those of the messages as [TakeNumbers] gave them.
	Messages []MessageContent
	Numbers  []Number

	// Of steps that settle. DeadLetters says that the message is in the dead-letter subqueue.
	DeadLetters bool
	Lock        queue.Lock
	Changed     forebay.Properties
	Why         DeadLettering

	Seq int64 // of StepCancel: the scheduled message

	// Of StepState.
	Session SessionLock
	State   []byte
}

func (s *Step) subqueue() queue.Subqueue { return s.Queue.Subqueue(s.DeadLetters) }

// Weight is how many steps it counts for, and its bytes.
func (s *Step) Weight() (steps int, bytes int64) {
	for i := range s.Messages {
		bytes += s.Messages[i].Size()
	}
	bytes += int64(len(s.State) + len(s.Why.Reason) + len(s.Why.Description))
	for name, value := range s.Changed {
		bytes += int64(len(name))
		switch v := value.(type) {
		case string:
			bytes += int64(len(v))
		case []byte:
			bytes += int64(len(v))
		default:
			bytes += 16 // the largest of the others, a UUID
		}
	}
	return max(len(s.Messages), 1), bytes
}

// CheckCommit refuses a commit of more steps, or more bytes, than one may have.
func CheckCommit(steps int, bytes int64) error {
	switch {
	case steps > MaxCommitSteps:
		return forebay.Invalid("steps", "cannot be more than %d in a transaction: messages that are sent, and other steps", MaxCommitSteps)
	case bytes > MaxCommitBytes:
		return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "steps", Message: fmt.Sprintf("may have at most %d MiB together in a transaction", MaxCommitBytes>>20)}
	}
	return nil
}

var errCommitCopies = &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "steps",
	Message: fmt.Sprintf("would make more than %d copies, or %d MiB of them, in topics; send fewer messages in a transaction", MaxCommitCopies, rules.FullCopyBytes>>20)}

// ErrNotScheduled says that no message is scheduled in the queue or topic under a number.
func ErrNotScheduled(q MessageQueue) error {
	if q.IsTopic {
		return forebay.Errorf(forebay.CodeNotFound, "no message is scheduled under this number; once it is active it has gone to the subscriptions")
	}
	return forebay.Errorf(forebay.CodeNotFound, "no message is scheduled under this number; once it is active it has another")
}

// Number is a sequence number that was taken before its message is stored.
type Number struct {
	Seq int64
	at  int64 // when it was taken
}

// TakeNumbers takes sequence numbers for messages that a later commit schedules. Those that it
// does not use are never given.
func TakeNumbers(ctx context.Context, s *Store, tenant int64, n int) ([]Number, error) {
	if err := CheckCommit(n, 0); err != nil {
		return nil, err
	}
	o := db.Op{Stage: db.StageChange, Party: tenant, Rows: 1, Numbers: n, Local: true, Interleaves: true}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) ([]Number, error) {
		numbers := make([]Number, n)
		for i := range numbers {
			seq, err := t.Queue.NewSeq()
			if err != nil {
				return nil, err
			}
			numbers[i] = Number{seq, t.Now}
		}
		return numbers, nil
	})
}

// Commit does all steps in one transaction, or none. They belong to entities of one tenant. It
// returns the sequence numbers of messages that were sent, by step. It refuses all steps if one
// cannot be done, for example because its lock is lost. The refusal names that step as steps[i].
// As in [Store.Send], a duplicate is dropped and gets the number of the message that came first.
// A message with many copies waits in its topic, and the writer makes them.
func (s *Store) Commit(ctx context.Context, steps []Step) (seqs [][]int64, err error) {
	c, err := newCommit(steps)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	for try := 1; ; try++ {
		judges := false
		var copies commitCopies
		for i := range c.sends {
			to := &c.sends[i]
			if to.judged = nil; !to.IsTopic || try > judgeTries { // then the transaction judges, within narrower limits
				continue
			}
			judges = true
			if to.judged, err = s.judge(ctx, to.No, to.messages, try > 1); err == nil && to.judged != nil {
				err = copies.add(to.judged.Copies)
			}
			if err != nil {
				return nil, rules.InField(fmt.Sprintf("steps[%d]", c.first(i)), err)
			}
		}
		seqs, err = db.TransactIn(ctx, Key, s.Writer, c.operation(), func(t *Tx) ([][]int64, error) { return t.commit(c) })
		if !topicChanged(err) || !judges {
			return seqs, err
		}
	}
}

// commitCopies counts what topics make of the messages of a commit.
type commitCopies struct {
	copies int
	bytes  int64
}

// add returns errCommitCopies if that is more than one commit may make. Bodies that copies share
// do not count.
func (c *commitCopies) add(picks [][]pick) error {
	for _, copies := range picks {
		c.copies += len(copies)
		for _, one := range copies {
			size := one.Content.Size()
			if len(one.Content.Body)+len(one.Content.Properties) >= minSharedBytes {
				size -= int64(len(one.Content.Body))
			}
			c.bytes += size
		}
	}
	if c.copies > MaxCommitCopies || c.bytes > rules.FullCopyBytes {
		return errCommitCopies
	}
	return nil
}

// commit is what the steps of a commit come to.
type commit struct {
	steps []Step
	sends []sending // one for each queue or topic
	place []placed  // of each step, in sends
	rows  int
	bytes int64
}

// placed is where the messages of a step are in a commit's sends.
type placed struct{ send, from int }

// newCommit checks the steps by themselves.
func newCommit(steps []Step) (*commit, error) {
	c := &commit{steps: steps, place: make([]placed, len(steps))}
	named := map[driver.RowName]bool{}
	byQueue := map[int64]int{}
	for i := range steps {
		s := &steps[i]
		rows, bytes := s.Weight()
		c.rows += rows
		c.bytes += bytes
		row, known := s.row()
		switch {
		case s.Queue.Tenant != steps[0].Queue.Tenant:
			return nil, rules.InField(fmt.Sprintf("steps[%d]", i), entity.ErrNoQueue)
		case known && named[row]:
			return nil, forebay.Invalid(fmt.Sprintf("steps[%d]", i), "is about the same message as an earlier step")
		case known:
			named[row] = true
		}
		if s.Kind != StepSend {
			continue
		}
		at, sends := byQueue[s.Queue.No]
		if !sends {
			at = len(c.sends)
			byQueue[s.Queue.No] = at
			c.sends = append(c.sends, sending{MessageQueue: s.Queue})
		}
		c.place[i] = placed{at, len(c.sends[at].messages)}
		c.sends[at].take(s)
	}
	return c, CheckCommit(c.rows, c.bytes)
}

// inSession reports whether the step needs the lock of a session.
func (s Step) inSession() bool {
	return s.Queue.RequiresSession && !s.DeadLetters && (s.Kind.settles() || s.Kind == StepState)
}

// row names the message that the step settles or cancels, if it does.
func (s *Step) row() (row driver.RowName, known bool) {
	if s.Kind.settles() {
		return queue.MessageRow(s.Lock.Seq), true
	}
	return queue.MessageRow(s.Seq), s.Kind == StepCancel
}

// take adds the messages of a step.
func (s *sending) take(step *Step) {
	if step.Numbers != nil && s.numbers == nil {
		s.numbers = make([]Number, len(s.messages))
	}
	s.messages = append(s.messages, step.Messages...)
	if s.numbers != nil {
		s.numbers = append(s.numbers, step.Numbers...)
		s.numbers = append(s.numbers, make([]Number, len(s.messages)-len(s.numbers))...)
	}
}

// first returns the first step that sends to the queue or topic of that place.
func (c *commit) first(send int) int {
	return slices.IndexFunc(c.steps, func(s Step) bool { return s.Kind == StepSend && s.Queue.No == c.sends[send].No })
}

// operation is what is known of the commit.
func (c *commit) operation() db.Op {
	o := db.Op{Stage: db.StageChange, Party: c.steps[0].Queue.Tenant, Rows: c.rows, Size: int(c.bytes), Local: true, Interleaves: true, Asks: c.asks}
	if slices.ContainsFunc(c.steps, Step.inSession) {
		o.Stage = db.StageSettle // before sessions are closed, which gives back messages that the commit does not name
	}
	for i := range c.sends {
		to := &c.sends[i]
		rows := to.judged.Rows(len(to.messages))
		o.Rows += rows - len(to.messages)
		o.Numbers += rows + forwards(to.MessageQueue, len(to.messages), to.judged)
	}
	for i := range c.steps {
		o.Numbers += int(driver.BoolInt(c.steps[i].Kind.settles())) // if it is dead-lettered and sent on
	}
	return o
}

func (c *commit) asks() (asks []driver.Prefetch) {
	for i := range c.steps {
		s := &c.steps[i]
		switch s.Kind {
		case StepSend:
			continue
		case StepState:
			asks = append(asks, s.Session.prefetch(s.Queue))
		case StepCancel:
			asks = append(asks, driver.NewPrefetch(sqlScheduled, queue.MessageRow(s.Seq)).Int(s.Seq).Int(int64(s.Queue.Subqueue(false))))
		default:
			asks = append(asks, driver.NewPrefetch(sqlHeld, queue.MessageRow(s.Lock.Seq)).Int(s.Lock.Seq).Int(s.Lock.Token))
		}
		asks = append(asks, entity.Prefetch(s.Queue.No))
	}
	for i := range c.sends {
		asks = append(asks, prefetchSend(c.sends[i].MessageQueue, c.sends[i].messages, c.sends[i].judged)...)
	}
	return asks
}
