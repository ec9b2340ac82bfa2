package messages

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// settingsForm is the settings of a queue, a topic or a subscription as somebody types them.
type settingsForm struct {
	Name                                    string // of a new one
	Lock, Deliveries, TimeToLive            string
	DuplicateWindow, Idle, LargestMessage   string
	ForwardTo, ForwardDeadLettersTo, Filter string
	Expired, Duplicates, Sessions           bool
	FilterErrors                            bool   // of a subscription
	Kind                                    string // queue, topic or subscription
	Problem                                 string
	kit.Version                             // of what is changed
}

// The kinds of entities in forms.
const (
	kindQueue        = "queue"
	kindTopic        = "topic"
	kindSubscription = "subscription"
)

// New reports whether the form makes something.
func (f settingsForm) New() bool { return f.ETag == "" }

// Topic reports whether the form is a topic's, which nobody receives from.
func (f settingsForm) Topic() bool { return f.Kind == kindTopic }

// Subscription reports whether the form is a subscription's.
func (f settingsForm) Subscription() bool { return f.Kind == kindSubscription }

func newSettings(kind string) settingsForm { return settingsForm{Kind: kind, FilterErrors: true} }

// lengthText is a number of seconds as a field takes it; "" for none.
func lengthText(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	text := time.Duration(math.Round(seconds * float64(time.Second))).String()
	text = strings.TrimSuffix(text, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(text, "m0s")]
	return strings.TrimSuffix(text, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(text, "h0m")]
}

func lengthOf(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return lengthText(*seconds)
}

// settingsOf is the form of what a queue or a subscription has.
func settingsOf(kind string, q forebay.MessageQueue) settingsForm {
	f := settingsForm{
		Kind: kind, Lock: lengthText(q.LockSeconds), Deliveries: strconv.Itoa(q.MaxDeliveryCount), TimeToLive: lengthOf(q.DefaultTTLSeconds),
		DuplicateWindow: lengthOf(q.DuplicateWindowSeconds), Idle: lengthOf(q.AutoDeleteOnIdleSeconds),
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, Expired: q.DeadLetterOnExpiration, Duplicates: q.DetectsDuplicates, Sessions: q.RequiresSession,
	}
	if q.MaxMessageBytes > 0 {
		f.LargestMessage = strconv.FormatInt(q.MaxMessageBytes, 10)
	}
	return f.as(q.ETag)
}

// settingsOfSubscription is the form of what a subscription has.
func settingsOfSubscription(s forebay.Subscription) settingsForm {
	f := settingsOf(kindSubscription, s.MessageQueue)
	f.FilterErrors = s.DeadLetterOnFilterError
	return f.as(s.ETag)
}

// as returns the form with the version that it shows.
func (f settingsForm) as(etag string) settingsForm {
	values := []kit.Value{{Name: "time to live", Text: f.TimeToLive}, {Name: "deleted when idle for", Text: f.Idle}, {Name: "largest message", Text: f.LargestMessage},
		{Name: "message ids are remembered for", Text: f.DuplicateWindow}}
	if !f.Topic() {
		values = append(values, kit.Value{Name: "lock", Text: f.Lock}, kit.Value{Name: "deliveries", Text: f.Deliveries}, kit.Value{Name: "forward to", Text: f.ForwardTo},
			kit.Value{Name: "forward dead letters to", Text: f.ForwardDeadLettersTo}, kit.Value{Name: "dead-lettering of expired messages", Text: kit.Switch(f.Expired)})
	}
	if f.Subscription() {
		values = append(values, kit.Value{Name: "dead-lettering of filter errors", Text: kit.Switch(f.FilterErrors)})
	}
	f.Version = kit.VersionOf(etag, values...)
	return f
}

// settingsOfTopic is the form of what a topic has.
func settingsOfTopic(t forebay.Topic) settingsForm {
	f := settingsForm{Kind: kindTopic, TimeToLive: lengthOf(t.DefaultTTLSeconds), DuplicateWindow: lengthOf(t.DuplicateWindowSeconds),
		Idle: lengthOf(t.AutoDeleteOnIdleSeconds), Duplicates: t.DetectsDuplicates}
	if t.MaxMessageBytes > 0 {
		f.LargestMessage = strconv.FormatInt(t.MaxMessageBytes, 10)
	}
	return f.as(t.ETag)
}

func readSettings(kind string, values url.Values) settingsForm {
	text := func(name string) string { return strings.TrimSpace(values.Get(name)) }
	return settingsForm{
		Kind: kind, Name: text("name"), Version: kit.ReadVersion(values), Lock: text("lock"), Deliveries: text("deliveries"), TimeToLive: text("time_to_live"),
		DuplicateWindow: text("duplicate_window"), Idle: text("idle"), LargestMessage: text("largest_message"),
		ForwardTo: text("forward_to"), ForwardDeadLettersTo: text("forward_dead_letters_to"), Filter: text("filter"),
		Expired: values.Has("expired"), Duplicates: values.Has("duplicates"), Sessions: values.Has("sessions"), FilterErrors: values.Has("filter_errors"),
	}
}

// seconds reads a field with a length of time; "" is 0, which is the default.
func seconds(field, text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, forebay.Invalid(field, "must be a length of time such as 90s, 30m or 24h")
	}
	return d.Seconds(), nil
}

// whole reads a field with a number; "" is 0, which is the default.
func whole(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, forebay.Invalid(field, "must be a whole number above 0")
	}
	return n, nil
}

// queue returns the settings that the form asks for. What nobody changes afterwards is left out of
// a change. A form without the status and the note leaves both as they are.
func (f settingsForm) queue() (s forebay.MessageQueueSettings, err error) {
	s = forebay.MessageQueueSettings{DeadLetterOnExpiration: f.Expired, ForwardTo: f.ForwardTo, ForwardDeadLettersTo: f.ForwardDeadLettersTo}
	for _, field := range []struct {
		name, text string
		into       *float64
	}{
		{"lock", f.Lock, &s.LockSeconds}, {"time_to_live", f.TimeToLive, &s.DefaultTTLSeconds},
		{"duplicate_window", f.DuplicateWindow, &s.DuplicateWindowSeconds}, {"idle", f.Idle, &s.AutoDeleteOnIdleSeconds},
	} {
		if *field.into, err = seconds(field.name, field.text); err != nil {
			return s, err
		}
	}
	if f.New() {
		s.DetectsDuplicates, s.RequiresSession = &f.Duplicates, &f.Sessions
	}
	deliveries, err := whole("deliveries", f.Deliveries)
	if err == nil {
		s.MaxDeliveryCount = int(min(deliveries, math.MaxInt32))
		s.MaxMessageBytes, err = whole("largest_message", f.LargestMessage)
	}
	return s, err
}

// topic is queue for a topic.
func (f settingsForm) topic() (forebay.TopicSettings, error) {
	q, err := f.queue()
	return forebay.TopicSettings{DefaultTTLSeconds: q.DefaultTTLSeconds, DetectsDuplicates: q.DetectsDuplicates, DuplicateWindowSeconds: q.DuplicateWindowSeconds,
		AutoDeleteOnIdleSeconds: q.AutoDeleteOnIdleSeconds, MaxMessageBytes: q.MaxMessageBytes}, err
}

// firstRule is the name of the rule that a subscription is made with, if it is made with one.
const firstRule = "first"

// subscription is queue for a subscription.
func (f settingsForm) subscription() (forebay.SubscriptionSettings, error) {
	q, err := f.queue()
	q.DetectsDuplicates = nil // a topic does
	s := forebay.SubscriptionSettings{MessageQueueSettings: q, DeadLetterOnFilterError: &f.FilterErrors}
	if f.New() && f.Filter != "" {
		s.Rules = []forebay.NewRule{{Name: firstRule, RuleSettings: forebay.RuleSettings{SQLFilter: f.Filter}}}
	}
	return s, err
}
