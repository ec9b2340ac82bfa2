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
	DeliveryTag        []byte // nil for null, up to MaxDeliveryTag bytes
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

func (e *encoder) attach(v *Attach) {
	at := e.beginComposite(codeAttach)
	e.string(v.Name)
	e.uint(v.Handle)
	e.bool(bool(v.Role))
	e.optionalUbyte((*uint8)(v.SenderSettleMode))
	e.optionalUbyte((*uint8)(v.ReceiverSettleMode))
	if v.Source == nil {
		e.null()
	} else {
		e.source(v.Source)
	}
	switch {
	case v.Coordinator != nil:
		e.coordinator(v.Coordinator)
	case v.Target != nil:
		e.target(v.Target)
	default:
		e.null()
	}
	e.optionalMap(v.Unsettled)
	e.bool(v.IncompleteUnsettled)
	e.optionalUint(v.InitialDeliveryCount)
	e.optionalUlong(v.MaxMessageSize)
	e.symbols(v.OfferedCapabilities)
	e.symbols(v.DesiredCapabilities)
	e.optionalMap(v.Properties)
	e.close(at, 14)
}

func (d *decoder) attach() (*Attach, error) {
	f := d.composite("attach")
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

func (e *encoder) flow(v *Flow) {
	at := e.beginComposite(codeFlow)
	e.optionalUint(v.NextIncomingID)
	e.uint(v.IncomingWindow)
	e.uint(v.NextOutgoingID)
	e.uint(v.OutgoingWindow)
	e.optionalUint(v.Handle)
	e.optionalUint(v.DeliveryCount)
	e.optionalUint(v.LinkCredit)
	e.optionalUint(v.Available)
	e.bool(v.Drain)
	e.bool(v.Echo)
	e.optionalMap(v.Properties)
	e.close(at, 11)
}

func (d *decoder) flow() (*Flow, error) {
	f := d.composite("flow")
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

func (e *encoder) transfer(v *Transfer) {
	at := e.beginComposite(codeTransfer)
	e.uint(v.Handle)
	e.optionalUint(v.DeliveryID)
	e.optionalBinary(v.DeliveryTag)
	e.optionalUint(v.MessageFormat)
	e.bool(v.Settled)
	e.bool(v.More)
	e.optionalUbyte((*uint8)(v.ReceiverSettleMode))
	e.optionalState(v.State)
	e.bool(v.Resume)
	e.bool(v.Aborted)
	e.bool(v.Batchable)
	e.close(at, 11)
}

func (d *decoder) transfer() (*Transfer, error) {
	f := d.composite("transfer")
	v := &struct { // one allocation
		Transfer
		id, format uint32
	}{}
	v.Handle = f.mustUint("handle")
	var ok bool
	if v.id, ok = f.uint("delivery-id"); ok {
		v.DeliveryID = &v.id
	}
	if v.DeliveryTag = f.binary("delivery-tag"); len(v.DeliveryTag) > MaxDeliveryTag {
		f.failed("delivery-tag", d.fail(d.at, "it is longer than 32 bytes"))
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

func (e *encoder) disposition(v *Disposition) {
	at := e.beginComposite(codeDisposition)
	e.bool(bool(v.Role))
	e.uint(v.First)
	e.optionalUint(v.Last)
	e.bool(v.Settled)
	e.optionalState(v.State)
	e.bool(v.Batchable)
	e.close(at, 6)
}

func (d *decoder) disposition() (*Disposition, error) {
	f := d.composite("disposition")
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

func (e *encoder) detach(v *Detach) {
	at := e.beginComposite(codeDetach)
	e.uint(v.Handle)
	e.bool(v.Closed)
	e.optionalError(v.Error)
	e.close(at, 3)
}

func (d *decoder) detach() (*Detach, error) {
	f := d.composite("detach")
	v := &Detach{}
	v.Handle = f.mustUint("handle")
	v.Closed = f.bool("closed")
	v.Error = f.error("error")
	return v, f.done()
}
