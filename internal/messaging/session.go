package messaging

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// Accept locks the session asked for, or else the one that has waited longest for a
// receiver. It waits for a session as long as the request says. found is false if there is none.
func (s Sessions) Accept(ctx context.Context, tenant, path string, req forebay.AcceptSessionRequest) (session forebay.Session, found bool, err error) {
	err = s.again(tenant, func() error {
		session, found, err = s.accept(ctx, tenant, path, req)
		return err
	})
	return session, found, err
}

func (s Sessions) accept(ctx context.Context, tenant, path string, req forebay.AcceptSessionRequest) (session forebay.Session, found bool, err error) {
	e, err := s.entity(ctx, tenant, path)
	if err != nil {
		return session, false, err
	}
	wait, err := req.WaitTime()
	switch {
	case !e.RequiresSession || e.deadLetter:
		return session, false, errNoSessions
	case err != nil:
		return session, false, err
	case req.SessionID == "":
		return s.acceptNext(ctx, e, wait)
	case wait > 0:
		field := "wait"
		if req.Wait == "" {
			field = "wait_seconds"
		}
		return session, false, forebay.Invalid(field, "does not go with session_id: a session that is free is accepted at once")
	case !message.ValidID(req.SessionID):
		return session, false, forebay.Invalid("session_id", "must be at most %d characters, none of them a control character", forebay.MaxIDCharacters)
	}
	done, err := s.takeSession(ctx, tenant, e.MessageQueue, req.SessionID)
	if err != nil {
		return session, false, err
	}
	defer done()
	accepted, err := s.store.Sessions().Accept(ctx, e.MessageQueue, req.SessionID)
	if err != nil {
		s.noteGone(e.MessageQueue, err)
		return session, false, err
	}
	return sessionOf(accepted), true, nil
}

var errNoSessions = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "has no sessions; receive its messages directly"}

func (s Sessions) acceptNext(ctx context.Context, e namedQueue, limit time.Duration) (session forebay.Session, found bool, err error) {
	waiting, cancel := ctx, func() {}
	if limit > 0 {
		waiting, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	accepted, err := s.store.Sessions().AcceptNext(waiting, e.MessageQueue, limit > 0)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return session, false, nil
	}
	if err != nil || accepted == nil {
		s.noteGone(e.MessageQueue, err)
		return session, false, err
	}
	if ctx.Err() != nil { // nobody would ever see this lock
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undeliverTime)
		defer cancel()
		return session, false, errors.Join(ctx.Err(), s.store.Sessions().Close(closing, e.MessageQueue, accepted.SessionLock))
	}
	return sessionOf(*accepted), true, nil
}

func sessionOf(s bus.Session) forebay.Session {
	return forebay.Session{SessionID: s.ID, SessionToken: message.NewToken(s.No, s.Token), LockedUntil: s.LockedUntil, State: s.State}
}

// session finds the queue and the lock that a session token stands for.
func (s *entities) session(ctx context.Context, tenant, path, token string) (e namedQueue, lock bus.SessionLock, err error) {
	if e, err = s.entity(ctx, tenant, path); err != nil {
		return e, lock, err
	}
	lock.No, lock.Token, err = message.ParseToken("session_token", token)
	return e, lock, err
}

// ReceiveSession is Receive for the messages of a session, in the order of their numbers. Their
// locks last as long as the session's. It returns forebay.ErrSessionLockLost once that lock has
// ended.
func (s Messages) ReceiveSession(ctx context.Context, tenant, path, token string, req forebay.ReceiveRequest) ([]forebay.Message, error) {
	e, lock, err := s.session(ctx, tenant, path, token)
	if err != nil {
		return nil, err
	}
	if err := checkReceive(req); err != nil {
		return nil, err
	}
	return s.receive(ctx, e, &lock, req)
}

// Renew extends the session's lock by the queue's lock duration from now and returns when
// it will end.
func (s Sessions) Renew(ctx context.Context, tenant, path, token string) (until time.Time, err error) {
	e, lock, err := s.session(ctx, tenant, path, token)
	if err != nil {
		return until, err
	}
	return s.store.Sessions().Renew(ctx, e.MessageQueue, lock)
}

// Close gives a session back. Messages that were received and not settled can be received
// again at once, as if never delivered.
func (s Sessions) Close(ctx context.Context, tenant, path, token string) error {
	e, lock, err := s.session(ctx, tenant, path, token)
	if err != nil {
		return err
	}
	return s.store.Sessions().Close(ctx, e.MessageQueue, lock)
}

// Release ends the lock of whoever has the session of that id, as Close does for its receiver.
// That one's next request is answered with forebay.ErrSessionLockLost.
func (s Sessions) Release(ctx context.Context, tenant, path, id string) error {
	e, err := s.entityNow(ctx, tenant, path)
	switch {
	case err != nil:
		return err
	case !e.RequiresSession || e.deadLetter:
		return errNoSessions
	}
	lock, found, err := s.store.Sessions().Holder(ctx, e.MessageQueue, id)
	if err == nil && found {
		err = s.store.Sessions().Close(ctx, e.MessageQueue, lock) // which may have ended meanwhile
	}
	if err == nil && !found || errors.Is(err, forebay.ErrSessionLockLost) {
		return &forebay.Error{Code: forebay.CodeConflict, Field: "session_id", Message: "no receiver has this session"}
	}
	return err
}

// State returns what the receivers of the session last set.
func (s Sessions) State(ctx context.Context, tenant, path, token string) (forebay.SessionState, error) {
	e, lock, err := s.session(ctx, tenant, path, token)
	if err != nil {
		return forebay.SessionState{}, err
	}
	state, err := s.store.Sessions().State(ctx, e.MessageQueue, lock)
	return forebay.SessionState{State: state}, err
}

// SetState stores a state for the receivers of the session.
func (s Sessions) SetState(ctx context.Context, tenant, path, token string, state forebay.SessionState) error {
	e, lock, err := s.session(ctx, tenant, path, token)
	if err != nil {
		return err
	}
	if err := checkState(state.State); err != nil {
		return err
	}
	done, err := s.takeState(ctx, tenant, e.MessageQueue, lock, int64(len(state.State)))
	if err != nil {
		return err
	}
	defer done()
	return s.store.Sessions().SetState(ctx, e.MessageQueue, lock, state.State)
}

func checkState(state []byte) error {
	if len(state) > forebay.MaxSessionStateBytes {
		return &forebay.Error{Code: forebay.CodePayloadTooLarge, Field: "state_base64", Message: "may have at most 256 KiB"}
	}
	return nil
}

// Required reports whether a queue or subscription requires sessions.
func (s Sessions) Required(ctx context.Context, tenant, path string) (bool, error) {
	e, err := s.entity(ctx, tenant, path)
	return e.RequiresSession && !e.deadLetter, err
}
