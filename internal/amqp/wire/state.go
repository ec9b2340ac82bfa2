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

func (e *encoder) optionalState(v DeliveryState) {
	if v == nil {
		e.null()
	} else {
		e.state(v)
	}
}

func (e *encoder) state(v DeliveryState) {
	switch v := v.(type) {
	case *Accepted, *Released:
		e.close(e.beginComposite(v.Code()), 0)
	case *Rejected:
		e.onlyError(codeRejected, v.Error)
	case *Received:
		at := e.beginComposite(codeReceived)
		e.uint(v.SectionNumber)
		e.ulong(v.SectionOffset)
		e.close(at, 2)
	case *Modified:
		at := e.beginComposite(codeModified)
		e.bool(v.DeliveryFailed)
		e.bool(v.UndeliverableHere)
		e.optionalMap(v.MessageAnnotations)
		e.close(at, 3)
	case *Declared:
		e.declared(v)
	case *TransactionalState:
		e.transactionalState(v)
	case *OtherState:
		e.described(v.Described)
	}
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
		f := d.composite("accepted")
		return asState(accepted, f.done())
	case codeReleased:
		f := d.composite("released")
		return asState(released, f.done())
	case codeRejected:
		f := d.composite("rejected")
		v := &Rejected{Error: f.error("error")}
		return asState(v, f.done())
	case codeReceived:
		return asState(d.received())
	case codeModified:
		return asState(d.modified())
	case codeDeclared:
		return asState(d.declared())
	case codeTransactionalState:
		return asState(d.transactionalState())
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

func (d *decoder) received() (*Received, error) {
	f := d.composite("received")
	v := &Received{SectionNumber: f.mustUint("section-number")}
	var ok bool
	v.SectionOffset, ok = f.ulong("section-offset")
	f.must("section-offset", ok)
	return v, f.done()
}

func (d *decoder) modified() (*Modified, error) {
	f := d.composite("modified")
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
