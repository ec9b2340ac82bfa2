package wire

// Coordinator is the target of a link over which transactions are declared (4.5.1).
type Coordinator struct{ Capabilities []Symbol }

// Declare asks for a transaction. It is the value of a message to a coordinator (4.5.2).
type Declare struct {
	GlobalID any // of a distributed transaction, usually nil
}

// Discharge ends a transaction. It is the value of a message to a coordinator (4.5.3).
type Discharge struct {
	TxnID []byte // mandatory
	Fail  bool   // true rolls back
}

// Declared is the outcome of a Declare that was granted (4.5.5).
type Declared struct{ TxnID []byte } // mandatory

// TransactionalState is the state of a delivery within a transaction (4.5.6).
type TransactionalState struct {
	TxnID   []byte        // mandatory
	Outcome DeliveryState // provisional, may be nil
}

// Code returns 0x30.
func (*Coordinator) Code() uint64 { return codeCoordinator }

// Code returns 0x31.
func (*Declare) Code() uint64 { return codeDeclare }

// Code returns 0x32.
func (*Discharge) Code() uint64 { return codeDischarge }

// Code returns 0x33.
func (*Declared) Code() uint64 { return codeDeclared }

// Code returns 0x34.
func (*TransactionalState) Code() uint64 { return codeTransactionalState }

// DecodeCoordinated decodes a message to a transaction coordinator. It returns a *Declare or a
// *Discharge; other messages are an error. The transaction's id shares memory with message.
func DecodeCoordinated(message []byte) (Composite, error) {
	sections, err := Sections(message)
	if err != nil {
		return nil, err
	}
	for _, s := range sections {
		if s.Code != CodeValue {
			continue
		}
		v, _, err := DecodeComposite(s.Value())
		if err != nil {
			return nil, err
		}
		switch v.(type) {
		case *Declare, *Discharge:
			return v, nil
		}
	}
	return nil, &DecodeError{Problem: "the message is neither declare nor discharge"}
}

func (v *Coordinator) encode(e *encoder) {
	w := e.begin(codeCoordinator)
	w.symbols(v.Capabilities)
	w.end(1)
}

func decodeCoordinator(d *decoder) (*Coordinator, error) {
	f := d.composite(codeCoordinator)
	v := &Coordinator{Capabilities: f.symbols("capabilities")}
	return v, f.done()
}

func (v *Declare) encode(e *encoder) {
	w := e.begin(codeDeclare)
	w.value(v.GlobalID)
	w.end(1)
}

func decodeDeclare(d *decoder) (*Declare, error) {
	f := d.composite(codeDeclare)
	v := &Declare{GlobalID: f.any("global-id")}
	return v, f.done()
}

func (v *Discharge) encode(e *encoder) {
	w := e.begin(codeDischarge)
	w.binary(v.TxnID)
	w.bool(v.Fail)
	w.end(2)
}

func decodeDischarge(d *decoder) (*Discharge, error) {
	f := d.composite(codeDischarge)
	v := &Discharge{TxnID: f.txnID(), Fail: f.bool("fail")}
	return v, f.done()
}

func (v *Declared) encode(e *encoder) {
	w := e.begin(codeDeclared)
	w.binary(v.TxnID)
	w.end(1)
}

func decodeDeclared(d *decoder) (*Declared, error) {
	f := d.composite(codeDeclared)
	v := &Declared{TxnID: f.txnID()}
	return v, f.done()
}

func (v *TransactionalState) encode(e *encoder) {
	w := e.begin(codeTransactionalState)
	w.binary(v.TxnID)
	w.optionalState(v.Outcome)
	w.end(2)
}

func decodeTransactionalState(d *decoder) (*TransactionalState, error) {
	f := d.composite(codeTransactionalState)
	v := &TransactionalState{TxnID: f.txnID(), Outcome: f.state("outcome")}
	return v, f.done()
}

func (f *fields) txnID() []byte {
	id := f.binary("txn-id")
	f.must("txn-id", id != nil)
	return id
}
