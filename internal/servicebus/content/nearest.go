package content

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// What stored messages hold depends on these functions: the fields and the sections of a message
// are compared by them. A version that answers otherwise would take stored messages for changed.

// idText is an id as text; "": there is none.
func idText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case wire.UUID:
		return v.String()
	case uint64:
		return strconv.FormatUint(v, 10)
	case []byte:
		return hex.EncodeToString(v)
	}
	return ""
}

// text is a string or a symbol as text; "": there is none.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case wire.Symbol:
		return string(v)
	}
	return ""
}

// ticksAtEpoch is 1970 in ticks of .NET, which take 100 ns and are counted from the year 1.
const ticksAtEpoch = 621355968000000000

// property is the nearest value that a property of a plain message can have. There is none for
// null and for lists, maps and arrays.
func property(v any) (nearest any, ok bool) {
	switch v := v.(type) {
	case bool, string, int64, float64, []byte, time.Time:
		return v, true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		if v > math.MaxInt64 {
			return float64(v), true
		}
		return int64(v), true
	case float32:
		return float64(v), true
	case wire.UUID:
		return forebay.UUID(v), true
	case wire.Symbol:
		return string(v), true
	case wire.Char:
		return string(rune(v)), true
	case wire.Decimal32:
		return v[:], true
	case wire.Decimal64:
		return v[:], true
	case wire.Decimal128:
		return v[:], true
	case wire.Described:
		if ticks, is := v.Value.(int64); is && v.Descriptor == wire.Symbol("com.microsoft:datetime-offset") {
			ticks -= ticksAtEpoch
			return time.Unix(ticks/1e7, ticks%1e7*100).UTC(), true
		}
		return property(v.Value)
	}
	return nil, false
}

// properties are the nearest properties that a plain message can have.
func properties(pairs []pair) (forebay.Properties, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	p := make(forebay.Properties, len(pairs))
	for i := range pairs {
		if v, ok := property(pairs[i].value); ok {
			p[pairs[i].key] = v
		}
	}
	return p, p.Check()
}

// same reports whether two values of properties are equal.
func same(a, b any) bool {
	switch a := a.(type) {
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || a != a && b != b) // NaN comes back as NaN
	}
	return a == b
}

// maxJSON bounds the JSON of a body.
const maxJSON = 1 << 20

// bodyOf returns a message's body, and whether it is text. A body of one section of data, which is
// what most have, shares its memory.
func bodyOf(sections []wire.Section) (body []byte, isText bool, err error) {
	if len(sections) == 0 {
		return []byte{}, true, nil
	}
	var list wire.List
	for i := range sections {
		v, _, err := wire.Decode(sections[i].Value())
		if err != nil {
			return nil, false, err
		}
		data, isData := v.([]byte)
		switch sections[i].Code {
		case wire.CodeData:
			if !isData {
				return nil, false, errElements
			}
			if len(sections) == 1 {
				return data, looksLikeText(data), nil
			}
			body = append(body, data...)
		case wire.CodeSequence:
			l, _ := v.(wire.List)
			list = append(list, l...)
		case wire.CodeValue:
			if s, ok := v.(string); ok {
				return []byte(s), true, nil
			}
			if isData {
				return data, looksLikeText(data), nil
			}
			return jsonOf(v), true, nil
		}
	}
	if sections[0].Code == wire.CodeData {
		return body, looksLikeText(body), nil
	}
	return jsonOf(list), true, nil
}

func looksLikeText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for i, c := range b { // control characters are below a space, a delete, and U+0080 to U+009F
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f || c == 0xc2 && b[i+1] < 0xa0 {
			return false
		}
	}
	return true
}

// jsonOf returns the JSON of a value, or nothing if it would be larger than maxJSON.
func jsonOf(v any) []byte {
	b, ok := appendJSON(nil, v)
	if !ok {
		return []byte{}
	}
	return b
}

func appendJSON(dst []byte, v any) (_ []byte, ok bool) {
	if len(dst) > maxJSON {
		return dst, false
	}
	switch v := v.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, v)
	case int8:
		dst = strconv.AppendInt(dst, int64(v), 10)
	case int16:
		dst = strconv.AppendInt(dst, int64(v), 10)
	case int32:
		dst = strconv.AppendInt(dst, int64(v), 10)
	case int64:
		dst = strconv.AppendInt(dst, v, 10)
	case uint8:
		dst = strconv.AppendUint(dst, uint64(v), 10)
	case uint16:
		dst = strconv.AppendUint(dst, uint64(v), 10)
	case uint32:
		dst = strconv.AppendUint(dst, uint64(v), 10)
	case uint64:
		dst = strconv.AppendUint(dst, v, 10)
	case float32:
		dst = appendFloat(dst, float64(v), 32)
	case float64:
		dst = appendFloat(dst, v, 64)
	case string:
		dst = appendString(dst, v)
	case wire.Symbol:
		dst = appendString(dst, string(v))
	case wire.Char:
		dst = appendString(dst, string(rune(v)))
	case wire.UUID:
		dst = appendString(dst, v.String())
	case time.Time:
		dst = appendString(dst, v.UTC().Format(time.RFC3339Nano))
	case []byte:
		dst = appendString(dst, base64.StdEncoding.EncodeToString(v))
	case wire.Decimal32:
		dst = appendString(dst, base64.StdEncoding.EncodeToString(v[:]))
	case wire.Decimal64:
		dst = appendString(dst, base64.StdEncoding.EncodeToString(v[:]))
	case wire.Decimal128:
		dst = appendString(dst, base64.StdEncoding.EncodeToString(v[:]))
	case wire.Described:
		return appendJSON(dst, v.Value)
	case wire.List:
		return appendArray(dst, v)
	case wire.Array:
		return appendArray(dst, v)
	case wire.Map:
		return appendObject(dst, v)
	}
	return dst, len(dst) <= maxJSON
}

func appendArray(dst []byte, values []any) (_ []byte, ok bool) {
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, ok = appendJSON(dst, v); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

// appendObject writes a map. A key that is no text is its JSON in a string.
func appendObject(dst []byte, m wire.Map) (_ []byte, ok bool) {
	dst = append(dst, '{')
	for i, p := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		key, err := keyOf(p.Key)
		if err != nil {
			encoded, ok := appendJSON(nil, p.Key)
			if !ok {
				return dst, false
			}
			key = string(encoded)
		}
		dst = append(appendString(dst, key), ':')
		if dst, ok = appendJSON(dst, p.Value); !ok {
			return dst, false
		}
	}
	return append(dst, '}'), true
}

// appendFloat writes a number, or as text what is none.
func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendString(dst, strconv.FormatFloat(f, 'g', -1, bits))
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

func appendString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string always has one
		panic(err)
	}
	return append(dst, b...)
}
