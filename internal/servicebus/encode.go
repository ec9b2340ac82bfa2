package servicebus

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
)

// encode returns a message of an entity as AMQP has it. The lock of a message in a session ends
// with that of the session.
func encode(m *bus.Message, e messaging.Entity, session *heldSession, o content.Options) ([]byte, error) {
	o.DeadLetter = e.DeadLetter
	if session != nil && m.LockedUntil == nil && m.Token != 0 {
		until := session.lockedUntil()
		m.LockedUntil = &until
	}
	return content.ToAMQP(m, o)
}

// propertiesOf returns application properties of a management body or a delivery state.
func propertiesOf(m wire.Map) (forebay.Properties, error) {
	if len(m) == 0 {
		return nil, nil
	}
	p := make(forebay.Properties, len(m))
	for _, pair := range m {
		name, ok := textOf(pair.Key)
		value, known := propertyOf(pair.Value)
		if !ok || !known {
			return nil, badArgument("A property has no name, or a value of a type that properties cannot have.")
		}
		p[name] = value
	}
	return p, p.Check()
}

// propertyOf is the value of a property as package forebay has it.
func propertyOf(v any) (any, bool) {
	if n, ok := integer(v); ok {
		return n, true
	}
	switch v := v.(type) {
	case string, bool, float64, time.Time, []byte:
		return v, true
	case float32:
		return float64(v), true
	case wire.Symbol:
		return string(v), true
	case wire.UUID:
		return forebay.UUID(v), true
	}
	return nil, false
}
