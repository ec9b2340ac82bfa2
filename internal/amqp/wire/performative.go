package wire

import "fmt"

// Composite is a pointer to a composite type of this package. It is a performative, a SASL frame
// body, a delivery state, an error, a terminus, or a request about a transaction.
type Composite interface {
	// Code is the numeric descriptor of the type.
	Code() uint64
}

// Performative is the body of a frame, without payload: *Open, *Begin, *Attach, *Flow, *Transfer,
// *Disposition, *Detach, *End, *Close (2.7), *SASLMechanisms, *SASLInit, *SASLChallenge,
// *SASLResponse or *SASLOutcome (5.3.3).
type Performative interface {
	Composite
	performative()
}

// Numeric descriptors. All are of the domain 0x00000000.
const (
	codeError              = 0x1d
	codeOpen               = 0x10
	codeBegin              = 0x11
	codeAttach             = 0x12
	codeFlow               = 0x13
	codeTransfer           = 0x14
	codeDisposition        = 0x15
	codeDetach             = 0x16
	codeEnd                = 0x17
	codeClose              = 0x18
	codeReceived           = 0x23
	codeAccepted           = 0x24
	codeRejected           = 0x25
	codeReleased           = 0x26
	codeModified           = 0x27
	codeSource             = 0x28
	codeTarget             = 0x29
	codeCoordinator        = 0x30
	codeDeclare            = 0x31
	codeDischarge          = 0x32
	codeDeclared           = 0x33
	codeTransactionalState = 0x34
	codeSASLMechanisms     = 0x40
	codeSASLInit           = 0x41
	codeSASLChallenge      = 0x42
	codeSASLResponse       = 0x43
	codeSASLOutcome        = 0x44
)

// codes maps symbolic descriptors to numeric ones. A peer may send either.
var codes = map[string]uint64{
	"amqp:error:list":               codeError,
	"amqp:open:list":                codeOpen,
	"amqp:begin:list":               codeBegin,
	"amqp:attach:list":              codeAttach,
	"amqp:flow:list":                codeFlow,
	"amqp:transfer:list":            codeTransfer,
	"amqp:disposition:list":         codeDisposition,
	"amqp:detach:list":              codeDetach,
	"amqp:end:list":                 codeEnd,
	"amqp:close:list":               codeClose,
	"amqp:received:list":            codeReceived,
	"amqp:accepted:list":            codeAccepted,
	"amqp:rejected:list":            codeRejected,
	"amqp:released:list":            codeReleased,
	"amqp:modified:list":            codeModified,
	"amqp:source:list":              codeSource,
	"amqp:target:list":              codeTarget,
	"amqp:coordinator:list":         codeCoordinator,
	"amqp:declare:list":             codeDeclare,
	"amqp:discharge:list":           codeDischarge,
	"amqp:declared:list":            codeDeclared,
	"amqp:transactional-state:list": codeTransactionalState,
	"amqp:sasl-mechanisms:list":     codeSASLMechanisms,
	"amqp:sasl-init:list":           codeSASLInit,
	"amqp:sasl-challenge:list":      codeSASLChallenge,
	"amqp:sasl-response:list":       codeSASLResponse,
	"amqp:sasl-outcome:list":        codeSASLOutcome,

	"amqp:header:list":                CodeHeader,
	"amqp:delivery-annotations:map":   CodeDeliveryAnnotations,
	"amqp:message-annotations:map":    CodeMessageAnnotations,
	"amqp:properties:list":            CodeProperties,
	"amqp:application-properties:map": CodeApplicationProperties,
	"amqp:data:binary":                CodeData,
	"amqp:amqp-sequence:list":         CodeSequence,
	"amqp:amqp-value:*":               CodeValue,
	"amqp:footer:map":                 CodeFooter,
}

// names are what errors call the composite types.
var names = map[uint64]string{
	codeOpen:               "open",
	codeBegin:              "begin",
	codeEnd:                "end",
	codeClose:              "close",
	codeError:              "error",
	codeAttach:             "attach",
	codeFlow:               "flow",
	codeTransfer:           "transfer",
	codeDisposition:        "disposition",
	codeDetach:             "detach",
	codeSASLMechanisms:     "sasl-mechanisms",
	codeSASLInit:           "sasl-init",
	codeSASLChallenge:      "sasl-challenge",
	codeSASLResponse:       "sasl-response",
	codeSASLOutcome:        "sasl-outcome",
	codeAccepted:           "accepted",
	codeReleased:           "released",
	codeRejected:           "rejected",
	codeReceived:           "received",
	codeModified:           "modified",
	codeSource:             "source",
	codeTarget:             "target",
	codeCoordinator:        "coordinator",
	codeDeclare:            "declare",
	codeDischarge:          "discharge",
	codeDeclared:           "declared",
	codeTransactionalState: "transactional-state",
	CodeHeader:             "header",
	CodeProperties:         "properties",
}

// AppendPerformative appends the encoding of p to dst, with all of its fields. An error means that
// something in p has no encoding, as for Append. The bytes returned with an error are dst.
func AppendPerformative(dst []byte, p Performative) ([]byte, error) {
	e := encoder{b: dst}
	e.composite(p)
	return e.done(dst)
}

// DecodePerformative decodes the performative at the beginning of a frame's body and returns the
// payload behind it. Payload, delivery tags and other binary values share memory with b. The error
// is a *DecodeError; mandatory fields that are missing are an error too.
func DecodePerformative(b []byte) (p Performative, payload []byte, err error) {
	d := newDecoder(b)
	code, err := d.compositeCode()
	if err != nil {
		return nil, nil, err
	}
	if p, err = d.performative(code); err != nil {
		return nil, nil, err
	}
	return p, d.in[d.at:], nil
}

// DecodeComposite decodes a value that is a composite type of this package, and returns what
// follows it. It is for values whose type is known, such as the body of a message to a transaction
// coordinator. Binary values share memory with b; the error is a *DecodeError.
func DecodeComposite(b []byte) (v Composite, rest []byte, err error) {
	d := newDecoder(b)
	code, err := d.compositeCode()
	if err != nil {
		return nil, nil, err
	}
	if v, err = d.compositeOf(code); err != nil {
		return nil, nil, err
	}
	return v, d.in[d.at:], nil
}

// compositeCode reads a descriptor at the beginning of the input.
func (d *decoder) compositeCode() (uint64, error) {
	constructor, err := d.byte()
	if err != nil {
		return 0, err
	}
	if constructor != 0x00 {
		return 0, d.fail(0, "it is not a described value")
	}
	s, err := d.descriptor()
	return s.known(), err
}

func (d *decoder) compositeOf(code uint64) (Composite, error) {
	switch code {
	case codeError:
		return result(decodeError(d))
	case codeSource:
		return result(decodeSource(d))
	case codeTarget:
		return result(decodeTarget(d))
	case codeCoordinator:
		return result(decodeCoordinator(d))
	case codeDeclare:
		return result(decodeDeclare(d))
	case codeDischarge:
		return result(decodeDischarge(d))
	}
	if isState(code) {
		return d.stateOf(descriptor{code: code})
	}
	return d.performative(code)
}

func (d *decoder) performative(code uint64) (Performative, error) {
	switch code {
	case codeTransfer:
		return asPerformative(decodeTransfer(d))
	case codeDisposition:
		return asPerformative(decodeDisposition(d))
	case codeFlow:
		return asPerformative(decodeFlow(d))
	case codeAttach:
		return asPerformative(decodeAttach(d))
	case codeDetach:
		return asPerformative(decodeDetach(d))
	case codeOpen:
		return asPerformative(decodeOpen(d))
	case codeBegin:
		return asPerformative(decodeBegin(d))
	case codeEnd:
		return asPerformative(decodeEnd(d))
	case codeClose:
		return asPerformative(decodeClose(d))
	case codeSASLMechanisms:
		return asPerformative(decodeSASLMechanisms(d))
	case codeSASLInit:
		return asPerformative(decodeSASLInit(d))
	case codeSASLChallenge:
		return asPerformative(decodeSASLChallenge(d))
	case codeSASLResponse:
		return asPerformative(decodeSASLResponse(d))
	case codeSASLOutcome:
		return asPerformative(decodeSASLOutcome(d))
	}
	return nil, d.fail(0, "an unknown descriptor")
}

// result returns a nil interface, not one of a nil pointer, with an error.
func result[T Composite](v T, err error) (Composite, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func asPerformative[T Performative](v T, err error) (Performative, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// composite appends any composite type. The switch, rather than a method of the interface, keeps
// the encoder on the stack.
func (e *encoder) composite(v Composite) {
	switch v := v.(type) {
	case *Transfer:
		v.encode(e)
	case *Disposition:
		v.encode(e)
	case *Flow:
		v.encode(e)
	case *Attach:
		v.encode(e)
	case *Detach:
		v.encode(e)
	case *Open:
		v.encode(e)
	case *Begin:
		v.encode(e)
	case *End:
		v.encode(e)
	case *Close:
		v.encode(e)
	case *SASLMechanisms:
		v.encode(e)
	case *SASLInit:
		v.encode(e)
	case *SASLChallenge:
		v.encode(e)
	case *SASLResponse:
		v.encode(e)
	case *SASLOutcome:
		v.encode(e)
	case *Error:
		v.encode(e)
	case *Source:
		v.encode(e)
	case *Target:
		v.encode(e)
	case *Coordinator:
		v.encode(e)
	case *Declare:
		v.encode(e)
	case *Discharge:
		v.encode(e)
	case DeliveryState:
		encodeState(e, v)
	default:
		e.fail(fmt.Errorf("amqp: encode: a composite value of type %T", v))
	}
}
