package wire

// Source is where the messages of a link come from (3.5.3).
type Source struct {
	Address               *string // nil for null
	Durable               uint32  // 0 none, 1 configuration, 2 unsettled-state (3.5.5)
	ExpiryPolicy          Symbol  // "" for null, which means session-end (3.5.6)
	Timeout               uint32  // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	DistributionMode      Symbol // "move", "copy", or "" for null (3.5.7)
	Filter                Map
	DefaultOutcome        DeliveryState
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is where the messages of a link go to (3.5.4).
type Target struct {
	Address               *string // nil for null
	Durable               uint32  // as in Source
	ExpiryPolicy          Symbol  // as in Source
	Timeout               uint32  // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	Capabilities          []Symbol
}

// Code returns 0x28.
func (*Source) Code() uint64 { return codeSource }

// Code returns 0x29.
func (*Target) Code() uint64 { return codeTarget }

func (v *Source) encode(e *encoder) {
	w := e.begin(codeSource)
	w.optionalString(v.Address)
	w.uint(v.Durable)
	w.symbolOrNull(v.ExpiryPolicy)
	w.uint(v.Timeout)
	w.bool(v.Dynamic)
	w.optionalMap(v.DynamicNodeProperties)
	w.symbolOrNull(v.DistributionMode)
	w.optionalMap(v.Filter)
	w.optionalState(v.DefaultOutcome)
	w.symbols(v.Outcomes)
	w.symbols(v.Capabilities)
	w.end(11)
}

func decodeSource(d *decoder) (*Source, error) {
	f := d.composite(codeSource)
	v := &Source{}
	v.Address = pointer(f.string("address"))
	v.Durable, _ = f.uint("durable")
	v.ExpiryPolicy = f.optionalSymbol("expiry-policy")
	v.Timeout, _ = f.uint("timeout")
	v.Dynamic = f.bool("dynamic")
	v.DynamicNodeProperties = f.pairs("dynamic-node-properties")
	v.DistributionMode = f.optionalSymbol("distribution-mode")
	v.Filter = f.pairs("filter")
	v.DefaultOutcome = f.state("default-outcome")
	v.Outcomes = f.symbols("outcomes")
	v.Capabilities = f.symbols("capabilities")
	return v, f.done()
}

func (v *Target) encode(e *encoder) {
	w := e.begin(codeTarget)
	w.optionalString(v.Address)
	w.uint(v.Durable)
	w.symbolOrNull(v.ExpiryPolicy)
	w.uint(v.Timeout)
	w.bool(v.Dynamic)
	w.optionalMap(v.DynamicNodeProperties)
	w.symbols(v.Capabilities)
	w.end(7)
}

func decodeTarget(d *decoder) (*Target, error) {
	f := d.composite(codeTarget)
	v := &Target{}
	v.Address = pointer(f.string("address"))
	v.Durable, _ = f.uint("durable")
	v.ExpiryPolicy = f.optionalSymbol("expiry-policy")
	v.Timeout, _ = f.uint("timeout")
	v.Dynamic = f.bool("dynamic")
	v.DynamicNodeProperties = f.pairs("dynamic-node-properties")
	v.Capabilities = f.symbols("capabilities")
	return v, f.done()
}

func (f *fields) source() *Source {
	s, ok := f.described("source")
	if !ok {
		return nil
	}
	if s.known() != codeSource {
		f.wrong("source", "source")
		return nil
	}
	v, err := decodeSource(f.d)
	f.failed("source", err)
	return v
}

func (f *fields) target() (*Target, *Coordinator) {
	s, ok := f.described("target")
	if !ok {
		return nil, nil
	}
	switch s.known() {
	case codeTarget:
		v, err := decodeTarget(f.d)
		f.failed("target", err)
		return v, nil
	case codeCoordinator:
		v, err := decodeCoordinator(f.d)
		f.failed("target", err)
		return nil, v
	}
	f.wrong("target", "target or coordinator")
	return nil, nil
}
