// Package servicebus serves Azure Service Bus's dialect of AMQP 1.0, so that Microsoft's own SDKs
// connect unchanged. The entities are those of package messaging, and so are their rules.
//
// A connection has no rights at first. Its client puts tokens on the node "$cbs", and each says
// what may be done below which path. A link to an entity is accepted when a token allows it.
//
//   - Sender links store messages (sender.go). A delivery is accepted once it is on disk. Those
//     that arrive while a transaction runs are stored together by the next one, in their order.
//   - Receiver links deliver messages under their credit (receiver.go) and settle them
//     (settle.go). A link with a session filter holds the lock of its session (session.go).
//   - Links to "ENTITY/$management" ask and answer (management.go).
//   - Links to the coordinator declare and discharge transactions (transaction.go).
//
// A waiting receiver link is one goroutine and one waiting receiver of the store. It polls
// nothing. What one tenant may hold is bounded: its links (places.go), and its share of the
// memory for messages in transit (package memory).
//
// The documentation of the wire is Microsoft's "AMQP 1.0 in Azure Service Bus and Event Hubs
// protocol guide" and "request/response-based operations". The rest was found in the SDKs.
package servicebus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/servicebus/transactions"
)

// Options are the settings of an Endpoint.
type Options struct {
	Messages *messaging.Service
	Verifier *auth.Verifier
	Limits   *limits.Meter // counts requests: deliveries of senders, and operations; may be nil
	Logger   *slog.Logger
	// MemoryBytes bounds the messages in transit of all connections, in each direction.
	MemoryBytes int64
}

// Endpoint serves connections of Service Bus's clients.
type Endpoint struct {
	messages *messaging.Service
	verifier *auth.Verifier
	limits   *limits.Meter
	log      *slog.Logger
	server   *amqp.Server
	places   *places  // of all links
	browsers *places  // of links that get copies
	held     sync.Map // of *heldSession by heldKey: sessions whose locks links hold
	steps    *transactions.Service
	pools
}

// maxFrameSize is what Service Bus announces.
const maxFrameSize = 64 << 10

// idleTimeout is announced to clients. The SDK for Python sends nothing for 30 seconds and more.
const idleTimeout = 4 * time.Minute

// New returns an endpoint that serves no connection yet.
func New(o Options) *Endpoint {
	e := &Endpoint{messages: o.Messages, verifier: o.Verifier, limits: o.Limits, log: o.Logger, places: ofLinks(), browsers: ofBrowsers(), pools: newPools(max(o.MemoryBytes, minMemory))}
	e.steps = transactions.New(o.Messages.Transactions, e.received)
	e.server = amqp.NewServer(amqp.Options{
		Handler: handler{e}, Logger: o.Logger, Memory: reserving{},
		MaxFrameSize: maxFrameSize, MaxChannels: maxChannels, MaxMessageSize: uint64(o.Messages.Messages.MaxBytes()), IdleTimeout: idleTimeout,
		Busy: conditionBusy, // SDKs try again
		// Clients take the first that they know.
		Mechanisms: []amqp.Mechanism{amqp.Anonymous("MSSBCBS"), amqp.Plain(plain), amqp.Anonymous("ANONYMOUS"), amqp.Anonymous("EXTERNAL")},
	})
	return e
}

const (
	maxChannels = 4999
	// minMemory has room for a few of the largest messages.
	minMemory = 32 << 20
)

// handler is what the AMQP server calls. It is apart from Endpoint to keep these methods out of
// sight.
type handler struct{ *Endpoint }

func (h handler) Opened(c *amqp.Conn) error {
	n := newClient(h.Endpoint, c)
	c.Data = n
	if g, ok := c.Identity().(auth.Grant); ok { // of SASL PLAIN
		return n.allow("", g)
	}
	return nil
}

func (h handler) Closed(c *amqp.Conn) { clientOf(c).closed() }

func (h handler) AttachCoordinator(l *amqp.Incoming) { clientOf(l.Conn()).acceptCoordinator(l) }

func (h handler) AttachIncoming(l *amqp.Incoming) {
	c := clientOf(l.Conn())
	address, ok := targetAddress(l.Attach())
	if !ok {
		l.Refuse(errNoAddress.wire())
		return
	}
	switch at := parseAddress(address); {
	case at.cbs:
		c.acceptTokens(l)
	case at.management:
		c.acceptRequests(l, at)
	default:
		c.acceptSender(l, at)
	}
}

func (h handler) AttachOutgoing(l *amqp.Outgoing) {
	c := clientOf(l.Conn())
	address, ok := sourceAddress(l.Attach())
	if !ok {
		l.Refuse(errNoAddress.wire())
		return
	}
	switch at := parseAddress(address); {
	case at.cbs, at.management:
		c.acceptReplies(l, at)
	default:
		c.acceptReceiver(l, at)
	}
}

// targetAddress returns the address of the node that a client sends to.
func targetAddress(a *wire.Attach) (string, bool) {
	if a.Target == nil || wire.ValueOr(a.Target.Address, "") == "" {
		return "", false
	}
	return *a.Target.Address, true
}

// sourceAddress returns the address of the node that a client receives from.
func sourceAddress(a *wire.Attach) (string, bool) {
	if a.Source == nil || wire.ValueOr(a.Source.Address, "") == "" {
		return "", false
	}
	return *a.Source.Address, true
}

// textOf returns a string or a symbol that is not empty.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, v != ""
	case wire.Symbol:
		return string(v), v != ""
	}
	return "", false
}
