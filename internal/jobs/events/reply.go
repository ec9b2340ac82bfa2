package events

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// Answer is the answer to the message of a job whose generation has ended.
type Answer struct {
	Seq        int64
	Tenant     int64
	JobID      string
	Address    *request.ReplyAddress
	Status     forebay.Status
	Generation int
	Error      *forebay.JobError // nil: none
	Result     []byte            // nil: it is larger than a reply may be, or there is none
	Size       int64             // of the result
}

// Asker is a job as the one that answers a message.
type Asker struct {
	JobID  string
	Tenant int64
	Reply  []byte // as request.EncodeReply returns it; nil: nobody waits for an answer
}

// Target asks for where the answer goes, if it can go anywhere. Only the job's own row says so,
// and that part of it never changes. What is found stays true within the transaction: see
// bus.PrefetchReply.
func (a Asker) Target() []driver.Prefetch {
	if address := request.DecodeReply(a.Reply); address != nil && address.Stored != "" {
		return []driver.Prefetch{bus.PrefetchReply(a.Tenant, address.Stored)}
	}
	return nil
}

// Answer is the answer about a generation of the job, as yet without a result and an error; nil:
// nobody waits for one.
func (a Asker) Answer(seq int64, status forebay.Status, generation int) *Answer {
	address := request.DecodeReply(a.Reply)
	if address == nil {
		return nil
	}
	return &Answer{Seq: seq, Tenant: a.Tenant, JobID: a.JobID, Address: address, Status: status, Generation: generation}
}

// Fail says why the generation failed; code "": it did not.
func (a *Answer) Fail(class forebay.ErrorClass, code string, message []byte) {
	if code != "" {
		a.Error = &forebay.JobError{Class: class, Code: code, Message: request.Text(message)}
	}
}

// SQLEventFollows counts the event of a failed reply in the message of a job that was set aside,
// and redriven perhaps.
var SQLEventFollows = driver.PrefetchForm("UPDATE messages SET version = version + 1 WHERE seq = ? RETURNING version",
	"UPDATE messages m SET version = version + 1 FROM %s WHERE m.seq = ANY (ARRAY[x.p1]) RETURNING x.p1, m.version")

// SendAnswers sends answers, each of at most that many bytes, as a part of the transaction. It
// calls failed for those that cannot be sent, with the reason. If the job's message is still
// there, failed also gets the number of the job's next event. It takes at most two round trips:
// one finds where the answers go, unless that is known by then, and one what they need there.
// What failed is counted in the second.
func SendAnswers(t *db.Tx, answers []Answer, maxBytes int64, tally *Tally, failed func(i int, why forebay.Code, number int64) error) error {
	list := make([]bus.Reply, len(answers))
	for i := range answers {
		m, short, err := answers[i].messages(maxBytes)
		if err != nil {
			return err
		}
		list[i] = bus.Reply{Tenant: answers[i].Tenant, To: answers[i].Address.Stored, Message: m, Short: short}
	}
	replies, err := bus.Key.Of(t).RepliesTo(list)
	if err != nil {
		return err
	}
	var follow []driver.Prefetch
	for i, why := range replies.Refused {
		if why == nil {
			tally.Answered++
			continue
		}
		tally.CountUnanswered(answers[i].JobID, why.Code)
		q := driver.NewPrefetch(SQLEventFollows, queue.MessageRow(answers[i].Seq)).Int(answers[i].Seq)
		q.Write = true
		follow = append(follow, q)
	}
	parts := []func() error{replies.Foresee, func() error { return t.Prefetch(follow) }}
	if err := t.Interleave(len(parts), func(i int) error { return parts[i]() }); err != nil {
		return err
	}
	for i, why := range replies.Refused {
		if why == nil {
			continue
		}
		number := int64(0) // a job with two answers is counted a second time here
		_, err := t.Prep(SQLEventFollows).Int(answers[i].Seq).One(func(r driver.Row) { number = r.Int(0) })
		if err == nil {
			err = failed(i, why.Code, number)
		}
		if err != nil {
			return err
		}
	}
	return replies.Send()
}

// MaxReply is the most bytes of a reply where a plain message may have so many; 0: as many as by
// default.
func MaxReply(message int64) int64 {
	if message > 0 {
		return min(message, forebay.MaxReplyBytes)
	}
	return forebay.MaxReplyBytes
}

// messages are the answer as it is sent, and the same without its result, if it has one. The id
// is the same for one generation of a job.
func (a *Answer) messages(maxBytes int64) (m bus.MessageContent, short *bus.MessageContent, err error) {
	m = bus.MessageContent{
		MessageID: fmt.Sprintf("%s-reply-%d", a.JobID, a.Generation), CorrelationID: a.Address.CorrelationID, SessionID: a.Address.SessionID,
		Subject: string(a.Status), ContentType: "application/json", Text: true,
	}
	properties := forebay.Properties{"job_id": a.JobID, "status": string(a.Status), "generation": int64(a.Generation)}
	if a.Status != forebay.StatusSucceeded {
		if a.Error != nil {
			properties["error_code"] = a.Error.Code
		}
		if m.Body, err = json.Marshal(forebay.ReplyError{Error: a.Error}); err == nil {
			err = m.SetProperties(properties)
		}
		return m, nil, err
	}
	whole, reference := m, m
	if err := whole.SetProperties(properties); err != nil {
		return m, nil, err
	}
	links := forebay.NewLinks(a.JobID)
	reference.Body, err = json.Marshal(forebay.ReplyReference{JobID: a.JobID, ResultBytes: a.Size, Links: forebay.EventLinks{Job: links.Self, Result: links.Result}})
	if err != nil {
		return m, nil, err
	}
	properties["claim_check"] = true
	if err := reference.SetProperties(properties); err != nil {
		return m, nil, err
	}
	if whole.Body = a.Result; a.Result == nil || whole.Size() > maxBytes {
		return reference, nil, nil
	}
	return whole, &reference, nil
}
