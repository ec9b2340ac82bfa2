package events

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs/request"
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

// Replies finds where answers go, each of at most that many bytes.
func Replies(t *db.Tx, answers []Answer, maxBytes int64) (*bus.Replies, error) {
	list := make([]bus.Reply, len(answers))
	for i := range answers {
		m, short, err := answers[i].messages(maxBytes)
		if err != nil {
			return nil, err
		}
		list[i] = bus.Reply{Tenant: answers[i].Tenant, To: answers[i].Address.Stored, Message: m, Short: short}
	}
	return bus.Key.Of(t).RepliesTo(list)
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
