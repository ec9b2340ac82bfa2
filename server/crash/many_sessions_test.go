//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	sessionQueue     = "in-order"
	sessionCount     = 12
	sessionReceivers = 4
)

// sessions sends numbered messages in sessions while a fleet is disturbed, and receives them. Each
// session's messages come in order, to one receiver at a time. Each message is completed once.
type sessions struct {
	*fleet
	each int // messages of a session

	mu       sync.Mutex
	progress [sessionCount]progress
}

// progress is how far a session's receivers have come, by the number of the message.
type progress struct {
	completed int // acknowledged
	tried     int // completed, or it is not known: the answer was lost
}

// startSessions begins to send and to receive. wait returns once every message was completed.
func (f *fleet) startSessions(ctx context.Context) (wait func() error) {
	s := &sessions{fleet: f, each: servertest.Size(50, 15)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		yes := true
		settings := forebay.MessageQueueSettings{RequiresSession: &yes, DetectsDuplicates: &yes, LockSeconds: crashLock.Seconds(), MaxDeliveryCount: 1000}
		if err := s.untilDone(ctx, func(c *client.Client) error {
			_, err := c.PutMessageQueue(ctx, sessionQueue, settings)
			return err
		}); err != nil {
			return err
		}
		for i := range sessionCount {
			group.Go(func() error { return s.send(ctx, i) })
		}
		for range sessionReceivers {
			group.Go(func() error { return s.receive(ctx) })
		}
		return nil
	})
	return func() error {
		if err := group.Wait(); err != nil {
			return err
		}
		return s.untilDone(context.WithoutCancel(ctx), s.checkEmpty)
	}
}

// connect returns a client of an API process, each in its turn.
func (s *sessions) connect(ctx context.Context) (*client.Client, error) {
	at, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{BaseURL: at.URL, HTTPClient: http.DefaultClient, RetryTime: -1})
}

// untilDone repeats a request that may be repeated until it succeeds or is refused.
func (s *sessions) untilDone(ctx context.Context, request func(*client.Client) error) error {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		if err = request(c); err == nil || !uncertain(err) {
			return err
		}
		if err := sleep.For(ctx, crashLock/100); err != nil {
			return err
		}
	}
}

// uncertain tells whether it is not known what became of a request.
func uncertain(err error) bool {
	code := forebay.CodeOf(err)
	return code == forebay.CodeUnavailable || code == ""
}

// send sends a session's messages, each once the one before was acknowledged, spread over the
// test.
func (s *sessions) send(ctx context.Context, session int) error {
	for n := 1; n <= s.each; n++ {
		if err := s.model.Await(ctx, func(stats modelsim.Stats) bool { return int(stats.Calls) >= s.total*9/10*n/s.each }); err != nil {
			return err
		}
		text := strconv.Itoa(n)
		message := forebay.NewMessage{MessageID: fmt.Sprintf("%d-%d", session, n), SessionID: strconv.Itoa(session), Body: &text}
		err := s.untilDone(ctx, func(c *client.Client) error {
			_, err := c.Messages(sessionQueue).Send(ctx, message)
			return err
		})
		if err != nil {
			return fmt.Errorf("send %s: %w", message.MessageID, err)
		}
	}
	return nil
}

// receive accepts one session after the other until nothing is left.
func (s *sessions) receive(ctx context.Context) error {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		queue := c.Messages(sessionQueue)
		session, found, err := queue.AcceptSession(ctx, forebay.AcceptSessionRequest{WaitSeconds: 1})
		if err == nil && found {
			err = s.drain(ctx, queue, session)
		} else if err == nil && s.allTried() && s.checkEmpty(c) == nil {
			return nil
		}
		switch {
		case err == nil || uncertain(err):
		case errors.Is(err, forebay.ErrLockLost), errors.Is(err, forebay.ErrSessionLockLost):
		default:
			return err
		}
		if err != nil {
			if err := sleep.For(ctx, crashLock/100); err != nil {
				return err
			}
		}
	}
}

// drain completes a session's messages for as long as there are any.
func (s *sessions) drain(ctx context.Context, queue client.Messages, session forebay.Session) error {
	at, err := strconv.Atoi(session.SessionID)
	if err != nil {
		return err
	}
	for {
		messages, err := queue.ReceiveSession(ctx, session.SessionToken, forebay.ReceiveRequest{MaxMessages: 3})
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return queue.CloseSession(ctx, session.SessionToken)
		}
		if err := s.checkOrder(at, messages); err != nil {
			return err
		}
		for _, m := range messages {
			if err := s.complete(ctx, queue, at, m); err != nil {
				return err
			}
		}
	}
}

// checkOrder checks that messages continue where the session's receivers have come to.
func (s *sessions) checkOrder(session int, messages []forebay.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.progress[session]
	for i, m := range messages {
		n, err := strconv.Atoi(strings.TrimPrefix(m.MessageID, strconv.Itoa(session)+"-"))
		first, _ := strconv.Atoi(*messages[0].Body)
		if err != nil || n != first+i || first <= p.completed || first > p.tried+1 {
			return fmt.Errorf("session %d: message %s is number %d of those received; %d were completed, and perhaps %d", session, m.MessageID, i+1, p.completed, p.tried)
		}
	}
	return nil
}

func (s *sessions) complete(ctx context.Context, queue client.Messages, session int, m forebay.Message) error {
	n, err := strconv.Atoi(*m.Body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	p := &s.progress[session]
	p.tried = max(p.tried, n)
	s.mu.Unlock()
	err = queue.Complete(ctx, m.LockToken)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	if p.completed >= n {
		return fmt.Errorf("session %d: message %d was completed twice", session, n)
	}
	p.completed = n // and those between: the answer was lost
	return nil
}

// allTried tells whether every message was completed, or it is not known.
func (s *sessions) allTried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.progress[:], func(p progress) bool { return p.tried < s.each })
}

func (s *sessions) checkEmpty(c *client.Client) error {
	_, q, err := c.FindQueue(s.Context(), sessionQueue)
	if err != nil {
		return err
	}
	if q == nil || q.Active+q.Scheduled+q.Locked+q.Deferred+q.DeadLetter != 0 {
		return fmt.Errorf("left in the queue of sessions: %+v", q)
	}
	return nil
}
