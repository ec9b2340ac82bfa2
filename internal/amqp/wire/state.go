package wire

// DeliveryState is the state of a delivery at one of its ends: *Received, *Accepted, *Rejected,
// *Released, *Modified (3.4), *Declared, *TransactionalState (4.5), or *OtherState.
type DeliveryState interface {
	Composite
	deliveryState()
}

// Received is how much of a delivery has arrived (3.4.1). Both fields are mandatory.
type Received struct {
	SectionNumber uint32
	SectionOffset uint64
}

// Accepted is the outcome of a message that was processed (3.4.2).
type Accepted struct{}

// Rejected is the outcome of a message that is invalid (3.4.3).
type Rejected struct{ Error *Error }

// Released is the outcome of a message that was not processed (3.4.4).
type Released struct{}

// Modified is the outcome of a message that was changed and not processed (3.4.5).
type Modified struct {
	DeliveryFailed     bool
	UndeliverableHere  bool
	MessageAnnotations Map
}

// OtherState is a state that this package does not know. Its descriptor is in the value.
type OtherState struct{ Described }

// Code returns 0x23.
func (*Received) Code() uint64 { return codeReceived }

// Code returns 0x24.
func (*Accepted) Code() uint64 { return codeAccepted }

// Code returns 0x25.
func (*Rejected) Code() uint64 { return codeRejected }

// Code returns 0x26.
func (*Released) Code() uint64 { return codeReleased }

// Code returns 0x27.
func (*Modified) Code() uint64 { return codeModified }

// Code returns the descriptor if that is numeric, and 0 otherwise.
func (s *OtherState) Code() uint64 {
	code, _ := s.Descriptor.(uint64)
	return code
}

func (*Received) deliveryState()           {}
func (*Accepted) deliveryState()           {}
func (*Rejected) deliveryState()           {}
func (*Released) deliveryState()           {}
func (*Modified) deliveryState()           {}
func (*Declared) deliveryState()           {}
func (*TransactionalState) deliveryState() {}
func (*OtherState) deliveryState()         {}

func (w fieldWriter) optionalState(v DeliveryState) {
	if v == nil {
		w.null()
	} else {
		encodeState(w.encoder, v)
	}
}

func encodeState(e *encoder, v DeliveryState) {
	switch v := v.(type) {
	case *Accepted:
		e.begin(codeAccepted).end(0)
	case *Released:
		e.begin(codeReleased).end(0)
	case *Rejected:
		v.encode(e)
	case *Received:
		v.encode(e)
	case *Modified:
		v.encode(e)
	case *Declared:
		v.encode(e)
	case *TransactionalState:
		v.encode(e)
	case *OtherState:
		e.described(v.Described)
	}
}

func (v *Rejected) encode(e *encoder) {
	w := e.begin(codeRejected)
	w.optionalError(v.Error)
	w.end(1)
}

func (v *Received) encode(e *encoder) {
	w := e.begin(codeReceived)
	w.uint(v.SectionNumber)
	w.ulong(v.SectionOffset)
	w.end(2)
}

func (v *Modified) encode(e *encoder) {
	w := e.begin(codeModified)
	w.bool(v.DeliveryFailed)
	w.bool(v.UndeliverableHere)
	w.optionalMap(v.MessageAnnotations)
	w.end(3)
}

func isState(code uint64) bool {
	return codeReceived <= code && code <= codeModified || code == codeDeclared || code == codeTransactionalState
}

// accepted and released have no fields, so that all deliveries share one of each.
var (
	accepted = &Accepted{}
	released = &Released{}
)

// stateOf reads the state behind its descriptor.
func (d *decoder) stateOf(s descriptor) (DeliveryState, error) {
	switch s.known() {
	case codeAccepted:
		f := d.composite(codeAccepted)
		return asState(accepted, f.done())
	case codeReleased:
		f := d.composite(codeReleased)
		return asState(released, f.done())
	case codeRejected:
		f := d.composite(codeRejected)
		v := &Rejected{Error: f.error()}
		return asState(v, f.done())
	case codeReceived:
		return asState(decodeReceived(d))
	case codeModified:
		return asState(decodeModified(d))
	case codeDeclared:
		return asState(decodeDeclared(d))
	case codeTransactionalState:
		return asState(decodeTransactionalState(d))
	}
	if err := d.deeper(); err != nil {
		return nil, err
	}
	defer d.shallower()
	v, err := d.value()
	return asState(&OtherState{Described{s.any(), v}}, err)
}

func asState[T DeliveryState](v T, err error) (DeliveryState, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func decodeReceived(d *decoder) (*Received, error) {
	f := d.composite(codeReceived)
	v := &Received{SectionNumber: f.mustUint("section-number")}
	var ok bool
	v.SectionOffset, ok = f.ulong("section-offset")
	f.must("section-offset", ok)
	return v, f.done()
}

func decodeModified(d *decoder) (*Modified, error) {
	f := d.composite(codeModified)
	v := &Modified{}
	v.DeliveryFailed = f.bool("delivery-failed")
	v.UndeliverableHere = f.bool("undeliverable-here")
	v.MessageAnnotations = f.pairs("message-annotations")
	return v, f.done()
}

// state reads a field that is a delivery state or null.
func (f *fields) state(field string) DeliveryState {
	s, ok := f.described(field)
	if !ok {
		return nil
	}
	v, err := f.d.stateOf(s)
	f.failed(field, err)
	return v
}
