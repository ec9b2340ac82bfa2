package wire

// Error is an error of the protocol that peers tell each other (2.8.14). It is a Go error.
type Error struct {
	Condition   Symbol // mandatory
	Description string // "" for null
	Info        Map
}

// Conditions of the standard.
const (
	// AMQP errors (2.8.15).
	ErrInternalError         Symbol = "amqp:internal-error"
	ErrNotFound              Symbol = "amqp:not-found"
	ErrUnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	ErrDecodeError           Symbol = "amqp:decode-error"
	ErrResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	ErrNotAllowed            Symbol = "amqp:not-allowed"
	ErrInvalidField          Symbol = "amqp:invalid-field"
	ErrNotImplemented        Symbol = "amqp:not-implemented"
	ErrResourceLocked        Symbol = "amqp:resource-locked"
	ErrPreconditionFailed    Symbol = "amqp:precondition-failed"
	ErrResourceDeleted       Symbol = "amqp:resource-deleted"
	ErrIllegalState          Symbol = "amqp:illegal-state"
	ErrFrameSizeTooSmall     Symbol = "amqp:frame-size-too-small"

	// Connection errors (2.8.16).
	ErrConnectionForced   Symbol = "amqp:connection:forced"
	ErrFramingError       Symbol = "amqp:connection:framing-error"
	ErrConnectionRedirect Symbol = "amqp:connection:redirect"

	// Session errors (2.8.17).
	ErrWindowViolation  Symbol = "amqp:session:window-violation"
	ErrErrantLink       Symbol = "amqp:session:errant-link"
	ErrHandleInUse      Symbol = "amqp:session:handle-in-use"
	ErrUnattachedHandle Symbol = "amqp:session:unattached-handle"

	// Link errors (2.8.18).
	ErrDetachForced          Symbol = "amqp:link:detach-forced"
	ErrTransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
	ErrMessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	ErrLinkRedirect          Symbol = "amqp:link:redirect"
	ErrStolen                Symbol = "amqp:link:stolen"

	// Transaction errors (4.5.8).
	ErrUnknownID           Symbol = "amqp:transaction:unknown-id"
	ErrTransactionRollback Symbol = "amqp:transaction:rollback"
	ErrTransactionTimeout  Symbol = "amqp:transaction:timeout"
)

// Code returns 0x1d.
func (*Error) Code() uint64 { return codeError }

// Error returns the condition and the description.
func (v *Error) Error() string {
	if v.Description == "" {
		return string(v.Condition)
	}
	return string(v.Condition) + ": " + v.Description
}

func (v *Error) encode(e *encoder) {
	w := e.begin(codeError)
	w.symbol(v.Condition)
	w.stringOrNull(v.Description)
	w.optionalMap(v.Info)
	w.end(3)
}

func (w fieldWriter) optionalError(v *Error) {
	if v == nil {
		w.null()
	} else {
		v.encode(w.encoder)
	}
}

func decodeError(d *decoder) (*Error, error) {
	f := d.composite(codeError)
	v := &Error{}
	var ok bool
	v.Condition, ok = f.symbol("condition")
	f.must("condition", ok)
	v.Description, _ = f.string("description")
	v.Info = f.pairs("info")
	return v, f.done()
}

// error reads the field named error, which is an error or null.
func (f *fields) error() *Error {
	const field = "error"
	s, ok := f.described(field)
	if !ok {
		return nil
	}
	if s.known() != codeError {
		f.wrong(field, "error")
		return nil
	}
	v, err := decodeError(f.d)
	f.failed(field, err)
	return v
}
