package azurebus

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
)

// plain returns a received message as the plain message that a trigger makes a job of. A message
// without an id gets one by its sequence number, which a redelivery keeps. Its time to live stays
// out: only its end counts. So does the address of a reply, which names an entity there and not
// here.
func plain(m *azservicebus.ReceivedMessage) forebay.Message {
	p := forebay.Message{ExpiresAt: expiry(m), DeliveryCount: int(m.DeliveryCount)}
	p.MessageID, p.BodyBase64, p.Properties = m.MessageID, body(m), properties(m.ApplicationProperties)
	p.CorrelationID, p.SessionID, p.Subject = text(m.CorrelationID), text(m.SessionID), text(m.Subject)
	p.To, p.ContentType = text(m.To), text(m.ContentType)
	p.PartitionKey = text(m.PartitionKey)
	if raw := m.RawAMQPMessage; raw != nil && raw.Properties != nil {
		if p.MessageID == "" {
			p.MessageID = id(raw.Properties.MessageID)
		}
		if p.CorrelationID == "" {
			p.CorrelationID = id(raw.Properties.CorrelationID)
		}
	}
	if p.MessageID == "" && m.SequenceNumber != nil {
		p.MessageID = "#" + strconv.FormatInt(*m.SequenceNumber, 10)
	}
	return p
}

// expiry returns when a message expires, or nil if it never does. The header's time to live has 32
// bits of milliseconds, so the time in the properties goes first. The client reads a header
// without one as zero.
func expiry(m *azservicebus.ReceivedMessage) *time.Time {
	if raw := m.RawAMQPMessage; raw != nil && raw.Properties != nil {
		if at := raw.Properties.AbsoluteExpiryTime; at != nil && !at.IsZero() {
			return at
		}
	}
	if m.TimeToLive == nil || *m.TimeToLive <= 0 {
		return nil
	}
	return m.ExpiresAt
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// id returns an id of any of the types that AMQP allows (part 3, section 3.2.11).
func id(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case uint64:
		return strconv.FormatUint(v, 10)
	case amqp.UUID:
		return forebay.UUID(v).String()
	case []byte:
		return fmt.Sprintf("%x", v)
	}
	return ""
}

// body returns the bytes of a message's body. Several sections of data are one after the other. A
// value that is neither text nor binary, and sequences, are written as JSON.
func body(m *azservicebus.ReceivedMessage) []byte {
	raw := m.RawAMQPMessage
	if m.Body != nil || raw == nil {
		return m.Body
	}
	switch v := raw.Body.Value.(type) {
	case nil:
	case string:
		return []byte(v)
	case []byte:
		return v
	default:
		return encoded(v)
	}
	if len(raw.Body.Sequence) > 0 {
		var all []any
		for _, s := range raw.Body.Sequence {
			all = append(all, s...)
		}
		return encoded(all)
	}
	return bytes.Join(raw.Body.Data, nil)
}

func encoded(v any) []byte {
	b, err := json.Marshal(nearest(v, 0))
	if err != nil {
		return nil
	}
	return b
}

// maxDepth bounds how deep values of a body are followed.
const maxDepth = 32

// nearest returns a value that JSON has a form for.
func nearest(v any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = nearest(v[i], depth+1)
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, value := range v {
			m[k] = nearest(value, depth+1)
		}
		return m
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, value := range v {
			m[fmt.Sprint(k)] = nearest(value, depth+1)
		}
		return m
	case amqp.Symbol:
		return string(v)
	case amqp.UUID:
		return forebay.UUID(v).String()
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float32:
		return nearest(float64(v), depth)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	}
	return v
}

// properties returns the nearest properties that a plain message can have. Null has none, and
// neither have lists and maps.
func properties(sent map[string]any) forebay.Properties {
	if len(sent) == 0 {
		return nil
	}
	p := forebay.Properties{}
	for name, value := range sent {
		switch v := value.(type) {
		case bool, string, int64, float64, []byte:
			p[name] = v
		case time.Time:
			p[name] = v.UTC()
		case int:
			p[name] = int64(v)
		case int8:
			p[name] = int64(v)
		case int16:
			p[name] = int64(v)
		case int32:
			p[name] = int64(v)
		case uint8:
			p[name] = int64(v)
		case uint16:
			p[name] = int64(v)
		case uint32:
			p[name] = int64(v)
		case uint64:
			if p[name] = int64(v); v > math.MaxInt64 {
				p[name] = float64(v)
			}
		case float32:
			p[name] = float64(v)
		case amqp.UUID:
			p[name] = forebay.UUID(v)
		case amqp.Symbol:
			p[name] = string(v)
		}
	}
	return p
}
