package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// A job that was made of a message with a reply_to answers it. The answer is sent in the
// transaction that ends a generation of the job, so there is one for each generation. What an
// answer needs comes with the rows that settlements read anyway. The answers of a transaction are
// sent together. A reply that cannot be sent becomes an event, and the job ends all the
// same.

// answering is what an answer to a job's message needs of the job.
type answering struct {
	id     string
	tenant int64
	reply  []byte // as request.EncodeReply returns it; nil: nobody waits for an answer
}

func (d *LockedJob) answering() answering { return answering{d.ID, d.Tenant, d.Reply} }

// target asks for where the answer goes, if it can go anywhere. Only the job's own row says so, which
// never changes. What is found there stays true within the transaction: see bus.PrefetchReply.
func (a *answering) target() []driver.Prefetch {
	if address := request.DecodeReply(a.reply); address != nil && address.Stored != "" {
		return []driver.Prefetch{bus.PrefetchReply(a.tenant, address.Stored)}
	}
	return nil
}

// ends has the settlement of a delivery that ends its job ask where the answer goes, and take the
// answer's number, with the beginning of the transaction.
func (d *LockedJob) ends(o db.Op) db.Op {
	if d.Reply != nil {
		asks := o.Asks
		o.Numbers = 1
		o.Asks = func() []driver.Prefetch {
			a := d.answering()
			return append(asks(), a.target()...)
		}
	}
	return o
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
	address := request.DecodeReply(e.answering.reply)
	if address == nil {
		return nil
	}
	if t.Concurrent {
		return db.ErrNotAlone
	}
	a := events.Answer{Seq: e.seq, Tenant: e.answering.tenant, JobID: e.answering.id, Address: address, Status: e.status, Generation: e.generation, Size: e.out.Size}
	if a.Result = e.out.Inline; a.Result == nil {
		a.Result = e.out.Reply
	}
	if e.failure.Code != "" {
		a.Error = &forebay.JobError{Class: e.failure.Class, Code: Bounded(e.failure.Code), Message: request.Text(e.failure.Message)}
	}
	t.answers = append(t.answers, a)
	t.PrefetchSoon(e.answering.target())
	t.unsent = append(t.unsent, event{seq: e.seq, tenant: e.session.tenant, queue: e.session.queue, number: e.version + after + 1, kind: forebay.EventReplyFailed,
		status: e.status, generation: e.generation, attempt: e.number})
	return nil
}

// sqlEventFollows counts the event of a failed reply in the message of a job that was set aside,
// and redriven perhaps.
var sqlEventFollows = driver.PrefetchForm("UPDATE messages SET version = version + 1 WHERE seq = ? RETURNING version",
	"UPDATE messages m SET version = version + 1 FROM %s WHERE m.seq = ANY (ARRAY[x.p1]) RETURNING x.p1, m.version")

// sendAnswers sends the answers since the last call. It takes two round trips: one finds where
// they go, unless that is known by then, and one what they need there. What failed is counted in
// the second.
func (t *Tx) sendAnswers() error {
	answers, unsent := t.answers, t.unsent
	if t.answers, t.unsent = nil, nil; len(answers) == 0 {
		return nil
	}
	replies, err := events.Replies(t.Tx, answers, events.MaxReply(t.w.store.MaxReplyBytes.Load()))
	if err != nil {
		return err
	}
	var failed []event
	for i, why := range replies.Refused {
		if why == nil {
			t.tally.Answered++
			continue
		}
		t.tally.CountUnanswered(answers[i].JobID, why.Code)
		unsent[i].code = string(why.Code)
		failed = append(failed, unsent[i])
	}
	parts := []func() error{replies.Foresee, func() error { return t.repliesFailed(failed) }}
	if err := t.Interleave(len(parts), func(i int) error { return parts[i]() }); err != nil {
		return err
	}
	return replies.Send()
}

// repliesFailed tells of replies that could not be sent.
func (t *Tx) repliesFailed(list []event) error {
	follow := make([]driver.Prefetch, len(list))
	for i := range list {
		follow[i] = driver.NewPrefetch(sqlEventFollows, queue.MessageRow(list[i].seq)).Int(list[i].seq)
		follow[i].Write = true
	}
	if err := t.Prefetch(follow); err != nil {
		return err
	}
	for _, failed := range list { // a job that failed twice is counted again, by itself
		_, err := t.Prep(sqlEventFollows).Int(failed.seq).One(func(r driver.Row) { failed.number = r.Int(0) })
		if err == nil {
			err = t.event(failed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
