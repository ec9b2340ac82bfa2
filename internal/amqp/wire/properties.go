package wire

import "time"

// Header is what the transport of a message needs (3.2.1).
type Header struct {
	Durable       bool
	Priority      *uint8  // nil means 4
	TTL           *uint32 // milliseconds
	FirstAcquirer bool
	DeliveryCount uint32 // deliveries before this one that failed
}

// DefaultPriority is what an absent priority means.
const DefaultPriority uint8 = 4

// Properties are the immutable properties of a message (3.2.4). Strings are nil for null. Times are
// zero for null.
type Properties struct {
	MessageID          any // nil, string, UUID, uint64 or []byte
	UserID             []byte
	To                 *string
	Subject            *string
	ReplyTo            *string
	CorrelationID      any // as MessageID
	ContentType        *Symbol
	ContentEncoding    *Symbol
	AbsoluteExpiryTime time.Time
	CreationTime       time.Time
	GroupID            *string
	GroupSequence      *uint32
	ReplyToGroupID     *string
}

func (e *encoder) header(v *Header) {
	at := e.beginComposite(CodeHeader)
	e.bool(v.Durable)
	e.optionalUbyte(v.Priority)
	e.optionalUint(v.TTL)
	e.bool(v.FirstAcquirer)
	e.uint(v.DeliveryCount)
	e.close(at, 5)
}

func (d *decoder) header() (*Header, error) {
	f := d.composite("header")
	v := &struct { // one allocation
		Header
		priority uint8
		ttl      uint32
	}{}
	var ok bool
	v.Durable = f.bool("durable")
	if v.priority, ok = f.ubyte("priority"); ok {
		v.Priority = &v.priority
	}
	if v.ttl, ok = f.uint("ttl"); ok {
		v.TTL = &v.ttl
	}
	v.FirstAcquirer = f.bool("first-acquirer")
	v.DeliveryCount, _ = f.uint("delivery-count")
	return &v.Header, f.done()
}

func (e *encoder) properties(v *Properties) {
	at := e.beginComposite(CodeProperties)
	e.messageID(v.MessageID)
	e.optionalBinary(v.UserID)
	e.optionalString(v.To)
	e.optionalString(v.Subject)
	e.optionalString(v.ReplyTo)
	e.messageID(v.CorrelationID)
	e.optionalSymbol(v.ContentType)
	e.optionalSymbol(v.ContentEncoding)
	e.optionalTime(v.AbsoluteExpiryTime)
	e.optionalTime(v.CreationTime)
	e.optionalString(v.GroupID)
	e.optionalUint(v.GroupSequence)
	e.optionalString(v.ReplyToGroupID)
	e.close(at, 13)
}

func (e *encoder) messageID(v any) {
	if !isMessageID(v) {
		e.fail(errMessageID)
		return
	}
	e.value(v)
}

func isMessageID(v any) bool {
	switch v.(type) {
	case nil, string, UUID, uint64, []byte:
		return true
	}
	return false
}

func (d *decoder) properties() (*Properties, error) {
	f := d.composite("properties")
	v := &struct { // one allocation
		Properties
		strings  [5]string
		symbols  [2]Symbol
		sequence uint32
	}{}
	text := func(field string, i int) *string {
		s, ok := f.string(field)
		if !ok {
			return nil
		}
		v.strings[i] = s
		return &v.strings[i]
	}
	symbol := func(field string, i int) *Symbol {
		s, ok := f.symbol(field)
		if !ok {
			return nil
		}
		v.symbols[i] = s
		return &v.symbols[i]
	}
	v.MessageID = f.messageID("message-id")
	v.UserID = f.binary("user-id")
	v.To = text("to", 0)
	v.Subject = text("subject", 1)
	v.ReplyTo = text("reply-to", 2)
	v.CorrelationID = f.messageID("correlation-id")
	v.ContentType = symbol("content-type", 0)
	v.ContentEncoding = symbol("content-encoding", 1)
	v.AbsoluteExpiryTime = f.time("absolute-expiry-time")
	v.CreationTime = f.time("creation-time")
	v.GroupID = text("group-id", 3)
	var ok bool
	if v.sequence, ok = f.uint("group-sequence"); ok {
		v.GroupSequence = &v.sequence
	}
	v.ReplyToGroupID = text("reply-to-group-id", 4)
	return &v.Properties, f.done()
}

func (f *fields) messageID(field string) any {
	v := f.any(field)
	if !isMessageID(v) {
		f.wrong(field, "ulong, uuid, binary or string")
		return nil
	}
	return v
}
