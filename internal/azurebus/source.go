package azurebus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"

	"github.com/forebayhq/forebay"

	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/trigger"
)

// SourceOptions are the settings of a Source.
type SourceOptions struct {
	Name       string
	Connection Connection
	From       string // the queue there, or TOPIC/subscriptions/NAME
	Maker      *trigger.Maker
	// Sessions is how many sessions are received at the same time. It is 0 for an entity without
	// sessions.
	Sessions int
	Messages int // received at once, at most, by each receiver
	// Paused reports whether no jobs are wanted now; nil: they always are.
	Paused  func(ctx context.Context) (bool, error)
	Logger  *slog.Logger
	Observe Observer
}

// Source makes jobs of the messages of a queue or a subscription of Azure Service Bus.
type Source struct {
	SourceOptions
	connector
}

// NewSource returns a source. [Source.Run] starts it.
func NewSource(opts SourceOptions) *Source {
	log := opts.Logger.With(slog.String("connector", opts.Name))
	return &Source{opts, connector{name: opts.Name, log: log, observe: opts.Observe}}
}

const (
	// receiveTime is how long a receive waits. A pause is noticed after that long.
	receiveTime = 10 * time.Second
	// settleTime bounds the settling of received messages once the source is to stop.
	settleTime = 30 * time.Second
	// acceptTime is how long the service waits for a session with messages.
	acceptTime = 30 * time.Second
	// sessionIdle is how long a session without messages is kept.
	sessionIdle = time.Second
	// sessionBatches is how many batches of one session are received before another session is
	// accepted.
	sessionBatches = 10
	pausePoll      = 2 * time.Second
)

// Run takes messages until ctx ends.
func (s *Source) Run(ctx context.Context) { s.repeat(ctx, s.pass) }

// pass takes messages until something fails, the queue of jobs is paused, or ctx ends.
func (s *Source) pass(ctx context.Context) error {
	if err := s.awaitResume(ctx); err != nil {
		return err
	}
	client, err := s.Connection.Open()
	if err != nil {
		return err
	}
	defer shut(ctx, client)
	if s.Sessions == 0 {
		return s.takeQueue(ctx, client)
	}
	group, ctx := errgroup.WithContext(ctx)
	for range s.Sessions {
		group.Go(func() error { return s.takeSessions(ctx, client) })
	}
	return group.Wait()
}

// awaitResume waits while the queue of jobs is paused.
func (s *Source) awaitResume(ctx context.Context) error {
	for said := false; ; {
		paused, err := s.paused(ctx)
		if err != nil || !paused {
			return err
		}
		if !said {
			said = true
			s.log.Info("the connector receives nothing, as jobs are paused")
		}
		if err := sleep.For(ctx, pausePoll); err != nil {
			return err
		}
	}
}

func (s *Source) paused(ctx context.Context) (bool, error) {
	if s.Paused == nil {
		return false, nil
	}
	return s.Paused(ctx)
}

// takeQueue takes the messages of an entity without sessions.
func (s *Source) takeQueue(ctx context.Context, client *azservicebus.Client) error {
	r, err := receiverOf(client, s.From)
	if err != nil {
		return err
	}
	defer shut(ctx, r)
	link := &link{receiver: r, renew: func(ctx context.Context, m *azservicebus.ReceivedMessage) (time.Time, error) {
		err := r.RenewMessageLock(ctx, m, nil)
		return until(m), err
	}}
	window := newWindow(s.Messages, maxHeldBytes)
	for {
		if paused, err := s.paused(ctx); err != nil || paused {
			return err
		}
		if _, err := s.batch(ctx, link, window, receiveTime); err != nil {
			return err
		}
	}
}

// receiverOf returns a receiver of a queue or a subscription.
func receiverOf(client *azservicebus.Client, from string) (*azservicebus.Receiver, error) {
	if topic, subscription, is := strings.Cut(from, "/subscriptions/"); is {
		return client.NewReceiverForSubscription(topic, subscription, nil)
	}
	return client.NewReceiverForQueue(from, nil)
}

// takeSessions takes the messages of one session after the other.
func (s *Source) takeSessions(ctx context.Context, client *azservicebus.Client) error {
	for {
		if paused, err := s.paused(ctx); err != nil || paused {
			return err
		}
		session, err := acceptNext(ctx, client, s.From, acceptTime)
		if err != nil {
			return err
		}
		if session == nil {
			continue
		}
		if err := unlessLost(s.takeSession(ctx, session)); err != nil && !errors.Is(err, errLinkLost) {
			return fmt.Errorf("receive a session: %w", err)
		}
	}
}

// acceptNext accepts the next session that has messages. It returns nil if there is none.
func acceptNext(ctx context.Context, client *azservicebus.Client, from string, wait time.Duration) (session *azservicebus.SessionReceiver, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if topic, subscription, is := strings.Cut(from, "/subscriptions/"); is {
		session, err = client.AcceptNextSessionForSubscription(waiting, topic, subscription, nil)
	} else {
		session, err = client.AcceptNextSessionForQueue(waiting, from, nil)
	}
	if err == nil {
		return session, nil
	}
	var service *azservicebus.Error
	if ctx.Err() == nil && errors.As(err, &service) && service.Code == azservicebus.CodeTimeout {
		return nil, nil
	}
	return nil, err
}

// takeSession takes the messages of a session, in their order.
func (s *Source) takeSession(ctx context.Context, session *azservicebus.SessionReceiver) error {
	defer shut(ctx, session)
	link := &link{receiver: session, session: true, renew: func(ctx context.Context, _ *azservicebus.ReceivedMessage) (time.Time, error) {
		err := session.RenewSessionLock(ctx, nil)
		return session.LockedUntil(), err
	}}
	link.locked(session.LockedUntil())
	window := newWindow(s.Messages, maxHeldBytes/int64(s.Sessions))
	for range sessionBatches {
		if err := link.keep(ctx, nil); err != nil {
			return err
		}
		asked := window.next()
		n, err := s.batch(ctx, link, window, sessionIdle)
		// The client gives back messages that come between two receives, while later ones are under
		// way. Who then received again would have these first. So after less than was asked for the
		// session is accepted anew.
		if err != nil || n < asked {
			return err
		}
	}
	return nil
}

// batch receives messages and takes them. It returns how many there were.
func (s *Source) batch(ctx context.Context, l *link, w *window, wait time.Duration) (int, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	got, err := l.ReceiveMessages(waiting, w.next(), nil)
	if len(got) == 0 {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		switch {
		case err == nil: // the client says no more
			err = errLinkLost
		case errors.Is(err, context.DeadlineExceeded):
			err = nil
		}
		return 0, err
	}
	w.took(got)
	return len(got), s.take(ctx, l, got)
}

// take makes jobs of messages, in their order. While one cannot become a job it keeps its lock
// and those of all after it.
func (s *Source) take(ctx context.Context, l *link, got []*azservicebus.ReceivedMessage) error {
	if !l.session {
		l.locked(until(got[0]))
	}
	held := make([]delivery, len(got))
	for i, m := range got {
		held[i] = delivery{m, plain(m)}
	}
	for waits := 0; len(held) > 0; {
		n := trigger.Together(messagesOf(held))
		left, why, err := s.submit(ctx, l, held[:n])
		held = append(left, held[n:]...)
		if err != nil {
			return errors.Join(err, s.giveBack(ctx, l, held))
		}
		if why == nil {
			waits = 0
			continue
		}
		if waits++; waits == 1 {
			s.log.Warn("messages wait, as they cannot become jobs now", slog.String("code", codeOf(why)), slog.Int("count", len(held)))
		}
		if held, err = s.wait(ctx, l, held, pause(waits)); err != nil {
			return errors.Join(err, s.giveBack(ctx, l, held))
		}
	}
	return nil
}

// delivery is a message there, and as it is read here.
type delivery struct {
	*azservicebus.ReceivedMessage
	plain forebay.Message
}

// submit makes jobs of messages and settles these. It returns those that have to wait, and why.
func (s *Source) submit(ctx context.Context, l *link, list []delivery) (left []delivery, why, err error) {
	ctx = context.WithoutCancel(ctx)
	making, made := context.WithTimeout(ctx, settleTime)
	defer made()
	verdicts := s.Maker.Make(making, messagesOf(list))
	ctx, cancel := context.WithTimeout(ctx, settleTime) // of its own: making may have taken all of the other
	defer cancel()
	errs := make([]error, len(list))
	var settling sync.WaitGroup
	for i, v := range verdicts {
		if v.Verb == trigger.Wait {
			left, why = append(left, list[i]), v.Err
			continue
		}
		settling.Go(func() { errs[i] = s.settle(ctx, l, list[i].ReceivedMessage, v) })
	}
	settling.Wait()
	return left, why, errors.Join(errs...)
}

// maxReason bounds the reason and the description of a dead letter (service-bus-dead-letter-queues
// gives no number; properties of a message are at most 32 KiB).
const maxReason = 4096

func (s *Source) settle(ctx context.Context, l *link, m *azservicebus.ReceivedMessage, v trigger.Verdict) error {
	switch v.Verb {
	case trigger.DeadLetter:
		reason, description := v.Reason, v.Err.Error()
		description = strings.ToValidUTF8(description[:min(len(description), maxReason)], "")
		err := l.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description})
		return s.settled(DeadLettered, err)
	case trigger.Abandon:
		return errors.Join(v.Err, s.settled(Abandoned, l.AbandonMessage(ctx, m, nil)))
	default:
		return s.settled(Accepted, l.CompleteMessage(ctx, m, nil))
	}
}

func (s *Source) settled(outcome string, err error) error {
	if err == nil {
		s.observe.messages(s.name, outcome, 1)
	}
	return unlessLost(err)
}

// wait lets time pass and renews the locks of messages meanwhile. It returns those whose locks
// have not ended.
func (s *Source) wait(ctx context.Context, l *link, held []delivery, d time.Duration) ([]delivery, error) {
	for end := time.Now().Add(d); ; {
		now := time.Now()
		if !now.Before(end) {
			return held, nil
		}
		if err := sleep.For(ctx, min(end.Sub(now), max(l.renewAt.Sub(now), shortest))); err != nil {
			return held, err
		}
		var err error
		if held, err = l.keepAll(ctx, held); err != nil {
			return held, err
		}
	}
}

// giveBack gives back messages that wait when the source is to stop. A delivery counts, because
// Service Bus has no other way. Closing a session gives its messages back, and none counts.
func (s *Source) giveBack(ctx context.Context, l *link, held []delivery) error {
	if l.session {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	var errs []error
	for _, d := range held {
		errs = append(errs, s.settled(Abandoned, l.AbandonMessage(ctx, d.ReceivedMessage, nil)))
	}
	return errors.Join(errs...)
}
