package rules

// Limits on what topics make of the messages of one call. Forwarding multiplies: a subscription
// may forward to another topic, whose subscriptions may forward again.
const (
	MaxCopies    = 10_000
	MaxCopyBytes = 256 << 20
	// MaxSteps takes about a second: a step takes some 15 ns. Rules that are not made to be slow
	// need far fewer.
	MaxSteps = 1 << 26
	// TxSteps bounds judging within a transaction to some 8 ms. It is for one message that becomes
	// active or is forwarded, and for all events that the transaction publishes to one topic.
	TxSteps = 1 << 19
	// EventSteps is what each event may take, however many the transaction publishes: some 50
	// rules.
	EventSteps = 1 << 13
)

// A transaction that has made this much starts nothing more; the rest goes into the next one. It
// may make this much for callers, as much again of due messages, and as much of what forwarding
// queues hold. The last call or message of each kind may add what one may make at most.
// PostgreSQL stores all that in half of the time after which a transaction is given up, even at
// one round trip a copy.
const (
	FullCopies    = 1_000
	FullCopyBytes = 16 << 20
	FullSteps     = TxSteps
)

// BatchCopies is how many copies of a message one transaction makes. Only the copies for a single
// subscription may be more.
const BatchCopies = 500

// FanOut counts what topics have made of one message, of one call, or in one transaction.
type FanOut struct {
	Copies int
	Bytes  int64
	Steps  int
}

// Exhausted reports whether this is more than one call may make.
func (f *FanOut) Exhausted() bool { return f.Copies > MaxCopies || f.Bytes > MaxCopyBytes }

// Full reports whether a transaction that has made this much is to end.
func (f *FanOut) Full() bool {
	return f.Copies >= FullCopies || f.Bytes >= FullCopyBytes || f.Steps >= FullSteps
}

// Add counts copies of that size.
func (f *FanOut) Add(copies int, size int64) {
	f.Copies += copies
	f.Bytes += int64(copies) * size
}
