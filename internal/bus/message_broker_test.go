package bus

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
	"pgregory.net/rapid"
)

// broker is what the models of messages and of topics are compared with, and what the suite uses.
// It is the store by its own calls, or a server by a client of its protocol.
type broker struct {
	Messages brokerMessages
	Settle   brokerSettlements
	Sessions brokerSessions
	Waits    brokerWaits
	Clock    brokerClock
	// Client says that it is a client, by an SDK that does not tell or do all that the store
	// does. What a test leaves out then is said there.
	Client bool
}

// brokerMessages are sent, received and shown. The last argument of what receives is how many are
// to come, for clients that can only wait.
type brokerMessages interface {
	// Send may return no sequence numbers.
	Send(context.Context, MessageQueue, []MessageContent) ([]int64, error)
	CancelScheduled(context.Context, MessageQueue, int64) (bool, error)
	Receive(context.Context, ReceiveRequest, int) ([]Message, error)
	ReceiveDeferred(context.Context, ReceiveRequest, []int64) ([]Message, error)
	Peek(context.Context, PeekQuery) (messages []Message, next int64, cut bool, err error)
	MessageCounts(context.Context, MessageQueue, int64) (entity.Counts, error)
}

// brokerSettlements end deliveries. Settle takes the steps that do.
type brokerSettlements interface {
	Settle(context.Context, *Step) error
	Renew(context.Context, *Step, time.Duration) (time.Time, error)
}

// brokerSessions are those of SessionStore. AcceptNext is told whether there is one.
type brokerSessions interface {
	AcceptNext(context.Context, MessageQueue, bool) (*Session, error)
	Accept(context.Context, MessageQueue, string) (Session, error)
	Close(context.Context, MessageQueue, SessionLock) error
	Renew(context.Context, MessageQueue, SessionLock) (time.Time, error)
	State(context.Context, MessageQueue, SessionLock) ([]byte, error)
	SetState(context.Context, MessageQueue, SessionLock, []byte) error
	// Used lists the ids of those that hold messages or a state, in order.
	Used(context.Context, MessageQueue) ([]string, error)
}

// brokerWaits are receivers that wait until there is something for them, at most as many messages
// as they ask for.
type brokerWaits interface {
	Await(context.Context, ReceiveRequest) ([]Message, error)
	AwaitSession(context.Context, MessageQueue) (*Session, error)
}

// brokerClock is the time, in milliseconds since 1970, that a test moves.
type brokerClock interface {
	Now() int64
	Pass(time.Duration)
}

// storeBroker is the store itself.
type storeBroker struct {
	*Store
	engine engine
	s      *stores
}

func (b *storeBroker) broker() broker {
	return broker{Messages: b, Settle: b, Sessions: storeSessions{b}, Waits: b, Clock: storeClock{b}}
}

// open takes new stores of the engine.
func (b *storeBroker) open(s *stores) { b.s, b.Store = s, s.Bus }

// Receive returns at once, or once the store has found nothing for a receiver that waits.
func (b *storeBroker) Receive(ctx context.Context, req ReceiveRequest, _ int) (got []Message, err error) {
	if b.engine == nil { // the suite's receivers wait by Await
		return b.Store.Receive(ctx, req)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = b.Store.Receive(ctx, req)
	}()
	b.engine.Settle(b.s, done)
	if !req.Wait {
		before := b.engine.Now()
		if <-done; b.engine.Now() != before {
			return nil, errors.New("a receiver that does not wait waits")
		}
	}
	cancel()
	<-done
	if req.Wait && errors.Is(err, context.Canceled) {
		err = nil
	}
	return got, err
}

func (b *storeBroker) Settle(ctx context.Context, s *Step) error {
	switch subqueue := s.subqueue(); s.Kind {
	case StepComplete:
		return b.Complete(ctx, subqueue, s.Lock)
	case StepAbandon:
		return b.Abandon(ctx, s.Queue, subqueue, s.Lock, s.Changed)
	case StepDefer:
		return b.Defer(ctx, subqueue, s.Lock, s.Changed)
	case StepDeadLetter:
		return b.DeadLetter(ctx, subqueue, s.Lock, s.Why, s.Changed)
	default:
		return b.ReleaseMessage(ctx, subqueue, s.Lock)
	}
}

func (b *storeBroker) Renew(ctx context.Context, s *Step, lock time.Duration) (time.Time, error) {
	return b.RenewMessage(ctx, s.subqueue(), s.Lock, lock)
}

// Await receives, and AwaitSession accepts, however long it takes.
func (b *storeBroker) Await(ctx context.Context, req ReceiveRequest) ([]Message, error) {
	req.Wait = true
	return b.Store.Receive(ctx, req)
}

func (b *storeBroker) AwaitSession(ctx context.Context, q MessageQueue) (*Session, error) {
	return b.Store.Sessions().AcceptNext(ctx, q, true)
}

// undeliver is what the store does with messages that their receiver never saw.
func (b *storeBroker) undeliver(ctx context.Context, s *Step) error {
	return b.Undeliver(ctx, s.subqueue(), []queue.Lock{s.Lock})
}

// restart closes the database and opens it again.
func (b *storeBroker) restart(t *rapid.T) {
	if err := b.s.DB.Close(); err != nil {
		t.Fatal(err)
	}
	b.open(b.engine.Reopen(t))
}

// storeSessions are those of the store that is open.
type storeSessions struct{ *storeBroker }

func (b storeSessions) AcceptNext(ctx context.Context, q MessageQueue, _ bool) (*Session, error) {
	return b.s.Bus.Sessions().AcceptNext(ctx, q, false)
}

func (b storeSessions) Accept(ctx context.Context, q MessageQueue, id string) (Session, error) {
	return b.s.Bus.Sessions().Accept(ctx, q, id)
}

func (b storeSessions) Close(ctx context.Context, q MessageQueue, l SessionLock) error {
	return b.s.Bus.Sessions().Close(ctx, q, l)
}

func (b storeSessions) Renew(ctx context.Context, q MessageQueue, l SessionLock) (time.Time, error) {
	return b.s.Bus.Sessions().Renew(ctx, q, l)
}

func (b storeSessions) State(ctx context.Context, q MessageQueue, l SessionLock) ([]byte, error) {
	return b.s.Bus.Sessions().State(ctx, q, l)
}

func (b storeSessions) SetState(ctx context.Context, q MessageQueue, l SessionLock, state []byte) error {
	return b.s.Bus.Sessions().SetState(ctx, q, l, state)
}

func (b storeSessions) Used(ctx context.Context, q MessageQueue) (ids []string, err error) {
	rows, err := b.s.Bus.Sessions().ListSessions(ctx, q, "", 100)
	for _, row := range rows {
		if row.HasMessages || row.StateBytes > 0 {
			ids = append(ids, row.ID)
		}
	}
	return ids, err
}

// storeClock is the engine's.
type storeClock struct{ *storeBroker }

func (b storeClock) Now() int64           { return b.engine.Now() }
func (b storeClock) Pass(d time.Duration) { b.engine.Pass(b.s, d) }
