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

// Properties are the immutable properties of a message (3.2.4). Strings are nil for null. Times
// are zero for null.
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

func (v *Header) encode(e *encoder) {
	w := e.begin(CodeHeader)
	w.bool(v.Durable)
	w.optionalUbyte(v.Priority)
	w.optionalUint(v.TTL)
	w.bool(v.FirstAcquirer)
	w.uint(v.DeliveryCount)
	w.end(5)
}

func decodeHeader(d *decoder) (*Header, error) {
	f := d.composite(CodeHeader)
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

func (v *Properties) encode(e *encoder) {
	w := e.begin(CodeProperties)
	w.messageID(v.MessageID)
	w.optionalBinary(v.UserID)
	w.optionalString(v.To)
	w.optionalString(v.Subject)
	w.optionalString(v.ReplyTo)
	w.messageID(v.CorrelationID)
	w.optionalSymbol(v.ContentType)
	w.optionalSymbol(v.ContentEncoding)
	w.optionalTime(v.AbsoluteExpiryTime)
	w.optionalTime(v.CreationTime)
	w.optionalString(v.GroupID)
	w.optionalUint(v.GroupSequence)
	w.optionalString(v.ReplyToGroupID)
	w.end(13)
}

func (w fieldWriter) messageID(v any) {
	if !isMessageID(v) {
		w.fail(errMessageID)
		return
	}
	w.value(v)
}

func isMessageID(v any) bool {
	switch v.(type) {
	case nil, string, UUID, uint64, []byte:
		return true
	}
	return false
}

func decodeProperties(d *decoder) (*Properties, error) {
	f := d.composite(CodeProperties)
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
