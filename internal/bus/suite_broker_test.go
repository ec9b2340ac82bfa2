package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// What the tests of brokerSuite do by the store's broker. A receive is told how many messages are
// to come: the client of an SDK can only wait for them.

func (s *stores) receive(req ReceiveRequest, n int) ([]Message, error) {
	if n == 0 && s.Broker.Client {
		return nil, s.receiveNone(req)
	}
	got, err := s.Broker.Messages.Receive(background, req, n)
	if err == nil && len(got) != n {
		err = errors.New("other messages came than were to come")
	}
	return got, err
}

// receiveNone lets a client wait until it waits in the store, however long its way there takes.
func (s *stores) receiveNone(req ReceiveRequest) error {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	before, err := s.receivers()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		got, err := s.Broker.Waits.Await(ctx, req)
		if len(got) > 0 {
			err = errors.New("a message came though none was to come")
		}
		ended <- err
	}()
	for waiting := before; waiting == before && len(ended) == 0; {
		s.breathe()
		if waiting, err = s.receivers(); err != nil {
			return err
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	for waiting := before + 1; waiting > before; {
		s.breathe()
		if waiting, err = s.receivers(); err != nil {
			return err
		}
	}
	return nil
}

// receivers is how many wait in the store.
func (s *stores) receivers() (int, error) {
	return db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (n int, err error) {
		for _, claims := range t.W.Waiters {
			n += len(claims)
		}
		return n, nil
	})
}

func (s *stores) receiveDeferred(req ReceiveRequest, seqs ...int64) ([]Message, error) {
	return s.Broker.Messages.ReceiveDeferred(background, req, seqs)
}

func (s *stores) await(req ReceiveRequest) ([]Message, error) {
	return s.Broker.Waits.Await(background, req)
}

func (s *stores) awaitSession(q MessageQueue) (*Session, error) {
	return s.Broker.Waits.AwaitSession(background, q)
}

// settle ends a delivery of a queue. The step's reason and changes come from change.
func (s *stores) settle(kind StepKind, q MessageQueue, l queue.Lock, change ...func(*Step)) error {
	step := Step{Kind: kind, Queue: q, Lock: l}
	for _, c := range change {
		c(&step)
	}
	return s.Broker.Settle.Settle(background, &step)
}

func (s *stores) complete(q MessageQueue, l queue.Lock) error { return s.settle(StepComplete, q, l) }
func (s *stores) abandon(q MessageQueue, l queue.Lock) error  { return s.settle(StepAbandon, q, l) }
func (s *stores) postpone(q MessageQueue, l queue.Lock) error { return s.settle(StepDefer, q, l) }

func (s *stores) deadLetter(q MessageQueue, l queue.Lock) error {
	return s.settle(StepDeadLetter, q, l, func(step *Step) { step.Why.Reason = "r" })
}

func (s *stores) renew(q MessageQueue, l queue.Lock, lock time.Duration) error {
	_, err := s.Broker.Settle.Renew(background, &Step{Queue: q, Lock: l}, lock)
	return err
}

func (s *stores) cancel(q MessageQueue, seq int64) (bool, error) {
	return s.Broker.Messages.CancelScheduled(background, q, seq)
}

// counts are not in the protocol of clients.
func (s *stores) counts(t testing.TB, q MessageQueue) entity.Counts {
	t.Helper()
	c, err := s.Bus.MessageCounts(background, q, entity.CountLimit)
	mustDo(t, err)
	return c
}

func (s *stores) accept(t testing.TB, q MessageQueue, id string) Session {
	t.Helper()
	session, err := s.Broker.Sessions.Accept(background, q, id)
	mustDo(t, err)
	return session
}

func (s *stores) closeSession(t testing.TB, q MessageQueue, l SessionLock) {
	t.Helper()
	mustDo(t, s.Broker.Sessions.Close(background, q, l))
}

// in is a request for one message of a session.
func in(q MessageQueue, l SessionLock) ReceiveRequest {
	req := one(q)
	req.Session = &l
	return req
}

// deadOne is a request for one dead letter.
func deadOne(q MessageQueue) ReceiveRequest {
	req := one(q)
	req.DeadLetter = true
	return req
}

// near reports whether something has happened at that time. A client takes a while, in which its
// clock goes on.
func (s *stores) near(at, want time.Time) bool {
	if s.Broker.Client {
		return at.Sub(want).Abs() <= 10*clientPatience
	}
	return at.Equal(want)
}

// breathe lets the clock of a client go on, while a test waits for what it does.
func (s *stores) breathe() {
	if s.Broker.Client {
		<-time.After(time.Millisecond)
	}
}

// moment is how long before something happens a test can be sure that it has not happened yet.
func (s *stores) moment() time.Duration {
	if s.Broker.Client {
		return 10 * clientPatience
	}
	return time.Millisecond
}

// deliveries is how many deliveries a message is said to have had that nobody has locked. A client
// counts the next one as well.
func (s *stores) deliveries(n int) int {
	if s.Broker.Client {
		return n + 1
	}
	return n
}
