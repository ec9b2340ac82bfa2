// Package webhook delivers messages to HTTP endpoints as Standard Webhooks (specification 1.0.0).
// A delivery is a POST with the message's body. It has an id that is the same on every try, the
// time of the try, and an HMAC-SHA256 signature over id, time and body.
//
// A [Service] keeps the webhooks of tenants and has a [Runner] for each. Each webhook has a
// subscription to its tenant's topic of job events. A Runner takes the messages of one endpoint
// from its [Source]. Each of its workers handles one message at a time: it receives the message
// under a lock, sends it and settles it. The delivery is counted before anything is sent.
//
// A try that fails goes back with the delay of the published [Schedule]; the last goes to the
// dead letters. So a message can arrive more than once and out of order. Receivers recognise
// repeats by the id. While an endpoint keeps failing, a breaker lets one delivery through now and
// then, and the others wait without losing tries. The Source keeps the breaker and counts
// deliveries under way. A webhook's source keeps both in the database, for all processes.
//
// Whoever creates a webhook can aim the server at any address (SSRF). The [Policy] keeps requests
// off the server's own network. It checks the address when the URL is set and again when it is
// dialled. Redirects and proxies are off, and only the status of an answer is shown.
//
// # Deliveries and endpoints
//
// A webhook is a row and a subscription of its tenant's topic of job events. So an event is
// stored for it in the transition that the event is about. A few workers for each webhook receive
// one message, send it and settle it. The settlement is one transaction: the message's fate, the
// record of the try, the disabling of an endpoint that is gone. A retry is the same message with
// a later visible; the tries are its delivery count, which the receive writes before anything is
// sent. While the database cannot be written to nothing is received, and so nothing is sent.
//
// An endpoint has one concurrency and one breaker for all processes. A delivery under way is, as
// a slot is, a row that finds the lock of its message. It is written with the lock and removed
// with the settlement. Once the lock has ended it counts for nothing. (To count the locks
// themselves would mean to pass all messages that are to be tried again soon.) The row also says
// whether the delivery is the breaker's probe. So a probe that nobody hears of again is over with
// its lock. Columns of the webhook say how many deliveries failed in a row and until when nothing
// is sent. They are read with the receive and changed with the settlement, by the database's
// clock. A delivery that began before the breaker opened tells nothing of the endpoint any more
// when it ends. What it was asked for, Retry-After, holds all the same. One to a URL that the
// webhook no longer has tells nothing at all.
//
// A receiver for which there is no room waits in the writer, as one does for whom there is no
// message. It waits until the time at which there is room: the end of the pause, of the probe's
// lock, or of the first lock. New events do not have it scan. Some settlements do so at once:
// those that make room because all places were taken, that change the breaker, or that were the
// probe. Other processes learn of them by the notification of the commit. A place that is taken
// again in the same transaction is not told.
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

// SigningSecret is one of an endpoint's secrets. During a rotation every valid secret signs each
// delivery.
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
	// maxAnswerBytes is how much of an answer is read, so that its connection can be used again.
	maxAnswerBytes = 64 << 10
)

// Source has an endpoint's messages.
type Source interface {
	// Receive waits for a message that the endpoint may be sent now, by its concurrency and its
	// breaker. It locks the message for at least MinLock. When it returns, the delivery is
	// counted on disk.
	Receive(ctx context.Context) (Delivery, error)
	// Settle ends a delivery in one transaction, and records its outcome for the breaker. It
	// returns forebay.ErrLockLost, and has changed nothing, if the lock has ended.
	Settle(ctx context.Context, d Delivery, o Outcome) error
}

// Delivery is a message on its way to an endpoint.
type Delivery struct {
	Message
	Lock  queue.Lock // the lock that Settle needs
	Count int        // deliveries so far, including this one
}

// Message is what an endpoint gets.
type Message struct {
	ID          string // the same on every try
	Type        string // of the event, for the record of tries
	ContentType string // "": application/json
	Traceparent string // of the job that the event is about, for telemetry alone; "": none
	Body        []byte
}

// Outcome is what becomes of a message after a delivery.
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

// Attempt is the result of one try.
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
	// FailedAddress is both a name without an address and an address that the Policy refuses. If
	// tenants could tell these apart they would learn the names of the operator's network.
	FailedAddress    Failure = "address"
	FailedTLS        Failure = "tls"        // the certificate or the handshake
	FailedConnection Failure = "connection" // refused, reset, or not HTTP
	FailedConfig     Failure = "config"     // the URL or the secrets cannot be used
	FailedStopped    Failure = "stopped"    // this server stopped
)
