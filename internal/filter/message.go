package filter

import (
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// Message is a message as rules see it. "" and zero times mean that a field is not set. A Message
// must not be used concurrently.
type Message struct {
	MessageID            string
	CorrelationID        string
	SessionID            string
	Subject              string
	To                   string
	ReplyTo              string
	ReplyToSessionID     string
	ContentType          string
	PartitionKey         string
	TimeToLive           time.Duration // 0: none
	EnqueuedTime         time.Time
	ScheduledEnqueueTime time.Time
	Size                 int64
	Properties           forebay.Properties
	Steps                *int // that judging it, and others with the same, may still take; nil: any number
	// Pause is called between rules, and within slow ones, while a message is judged. If it
	// fails, nobody needs the result; nil: not called.
	Pause func() error

	names map[string]string // the properties' names by their lower-case form, once asked for
}

// find returns the name under which the message has the user property. If several names differ
// only in case, the exact one comes first, then the smallest.
func (m *Message) find(name, folded string) (string, bool) {
	if _, ok := m.Properties[name]; ok {
		return name, true
	}
	if m.names == nil {
		m.names = make(map[string]string, len(m.Properties))
		for key := range m.Properties {
			low := strings.ToLower(key)
			if known, ok := m.names[low]; !ok || key < known {
				m.names[low] = key
			}
		}
	}
	found, ok := m.names[folded]
	return found, ok
}

// user returns the value of a user property, nil when there is none.
func (m *Message) user(name, folded string) any {
	if key, ok := m.find(name, folded); ok {
		return m.Properties[key]
	}
	return nil
}

// Steps besides those of LIKE, each about as long: for each rule, and for evaluating a text.
const (
	ruleSteps       = 16
	evaluationSteps = 128
	bytesPerStep    = 64 // of long strings, which are joined and compared
)

// spend takes steps off those that are left for the message.
func (m *Message) spend(steps int) {
	if m.Steps != nil {
		*m.Steps -= steps
	}
}

// clone returns a copy that may be changed.
func (m *Message) clone() *Message {
	c := *m
	c.names = nil
	c.Properties = make(forebay.Properties, len(m.Properties)+1)
	for name, value := range m.Properties {
		c.Properties[name] = value
	}
	return &c
}

// systemProperty is a field of every message, "sys.<name>".
type systemProperty struct {
	name  string
	get   func(*Message) any
	field func(*Message) *string // for those that an action may set
	isID  bool                   // is held to the limit of ids
	need  bool                   // may not be without a value
}

// systemProperties have lower-case keys without underscores, so that Service Bus's names and
// those of the HTTP contract both work.
var systemProperties = func() map[string]*systemProperty {
	table := map[string]*systemProperty{}
	text := func(name string, isID, need bool, field func(*Message) *string) {
		get := func(m *Message) any {
			if s := *field(m); s != "" {
				return s
			}
			return nil
		}
		table[strings.ToLower(name)] = &systemProperty{name, get, field, isID, need}
	}
	text("ContentType", false, false, func(m *Message) *string { return &m.ContentType })
	text("CorrelationId", true, false, func(m *Message) *string { return &m.CorrelationID })
	text("Label", false, false, func(m *Message) *string { return &m.Subject })
	text("MessageId", true, true, func(m *Message) *string { return &m.MessageID })
	text("PartitionKey", true, false, func(m *Message) *string { return &m.PartitionKey })
	text("ReplyTo", false, false, func(m *Message) *string { return &m.ReplyTo })
	text("ReplyToSessionId", true, false, func(m *Message) *string { return &m.ReplyToSessionID })
	text("SessionId", true, false, func(m *Message) *string { return &m.SessionID })
	text("To", false, false, func(m *Message) *string { return &m.To })
	table["subject"] = table["label"]

	table["size"] = &systemProperty{name: "Size", get: func(m *Message) any { return m.Size }}
	table["timetolive"] = &systemProperty{name: "TimeToLive", get: func(m *Message) any {
		if m.TimeToLive > 0 {
			return m.TimeToLive.Seconds()
		}
		return nil
	}}
	moment := func(name string, of func(*Message) time.Time) {
		p := &systemProperty{name: name, get: func(m *Message) any {
			if t := of(m); !t.IsZero() {
				return t
			}
			return nil
		}}
		low := strings.ToLower(name)
		table[low], table[strings.TrimSuffix(low, "utc")] = p, p
	}
	moment("EnqueuedTimeUtc", func(m *Message) time.Time { return m.EnqueuedTime })
	moment("ScheduledEnqueueTimeUtc", func(m *Message) time.Time { return m.ScheduledEnqueueTime })
	return table
}()

func systemPropertyOf(name string) *systemProperty {
	return systemProperties[strings.ToLower(strings.ReplaceAll(name, "_", ""))]
}

// settableNames are the system properties an action may set, in order.
var settableNames = func() string {
	var names []string
	for low, p := range systemProperties {
		if p.field != nil && low == strings.ToLower(p.name) {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}()
