package bus_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// sdkSessions are the sessions that an sdkBroker's client accepts.
type sdkSessions struct{ *sdkBroker }

func (b sdkSessions) AcceptNext(ctx context.Context, q bus.MessageQueue, expected bool) (*bus.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, cond(expected, sdkPatience, bus.ClientPatience))
	defer cancel()
	c, err := b.another()
	if err != nil {
		return nil, err
	}
	r, err := c.AcceptNextSessionForQueue(ctx, entity.NameOf(q.Name), nil)
	var known *azservicebus.Error
	if errors.As(err, &known) && known.Code == azservicebus.CodeTimeout || outOfTime(err) {
		return nil, b.settled(context.WithoutCancel(ctx))
	}
	if err != nil {
		return nil, told(err)
	}
	s, err := b.accepted(ctx, r)
	return &s, err
}

func cond[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

func (b sdkSessions) Accept(ctx context.Context, q bus.MessageQueue, id string) (bus.Session, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	c, err := b.another()
	if err != nil {
		return bus.Session{}, err
	}
	r, err := c.AcceptSessionForQueue(ctx, entity.NameOf(q.Name), id, nil)
	if err != nil {
		return bus.Session{}, told(err)
	}
	return b.accepted(ctx, r)
}

func (b sdkSessions) accepted(ctx context.Context, r *azservicebus.SessionReceiver) (bus.Session, error) {
	b.mu.Lock()
	s := bus.Session{SessionLock: bus.SessionLock{No: int64(len(b.sessions)) + 1}, ID: r.SessionID(), LockedUntil: r.LockedUntil()}
	b.sessions[s.SessionLock] = r
	b.mu.Unlock()
	var err error
	s.State, err = r.GetSessionState(ctx, nil)
	return s, err
}

// Close returns once the server has given the session back, which it does after the link has
// ended. Then another receiver may have it at once.
func (b sdkSessions) Close(ctx context.Context, q bus.MessageQueue, l bus.SessionLock) error {
	r := b.session(l)
	if err := r.Close(ctx); err != nil {
		return err
	}
	for {
		rows, err := b.store.Bus.Sessions().ListSessions(ctx, q, "", 100)
		if err != nil {
			return err
		}
		held := false
		for _, row := range rows {
			held = held || row.ID == r.SessionID() && row.LockedUntil != nil
		}
		if !held || b.acceptedSince(l, r.SessionID()) {
			return nil
		}
		<-time.After(time.Millisecond)
	}
}

// acceptedSince reports whether a session of that id was accepted after another.
func (b sdkSessions) acceptedSince(l bus.SessionLock, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, r := range b.sessions {
		if other.No > l.No && r.SessionID() == id {
			return true
		}
	}
	return false
}

func (b sdkSessions) Renew(ctx context.Context, _ bus.MessageQueue, l bus.SessionLock) (time.Time, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	err := b.session(l).RenewSessionLock(ctx, nil)
	return b.session(l).LockedUntil(), err
}

func (b sdkSessions) State(ctx context.Context, _ bus.MessageQueue, l bus.SessionLock) ([]byte, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return b.session(l).GetSessionState(ctx, nil)
}

func (b sdkSessions) SetState(ctx context.Context, _ bus.MessageQueue, l bus.SessionLock, state []byte) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return b.session(l).SetSessionState(ctx, state, nil)
}

func (b sdkSessions) Used(ctx context.Context, q bus.MessageQueue) (ids []string, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	for pager := b.client.NewListSessionsForQueuePager(entity.NameOf(q.Name), nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, told(err)
		}
		ids = append(ids, page.Sessions...)
	}
	slices.Sort(ids)
	return ids, nil
}

// sdkWaits are the receivers of an sdkBroker's client that wait.
type sdkWaits struct{ *sdkBroker }

// Await opens a receiver and closes it again, so that no credit is left. Its messages are settled
// by their tokens alone.
func (b sdkWaits) Await(ctx context.Context, req bus.ReceiveRequest) ([]bus.Message, error) {
	if req.Session != nil {
		r := b.session(*req.Session)
		got, err := next(ctx, r, req.Max)
		return b.take(req, got, r), told(err)
	}
	r, err := b.open(req.Queue, req.DeadLetter, req.Delete)
	if err != nil {
		return nil, err
	}
	got, err := next(ctx, r, req.Max)
	return b.take(req, got, nil), errors.Join(told(err), r.Close(context.WithoutCancel(ctx)))
}

// next receives until messages come. The SDK returns without any, and without an error, when a
// link has ended by what it takes for temporary.
func next(ctx context.Context, r receiving, limit int) (got []*azservicebus.ReceivedMessage, err error) {
	for range 10 {
		if got, err = r.ReceiveMessages(ctx, limit, nil); len(got) > 0 || err != nil {
			return got, err
		}
	}
	return nil, errors.New("a link ended again and again")
}

// AwaitSession says how long it waits, for the server waits for a minute only without that.
func (b sdkWaits) AwaitSession(ctx context.Context, q bus.MessageQueue) (*bus.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	c, err := b.another()
	if err != nil {
		return nil, err
	}
	r, err := c.AcceptNextSessionForQueue(ctx, entity.NameOf(q.Name), nil)
	if err != nil {
		return nil, told(err)
	}
	s, err := sdkSessions(b).accepted(ctx, r)
	return &s, err
}

// sessionPatience is how long it waits for a session. In a bubble of synctest that may be long.
const sessionPatience = 9 * time.Minute
