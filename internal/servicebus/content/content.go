// Package content turns AMQP messages into plain messages and back, as Service Bus does.
//
// [FromAMQP] reads what a sender transfers. What queues, sessions, topics and the HTTP API need of
// it becomes the fields of [message.Content]. The field AMQP keeps the sections themselves, so
// that [ToAMQP] gives a receiver what the sender wrote. That is every type of property, several
// sections of data, values and sequences, annotations and the footer. Sections stay equal to the
// byte. Their descriptors are written in the short form.
//
// A rule's action, a settlement or an edit may have changed a field since. The field then goes
// before what the section says: only that entry is written anew.
//
// # What the HTTP API shows
//
// The fields have fewer types than AMQP, so they hold what is nearest:
//
//   - Ids are text: a uuid in the form of RFC 4122, a ulong in decimal, binary in hexadecimal. A
//     message without an id gets one.
//   - Properties: all integers are int, a ulong above 2^63 - 1 and a float are float. A char and a
//     symbol are strings, a decimal its bytes. Of a described value the value counts, but
//     com.microsoft:datetime-offset is a time and com.microsoft:timespan an int of 100 ns. null,
//     lists, maps and arrays are left out.
//   - The body of several sections of data is all of them together. Bytes that are UTF-8 without
//     control characters other than tab, line feed and carriage return are text. A value that is a
//     string or binary is that. Other values, and sequences, are JSON. A body is empty if its JSON
//     would take more than 1 MiB.
//
// The package does no I/O. Section numbers in comments are those of the OASIS specification of
// AMQP 1.0, part 3.
package content

import (
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// Message formats of transfers (2.7.5). FormatBatch is Service Bus's: each section of data is a
// message.
const (
	FormatMessage uint32 = 0
	FormatBatch   uint32 = 0x80013700
)

// MaxBatch is how many messages a batch may have (Service Bus documentation,
// "service-bus-quotas").
const MaxBatch = 4500

// ErrArgument is Service Bus's condition for a message that breaks a rule of its own.
const ErrArgument wire.Symbol = "com.microsoft:argument-error"

// Annotations of messages (Service Bus documentation, "service-bus-amqp-protocol-guide").
const (
	annotationSequenceNumber            = "x-opt-sequence-number"
	annotationEnqueuedSequence          = "x-opt-enqueue-sequence-number"
	annotationEnqueuedTime              = "x-opt-enqueued-time"
	annotationLockedUntil               = "x-opt-locked-until"
	annotationState                     = "x-opt-message-state"
	annotationDeadLetterSource          = "x-opt-deadletter-source"
	annotationLockToken                 = "x-opt-lock-token"
	annotationScheduledTime             = "x-opt-scheduled-enqueue-time"
	annotationPartitionKey              = "x-opt-partition-key"
	annotationViaPartitionKey           = "x-opt-via-partition-key"
	propertyDeadLetterReason            = "DeadLetterReason"
	propertyDeadLetterDescription       = "DeadLetterErrorDescription"
	stateActive                   int32 = 0
	stateDeferred                 int32 = 1
	stateScheduled                int32 = 2
)

// Positions in the list of properties (3.2.4) and of the header (3.2.1).
const (
	fieldMessageID      = 0
	fieldTo             = 2
	fieldSubject        = 3
	fieldReplyTo        = 4
	fieldCorrelationID  = 5
	fieldContentType    = 6
	fieldExpiry         = 8
	fieldCreation       = 9
	fieldGroupID        = 10
	fieldReplyToGroupID = 12
	propertyFields      = 13

	fieldDurable  = 0
	fieldPriority = 1
	fieldTTL      = 2
	headerFields  = 5
)

// ownAnnotations are set by the receiver's side. What a sender says of them is dropped.
var ownAnnotations = map[string]bool{
	annotationSequenceNumber: true, annotationEnqueuedSequence: true, annotationEnqueuedTime: true, annotationLockedUntil: true,
	annotationState: true, annotationDeadLetterSource: true, annotationLockToken: true,
}

// sections are those of one message by their kinds. The values are encoded, without descriptors;
// nil: there is no such section.
type sections struct {
	header, annotations, properties, application, footer []byte
	body                                                 []wire.Section
}

func split(b []byte) (s sections, err error) {
	all, err := wire.Sections(b)
	for i := range all {
		switch value := all[i].Value(); all[i].Code {
		case wire.CodeHeader:
			s.header = value
		case wire.CodeMessageAnnotations:
			s.annotations = value
		case wire.CodeProperties:
			s.properties = value
		case wire.CodeApplicationProperties:
			s.application = value
		case wire.CodeFooter:
			s.footer = value
		case wire.CodeDeliveryAnnotations: // they are for one hop (3.2.2)
		default:
			s.body = append(s.body, all[i])
		}
	}
	return s, err
}

// appendSection appends an encoded value as a section; nil: there is none.
func appendSection(dst []byte, code uint64, value []byte) []byte {
	if value == nil {
		return dst
	}
	return append(append(dst, 0x00, wire.ConstructorSmallUlong, byte(code)), value...)
}

// refused says why a message is not taken, for the sender's link.
func refused(err error) *wire.Error {
	var e *forebay.Error
	switch {
	case errors.As(err, &e) && e.Code == forebay.CodePayloadTooLarge:
		return &wire.Error{Condition: wire.ErrMessageSizeExceeded, Description: e.Error()}
	case errors.As(err, &e):
		return &wire.Error{Condition: ErrArgument, Description: e.Error()}
	}
	return &wire.Error{Condition: wire.ErrDecodeError, Description: err.Error()}
}

// lifetime is how long a message may live as its sender asked (reference: the header's ttl has 32
// bits, so the times in the properties say more where it is longer); 0: it did not ask.
func lifetime(header, properties []field) (ttl time.Duration) {
	if ms, ok := at(header, fieldTTL).(uint32); ok {
		ttl = time.Duration(ms) * time.Millisecond
	}
	return max(ttl, between(properties))
}

// between is the time between the creation and the expiry that properties name, at most
// forebay.MaxTimeToLive; 0: they name none.
func between(properties []field) time.Duration {
	created, ok := at(properties, fieldCreation).(time.Time)
	expires, ok2 := at(properties, fieldExpiry).(time.Time)
	if !ok || !ok2 || !expires.After(created) {
		return 0
	}
	return min(expires.Sub(created), forebay.MaxTimeToLive)
}
