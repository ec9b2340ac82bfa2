package forebay

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Properties are the application properties of a message. A value is a string, int64, float64,
// bool, time.Time, []byte or [UUID].
//
// In JSON strings, booleans and numbers are written as such. A number is an int64 unless it has a
// fraction or an exponent. Other types are {"type": …, "value": "…"}. So are numbers that JSON
// cannot carry safely: integers beyond 2^53, NaN and infinities.
type Properties map[string]any

// UUID is a 16-byte identifier (RFC 9562).
type UUID [16]byte

func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseUUID parses the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
func ParseUUID(s string) (u UUID, err error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, Invalid("uuid", "must have the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
	}
	if _, err := hex.Decode(u[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil {
		return UUID{}, Invalid("uuid", "must be hexadecimal")
	}
	return u, nil
}

// Check reports what is wrong with the properties: a name, the type of a value, or their size.
func (p Properties) Check() error {
	total := 0
	for name, value := range p {
		if name == "" || len(name) > MaxMetadataKeyBytes || !utf8.ValidString(name) {
			return Invalid("application_properties", "holds a name that is empty, longer than %d bytes or not UTF-8", MaxMetadataKeyBytes)
		}
		size, err := valueBytes(value)
		if err != nil {
			return invalidProperty(name, err)
		}
		if size += len(name); size > MaxPropertyBytes {
			return &Error{Code: CodePayloadTooLarge, Field: propertyField(name), Message: fmt.Sprintf("may have at most %d bytes", MaxPropertyBytes)}
		}
		total += size
	}
	if total > MaxPropertiesBytes {
		return &Error{Code: CodePayloadTooLarge, Field: "application_properties", Message: fmt.Sprintf("may have at most %d bytes together", MaxPropertiesBytes)}
	}
	return nil
}

func propertyField(name string) string {
	if !ValidText(name, MaxMetadataKeyBytes) {
		return "application_properties"
	}
	return "application_properties." + name
}

func invalidProperty(name string, why error) error {
	return Invalid(propertyField(name), "%s", why)
}

func valueBytes(value any) (int, error) {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return 0, fmt.Errorf("is not valid UTF-8")
		}
		return len(v), nil
	case []byte:
		return len(v), nil
	case time.Time:
		if year := v.UTC().Year(); year < 1 || year > 9999 {
			return 0, fmt.Errorf("lies outside the years 1 to 9999")
		}
		return 8, nil
	case int64, float64:
		return 8, nil
	case bool:
		return 1, nil
	case UUID:
		return len(v), nil
	}
	return 0, fmt.Errorf("has a type that is none of %s", propertyTypes)
}

const propertyTypes = "string, int, float, bool, time, bytes, uuid"

// typedValue is the long form of a value.
type typedValue struct {
	Type  string
	Value json.RawMessage
}

const maxSafeInteger = 1 << 53 // above it, a float64, which is what many JSON parsers use, skips integers

// MarshalJSON writes the properties in the order of their names.
func (p Properties) MarshalJSON() ([]byte, error) {
	values := make(map[string]any, len(p))
	for name, value := range p {
		encoded, err := encodeValue(value)
		if err != nil {
			return nil, invalidProperty(name, err)
		}
		values[name] = encoded
	}
	return json.Marshal(values)
}

type longForm struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

func encodeValue(value any) (any, error) {
	switch v := value.(type) {
	case string, bool:
		return v, nil
	case int64:
		if v > maxSafeInteger || v < -maxSafeInteger {
			return longForm{"int", strconv.FormatInt(v, 10)}, nil
		}
		return v, nil
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return longForm{"float", text}, nil
		}
		if !strings.ContainsAny(text, ".e") {
			text += ".0" // else it would come back as an int
		}
		return json.RawMessage(text), nil
	case time.Time:
		return longForm{"time", v.UTC().Format(time.RFC3339Nano)}, nil
	case []byte:
		return longForm{"bytes", base64.StdEncoding.EncodeToString(v)}, nil
	case UUID:
		return longForm{"uuid", v.String()}, nil
	}
	_, err := valueBytes(value)
	return nil, err
}

// UnmarshalJSON reads both forms of values.
func (p *Properties) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return Invalid("application_properties", "must be an object")
	}
	if raw == nil {
		*p = nil
		return nil
	}
	*p = make(Properties, len(raw))
	for name, value := range raw {
		decoded, err := decodeValue(value)
		if err != nil {
			return invalidProperty(name, err)
		}
		(*p)[name] = decoded
	}
	return nil
}

func decodeValue(data json.RawMessage) (any, error) {
	switch data[0] {
	case '"':
		var s string
		err := json.Unmarshal(data, &s)
		return s, err
	case 't', 'f':
		return data[0] == 't', nil
	case '{':
		return decodeTyped(data)
	case 'n', '[':
		return nil, fmt.Errorf("must be a string, a number, true or false, or an object with type and value")
	}
	if bytes.ContainsAny(data, ".eE") {
		return parse("float", string(data))
	}
	return parse("int", string(data))
}

// decodeTyped reads {"type": …, "value": …}. The value may be a string for every type.
func decodeTyped(data []byte) (any, error) {
	var parts map[string]json.RawMessage // not a struct, whose fields take names in any letter case
	var typed typedValue
	err := json.Unmarshal(data, &parts)
	typed.Value = parts["value"]
	if err != nil || len(parts) != 2 || len(typed.Value) == 0 || json.Unmarshal(parts["type"], &typed.Type) != nil {
		return nil, fmt.Errorf("must be an object with type and value and nothing else")
	}
	text := string(typed.Value)
	quoted := typed.Value[0] == '"'
	if quoted {
		if err := json.Unmarshal(typed.Value, &text); err != nil {
			return nil, err
		}
	}
	if !quoted && typed.Type != "int" && typed.Type != "float" && typed.Type != "bool" {
		return nil, fmt.Errorf("must have a string as its value")
	}
	return parse(typed.Type, text)
}

func parse(kind, text string) (value any, err error) {
	switch kind {
	case "string":
		return text, nil
	case "int":
		value, err = strconv.ParseInt(text, 10, 64)
	case "float":
		value, err = strconv.ParseFloat(text, 64)
	case "bool":
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("must be true or false")
		}
		return text == "true", nil
	case "time":
		value, err = time.Parse(time.RFC3339Nano, text)
	case "bytes":
		value, err = base64.StdEncoding.DecodeString(text)
	case "uuid":
		value, err = ParseUUID(text)
	default:
		return nil, fmt.Errorf("has a type that is none of %s", propertyTypes)
	}
	if err != nil {
		return nil, fmt.Errorf("is not a valid %s", kind)
	}
	return value, nil
}
