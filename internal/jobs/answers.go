package jobs

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
)

// A job that was made of a message with a reply_to answers it. The answer is sent in the
// transaction that ends a generation of the job, so there is one for each generation. What an
// answer needs comes with the rows that settlements read anyway. The answers of a transaction are
// sent together. A reply that cannot be sent becomes an event, and the job ends all the
// same.

func (d *LockedJob) asker() events.Asker {
	return events.Asker{JobID: d.ID, Tenant: d.Tenant, Reply: d.Reply}
}

// ends is for the settlement of a delivery that ends its job. It has the beginning of the
// transaction ask where the answer goes, and take the answer's number.
func (d *LockedJob) ends(o db.Op) db.Op {
	if d.Reply != nil {
		asks := o.Asks
		o.Numbers = 1
		o.Asks = func() []driver.Prefetch { return append(asks(), d.asker().Target()...) }
	}
	return o
}

// settleForGood is settle for what ends the job.
func (s *Store) settleForGood(ctx context.Context, d *LockedJob, a AttemptRecord, f func(*Tx) error) error {
	return s.settled(ctx, d, &a, d.ends(settling(d, (*LockedJob).prefetchLocked)), f)
}

// answerSize is about how many bytes the answer about a result has.
func (d *LockedJob) answerSize(out Output) int {
	if d.Reply == nil {
		return 0
	}
	return max(len(out.Inline), len(out.Reply)) + rowBytes
}

// answer notes the answer about a generation that ends. after is how many events the same
// transition tells after the one of the end.
func (t *Tx) answer(e *ending, after int64) error {
	a := e.asker.Answer(e.seq, e.status, e.generation)
	if a == nil {
		return nil
	}
	if t.Concurrent {
		return db.ErrNotAlone
	}
	a.Size, a.Result = e.out.Size, e.out.Inline
	if a.Result == nil {
		a.Result = e.out.Reply
	}
	a.Fail(e.failure.Class, Bounded(e.failure.Code), e.failure.Message)
	t.PrefetchSoon(e.asker.Target())
	t.answers = append(t.answers, *a)
	t.unsent = append(t.unsent, event{seq: e.seq, tenant: e.session.tenant, queue: e.session.queue, number: e.version + after + 1, kind: forebay.EventReplyFailed,
		status: e.status, generation: e.generation, attempt: e.number})
	return nil
}

// sendAnswers sends the answers since the last call. Those that cannot be sent become events.
func (t *Tx) sendAnswers() error {
	answers, unsent := t.answers, t.unsent
	if t.answers, t.unsent = nil, nil; len(answers) == 0 {
		return nil
	}
	return events.SendAnswers(t.Tx, answers, events.MaxReply(t.w.store.MaxReplyBytes.Load()), &t.tally, func(i int, code forebay.Code, number int64) error {
		failed := unsent[i]
		if failed.code = string(code); number > 0 {
			failed.number = number
		}
		return t.event(failed)
	})
}
