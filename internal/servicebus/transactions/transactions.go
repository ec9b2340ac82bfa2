// Package transactions keeps the transactions of Service Bus clients until they end.
//
// A client declares a transaction and gets an id. It then sends and settles messages under that
// id. Their steps wait in memory, so nobody sees any of them. A discharge commits all steps in
// one transaction of the database, or drops them. A transaction belongs to the connection, and
// ends with the coordinator that declared it. The steps are dropped when the coordinator's link,
// its session or the connection ends. It ends with the process too, for nothing is stored before.
//
// A step that is refused breaks its transaction, because a client that does not wait for
// answers would otherwise commit a part. Such a transaction can only be rolled back.
//
// What waits is bounded: the steps and bytes of a transaction, the transactions of a
// connection, and the memory of a tenant. A transaction that is not discharged two minutes
// after its first step times out (Service Bus documentation, "service-bus-transactions",
// section "Timeout").
package transactions

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
)

// Lifetime is how long a transaction may last from its first step.
const Lifetime = 2 * time.Minute

// MaxOpen is how many transactions of one connection may be open.
const MaxOpen = 128

// stepBytes is about what a step takes in memory besides its payload.
const stepBytes = 512

// These are told apart by errors.Is. They have no codes, which they would share with refusals
// of steps.
var (
	// ErrUnknown says that the connection has no transaction of that id. It has ended, or is
	// another's. AMQP calls it amqp:transaction:unknown-id.
	ErrUnknown = errors.New("there is no such transaction")
	// ErrTimeout says that the transaction was dropped because it took too long. AMQP calls it
	// amqp:transaction:timeout.
	ErrTimeout = errors.New("the transaction took longer than two minutes and was rolled back")
	// ErrTooMany refuses to declare another transaction.
	ErrTooMany = errors.New("the connection has too many open transactions; discharge some first")
	// ErrInDoubt says that the database failed during the commit. Nobody knows whether the
	// steps were done. A client must not be told that they were rolled back.
	ErrInDoubt = errors.New("the outcome of the transaction is unknown")
)

// RolledBackError says why a commit came to nothing. AMQP calls it amqp:transaction:rollback.
type RolledBackError struct{ Cause error }

func (e *RolledBackError) Error() string {
	return "the transaction was rolled back: " + e.Cause.Error()
}
func (e *RolledBackError) Unwrap() error { return e.Cause }

// Service keeps the transactions of all connections.
type Service struct {
	messages messaging.Transactions
	memory   *memory.Pool
}

// New returns a service that commits by messages. Steps that wait claim memory of the pool.
func New(messages messaging.Transactions, pool *memory.Pool) *Service {
	return &Service{messages, pool}
}

// Connection has the transactions of one connection. Its methods are safe for concurrent use.
type Connection struct {
	service *Service

	mu   sync.Mutex
	open map[string]*transaction
}

// Connect returns the transactions of a new connection. They end with their coordinators.
func (s *Service) Connect() *Connection {
	return &Connection{service: s, open: map[string]*transaction{}}
}

// Coordinator declares and discharges transactions. It stands for the link of a client's
// transaction controller.
type Coordinator struct {
	connection *Connection
	ctx        context.Context
	stop       func() bool
}

// Coordinator returns a new coordinator. When ctx ends its transactions are rolled back: ctx is
// to end with the link, and so with its session and the connection.
func (c *Connection) Coordinator(ctx context.Context) *Coordinator {
	k := &Coordinator{connection: c, ctx: ctx}
	k.stop = context.AfterFunc(ctx, k.rollBackAll)
	return k
}

// Close rolls back the transactions of the coordinator.
func (k *Coordinator) Close() {
	if k.stop() {
		k.rollBackAll()
	}
}

func (k *Coordinator) rollBackAll() {
	c := k.connection
	c.mu.Lock()
	var mine []*transaction
	for id, t := range c.open {
		if t.coordinator == k {
			mine = append(mine, t)
			delete(c.open, id)
		}
	}
	c.mu.Unlock()
	for _, t := range mine {
		t.end(ErrUnknown)
	}
}

// Declare begins a transaction and returns its id.
func (k *Coordinator) Declare() (id []byte, err error) {
	c := k.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := k.ctx.Err(); err != nil {
		return nil, err
	}
	if len(c.open) >= MaxOpen {
		return nil, ErrTooMany
	}
	id = make([]byte, 16)
	_, _ = rand.Read(id) // which never fails
	c.open[string(id)] = &transaction{coordinator: k, service: c.service}
	return id, nil
}

// Discharge ends a transaction. It commits unless fail is set, and then returns once all is on
// disk. Otherwise the error is ErrUnknown, ErrTimeout, ErrInDoubt or a *RolledBackError. If ctx
// ends first the outcome is unknown too.
func (k *Coordinator) Discharge(ctx context.Context, id []byte, fail bool) error {
	c := k.connection
	c.mu.Lock()
	t := c.open[string(id)]
	if t == nil || t.coordinator != k {
		c.mu.Unlock()
		return ErrUnknown
	}
	delete(c.open, string(id))
	c.mu.Unlock()
	if fail {
		t.end(ErrUnknown)
		t.release(ctx)
		return nil
	}
	err := t.commit(ctx)
	if err != nil && !errors.Is(err, ErrInDoubt) && ctx.Err() == nil {
		t.release(ctx)
	}
	return err
}

// Allowed says whether a step may still be done. It is asked again before the commit, as the
// client's rights may end in between.
type Allowed func() error

// Add adds a step to a transaction of any of the connection's coordinators. All steps of a
// transaction are of one tenant. A step that is refused breaks the transaction. committed, unless
// it is nil, is called once the transaction is on disk, and never if it comes to nothing.
func (c *Connection) Add(ctx context.Context, tenant string, id []byte, step messaging.Step, allowed Allowed, committed func()) error {
	t, err := c.transaction(id)
	if err != nil {
		return err
	}
	return t.add(ctx, tenant, &step, calls{allowed, committed}, false)
}

// LetGo says that a client settles a message in a transaction and for itself, so that it cannot
// settle it again. If the discharge finds that nothing is committed, the message is abandoned.
// Else it would stay locked for its time.
func (c *Connection) LetGo(tenant string, id []byte, path, token string) {
	t, err := c.transaction(id)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tenant == tenant && len(t.letGo) < bus.MaxCommitSteps {
		t.letGo = append(t.letGo, lock{path, token})
	}
}

// Break breaks a transaction because a step was refused before it could be added.
func (c *Connection) Break(id []byte, why error) {
	if t, err := c.transaction(id); err == nil {
		t.end(&RolledBackError{why})
	}
}

// Schedule is Add for messages that are to be scheduled. It returns the sequence numbers that
// they will have.
func (c *Connection) Schedule(ctx context.Context, tenant string, id []byte, path string, messages []bus.MessageContent, allowed Allowed) (seqs []int64, err error) {
	t, err := c.transaction(id)
	if err != nil {
		return nil, err
	}
	step := messaging.Step{Kind: bus.StepSend, Path: path, Messages: messages}
	if err := t.add(ctx, tenant, &step, calls{allowed: allowed}, true); err != nil {
		return nil, err
	}
	for _, n := range step.Numbers {
		seqs = append(seqs, n.Seq)
	}
	return seqs, nil
}

func (c *Connection) transaction(id []byte) (*transaction, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.open[string(id)]; t != nil {
		return t, nil
	}
	return nil, ErrUnknown
}
