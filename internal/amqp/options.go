package amqp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// Options say what a [Server] announces and how much a peer may take. A zero field has the
// default that is named with it.
type Options struct {
	// ContainerID is announced in Open (§2.7.1). The default is random.
	ContainerID string

	// Mechanisms are the SASL mechanisms that are offered, in this order (§5.3.2). With none, or
	// with one that is called ANONYMOUS, peers may leave SASL out. They have no identity then.
	Mechanisms []Mechanism

	// Handler serves connections. It is required.
	Handler Handler

	// Memory bounds what all connections hold together. Without one nothing does.
	Memory Memory

	// Logger gets panics of the handler. The default is slog.Default().
	Logger *slog.Logger

	// MaxFrameSize is the size in bytes of the largest frame that is read, and announced. It is
	// at least 512 (§2.3). The default is 64 KiB.
	MaxFrameSize uint32
	// MaxChannels is how many sessions a connection may have at once. The default is 5,000.
	MaxChannels uint16
	// MaxLinks is how many links a connection may have at once, in all its sessions. Links whose
	// handler still runs count. More are refused. The default is 5,000.
	MaxLinks int
	// MaxUnsettled is how many deliveries of each direction may be unsettled on a connection.
	// With so many incoming ones nothing more is read from the peer until some are settled. Of
	// the outgoing ones the oldest are forgotten. The default is 20,000.
	MaxUnsettled int
	// MaxHeldBytes bounds what a connection holds: payload received and not settled, what waits to
	// be written, and what its sessions and links were begun with. With so much of it unsettled
	// nothing more is read until some is settled. The default is 64 MiB, or four times
	// MaxMessageSize if that is more.
	MaxHeldBytes int
	// MaxPartialBytes bounds the payload of the deliveries whose last frame has not come yet, of
	// a connection. A delivery beyond it is rejected. Clients send on many links at once, so it
	// is several times MaxMessageSize. The default is three quarters of MaxHeldBytes.
	MaxPartialBytes int
	// MaxMessageSize is the default of IncomingOptions.MaxMessageSize: 1 MiB by default.
	MaxMessageSize uint64
	// Busy is the condition of what is refused only for now, because of Memory, MaxHeldBytes or
	// MaxPartialBytes. Some clients take the default, amqp:resource-limit-exceeded, for a refusal
	// for good.
	Busy wire.Symbol

	// IdleTimeout is announced. A peer that sends no whole frame for so long is closed. The
	// default is two minutes.
	IdleTimeout time.Duration
	// HandshakeTimeout is the time from the first byte to the peer's Open, authentication
	// included. The default is 20 seconds.
	HandshakeTimeout time.Duration
	// WriteTimeout is the time in which a peer must take 64 KiB, or what there is to write. A
	// peer that does not is cut off. The default is 30 seconds.
	WriteTimeout time.Duration
	// CloseTimeout is the time that a peer gets to answer a Close. The default is 5 seconds.
	CloseTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Handler == nil {
		panic("amqp: Options.Handler is nil")
	}
	if o.ContainerID == "" {
		id := make([]byte, 16)
		_, _ = rand.Read(id)
		o.ContainerID = hex.EncodeToString(id)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	setDefault(&o.MaxFrameSize, 64<<10)
	o.MaxFrameSize = max(o.MaxFrameSize, wire.MinMaxFrameSize)
	setDefault(&o.MaxChannels, 5000)
	setDefault(&o.MaxLinks, 5000)
	setDefault(&o.MaxUnsettled, 20_000)
	setDefault(&o.MaxMessageSize, 1<<20)
	setDefault(&o.MaxHeldBytes, int(max(64<<20, 4*min(o.MaxMessageSize, 1<<28))))
	setDefault(&o.MaxPartialBytes, o.MaxHeldBytes/4*3)
	setDefault(&o.Busy, wire.ErrResourceLimitExceeded)
	setDefault(&o.IdleTimeout, 2*time.Minute)
	setDefault(&o.HandshakeTimeout, 20*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.CloseTimeout, 5*time.Second)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Mechanism is a SASL mechanism of one step: the peer's initial response says it all (§5.3).
type Mechanism struct {
	Name string
	// Authenticate checks the initial response. The identity is what [Conn.Identity] returns; it
	// may be nil. An error ends the connection with the outcome "auth", or "sys-temp" if it is
	// ErrUnavailable. The peer does not see its text. The context ends with the time to
	// authenticate.
	Authenticate func(ctx context.Context, response []byte) (identity any, err error)
}

// ErrUnavailable is to be wrapped by the error of a [Mechanism] that could not check a response
// now. The peer is told that it may try again.
var ErrUnavailable = errors.New("amqp: authentication is not available now")

// Anonymous accepts everyone. The identity is nil.
func Anonymous(name string) Mechanism {
	return Mechanism{Name: name, Authenticate: func(context.Context, []byte) (any, error) { return nil, nil }}
}

// Plain is the mechanism PLAIN (RFC 4616). It gives user and password to check, which returns the
// identity.
func Plain(check func(ctx context.Context, user, password string) (identity any, err error)) Mechanism {
	return Mechanism{Name: "PLAIN", Authenticate: func(ctx context.Context, response []byte) (any, error) {
		user, password, ok := cutPlain(response)
		if !ok {
			return nil, errors.New("amqp: malformed response for PLAIN")
		}
		return check(ctx, user, password)
	}}
}

// Direction says whether something came from a peer or goes to it.
type Direction uint8

const (
	// Inbound is what peers send, and what is kept of their sessions and links.
	Inbound Direction = iota
	// Outbound is what waits to be written, and what is kept of deliveries until they are settled.
	Outbound
)

// Memory is a bounded amount of memory in each direction, which connections share. A connection
// asks for nothing until it holds more than 64 KiB in a direction, and then for multiples of
// 64 KiB. A Memory must not let one direction wait for the other: peers that do not read would
// keep others from sending.
type Memory interface {
	// Reserve waits until the connection may hold n more bytes. Its error refuses them: an
	// incoming delivery is rejected with Options.Busy.
	Reserve(ctx context.Context, c *Conn, d Direction, n int) error
	// Release gives n bytes back.
	Release(c *Conn, d Direction, n int)
}

// Handler serves the connections of a server. Its methods are called for many connections at
// once. A panic in one closes that connection with amqp:internal-error.
type Handler interface {
	// Opened is called when the peer has sent Open, before it is answered. An error closes the
	// connection with it. Nothing is read from this connection meanwhile.
	Opened(c *Conn) error
	// AttachIncoming is called when the peer wants to send, in a goroutine of the link's own. It
	// ends with l.Accept or l.Refuse. Source and target of its Attach may be nil.
	AttachIncoming(l *Incoming)
	// AttachOutgoing is called when the peer wants to receive, in a goroutine of the link's own.
	// It accepts or refuses the link, and may stay to send until the link's context ends.
	AttachOutgoing(l *Outgoing)
	// AttachCoordinator is AttachIncoming for a link to a transaction coordinator (§4.2).
	AttachCoordinator(l *Incoming)
	// Closed is called last, and only if Opened returned nil.
	Closed(c *Conn)
}

// Errors of operations on links and connections. The ones that a link returns wrap the error that
// ended it, so errors.As finds a *wire.Error of the peer.
var (
	// ErrServerClosed is the error of ServeConn after Shutdown.
	ErrServerClosed = errors.New("amqp: server closed")
	// ErrNoCredit says that the peer takes no delivery now.
	ErrNoCredit = errors.New("amqp: no link credit")
	// ErrDetached says that the link, its session or its connection has ended.
	ErrDetached = errors.New("amqp: link detached")
	// ErrSlowReader says that the peer has not read what was sent to it in time.
	ErrSlowReader = errors.New("amqp: the peer does not read")
)

// newError returns an error to send to the peer.
func newError(condition wire.Symbol, description string) *wire.Error {
	return &wire.Error{Condition: condition, Description: description}
}
