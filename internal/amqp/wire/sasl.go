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

func (e *encoder) sasl(v Composite) {
	at := e.beginComposite(v.Code())
	count := 1
	switch v := v.(type) {
	case *SASLMechanisms:
		e.symbolArray(v.Mechanisms)
	case *SASLInit:
		e.symbol(v.Mechanism)
		e.optionalBinary(v.InitialResponse)
		e.stringOrNull(v.Hostname)
		count = 3
	case *SASLChallenge:
		e.binary(v.Challenge)
	case *SASLResponse:
		e.binary(v.Response)
	case *SASLOutcome:
		e.ubyte(uint8(v.OutcomeCode))
		e.optionalBinary(v.AdditionalData)
		count = 2
	}
	e.close(at, count)
}

func (d *decoder) saslMechanisms() (*SASLMechanisms, error) {
	f := d.composite("sasl-mechanisms")
	v := &SASLMechanisms{Mechanisms: f.symbols("sasl-server-mechanisms")}
	f.must("sasl-server-mechanisms", v.Mechanisms != nil)
	return v, f.done()
}

func (d *decoder) saslInit() (*SASLInit, error) {
	f := d.composite("sasl-init")
	v := &SASLInit{}
	var ok bool
	v.Mechanism, ok = f.symbol("mechanism")
	f.must("mechanism", ok)
	v.InitialResponse = f.binary("initial-response")
	v.Hostname, _ = f.string("hostname")
	return v, f.done()
}

func (d *decoder) saslChallenge() (*SASLChallenge, error) {
	f := d.composite("sasl-challenge")
	v := &SASLChallenge{Challenge: f.binary("challenge")}
	f.must("challenge", v.Challenge != nil)
	return v, f.done()
}

func (d *decoder) saslResponse() (*SASLResponse, error) {
	f := d.composite("sasl-response")
	v := &SASLResponse{Response: f.binary("response")}
	f.must("response", v.Response != nil)
	return v, f.done()
}

func (d *decoder) saslOutcome() (*SASLOutcome, error) {
	f := d.composite("sasl-outcome")
	v := &SASLOutcome{}
	code, ok := f.ubyte("code")
	f.must("code", ok)
	v.OutcomeCode = SASLCode(code)
	v.AdditionalData = f.binary("additional-data")
	return v, f.done()
}
