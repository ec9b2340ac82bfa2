package wire

// Role is that of the peer that sends the performative (2.8.1).
type Role bool

// The roles.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// SenderSettleMode is how the sender of a link settles (2.8.2).
type SenderSettleMode uint8

// The modes of a sender. SenderMixed is what an absent field means.
const (
	SenderUnsettled SenderSettleMode = 0
	SenderSettled   SenderSettleMode = 1
	SenderMixed     SenderSettleMode = 2
)

// ReceiverSettleMode is how the receiver of a link settles (2.8.3).
type ReceiverSettleMode uint8

// The modes of a receiver. ReceiverFirst is what an absent field means.
const (
	ReceiverFirst  ReceiverSettleMode = 0
	ReceiverSecond ReceiverSettleMode = 1
)

// MaxDeliveryTag is the size of the longest delivery tag (2.8.7).
const MaxDeliveryTag = 32

// MaxForeignTag is the size of the longest delivery tag that is taken from a peer. Those of
// Microsoft's older SDK for Java have 36 bytes.
const MaxForeignTag = 255

// Attach attaches a link to a session (2.7.3).
type Attach struct {
	Name                 string // mandatory
	Handle               uint32 // mandatory
	Role                 Role   // mandatory
	SenderSettleMode     *SenderSettleMode
	ReceiverSettleMode   *ReceiverSettleMode
	Source               *Source
	Target               *Target      // nil if Coordinator is not
	Coordinator          *Coordinator // the target of a link to a transaction coordinator (4.5.1)
	Unsettled            Map
	IncompleteUnsettled  bool
	InitialDeliveryCount *uint32 // mandatory if Role is RoleSender
	MaxMessageSize       *uint64 // bytes; nil and 0 are no limit
	OfferedCapabilities  []Symbol
	DesiredCapabilities  []Symbol
	Properties           Map
}

// Flow updates the windows of a session and, with a Handle, the state of a link (2.7.4).
type Flow struct {
	NextIncomingID *uint32 // nil until the peer's Begin was seen
	IncomingWindow uint32  // mandatory
	NextOutgoingID uint32  // mandatory
	OutgoingWindow uint32  // mandatory
	Handle         *uint32 // nil if it is for the session only
	DeliveryCount  *uint32
	LinkCredit     *uint32
	Available      *uint32
	Drain          bool
	Echo           bool
	Properties     Map
}

// Transfer sends a message or a part of one, which is the payload of the frame (2.7.5).
type Transfer struct {
	Handle             uint32 // mandatory
	DeliveryID         *uint32
	DeliveryTag        []byte // nil for null, up to MaxForeignTag bytes
	MessageFormat      *uint32
	Settled            bool
	More               bool
	ReceiverSettleMode *ReceiverSettleMode
	State              DeliveryState
	Resume             bool
	Aborted            bool
	Batchable          bool
}

// Disposition tells the peer the state of the deliveries from First to Last (2.7.6).
type Disposition struct {
	Role      Role    // mandatory
	First     uint32  // mandatory
	Last      *uint32 // nil is First
	Settled   bool
	State     DeliveryState
	Batchable bool
}

// Detach detaches a link from a session, and closes it if Closed (2.7.7).
type Detach struct {
	Handle uint32 // mandatory
	Closed bool
	Error  *Error
}

// Code returns 0x12.
func (*Attach) Code() uint64 { return codeAttach }

// Code returns 0x13.
func (*Flow) Code() uint64 { return codeFlow }

// Code returns 0x14.
func (*Transfer) Code() uint64 { return codeTransfer }

// Code returns 0x15.
func (*Disposition) Code() uint64 { return codeDisposition }

// Code returns 0x16.
func (*Detach) Code() uint64 { return codeDetach }

func (*Attach) performative()      {}
func (*Flow) performative()        {}
func (*Transfer) performative()    {}
func (*Disposition) performative() {}
func (*Detach) performative()      {}

func (v *Attach) encode(e *encoder) {
	w := e.begin(codeAttach)
	w.string(v.Name)
	w.uint(v.Handle)
	w.bool(bool(v.Role))
	w.optionalUbyte((*uint8)(v.SenderSettleMode))
	w.optionalUbyte((*uint8)(v.ReceiverSettleMode))
	if v.Source == nil {
		w.null()
	} else {
		v.Source.encode(e)
	}
	switch {
	case v.Coordinator != nil:
		v.Coordinator.encode(e)
	case v.Target != nil:
		v.Target.encode(e)
	default:
		w.null()
	}
	w.optionalMap(v.Unsettled)
	w.bool(v.IncompleteUnsettled)
	w.optionalUint(v.InitialDeliveryCount)
	w.optionalUlong(v.MaxMessageSize)
	w.symbols(v.OfferedCapabilities)
	w.symbols(v.DesiredCapabilities)
	w.optionalMap(v.Properties)
	w.end(14)
}

func decodeAttach(d *decoder) (*Attach, error) {
	f := d.composite(codeAttach)
	v := &Attach{}
	var ok bool
	v.Name, ok = f.string("name")
	f.must("name", ok)
	v.Handle = f.mustUint("handle")
	v.Role = f.role()
	if mode, ok := f.mode("snd-settle-mode", uint8(SenderMixed)); ok {
		v.SenderSettleMode = new(SenderSettleMode(mode))
	}
	if mode, ok := f.mode("rcv-settle-mode", uint8(ReceiverSecond)); ok {
		v.ReceiverSettleMode = new(ReceiverSettleMode(mode))
	}
	v.Source = f.source()
	v.Target, v.Coordinator = f.target()
	v.Unsettled = f.pairs("unsettled")
	v.IncompleteUnsettled = f.bool("incomplete-unsettled")
	v.InitialDeliveryCount = pointer(f.uint("initial-delivery-count"))
	v.MaxMessageSize = pointer(f.ulong("max-message-size"))
	v.OfferedCapabilities = f.symbols("offered-capabilities")
	v.DesiredCapabilities = f.symbols("desired-capabilities")
	v.Properties = f.pairs("properties")
	return v, f.done()
}

func (f *fields) role() Role {
	role, ok := f.optionalBool("role")
	f.must("role", ok)
	return Role(role)
}

// mode reads a settle mode, which is at most the last one.
func (f *fields) mode(field string, last uint8) (uint8, bool) {
	mode, ok := f.ubyte(field)
	if ok && mode > last {
		f.failed(field, f.d.fail(f.d.at-1, "it is not a mode of the standard"))
	}
	return mode, ok
}

func (v *Flow) encode(e *encoder) {
	w := e.begin(codeFlow)
	w.optionalUint(v.NextIncomingID)
	w.uint(v.IncomingWindow)
	w.uint(v.NextOutgoingID)
	w.uint(v.OutgoingWindow)
	w.optionalUint(v.Handle)
	w.optionalUint(v.DeliveryCount)
	w.optionalUint(v.LinkCredit)
	w.optionalUint(v.Available)
	w.bool(v.Drain)
	w.bool(v.Echo)
	w.optionalMap(v.Properties)
	w.end(11)
}

func decodeFlow(d *decoder) (*Flow, error) {
	f := d.composite(codeFlow)
	v := &struct { // one allocation
		Flow
		numbers [5]uint32
	}{}
	optional := func(field string, i int) *uint32 {
		n, ok := f.uint(field)
		if !ok {
			return nil
		}
		v.numbers[i] = n
		return &v.numbers[i]
	}
	v.NextIncomingID = optional("next-incoming-id", 0)
	v.IncomingWindow = f.mustUint("incoming-window")
	v.NextOutgoingID = f.mustUint("next-outgoing-id")
	v.OutgoingWindow = f.mustUint("outgoing-window")
	v.Handle = optional("handle", 1)
	v.DeliveryCount = optional("delivery-count", 2)
	v.LinkCredit = optional("link-credit", 3)
	v.Available = optional("available", 4)
	v.Drain = f.bool("drain")
	v.Echo = f.bool("echo")
	v.Properties = f.pairs("properties")
	return &v.Flow, f.done()
}

func (v *Transfer) encode(e *encoder) {
	w := e.begin(codeTransfer)
	w.uint(v.Handle)
	w.optionalUint(v.DeliveryID)
	w.optionalBinary(v.DeliveryTag)
	w.optionalUint(v.MessageFormat)
	w.bool(v.Settled)
	w.bool(v.More)
	w.optionalUbyte((*uint8)(v.ReceiverSettleMode))
	w.optionalState(v.State)
	w.bool(v.Resume)
	w.bool(v.Aborted)
	w.bool(v.Batchable)
	w.end(11)
}

func decodeTransfer(d *decoder) (*Transfer, error) {
	f := d.composite(codeTransfer)
	v := &struct { // one allocation
		Transfer
		id, format uint32
	}{}
	v.Handle = f.mustUint("handle")
	var ok bool
	if v.id, ok = f.uint("delivery-id"); ok {
		v.DeliveryID = &v.id
	}
	if v.DeliveryTag = f.binary("delivery-tag"); len(v.DeliveryTag) > MaxForeignTag {
		f.failed("delivery-tag", d.fail(d.at, "it is longer than 255 bytes"))
	}
	if v.format, ok = f.uint("message-format"); ok {
		v.MessageFormat = &v.format
	}
	v.Settled = f.bool("settled")
	v.More = f.bool("more")
	if mode, ok := f.mode("rcv-settle-mode", uint8(ReceiverSecond)); ok {
		v.ReceiverSettleMode = new(ReceiverSettleMode(mode))
	}
	v.State = f.state("state")
	v.Resume = f.bool("resume")
	v.Aborted = f.bool("aborted")
	v.Batchable = f.bool("batchable")
	return &v.Transfer, f.done()
}

func (v *Disposition) encode(e *encoder) {
	w := e.begin(codeDisposition)
	w.bool(bool(v.Role))
	w.uint(v.First)
	w.optionalUint(v.Last)
	w.bool(v.Settled)
	w.optionalState(v.State)
	w.bool(v.Batchable)
	w.end(6)
}

func decodeDisposition(d *decoder) (*Disposition, error) {
	f := d.composite(codeDisposition)
	v := &struct { // one allocation
		Disposition
		last uint32
	}{}
	v.Role = f.role()
	v.First = f.mustUint("first")
	var ok bool
	if v.last, ok = f.uint("last"); ok {
		v.Last = &v.last
	}
	v.Settled = f.bool("settled")
	v.State = f.state("state")
	v.Batchable = f.bool("batchable")
	return &v.Disposition, f.done()
}

func (v *Detach) encode(e *encoder) {
	w := e.begin(codeDetach)
	w.uint(v.Handle)
	w.bool(v.Closed)
	w.optionalError(v.Error)
	w.end(3)
}

func decodeDetach(d *decoder) (*Detach, error) {
	f := d.composite(codeDetach)
	v := &Detach{}
	v.Handle = f.mustUint("handle")
	v.Closed = f.bool("closed")
	v.Error = f.error()
	return v, f.done()
}
