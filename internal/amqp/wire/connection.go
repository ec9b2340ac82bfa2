package wire

// DefaultMaxFrameSize, DefaultChannelMax and DefaultHandleMax are what absent fields of Open and
// Begin mean (2.7.1, 2.7.2).
const (
	DefaultMaxFrameSize uint32 = 1<<32 - 1
	DefaultChannelMax   uint16 = 1<<16 - 1
	DefaultHandleMax    uint32 = 1<<32 - 1
)

// MinMaxFrameSize is the smallest max-frame-size that a peer may have (2.4.1).
const MinMaxFrameSize uint32 = 512

// Open negotiates the parameters of a connection (2.7.1).
type Open struct {
	ContainerID         string  // mandatory
	Hostname            string  // "" for null
	MaxFrameSize        *uint32 // bytes
	ChannelMax          *uint16
	IdleTimeout         *uint32 // milliseconds
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Begin begins a session on a channel (2.7.2).
type Begin struct {
	RemoteChannel       *uint16 // nil in the Begin of the peer that begins
	NextOutgoingID      uint32  // mandatory
	IncomingWindow      uint32  // mandatory, in transfers
	OutgoingWindow      uint32  // mandatory, in transfers
	HandleMax           *uint32
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// End ends a session, for the reason given if Error is not nil (2.7.8).
type End struct{ Error *Error }

// Close closes a connection, for the reason given if Error is not nil (2.7.9).
type Close struct{ Error *Error }

// Code returns 0x10.
func (*Open) Code() uint64 { return codeOpen }

// Code returns 0x11.
func (*Begin) Code() uint64 { return codeBegin }

// Code returns 0x17.
func (*End) Code() uint64 { return codeEnd }

// Code returns 0x18.
func (*Close) Code() uint64 { return codeClose }

func (*Open) performative()  {}
func (*Begin) performative() {}
func (*End) performative()   {}
func (*Close) performative() {}

func (v *Open) encode(e *encoder) {
	w := e.begin(codeOpen)
	w.string(v.ContainerID)
	w.stringOrNull(v.Hostname)
	w.optionalUint(v.MaxFrameSize)
	w.optionalUshort(v.ChannelMax)
	w.optionalUint(v.IdleTimeout)
	w.symbols(v.OutgoingLocales)
	w.symbols(v.IncomingLocales)
	w.symbols(v.OfferedCapabilities)
	w.symbols(v.DesiredCapabilities)
	w.optionalMap(v.Properties)
	w.end(10)
}

func decodeOpen(d *decoder) (*Open, error) {
	f := d.composite(codeOpen)
	v := &Open{}
	var ok bool
	v.ContainerID, ok = f.string("container-id")
	f.must("container-id", ok)
	v.Hostname, _ = f.string("hostname")
	v.MaxFrameSize = pointer(f.uint("max-frame-size"))
	v.ChannelMax = pointer(f.ushort("channel-max"))
	v.IdleTimeout = pointer(f.uint("idle-time-out"))
	v.OutgoingLocales = f.symbols("outgoing-locales")
	v.IncomingLocales = f.symbols("incoming-locales")
	v.OfferedCapabilities = f.symbols("offered-capabilities")
	v.DesiredCapabilities = f.symbols("desired-capabilities")
	v.Properties = f.pairs("properties")
	return v, f.done()
}

func (v *Begin) encode(e *encoder) {
	w := e.begin(codeBegin)
	w.optionalUshort(v.RemoteChannel)
	w.uint(v.NextOutgoingID)
	w.uint(v.IncomingWindow)
	w.uint(v.OutgoingWindow)
	w.optionalUint(v.HandleMax)
	w.symbols(v.OfferedCapabilities)
	w.symbols(v.DesiredCapabilities)
	w.optionalMap(v.Properties)
	w.end(8)
}

func decodeBegin(d *decoder) (*Begin, error) {
	f := d.composite(codeBegin)
	v := &Begin{}
	v.RemoteChannel = pointer(f.ushort("remote-channel"))
	v.NextOutgoingID = f.mustUint("next-outgoing-id")
	v.IncomingWindow = f.mustUint("incoming-window")
	v.OutgoingWindow = f.mustUint("outgoing-window")
	v.HandleMax = pointer(f.uint("handle-max"))
	v.OfferedCapabilities = f.symbols("offered-capabilities")
	v.DesiredCapabilities = f.symbols("desired-capabilities")
	v.Properties = f.pairs("properties")
	return v, f.done()
}

func (v *End) encode(e *encoder) {
	w := e.begin(codeEnd)
	w.optionalError(v.Error)
	w.end(1)
}

func (v *Close) encode(e *encoder) {
	w := e.begin(codeClose)
	w.optionalError(v.Error)
	w.end(1)
}

func decodeEnd(d *decoder) (*End, error) {
	f := d.composite(codeEnd)
	v := &End{Error: f.error()}
	return v, f.done()
}

func decodeClose(d *decoder) (*Close, error) {
	f := d.composite(codeClose)
	v := &Close{Error: f.error()}
	return v, f.done()
}
