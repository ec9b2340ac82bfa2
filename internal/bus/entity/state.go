package entity

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// State is what every entity has besides its settings for messages.
type State struct {
	Status       forebay.EntityStatus // "": active
	MaxMessage   int64                // bytes of one message; 0: what the server allows
	UserMetadata string
	Attributes   string    // JSON that only Service Bus's management protocol reads and writes; "": none
	UpdatedAt    time.Time // of the latest change of its settings
	AccessedAt   time.Time // of its latest use, to the minute; zero: none is known
}

// Keep says what of an existing entity a put leaves as it is.
type Keep struct{ Status, UserMetadata, Attributes bool }

// From takes what is to be kept from the entity as it was.
func (k Keep) From(before Queue, q *Queue) {
	if k.Status {
		q.Status = before.Status
	}
	if k.UserMetadata {
		q.UserMetadata = before.UserMetadata
	}
	if k.Attributes {
		q.Attributes = before.Attributes
	}
}

// ApplyChange checks a change and sets it on the entity. It returns what the change leaves as it
// is.
func ApplyChange(change forebay.EntityChange, q *Queue) (Keep, error) {
	keep := Keep{Status: change.Status == "", UserMetadata: change.UserMetadata == nil, Attributes: true}
	if !keep.Status {
		if err := checkStatus(change.Status, *q); err != nil {
			return keep, err
		}
		q.Status = change.Status
	}
	if !keep.UserMetadata {
		if err := checkMetadata(*change.UserMetadata); err != nil {
			return keep, err
		}
		q.UserMetadata = *change.UserMetadata
	}
	return keep, nil
}

// checkStatus refuses a status that the kind of the entity cannot have (Service Bus documentation,
// "entity-suspend").
func checkStatus(status forebay.EntityStatus, q Queue) error {
	switch status {
	case forebay.EntityActive:
		return nil
	case forebay.EntityDisabled, forebay.EntitySendDisabled, forebay.EntityReceiveDisabled:
	default:
		return forebay.Invalid("status", "must be %s, %s, %s or %s", forebay.EntityActive, forebay.EntityDisabled, forebay.EntitySendDisabled, forebay.EntityReceiveDisabled)
	}
	switch {
	case q.IsTopic && status == forebay.EntityReceiveDisabled:
		return forebay.Invalid("status", "of a topic must be %s, %s or %s: nobody receives from it", forebay.EntityActive, forebay.EntityDisabled, forebay.EntitySendDisabled)
	case (q.Topic != 0 || IsSubscription(q.Name)) && status == forebay.EntitySendDisabled:
		return forebay.Invalid("status", "of a subscription must be %s, %s or %s: nobody sends to it", forebay.EntityActive, forebay.EntityDisabled, forebay.EntityReceiveDisabled)
	case OnlyForebayPublishes(q.Name):
		return forebay.Invalid("status", "must stay %s: only Forebay publishes to this topic; its subscriptions may be disabled", forebay.EntityActive)
	}
	return nil
}

func checkMetadata(text string) error {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > forebay.MaxUserMetadata || strings.ContainsFunc(text, control) {
		return forebay.Invalid("user_metadata", "must be at most %d characters of UTF-8, with no control characters but tabs and line ends", forebay.MaxUserMetadata)
	}
	return nil
}

// CheckAttributes refuses attributes that are not a bounded JSON object.
func CheckAttributes(attributes string) error {
	if attributes == "" {
		return nil
	}
	if len(attributes) > forebay.MaxEntityAttributes || !utf8.ValidString(attributes) || attributes[0] != '{' || !json.Valid([]byte(attributes)) || strings.Contains(attributes, `\u0000`) {
		return forebay.Invalid("attributes", "must be a JSON object of at most %d bytes", forebay.MaxEntityAttributes)
	}
	return nil
}

// ErrSendDisabled refuses to send to an entity because of its status.
func (q Queue) ErrSendDisabled() error {
	return &forebay.Error{Code: forebay.CodeEntityDisabled, Field: q.kind(), Message: "is " + string(q.Status) + ": nobody may send to it"}
}

// ErrReceiveDisabled refuses to receive from an entity, or to settle what was received, because of
// the status of the entity.
var ErrReceiveDisabled = &forebay.Error{Code: forebay.CodeEntityDisabled, Field: "queue", Message: "is disabled: nobody may receive from it, and nothing leaves it"}

func (q Queue) kind() string {
	if q.IsTopic {
		return "topic"
	}
	return "queue"
}

// ErrNoSessionID refuses a message for a queue that requires sessions.
var ErrNoSessionID = forebay.Invalid("session_id", "was not set on the message: a queue that requires sessions takes only messages that have one")

// CheckMessage refuses a message that nobody may send to the queue or topic.
func (q *Queue) CheckMessage(m *message.Content) error {
	switch {
	case !q.Status.Sends():
		return q.ErrSendDisabled()
	case q.RequiresSession && m.SessionID == "":
		return ErrNoSessionID
	case q.MaxMessage > 0:
		return m.CheckSize("body", q.MaxMessage)
	}
	return nil
}
