package jobs

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/request"
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
	t.unsent = append(t.unsent, event{seq: e.seq, tenant: e.session.tenant, queue: e.session.queue, number: e.version + after + 1, kind: forebay.EventReplyFailed,
		status: e.status, generation: e.generation, attempt: e.number})
	return nil
}

// sqlEventFollows counts the event of a failed reply in the message of a job that was set aside,
// and redriven perhaps.
const sqlEventFollows = "UPDATE messages SET version = version + 1 WHERE seq = ? RETURNING version"

// sendAnswers sends the answers since the last call.
func (t *Tx) sendAnswers() error {
	answers, unsent := t.answers, t.unsent
	if t.answers, t.unsent = nil, nil; len(answers) == 0 {
		return nil
	}
	refused, err := events.SendAnswers(t.Tx, answers, events.MaxReply(t.w.store.MaxReplyBytes.Load()))
	if err != nil {
		return err
	}
	return t.Interleave(len(answers), func(i int) error {
		why, failed := refused[i], unsent[i]
		if why == nil {
			t.tally.Answered++
			return nil
		}
		t.tally.CountUnanswered(answers[i].JobID, why.Code)
		failed.code = string(why.Code)
		_, err := t.Prep(sqlEventFollows).Int(failed.seq).One(func(r driver.Row) { failed.number = r.Int(0) })
		if err != nil {
			return err
		}
		return t.event(failed)
	})
}
