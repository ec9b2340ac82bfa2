package wire

// SASLCode is the outcome of a SASL dialogue (5.3.3.6).
type SASLCode uint8

// The outcomes.
const (
	SASLOK              SASLCode = 0
	SASLAuth            SASLCode = 1 // the credentials are wrong
	SASLSystem          SASLCode = 2
	SASLSystemPermanent SASLCode = 3
	SASLSystemTemp      SASLCode = 4 // trying again may help
)

// SASLMechanisms is what the server offers, in the order of its preference (5.3.3.1).
type SASLMechanisms struct{ Mechanisms []Symbol } // mandatory

// SASLInit is the choice of the client (5.3.3.2).
type SASLInit struct {
	Mechanism       Symbol // mandatory
	InitialResponse []byte // nil for null
	Hostname        string // "" for null
}

// SASLChallenge is data for the client (5.3.3.3).
type SASLChallenge struct{ Challenge []byte } // mandatory

// SASLResponse answers a challenge (5.3.3.4).
type SASLResponse struct{ Response []byte } // mandatory

// SASLOutcome ends the dialogue (5.3.3.5).
type SASLOutcome struct {
	OutcomeCode    SASLCode // mandatory
	AdditionalData []byte   // nil for null
}

// Code returns 0x40.
func (*SASLMechanisms) Code() uint64 { return codeSASLMechanisms }

// Code returns 0x41.
func (*SASLInit) Code() uint64 { return codeSASLInit }

// Code returns 0x42.
func (*SASLChallenge) Code() uint64 { return codeSASLChallenge }

// Code returns 0x43.
func (*SASLResponse) Code() uint64 { return codeSASLResponse }

// Code returns 0x44.
func (*SASLOutcome) Code() uint64 { return codeSASLOutcome }

func (*SASLMechanisms) performative() {}
func (*SASLInit) performative()       {}
func (*SASLChallenge) performative()  {}
func (*SASLResponse) performative()   {}
func (*SASLOutcome) performative()    {}

func (v *SASLMechanisms) encode(e *encoder) {
	w := e.begin(codeSASLMechanisms)
	w.symbolArray(v.Mechanisms)
	w.end(1)
}

func (v *SASLInit) encode(e *encoder) {
	w := e.begin(codeSASLInit)
	w.symbol(v.Mechanism)
	w.optionalBinary(v.InitialResponse)
	w.stringOrNull(v.Hostname)
	w.end(3)
}

func (v *SASLChallenge) encode(e *encoder) {
	w := e.begin(codeSASLChallenge)
	w.binary(v.Challenge)
	w.end(1)
}

func (v *SASLResponse) encode(e *encoder) {
	w := e.begin(codeSASLResponse)
	w.binary(v.Response)
	w.end(1)
}

func (v *SASLOutcome) encode(e *encoder) {
	w := e.begin(codeSASLOutcome)
	w.ubyte(uint8(v.OutcomeCode))
	w.optionalBinary(v.AdditionalData)
	w.end(2)
}

func decodeSASLMechanisms(d *decoder) (*SASLMechanisms, error) {
	f := d.composite(codeSASLMechanisms)
	v := &SASLMechanisms{Mechanisms: f.symbols("sasl-server-mechanisms")}
	f.must("sasl-server-mechanisms", v.Mechanisms != nil)
	return v, f.done()
}

func decodeSASLInit(d *decoder) (*SASLInit, error) {
	f := d.composite(codeSASLInit)
	v := &SASLInit{}
	var ok bool
	v.Mechanism, ok = f.symbol("mechanism")
	f.must("mechanism", ok)
	v.InitialResponse = f.binary("initial-response")
	v.Hostname, _ = f.string("hostname")
	return v, f.done()
}

func decodeSASLChallenge(d *decoder) (*SASLChallenge, error) {
	f := d.composite(codeSASLChallenge)
	v := &SASLChallenge{Challenge: f.binary("challenge")}
	f.must("challenge", v.Challenge != nil)
	return v, f.done()
}

func decodeSASLResponse(d *decoder) (*SASLResponse, error) {
	f := d.composite(codeSASLResponse)
	v := &SASLResponse{Response: f.binary("response")}
	f.must("response", v.Response != nil)
	return v, f.done()
}

func decodeSASLOutcome(d *decoder) (*SASLOutcome, error) {
	f := d.composite(codeSASLOutcome)
	v := &SASLOutcome{}
	code, ok := f.ubyte("code")
	f.must("code", ok)
	v.OutcomeCode = SASLCode(code)
	v.AdditionalData = f.binary("additional-data")
	return v, f.done()
}
