// Package wire reads and writes AMQP 1.0: values, frames, performatives and messages.
//
// It follows the OASIS standard "Advanced Message Queuing Protocol (AMQP) Version 1.0" of
// 29 October 2012. Sections of it are named "part.section" in these comments:
//
//   - Part 1, types: [Append] and [Decode], and the Go types below (1.6 primitive types, 1.4
//     composite types).
//   - Part 2, transport: [Frame] (2.3), the performatives [Open] to [Close] (2.7), [Error]
//     (2.8.14).
//   - Part 3, messaging: [Message] and its sections (3.2), delivery states (3.4), [Source] and
//     [Target] (3.5).
//   - Part 4, transactions: [Coordinator], [Declare], [Discharge], [Declared] and
//     [TransactionalState] (4.5).
//   - Part 5, security: the SASL frames (5.3.3).
//
// There is no I/O here but [ReadFrame], no state, and nothing that knows a connection.
//
// # Values
//
// The Go type of a value says its AMQP type:
//
//	null       nil            float      float32       symbol     Symbol
//	boolean    bool           double     float64       list       List
//	ubyte      uint8          decimal32  Decimal32     map        Map
//	ushort     uint16         decimal64  Decimal64     array      Array
//	uint       uint32         decimal128 Decimal128    described  Described
//	ulong      uint64         char       Char
//	byte       int8           timestamp  time.Time, in milliseconds since 1970, UTC
//	short      int16          uuid       UUID
//	int        int32          binary     []byte
//	long       int64          string     string
//
// Composite types of the standard are structs. A number that may be null is a pointer, nil for
// null. Booleans, times, strings, symbols, maps and slices are plain: their zero value is written
// as false or null. The strings of [Properties] and the addresses of [Source] and [Target] are
// pointers, since an empty one differs from null there. Numbers whose default is 0 are plain too.
//
// # Limits
//
// Everything read may come from an attacker. Decoding follows at most [MaxDepth] levels of nesting
// and [MaxElements] elements. It allocates at most about 64 bytes for each byte of input, whatever
// sizes and counts the input claims. Errors name the place and the problem; they never contain
// what was read.
//
// Decoded binary values, payloads and raw sections share memory with the input. A caller that
// reuses its buffer has to copy them first. Strings and symbols are copies.
//
// # Encoding
//
// Values are written in their smallest encoding, with two exceptions that widely used peers need.
// An empty list is a list8 rather than a list0. Composite types have all of their fields, null
// where absent, under a small ulong descriptor. Numbers in arrays have their full width.
package wire
