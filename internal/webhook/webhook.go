// Package webhook delivers messages to HTTP endpoints as Standard Webhooks (specification 1.0.0): a
// POST whose body is the message's, with an id that is the same on every try, the time of the try,
// and an HMAC-SHA256 signature over both and the body.
//
// A [Service] keeps the webhooks of tenants, each with a subscription of its tenant's topic of job
// events, and has a [Runner] for each. A Runner takes the messages of one endpoint from its [Source],
// one at a time in each of a few workers: receive under a lock, which counts the delivery before
// anything is sent; send; settle. A try that fails goes back with the delay of the published
// [Schedule]; the last goes to the dead letters. A message can therefore arrive more than once, and
// out of order; receivers tell repeats by the id. While an endpoint keeps failing, a breaker lets one
// delivery through now and then, and the others wait without losing tries. The breaker, and how many
// deliveries are under way, is the Source's: of a webhook's it stands in the database, for all processes.
//
// Whoever may set a webhook chooses where the server sends requests. The [Policy] keeps these off
// the server's own network: the address is checked when the URL is set and again when it is dialled;
// nothing is redirected or proxied, and nothing of an answer but its status is shown.
package webhook

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/queue"
)

// Endpoint is where messages go.
type Endpoint struct {
	ID          int64  // tells endpoints apart
	Tenant      string // for the log
	Name        string // for the log
	URL         string
	Secrets     []SigningSecret // the current one first; at least one
	Concurrency int             // deliveries at once; 0: forebay.DefaultWebhookConcurrency
}

// SigningSecret is one of an endpoint's secrets. During a rotation every delivery is signed with
// each that is still valid.
type SigningSecret struct {
	Secret forebay.Secret
	Until  time.Time // zero: for good
}

// Limits and defaults of delivering.
const (
	// SendTimeout bounds one try, from the name's resolution to the end of the answer.
	SendTimeout = 15 * time.Second
	// MinLock is how long a Source must hold a message for its worker: a try and settling it.
	MinLock = 60 * time.Second
	// maxAnswerBytes is read of an answer, so that its connection can be used again.
	maxAnswerBytes = 64 << 10
)

// Source is where an endpoint's messages stand.
type Source interface {
	// Receive waits for a message that the endpoint may be sent now, by its concurrency and its
	// breaker, and locks it for at least MinLock. The delivery is counted, and that is on disk, when
	// Receive returns.
	Receive(ctx context.Context) (Delivery, error)
	// Settle ends a delivery in one transaction, which tells the breaker too. It returns forebay.ErrLockLost, and has changed
	// nothing, when the lock has ended.
	Settle(ctx context.Context, d Delivery, o Outcome) error
}

// Delivery is a message on its way to an endpoint.
type Delivery struct {
	Message
	Lock  queue.Lock // what the Source settles it by
	Count int        // deliveries so far with this one, from 1
}

// Message is what an endpoint gets.
type Message struct {
	ID          string // the same on every try
	Type        string // of the event, for the record of tries
	ContentType string // "": application/json
	Body        []byte
}

// Outcome says what becomes of a message after a delivery.
type Outcome struct {
	Verb    Verb
	Delay   time.Duration // of Retry
	Reason  string        // of GiveUp
	Detail  string        // of GiveUp
	Disable bool          // the endpoint asked never to be called again
	Hold    time.Duration // the endpoint asked for no deliveries at all for so long
	URL     string        // where the message was sent
	Attempt Attempt       // what was tried; its zero value: nothing
}

// Verb is how a delivery is settled.
type Verb string

const (
	Complete Verb = "complete" // delivered: the message is gone
	Retry    Verb = "retry"    // back, to be received after a delay
	Release  Verb = "release"  // back at once, and the delivery does not count
	GiveUp   Verb = "give_up"  // to the dead letters
)

// Attempt is what one try met.
type Attempt struct {
	At         time.Time
	Duration   time.Duration
	Status     int           // of the answer; 0: there was none
	Failure    Failure       // "": delivered
	RetryAfter time.Duration // what the answer asked for; 0: nothing
	Err        error         // for the log alone: it may name addresses
}

// Failure says why a try failed.
type Failure string

const (
	FailedStatus  Failure = "status"  // an answer other than 2xx
	FailedTimeout Failure = "timeout" // no answer within SendTimeout
	// FailedAddress is both a name without an address and an address that the Policy refuses. A tenant
	// who could tell them apart would learn the names of the operator's network.
	FailedAddress    Failure = "address"
	FailedTLS        Failure = "tls"        // the certificate or the handshake
	FailedConnection Failure = "connection" // refused, reset, or not HTTP
	FailedConfig     Failure = "config"     // the URL or the secrets cannot be used
	FailedStopped    Failure = "stopped"    // this server stopped
)
