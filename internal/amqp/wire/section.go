package wire

// Section is a section of an encoded message (3.2).
type Section struct {
	Code uint64 // CodeHeader to CodeFooter
	Raw  []byte // the section whole, its descriptor included; shares memory with the message
}

// Value returns the encoded value of the section, which Decode takes: Raw without the descriptor.
// It is nil if Raw does not begin with a descriptor.
func (s Section) Value() []byte {
	d := newDecoder(s.Raw)
	if _, err := d.compositeCode(); err != nil {
		return nil
	}
	return d.in[d.at:]
}

// Sections splits an encoded message into its sections without decoding what is in them. It checks
// their order, kinds and sizes as DecodeMessage does. The error is a *DecodeError.
func Sections(b []byte) ([]Section, error) {
	d := newDecoder(b)
	sections := make([]Section, 0, min(len(b)/4, 6))
	for last := uint64(0); d.at < d.end; {
		at := d.at
		code, err := d.sectionCode(last)
		if err != nil {
			return nil, err
		}
		last = max(last, code)
		if err := d.skipSection(code); err != nil {
			return nil, err
		}
		sections = append(sections, Section{code, b[at:d.at:d.at]})
	}
	return sections, nil
}

// skipSection passes over the value of a section.
func (d *decoder) skipSection(code uint64) error {
	at := d.at
	constructor, err := d.byte()
	if err != nil {
		return err
	}
	ok := true
	switch code {
	case CodeHeader, CodeProperties, CodeSequence:
		ok = constructor == constructorList0 || constructor == ConstructorList8 || constructor == ConstructorList32
	case CodeData:
		ok = constructor == ConstructorBinary8 || constructor == ConstructorBinary32
	case CodeValue:
		for depth := 0; constructor == 0x00; depth++ {
			if depth == MaxDepth {
				return d.deeperThan(at)
			}
			if _, err := d.descriptor(); err != nil {
				return err
			}
			if constructor, err = d.byte(); err != nil {
				return err
			}
		}
	default:
		ok = constructor == ConstructorMap8 || constructor == ConstructorMap32
	}
	if !ok {
		return d.fail(at, "the value of a section is of another type than the standard demands")
	}
	return d.skip(constructor)
}

// skip passes over a value behind its constructor, by its size (1.2.1).
func (d *decoder) skip(constructor byte) error {
	if !isConstructor(constructor) {
		return d.fail(d.at-1, "an unknown constructor")
	}
	var err error
	if constructor < ConstructorBinary8 {
		_, err = d.take(width(constructor))
	} else {
		_, err = d.octets(constructor)
	}
	return err
}
