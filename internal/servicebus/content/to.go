package content

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// Options say how a message is given to a receiver.
type Options struct {
	Peek       bool // it is peeked at, not delivered
	DeadLetter bool // it is in a dead-letter subqueue, where deliveries do not count
	LockToken  bool // a delivery annotation tells its lock token
}

// ToAMQP returns the message in format 0, complete: for a transfer, or for an answer of the
// management node. It always has a header and properties, with all their fields wherever they
// are not the sender's own: some clients read fixed positions.
func ToAMQP(m *bus.Message, o Options) ([]byte, error) {
	s, err := split(m.AMQP)
	if err != nil {
		return nil, err
	}
	w := writer{m: m, s: s, b: make([]byte, 0, len(m.AMQP)+len(m.Body)+512)}
	for _, write := range []func() error{
		func() error { return w.header(o) },
		func() error { return w.deliveryAnnotations(o) },
		func() error { return w.annotations(o) },
		w.properties, w.application, w.body,
	} {
		if err := write(); err != nil {
			return nil, err
		}
	}
	return appendSection(w.b, wire.CodeFooter, s.footer), nil
}

// writer appends the sections of a message to b.
type writer struct {
	m *bus.Message
	s sections
	b []byte
}

// header writes the header. Its count is that of earlier deliveries.
func (w *writer) header(o Options) (err error) {
	sent, err := fieldsOf(w.s.header)
	if err != nil {
		return err
	}
	earlier := w.m.Deliveries
	if !o.DeadLetter && (!o.Peek || w.m.LockedUntil != nil) {
		earlier--
	}
	var c compound
	c.value(at(sent, fieldDurable))
	c.value(at(sent, fieldPriority))
	if ttl := w.lifetime(); ttl > 0 {
		c.value(uint32(min(ttl.Milliseconds(), math.MaxUint32)))
	} else {
		c.value(nil)
	}
	c.value(nil) // first-acquirer
	c.value(uint32(max(earlier, 0)))
	w.b, err = c.appendList(w.b, wire.CodeHeader)
	return err
}

// lifetime is how long the message lives in its queue, which may allow less than its sender asked
// for; 0: for ever.
func (w *writer) lifetime() time.Duration {
	if w.m.ExpiresAt != nil && w.m.ExpiresAt.After(w.m.EnqueuedAt) {
		return w.m.ExpiresAt.Sub(w.m.EnqueuedAt)
	}
	return w.m.TTL
}

func (w *writer) deliveryAnnotations(o Options) (err error) {
	if !o.LockToken || w.m.Token == 0 {
		return nil
	}
	var c compound
	c.pair(wire.Symbol(annotationLockToken), LockToken(w.m.Lock))
	w.b, err = c.appendMap(w.b, wire.CodeDeliveryAnnotations)
	return err
}

func (w *writer) annotations(o Options) (err error) {
	m := w.m
	sent, err := pairsOf(w.s.annotations)
	if err != nil {
		return err
	}
	var c compound
	keyWritten, timeWritten := m.PartitionKey == "", m.ScheduledAt == nil
	for _, p := range sent {
		switch p.key {
		case annotationPartitionKey:
			if p.value != m.PartitionKey {
				continue
			}
			keyWritten = true
		case annotationScheduledTime:
			t, _ := p.value.(time.Time)
			if m.ScheduledAt == nil || !t.Equal(*m.ScheduledAt) {
				continue
			}
			timeWritten = true
		}
		c.raw(p.raw, 2)
	}
	add := func(key string, value any) { c.pair(wire.Symbol(key), value) }
	if !keyWritten {
		add(annotationPartitionKey, m.PartitionKey)
	}
	if !timeWritten {
		add(annotationScheduledTime, *m.ScheduledAt)
	}
	add(annotationSequenceNumber, m.Seq)
	add(annotationEnqueuedSequence, m.EnqueuedSeq)
	add(annotationEnqueuedTime, m.EnqueuedAt)
	if !o.Peek && m.Token != 0 && m.LockedUntil != nil {
		add(annotationLockedUntil, *m.LockedUntil)
	}
	if m.DeadLetterSource != "" {
		add(annotationDeadLetterSource, m.DeadLetterSource)
	}
	state := stateActive
	switch m.State {
	case forebay.MessageDeferred:
		state = stateDeferred
	case forebay.MessageScheduled:
		state = stateScheduled
	}
	add(annotationState, state)
	w.b, err = c.appendMap(w.b, wire.CodeMessageAnnotations)
	return err
}

// properties writes the sender's properties, with what has changed since in its place.
func (w *writer) properties() (err error) {
	m := w.m
	sent, err := fieldsOf(w.s.properties)
	if err != nil {
		return err
	}
	changed := map[int]any{} // nil: to null
	set := func(i int, was, is string, as func(string) any) {
		switch {
		case was == is:
		case is == "":
			changed[i] = nil
		default:
			changed[i] = as(is)
		}
	}
	plain := func(s string) any { return s }
	// A message that came without an id has the one that it got here. The SDK for JavaScript
	// settles nothing without.
	set(fieldMessageID, idText(at(sent, fieldMessageID)), m.MessageID, plain)
	set(fieldTo, text(at(sent, fieldTo)), m.To, plain)
	set(fieldSubject, text(at(sent, fieldSubject)), m.Subject, plain)
	set(fieldReplyTo, text(at(sent, fieldReplyTo)), m.ReplyTo, plain)
	set(fieldCorrelationID, idText(at(sent, fieldCorrelationID)), m.CorrelationID, plain)
	set(fieldContentType, text(at(sent, fieldContentType)), m.ContentType, contentType)
	set(fieldGroupID, text(at(sent, fieldGroupID)), m.SessionID, plain)
	set(fieldReplyToGroupID, text(at(sent, fieldReplyToGroupID)), m.ReplyToSessionID, plain)
	if ttl := w.lifetime(); ttl > 0 && between(sent) > ttl { // its queue or topic allows less
		changed[fieldExpiry] = at(sent, fieldCreation).(time.Time).Add(ttl)
	}
	if len(changed) == 0 && len(sent) > 0 {
		w.b = appendSection(w.b, wire.CodeProperties, w.s.properties)
		return nil
	}
	var c compound
	for i := range propertyFields {
		v, is := changed[i]
		switch {
		case is:
			c.value(v)
		case i < len(sent):
			c.raw(sent[i].raw, 1)
		default:
			c.value(nil)
		}
	}
	w.b, err = c.appendList(w.b, wire.CodeProperties)
	return err
}

// contentType is a content type as AMQP has it: a symbol, which is ASCII. Clients that find text
// in its place cannot read the message at all, so other characters become question marks.
func contentType(s string) any {
	return wire.Symbol(strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, s))
}

// application writes the application properties, with what has changed since in its place, and
// why the message was dead-lettered.
func (w *writer) application() error {
	sent, err := pairsOf(w.s.application)
	if err != nil {
		return err
	}
	was, err := properties(sent)
	if err != nil {
		return err
	}
	_, reason := was[propertyDeadLetterReason]
	_, description := was[propertyDeadLetterDescription]
	if w.m.DeadLetterReason == "" && w.m.DeadLetterDescription == "" && !reason && !description {
		var c message.Content
		if err := c.SetProperties(was); err != nil {
			return err
		}
		if bytes.Equal(c.Properties, w.m.Properties) {
			w.b = appendSection(w.b, wire.CodeApplicationProperties, w.s.application)
			return nil
		}
	}
	return w.changedApplication(sent)
}

func (w *writer) changedApplication(sent []pair) (err error) {
	now := forebay.Properties{}
	if len(w.m.Properties) > 0 {
		if err := json.Unmarshal(w.m.Properties, &now); err != nil {
			return err
		}
	}
	why := map[string]string{propertyDeadLetterReason: w.m.DeadLetterReason, propertyDeadLetterDescription: w.m.DeadLetterDescription}
	for key, text := range why {
		// Receivers take these for text.
		if _, isText := now[key].(string); text != "" || !isText {
			delete(now, key)
		}
	}
	var c compound
	for _, p := range sent {
		value, shown := property(p.value)
		is, kept := now[p.key]
		_, own := why[p.key]
		switch {
		case shown && kept && same(value, is) && (!own || isString(p.value)), !shown && !kept && !own:
			c.raw(p.raw, 2)
		case kept:
			c.pair(p.key, amqpValue(is))
		}
		delete(now, p.key)
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		c.pair(key, amqpValue(now[key]))
	}
	for _, key := range []string{propertyDeadLetterReason, propertyDeadLetterDescription} {
		if why[key] != "" {
			c.pair(key, why[key])
		}
	}
	if c.count > 0 || w.s.application != nil {
		w.b, err = c.appendMap(w.b, wire.CodeApplicationProperties)
	}
	return err
}

func isString(v any) bool { _, is := v.(string); return is }

// amqpValue is the value of a property as AMQP has it.
func amqpValue(v any) any {
	if id, ok := v.(forebay.UUID); ok {
		return wire.UUID(id)
	}
	return v
}

// body writes the sections of the body as they were sent. It writes one section of data if the
// body came in that form or has changed since.
func (w *writer) body() error {
	if len(w.s.body) > 0 {
		body, _, err := bodyOf(w.s.body)
		if err != nil {
			return err
		}
		if bytes.Equal(body, w.m.Body) {
			for i := range w.s.body {
				w.b = append(w.b, w.s.body[i].Raw...)
			}
			return nil
		}
	}
	w.b = appendSection(w.b, wire.CodeData, dataHead(len(w.m.Body)))
	w.b = append(w.b, w.m.Body...)
	return nil
}
