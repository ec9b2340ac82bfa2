package content_test

import (
	"math"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
	"pgregory.net/rapid"
)

// drawText draws text as ids and subjects may be.
func drawText(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("aZ09 -./ä日🙂")), 0, 20, -1).Draw(t, label)
}

func drawSymbol(t *rapid.T, label string) wire.Symbol {
	return wire.Symbol(rapid.StringMatching(`[a-z:.-]{0,12}`).Draw(t, label))
}

// drawSimple draws a value of a type that properties may have, null too.
func drawSimple(t *rapid.T) any {
	switch rapid.IntRange(0, 21).Draw(t, "type") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Uint8().Draw(t, "ubyte")
	case 3:
		return rapid.Uint16().Draw(t, "ushort")
	case 4:
		return rapid.Uint32().Draw(t, "uint")
	case 5:
		return rapid.Uint64().Draw(t, "ulong")
	case 6:
		return rapid.Int8().Draw(t, "byte")
	case 7:
		return rapid.Int16().Draw(t, "short")
	case 8:
		return rapid.Int32().Draw(t, "int")
	case 9:
		return rapid.Int64().Draw(t, "long")
	case 10:
		return rapid.OneOf(rapid.Float32(), rapid.Just(float32(math.NaN()))).Draw(t, "float")
	case 11:
		return rapid.OneOf(rapid.Float64(), rapid.Just(math.Inf(-1))).Draw(t, "double")
	case 12:
		return wire.Char(rapid.RuneFrom([]rune("aä🙂")).Draw(t, "char"))
	case 13:
		return wire.Decimal32(bytesOf(t, 4))
	case 14:
		return wire.Decimal64(bytesOf(t, 8))
	case 15:
		return wire.Decimal128(bytesOf(t, 16))
	case 16:
		return drawTime(t)
	case 17:
		return wire.UUID(bytesOf(t, 16))
	case 18:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "binary")
	case 19:
		return drawText(t, "string")
	case 20:
		return drawSymbol(t, "symbol")
	}
	return rapid.SampledFrom([]wire.Described{
		{Descriptor: wire.Symbol("com.microsoft:timespan"), Value: int64(36_000_000_000)},
		{Descriptor: wire.Symbol("com.microsoft:uri"), Value: "https://forebay.example/"},
		{Descriptor: wire.Symbol("com.microsoft:datetime-offset"), Value: int64(638_000_000_000_000_000)},
		{Descriptor: uint64(1 << 40), Value: nil},
	}).Draw(t, "described")
}

func bytesOf(t *rapid.T, n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes") }

func drawTime(t *rapid.T) time.Time {
	return time.UnixMilli(rapid.Int64Range(-1e12, 4e12).Draw(t, "time")).UTC()
}

// drawValue draws a value of any type.
func drawValue(t *rapid.T, depth int) any {
	n := rapid.IntRange(0, 3).Draw(t, "elements")
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case depth == 0 || kind < 6:
		return drawSimple(t)
	case kind == 6:
		list := wire.List{}
		for range n {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	case kind == 7:
		array := wire.Array{}
		for range n + 1 {
			array = append(array, rapid.Int64().Draw(t, "long"))
		}
		return array
	}
	m := wire.Map{}
	for i := range n {
		m = append(m, wire.Pair{Key: int64(i), Value: drawValue(t, depth-1)})
	}
	return m
}

func drawID(t *rapid.T, label string) any {
	switch rapid.IntRange(0, 4).Draw(t, label) {
	case 0:
		return nil
	case 1:
		return wire.UUID(bytesOf(t, 16))
	case 2:
		return rapid.Uint64().Draw(t, "ulong")
	case 3:
		return rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "binary")
	}
	return drawText(t, label)
}

// maybe draws a pointer to what f draws, or nil.
func maybe[T any](t *rapid.T, label string, f func(*rapid.T, string) T) *T {
	if !rapid.Bool().Draw(t, "has "+label) {
		return nil
	}
	v := f(t, label)
	return &v
}

// drawMessage draws a message that is accepted.
func drawMessage(t *rapid.T) *wire.Message {
	m := &wire.Message{}
	if rapid.Bool().Draw(t, "header") {
		m.Header = &wire.Header{Durable: rapid.Bool().Draw(t, "durable"), Priority: maybe(t, "priority", func(t *rapid.T, l string) uint8 { return rapid.Uint8().Draw(t, l) }),
			TTL:           maybe(t, "ttl", func(t *rapid.T, l string) uint32 { return rapid.Uint32Range(100_000_000, math.MaxUint32).Draw(t, l) }),
			DeliveryCount: rapid.Uint32().Draw(t, "count")}
	}
	if rapid.Bool().Draw(t, "delivery annotations") {
		m.DeliveryAnnotations = wire.Map{{Key: wire.Symbol("x-hop"), Value: int32(1)}}
	}
	if rapid.Bool().Draw(t, "annotations") {
		m.MessageAnnotations = wire.Map{}
		for _, key := range []string{"x-opt-partition-key", "x-opt-via-partition-key"} {
			if rapid.Bool().Draw(t, key) {
				m.MessageAnnotations = append(m.MessageAnnotations, wire.Pair{Key: wire.Symbol(key), Value: drawText(t, key)})
			}
		}
		for _, key := range []wire.Symbol{"x-opt-sequence-number", "x-opt-lock-token", "mine", "yours"} {
			if rapid.Bool().Draw(t, string(key)) {
				m.MessageAnnotations = append(m.MessageAnnotations, wire.Pair{Key: key, Value: drawValue(t, 2)})
			}
		}
	}
	if rapid.Bool().Draw(t, "properties") {
		m.Properties = &wire.Properties{MessageID: drawID(t, "message id"), UserID: rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "user"), To: maybe(t, "to", drawText),
			Subject: maybe(t, "subject", drawText), ReplyTo: maybe(t, "reply-to", drawText), CorrelationID: drawID(t, "correlation id"),
			ContentType: maybe(t, "content type", drawSymbol), ContentEncoding: maybe(t, "encoding", drawSymbol),
			GroupSequence:  maybe(t, "group sequence", func(t *rapid.T, l string) uint32 { return rapid.Uint32().Draw(t, l) }),
			ReplyToGroupID: maybe(t, "reply to group", drawText)}
		if rapid.Bool().Draw(t, "times") {
			m.Properties.CreationTime = drawTime(t)
			m.Properties.AbsoluteExpiryTime = m.Properties.CreationTime.Add(time.Duration(rapid.Int64Range(1e8, 1e13).Draw(t, "lives")) * time.Millisecond)
		}
		if key, _ := m.MessageAnnotations.Get("x-opt-partition-key"); key == nil || key == "" {
			m.Properties.GroupID = maybe(t, "group", drawText)
		}
	}
	if rapid.Bool().Draw(t, "application properties") {
		m.ApplicationProperties = wire.Map{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "ä c", "Color", "n", "x.y", "\n\x00\u0085\"", "DeadLetterReason"}), 0, 5, rapid.ID).Draw(t, "keys") {
			value := drawSimple(t)
			if key == "DeadLetterReason" {
				value = drawText(t, "reason")
			}
			m.ApplicationProperties = append(m.ApplicationProperties, wire.Pair{Key: key, Value: value})
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, "body") {
	case 0:
		m.Data = [][]byte{rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "data")}
	case 1:
		m.Data = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20), 2, 4).Draw(t, "data")
	case 2:
		for range rapid.IntRange(1, 3).Draw(t, "sequences") {
			m.Sequences = append(m.Sequences, wire.List{drawValue(t, 2)})
		}
	case 3:
		m.HasValue, m.Value = true, drawValue(t, 3)
	}
	if rapid.Bool().Draw(t, "footer") {
		m.Footer = wire.Map{{Key: wire.Symbol("hash"), Value: drawValue(t, 1)}}
	}
	return m
}
