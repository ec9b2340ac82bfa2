package entity

import (
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// Reply is a message for a queue or a topic that another message named.
type Reply struct {
	Tenant  int64  // whose queue or topic it must be
	To      string // its stored name, in any case; "": none that could exist
	Message message.Content
	Short   *message.Content // instead, if the entity takes no message as large; nil: there is nothing shorter
}

// Why a reply is not sent.
var (
	errReplyTarget  = forebay.Errorf(forebay.CodeUnknownQueue, "reply_to names no queue and no topic of messages")
	errReplyPrivate = forebay.Errorf(forebay.CodeForbidden, "reply_to names a topic that only Forebay publishes to")
)

// Fit shortens a reply if the entity asks for that. It says why it cannot be sent there; nil: it
// can.
func (r *Reply) Fit(q *Queue, found bool) (refusal *forebay.Error) {
	switch {
	case !found, q.Topic != 0:
		return errReplyTarget
	case OnlyForebayPublishes(q.Name):
		return errReplyPrivate
	case q.MaxMessage > 0 && r.Short != nil && r.Message.Size() > q.MaxMessage:
		r.Message = *r.Short
	}
	errors.As(q.CheckMessage(&r.Message), &refusal)
	return refusal
}
