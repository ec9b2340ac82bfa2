package content

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// FromAMQP reads the messages of a transfer of that format: one, or those of a batch. Of a batch
// it uses only the messages inside. The contents share memory with payload, whose size the caller
// bounds. The error is a *wire.Error with a condition for the sender:
//
//   - amqp:decode-error: it is no message.
//   - com.microsoft:argument-error: an id, a property or an annotation has a value that is not
//     allowed.
//   - amqp:link:message-size-exceeded: properties are too large, or messages too many.
//   - amqp:not-implemented: the format is unknown.
func FromAMQP(format uint32, payload []byte) ([]message.Content, error) {
	switch format {
	case FormatMessage:
		c, err := one(payload)
		if err != nil {
			return nil, refused(err)
		}
		return []message.Content{c}, nil
	case FormatBatch:
		return batch(payload)
	}
	return nil, &wire.Error{Condition: wire.ErrNotImplemented, Description: fmt.Sprintf("message format %#x is not supported", format)}
}

func batch(payload []byte) ([]message.Content, error) {
	all, err := wire.Sections(payload)
	if err != nil {
		return nil, refused(err)
	}
	n := 0
	for i := range all {
		switch all[i].Code {
		case wire.CodeData:
			n++
		case wire.CodeSequence, wire.CodeValue:
			return nil, &wire.Error{Condition: ErrArgument, Description: "a batch has sections of data, and no other body"}
		}
	}
	switch {
	case n == 0:
		return nil, &wire.Error{Condition: ErrArgument, Description: "the batch has no message"}
	case n > MaxBatch:
		return nil, &wire.Error{Condition: wire.ErrMessageSizeExceeded, Description: fmt.Sprintf("the batch has %d messages; the limit is %d", n, MaxBatch)}
	}
	contents := make([]message.Content, 0, n)
	for i := range all {
		if all[i].Code != wire.CodeData {
			continue
		}
		var c message.Content
		v, _, err := wire.Decode(all[i].Value())
		if err == nil {
			data, _ := v.([]byte)
			c, err = one(data)
		}
		if err != nil {
			e := refused(err)
			e.Description = fmt.Sprintf("message %d of the batch: %s", len(contents), e.Description)
			return nil, e
		}
		contents = append(contents, c)
	}
	return contents, nil
}

// one reads one message.
func one(b []byte) (c message.Content, err error) {
	s, err := split(b)
	if err != nil {
		return c, err
	}
	header, err := fieldsOf(s.header)
	if err != nil {
		return c, err
	}
	props, err := fieldsOf(s.properties)
	if err != nil {
		return c, err
	}
	if len(header) > headerFields || len(props) > propertyFields {
		return c, errElements
	}
	if err := checkTypes(&s); err != nil {
		return c, err
	}
	c = message.Content{MessageID: idText(at(props, fieldMessageID)), To: text(at(props, fieldTo)), Subject: text(at(props, fieldSubject)),
		ReplyTo: text(at(props, fieldReplyTo)), CorrelationID: idText(at(props, fieldCorrelationID)), ContentType: text(at(props, fieldContentType)),
		SessionID: text(at(props, fieldGroupID)), ReplyToSessionID: text(at(props, fieldReplyToGroupID)), TTL: lifetime(header, props)}
	if c.MessageID == "" {
		c.MessageID = message.NewID()
	}
	if s.annotations, err = readAnnotations(&c, s.annotations); err != nil {
		return c, err
	}
	if err := readProperties(&c, s.application); err != nil {
		return c, err
	}
	if c.Body, c.Text, err = bodyOf(s.body); err != nil {
		return c, err
	}
	c.AMQP = stored(&s, header, c.Body)
	return c, c.Check()
}

// checkTypes refuses fields of types that the specification does not give them, and a footer that
// cannot be decoded. What is stored goes to receivers, whose libraries rely on it.
func checkTypes(s *sections) error {
	if s.header == nil && s.properties == nil && s.footer == nil {
		return nil
	}
	b := appendSection(appendSection(nil, wire.CodeHeader, s.header), wire.CodeProperties, s.properties)
	_, err := wire.DecodeMessage(appendSection(b, wire.CodeFooter, s.footer))
	return err
}

// readAnnotations reads what a sender may annotate, and returns the others with it. Those of the
// receiver's side are left out.
func readAnnotations(c *message.Content, value []byte) ([]byte, error) {
	pairs, err := pairsOf(value)
	if err != nil {
		return nil, err
	}
	var kept compound
	for _, p := range pairs {
		ok, kind := true, "a string"
		switch {
		case ownAnnotations[p.key]:
			continue
		case p.value == nil && (p.key == annotationScheduledTime || p.key == annotationPartitionKey || p.key == annotationViaPartitionKey):
			continue
		case p.key == annotationScheduledTime:
			var t time.Time
			kind = "a timestamp"
			if t, ok = p.value.(time.Time); ok {
				c.ScheduledAt = &t
			}
		case p.key == annotationPartitionKey:
			c.PartitionKey, ok = p.value.(string)
		case p.key == annotationViaPartitionKey:
			_, ok = p.value.(string)
		}
		if !ok {
			return nil, forebay.Invalid(p.key, "must be %s", kind)
		}
		kept.raw(p.raw, 2)
	}
	if 2*len(pairs) == kept.count {
		return value, nil
	}
	return kept.append(nil, wire.ConstructorMap8, wire.ConstructorMap32)
}

func readProperties(c *message.Content, value []byte) error {
	pairs, err := pairsOf(value)
	if err != nil {
		return err
	}
	p, err := properties(pairs)
	if err != nil {
		return err
	}
	return c.SetProperties(p)
}

// stored returns the sections that are kept. It leaves out a body that one section of data has in
// its shortest form, and a header that says only how long the message lives. It is never nil:
// that is how a message is known to have come over AMQP.
func stored(s *sections, header []field, body []byte) []byte {
	kept := make([]byte, 0, len(s.annotations)+len(s.properties)+len(s.application)+len(s.footer)+32)
	if at(header, fieldDurable) != nil || at(header, fieldPriority) != nil {
		kept = appendSection(kept, wire.CodeHeader, s.header)
	}
	kept = appendSection(kept, wire.CodeMessageAnnotations, s.annotations)
	kept = appendSection(kept, wire.CodeProperties, s.properties)
	kept = appendSection(kept, wire.CodeApplicationProperties, s.application)
	if !isPlain(s.body, len(body)) {
		for i := range s.body {
			kept = appendSection(kept, s.body[i].Code, s.body[i].Value())
		}
	}
	kept = appendSection(kept, wire.CodeFooter, s.footer)
	if len(kept) == 0 {
		kept = appendSection(kept, wire.CodeProperties, emptyList)
	}
	return kept
}

// emptyList stands for properties that say nothing. It is never sent: some clients do not know it.
var emptyList = []byte{0x45}

// isPlain reports whether the body is one section of data in its shortest form, or none at all.
func isPlain(body []wire.Section, size int) bool {
	return len(body) == 0 || len(body) == 1 && body[0].Code == wire.CodeData && len(body[0].Value()) == len(dataHead(size))+size
}

// dataHead is what stands before so many bytes of binary.
func dataHead(size int) []byte {
	if size < 256 {
		return []byte{wire.ConstructorBinary8, byte(size)}
	}
	return binary.BigEndian.AppendUint32([]byte{wire.ConstructorBinary32}, uint32(size))
}
