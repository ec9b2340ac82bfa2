package messages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// messageForm is a message as somebody types it.
type messageForm struct {
	Body, ContentType, Subject, MessageID, SessionID, CorrelationID, To, ReplyTo, Properties string
	TimeToLive                                                                               string // such as 1h
	Schedule                                                                                 string // a time, or a length of time from now
}

func readMessageForm(form url.Values) messageForm {
	return messageForm{
		Body: plainLines(form.Get("body")), ContentType: form.Get("content_type"), Subject: form.Get("subject"), MessageID: form.Get("message_id"),
		SessionID: form.Get("session_id"), CorrelationID: form.Get("correlation_id"), To: form.Get("to"), ReplyTo: form.Get("reply_to"),
		Properties: plainLines(form.Get("properties")), TimeToLive: strings.TrimSpace(form.Get("time_to_live")), Schedule: strings.TrimSpace(form.Get("schedule")),
	}
}

// plainLines undoes what browsers do to the ends of lines.
func plainLines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// message returns the message to send.
func (f messageForm) message() (m forebay.NewMessage, err error) {
	m = forebay.NewMessage{
		MessageID: f.MessageID, SessionID: f.SessionID, CorrelationID: f.CorrelationID, Subject: f.Subject, To: f.To, ReplyTo: f.ReplyTo,
		ContentType: f.ContentType, Body: &f.Body,
	}
	if m.Properties, err = parseProperties(f.Properties, "\n"); err != nil {
		return m, err
	}
	if f.TimeToLive != "" {
		d, err := time.ParseDuration(f.TimeToLive)
		if err != nil || d <= 0 {
			return m, forebay.Invalid("time_to_live", "must be a length of time, such as 90s or 24h")
		}
		m.TimeToLiveSeconds = d.Seconds()
	}
	if f.Schedule != "" {
		at, err := parseTime(f.Schedule)
		if err != nil {
			return m, err
		}
		m.ScheduledTime = &at
	}
	return m, nil
}

// parseTime reads a time, or a length of time from now.
func parseTime(s string) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return time.Now().Add(d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, forebay.Invalid("schedule", "must be a time in UTC, such as 2030-01-31 08:00, or a length of time from now, such as 10m")
}

// parseProperties reads a JSON object, or parts of name=value between separators. A value is read
// as JSON, and is a text if it is no JSON, as with the command line.
func parseProperties(s, separator string) (forebay.Properties, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	p := forebay.Properties{}
	if strings.HasPrefix(s, "{") {
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			return nil, forebay.Invalid("properties", "is no JSON object of properties")
		}
		return p, p.Check()
	}
	for n, line := range strings.Split(s, separator) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, forebay.Invalid("properties", "part %d must be name=value", n+1)
		}
		value = strings.TrimSpace(value)
		var one forebay.Properties
		if json.Unmarshal([]byte(`{"v":`+value+`}`), &one) == nil && len(one) == 1 && one["v"] != nil {
			p[name] = one["v"]
		} else {
			p[name] = value
		}
	}
	return p, p.Check()
}

// send answers POST /queues/{queue}/send.
func send(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	e, form := entityOf(r), readMessageForm(values)
	m, err := form.message()
	var sent []forebay.SentMessage
	if err == nil {
		sent, err = r.Client.Messages(e.Name).Send(r.Context(), m)
	}
	if status, problem, ok := refused(err); ok {
		return queuePage(r, refusal{Message: form, Problem: problem, Status: status})
	}
	if err != nil {
		return err
	}
	return r.Done(e.Page(), sentNotice(sent, m))
}

func sentNotice(sent []forebay.SentMessage, m forebay.NewMessage) string {
	if len(sent) != 1 {
		return "The message is sent."
	}
	word := "sent"
	if m.ScheduledTime != nil {
		word = "scheduled"
	}
	return fmt.Sprintf("Message %d is %s. Its id is %s.", sent[0].SequenceNumber, word, sent[0].MessageID)
}

// publish answers POST /topics/{topic}/publish.
func publish(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	topic, form := r.PathValue("topic"), readMessageForm(values)
	m, err := form.message()
	var sent []forebay.SentMessage
	if err == nil {
		sent, err = r.Client.Publish(r.Context(), topic, m)
	}
	if status, problem, ok := refused(err); ok {
		return topicPage(r, refusal{Message: form, Problem: problem, Status: status})
	}
	if err != nil {
		return err
	}
	return r.Done(kit.Path("topics", topic), sentNotice(sent, m))
}

// cancelPublished answers POST /topics/{topic}/cancel.
func cancelPublished(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	topic := r.PathValue("topic")
	number, err := strconv.ParseInt(strings.TrimSpace(form.Get("number")), 10, 64)
	if err != nil || number < 1 {
		return topicPage(r, refusal{Problem: "A sequence number is a whole number above 0.", Status: http.StatusUnprocessableEntity})
	}
	if err := r.Client.Call(r.Context(), http.MethodPost, "/v1"+kit.Path("topics", topic, "messages", strconv.FormatInt(number, 10), "cancel"), nil, nil, nil); err != nil {
		return err
	}
	return r.Done(kit.Path("topics", topic), fmt.Sprintf("The scheduled message %d is cancelled.", number))
}
