package messages

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type messageData struct {
	Entity  entity
	Dead    bool
	Message forebay.Message
	Mend    *mending // nil: it is no dead letter
}

// Text is the body's text; "" if it is bytes.
func (d messageData) Text() string {
	if d.Message.Body == nil {
		return ""
	}
	return *d.Message.Body
}

// IsText reports whether the body is text.
func (d messageData) IsText() bool { return d.Message.Body != nil || d.Message.BodyBase64 == nil }

// Base64 is the beginning of a body of bytes.
func (d messageData) Base64() string {
	const most = 4 << 10
	return base64.StdEncoding.EncodeToString(d.Message.BodyBase64[:min(most, len(d.Message.BodyBase64))])
}

// Back is the page of the queue or subscription.
func (d messageData) Back() string { return tabOf(d.Entity.Page(), d.Dead) }

// IsJSON reports whether the body says that it is JSON.
func (d messageData) IsJSON() bool {
	return strings.Contains(strings.ToLower(d.Message.ContentType), "json")
}

// numberOf reads a sequence number of the address.
func numberOf(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, forebay.ErrNotFound
	}
	return n, nil
}

// showMessage answers GET …/messages/{number}. The message is not received.
func showMessage(r *kit.Request) error {
	d, err := messageOf(r, r.Query("tab") == deadTab)
	if err != nil {
		return err
	}
	return d.render(r, 0)
}

// messageOf reads the message that the address names.
func messageOf(r *kit.Request, dead bool) (d messageData, err error) {
	d.Entity, d.Dead = entityOf(r), dead
	number, err := numberOf(r.PathValue("number"))
	if err != nil {
		return d, err
	}
	d.Message, err = kit.Fetch[forebay.Message](r, d.Entity.api(dead, "messages", strconv.FormatInt(number, 10)), nil)
	if dead {
		d.Mend = mendingOf(&d.Message)
	}
	return d, err
}

func (d messageData) render(r *kit.Request, status int) error {
	number := strconv.FormatInt(d.Message.SequenceNumber, 10)
	commands := []string{"forebay messages show " + kit.Shell(d.Entity.subqueue(d.Dead)) + " " + number}
	if d.Dead {
		commands = append(commands, "forebay messages redrive "+kit.Shell(d.Entity.Name)+" "+number+" --set-body-file FILE --dry-run")
	}
	return pages.Render(r, "message", kit.Page{Title: "Message " + number, Section: d.Entity.section(), Data: d, Status: status, Still: d.Dead, Commands: commands})
}

// cancelScheduled answers POST …/messages/{number}/cancel.
func cancelScheduled(r *kit.Request) error {
	e := entityOf(r)
	number, err := numberOf(r.PathValue("number"))
	if err != nil {
		return err
	}
	if err := r.Client.Messages(e.Name).CancelScheduled(r.Context(), number); err != nil {
		return err
	}
	return r.Done(e.Page(), "The scheduled message "+strconv.FormatInt(number, 10)+" is cancelled.")
}

// receivedData is a message under a lock, with what may be done with it.
type receivedData struct{ messageData }

// Content is what the message holds.
func (d receivedData) Content() messageData { return d.messageData }

type settlement struct{ Act, Button string }

// Acts end the lock.
func (receivedData) Acts() []settlement {
	return []settlement{{"complete", "Complete: remove it"}, {"abandon", "Abandon: give it back"}, {"release", "Give it back as if not delivered"}, {"defer", "Defer"}}
}

// receive answers POST …/receive: it locks one message and shows it. The lock token stands in
// the forms of the page alone.
func receive(r *kit.Request) error {
	e := entityOf(r)
	form, err := r.Form()
	if err != nil {
		return err
	}
	dead := form.Get("tab") == deadTab
	got, err := r.Client.Messages(e.subqueue(dead)).Receive(r.Context(), forebay.ReceiveRequest{MaxMessages: 1})
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return r.Done(tabOf(e.Page(), dead), "No message can be received now.")
	}
	return pages.Render(r, "received", kit.Page{Title: "Received message " + strconv.FormatInt(got[0].SequenceNumber, 10), Section: e.section(),
		Data: receivedData{messageData{e, dead, got[0], nil}}, Still: true, Commands: []string{"forebay messages receive " + kit.Shell(e.subqueue(dead))}})
}

func tabOf(path string, dead bool) string {
	if dead {
		return path + "?tab=" + deadTab
	}
	return path
}

// settle answers POST …/settle: it ends the lock of a received message.
func settle(r *kit.Request) error {
	e := entityOf(r)
	form, err := r.Form()
	if err != nil {
		return err
	}
	dead := form.Get("tab") == deadTab
	token, messages := form.Get("lock_token"), r.Client.Messages(e.subqueue(dead))
	how := forebay.Settlement{Reason: form.Get("reason"), Description: form.Get("description")}
	var notice string
	switch form.Get("act") {
	case "complete":
		notice, err = "The message is removed: it has been dealt with.", messages.Complete(r.Context(), token)
	case "abandon":
		notice, err = "The message is given back. The delivery counts.", messages.Abandon(r.Context(), token, forebay.Settlement{})
	case "release":
		notice, err = "The message is given back, as if it had not been delivered.", messages.Release(r.Context(), token)
	case "defer":
		notice, err = "The message is deferred. It can be received by its sequence number only.", messages.Defer(r.Context(), token, forebay.Settlement{})
	case "dead-letter":
		notice, err = "The message is in the dead-letter subqueue.", messages.DeadLetter(r.Context(), token, how)
	default:
		err = forebay.Invalid("act", "is none that settles a message")
	}
	if err != nil {
		return err
	}
	return r.Done(tabOf(e.Page(), dead), notice)
}
