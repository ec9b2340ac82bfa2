package wire

import "errors"

// Descriptors of the sections of a message (3.2).
const (
	CodeHeader                uint64 = 0x70
	CodeDeliveryAnnotations   uint64 = 0x71
	CodeMessageAnnotations    uint64 = 0x72
	CodeProperties            uint64 = 0x73
	CodeApplicationProperties uint64 = 0x74
	CodeData                  uint64 = 0x75
	CodeSequence              uint64 = 0x76
	CodeValue                 uint64 = 0x77
	CodeFooter                uint64 = 0x78
)

// Message is a message of format 0 (3.2). A nil section is absent; an empty map is a section
// without entries. The body is one of Data, Sequences, and Value with HasValue, or absent, which
// the standard forbids and some peers send.
type Message struct {
	Header                *Header
	DeliveryAnnotations   Map
	MessageAnnotations    Map
	Properties            *Properties
	ApplicationProperties Map
	Data                  [][]byte
	Sequences             []List
	Value                 any
	HasValue              bool // tells a null value from no value
	Footer                Map
}

var (
	errTwoBodies = errors.New("amqp: encode: a message has bodies of two kinds")
	errMessageID = errors.New("amqp: encode: a message id is not a string, UUID, uint64 or []byte")
)

// Append appends the encoding of the message to dst. An error means that something in it has no
// encoding, as for the function Append, or that it has bodies of several kinds. The bytes returned
// with an error are dst.
func (m *Message) Append(dst []byte) ([]byte, error) {
	e := encoder{b: dst}
	m.encode(&e)
	return e.done(dst)
}

func (m *Message) encode(e *encoder) {
	if m.Data != nil && m.Sequences != nil || m.HasValue && (m.Data != nil || m.Sequences != nil) {
		e.fail(errTwoBodies)
		return
	}
	if m.Header != nil {
		m.Header.encode(e)
	}
	e.mapSection(CodeDeliveryAnnotations, m.DeliveryAnnotations)
	e.mapSection(CodeMessageAnnotations, m.MessageAnnotations)
	if m.Properties != nil {
		m.Properties.encode(e)
	}
	e.mapSection(CodeApplicationProperties, m.ApplicationProperties)
	for _, data := range m.Data {
		e.section(CodeData)
		e.binary(data)
	}
	for _, sequence := range m.Sequences {
		e.section(CodeSequence)
		e.list(sequence)
	}
	if m.HasValue {
		e.section(CodeValue)
		e.value(m.Value)
	}
	e.mapSection(CodeFooter, m.Footer)
}

func (e *encoder) section(code uint64) {
	e.b = append(e.b, 0x00, ConstructorSmallUlong, byte(code))
}

func (e *encoder) mapSection(code uint64, m Map) {
	if m != nil {
		e.section(code)
		e.mapping(m)
	}
}

// DecodeMessage decodes a whole message. Sections out of order, twice, or unknown are an error,
// and so are bodies of two kinds. Delivery annotations may come last, as from Microsoft's SDKs for
// Python. Binary values share memory with b. The error is a *DecodeError.
func DecodeMessage(b []byte) (*Message, error) {
	d := newDecoder(b)
	m := &Message{}
	for last := uint64(0); d.at < d.end; {
		code, err := d.sectionCode(last)
		if err != nil {
			return nil, err
		}
		last = max(last, code)
		if err := d.section(m, code); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// sectionCode reads the descriptor of a section that follows the section last.
func (d *decoder) sectionCode(last uint64) (uint64, error) {
	at := d.at
	constructor, err := d.byte()
	if err != nil {
		return 0, err
	}
	if constructor != 0x00 {
		return 0, d.fail(at, "it is not a section of a message")
	}
	s, err := d.descriptor()
	if err != nil {
		return 0, err
	}
	code := s.known()
	late := code == CodeDeliveryAnnotations && last > code && !d.annotated
	d.annotated = d.annotated || code == CodeDeliveryAnnotations
	switch {
	case code < CodeHeader || code > CodeFooter:
		return 0, d.fail(at, "an unknown section of a message")
	case code < last && !late, code == last && code != CodeData && code != CodeSequence:
		return 0, d.fail(at, "a section of a message is out of order or there twice")
	case isBody(code) && isBody(last) && code != last:
		return 0, d.fail(at, "a message has bodies of two kinds")
	}
	return code, nil
}

func isBody(code uint64) bool { return CodeData <= code && code <= CodeValue }

// section reads the section behind its descriptor.
func (d *decoder) section(m *Message, code uint64) (err error) {
	at := d.at
	switch code {
	case CodeHeader:
		m.Header, err = decodeHeader(d)
	case CodeDeliveryAnnotations:
		m.DeliveryAnnotations, err = d.mapSection("delivery-annotations")
	case CodeMessageAnnotations:
		m.MessageAnnotations, err = d.mapSection("message-annotations")
	case CodeProperties:
		m.Properties, err = decodeProperties(d)
	case CodeApplicationProperties:
		m.ApplicationProperties, err = d.mapSection("application-properties")
	case CodeFooter:
		m.Footer, err = d.mapSection("footer")
	case CodeData:
		var data []byte
		if data, err = d.dataSection(); err == nil {
			m.Data = append(m.Data, data)
		}
	case CodeSequence:
		var v any
		if v, err = d.value(); err != nil {
			return err
		}
		list, ok := v.(List)
		if !ok {
			return &DecodeError{Offset: at, Field: "amqp-sequence", Problem: "it is not a list"}
		}
		m.Sequences = append(m.Sequences, list)
	case CodeValue:
		m.HasValue = true
		m.Value, err = d.value()
	}
	return err
}

func (d *decoder) mapSection(name string) (Map, error) {
	at := d.at
	constructor, err := d.byte()
	if err != nil {
		return nil, err
	}
	if constructor != ConstructorMap8 && constructor != ConstructorMap32 {
		return nil, &DecodeError{Offset: at, Field: name, Problem: "it is not a map"}
	}
	return d.pairs(constructor)
}

func (d *decoder) dataSection() ([]byte, error) {
	at := d.at
	constructor, err := d.byte()
	if err != nil {
		return nil, err
	}
	if constructor != ConstructorBinary8 && constructor != ConstructorBinary32 {
		return nil, &DecodeError{Offset: at, Field: "data", Problem: "it is not binary"}
	}
	return d.octets(constructor)
}
