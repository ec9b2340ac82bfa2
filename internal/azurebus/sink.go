package azurebus

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/messaging"
)

// Results has the results of jobs: a *jobs.Service.
type Results interface {
	// Result's errors are *forebay.Error values.
	Result(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error)
}

// SinkOptions are the settings of a Sink.
type SinkOptions struct {
	Name       string
	Connection Connection
	Bus        *messaging.Service
	Tenant     string
	// From is the subscription, with sessions, that has the events: TOPIC/subscriptions/NAME.
	From string
	To   string // the queue or topic there
	// Results has succeeded jobs' messages carry their results; nil: every message carries its
	// event.
	Results Results
	// Sessions makes each job a session there. A batch then has messages of one job only.
	Sessions bool
	Logger   *slog.Logger
	Observe  Observer
}

// Sink sends the events of a tenant's jobs to a queue or a topic of Azure Service Bus.
type Sink struct {
	SinkOptions
	connector
	wait float64 // seconds that a receive waits for events
}

// NewSink returns a sink. [Sink.Run] starts it.
func NewSink(opts SinkOptions) *Sink {
	log := opts.Logger.With(slog.String("connector", opts.Name))
	return &Sink{opts, connector{name: opts.Name, log: log, observe: opts.Observe}, 10}
}

const (
	// SinkLock is the lock of a sink's session: after that long without a sign another process
	// goes on where one was killed.
	SinkLock = time.Minute
	// sendTime bounds sending one batch. It is shorter than what is left of a lock that was
	// just kept.
	sendTime = 20 * time.Second
	// maxResult bounds a result that a message carries. The service may take less.
	maxResult = 1 << 20
	// acceptWait is how many seconds a process waits for the session that another one has.
	acceptWait = 30
)

// Run sends events until ctx ends.
func (s *Sink) Run(ctx context.Context) { s.repeat(ctx, s.pass) }

// pass waits until no other process sends, and sends until something fails or ctx ends.
func (s *Sink) pass(ctx context.Context) (err error) {
	session, found, err := s.Bus.Sessions.Accept(ctx, s.Tenant, s.From, forebay.AcceptSessionRequest{WaitSeconds: acceptWait})
	if err != nil || !found {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		err = unlessEnded(errors.Join(err, s.Bus.Sessions.Close(closing, s.Tenant, s.From, session.SessionToken)))
	}()
	client, err := s.Connection.Open()
	if err != nil {
		return err
	}
	defer shut(ctx, client)
	sender, err := client.NewSender(s.To, nil)
	if err != nil {
		return err
	}
	defer shut(ctx, sender)
	// The service is tried before anything is received: most outages then cost no delivery
	// here.
	if err := s.try(ctx, sender); err != nil {
		return err
	}
	for {
		if _, err := s.Bus.Sessions.Renew(ctx, s.Tenant, s.From, session.SessionToken); err != nil {
			return err
		}
		got, err := s.Bus.Messages.ReceiveSession(ctx, s.Tenant, s.From, session.SessionToken,
			forebay.ReceiveRequest{MaxMessages: forebay.MaxMessagesPerCall, WaitSeconds: s.wait})
		if err != nil {
			return err
		}
		if err := s.send(ctx, sender, session.SessionToken, got); err != nil {
			return err
		}
	}
}

// unlessEnded ignores the end of the session's lock: another process has it and goes on.
func unlessEnded(err error) error {
	if errors.Is(err, forebay.ErrLockLost) || errors.Is(err, forebay.ErrSessionLockLost) {
		return nil
	}
	return err
}

func (s *Sink) try(ctx context.Context, sender *azservicebus.Sender) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	_, err := sender.NewMessageBatch(ctx, nil)
	return err
}

// send sends events in their order. It completes those that the service has accepted and gives
// back the others.
func (s *Sink) send(ctx context.Context, sender *azservicebus.Sender, token string, events []forebay.Message) error {
	ctx = context.WithoutCancel(ctx) // sendTime bounds what is left
	for len(events) > 0 {
		n, err := s.sendSome(ctx, sender, token, events)
		if err != nil {
			tokens := make([]string, len(events))
			for i := range events {
				tokens[i] = events[i].LockToken
			}
			return errors.Join(err, unlessEnded(s.Bus.Messages.Return(ctx, s.Tenant, s.From, tokens)))
		}
		events = events[n:]
	}
	return nil
}

// sendSome sends the first of the events as one batch and completes these. It returns how many
// they were.
func (s *Sink) sendSome(ctx context.Context, sender *azservicebus.Sender, token string, events []forebay.Message) (int, error) {
	if _, err := s.Bus.Sessions.Renew(ctx, s.Tenant, s.From, token); err != nil {
		return 0, err
	}
	sending, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	batch, err := sender.NewMessageBatch(sending, nil)
	if err != nil {
		return 0, err
	}
	n := 0
	for ; n < len(events); n++ {
		if s.Sessions && n > 0 && jobOf(&events[n]) != jobOf(&events[0]) {
			break
		}
		if err := s.add(sending, batch, &events[n]); errors.Is(err, azservicebus.ErrMessageTooLarge) {
			break
		} else if err != nil {
			return 0, err
		}
	}
	if n == 0 {
		const description = "the message is larger than the service takes"
		s.log.Warn("an event is dead-lettered, as it is larger than the service takes", slog.String("id", events[0].MessageID))
		err := s.Bus.Messages.DeadLetter(ctx, s.Tenant, s.From, events[0].LockToken, forebay.Settlement{Reason: "MessageSizeExceeded", Description: description})
		if err == nil {
			s.observe.messages(s.name, DeadLettered, 1)
		}
		return 1, err
	}
	if err := sender.SendMessageBatch(sending, batch, nil); err != nil {
		return 0, err
	}
	s.observe.messages(s.name, Sent, n)
	return n, s.complete(ctx, events[:n])
}

// complete completes events concurrently, so that they share a transaction.
func (s *Sink) complete(ctx context.Context, events []forebay.Message) error {
	errs := make([]error, len(events))
	var settling sync.WaitGroup
	for i := range events {
		settling.Go(func() { errs[i] = s.Bus.Messages.Complete(ctx, s.Tenant, s.From, events[i].LockToken) })
	}
	settling.Wait()
	return errors.Join(errs...)
}

// jobOf is the job, or the other object, that an event is about.
func jobOf(e *forebay.Message) string {
	for _, name := range []string{"job_id", "object_id"} {
		if id, is := e.Properties[name].(string); is {
			return id
		}
	}
	return e.CorrelationID
}

// add adds the message of an event to a batch.
func (s *Sink) add(ctx context.Context, batch *azservicebus.MessageBatch, e *forebay.Message) error {
	m := s.message(e)
	if s.Results != nil && e.Subject == string(forebay.EventSucceeded) {
		result, err := s.result(ctx, jobOf(e))
		if err != nil {
			return err
		}
		if result != nil {
			plain := m.Body
			m.Body = result
			if err := batch.AddMessage(m, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) || batch.NumMessages() > 0 {
				return err
			}
			m.Body = plain // too large even alone: the event has a link to it
		}
	}
	return batch.AddMessage(m, nil)
}

// message returns the message of an event. Its id is the event's, by which the service detects
// duplicates.
func (s *Sink) message(e *forebay.Message) *azservicebus.Message {
	m := &azservicebus.Message{MessageID: &e.MessageID, CorrelationID: &e.CorrelationID, Subject: &e.Subject, ContentType: &e.ContentType,
		Body: e.BodyBase64, ApplicationProperties: map[string]any{}}
	if e.Body != nil {
		m.Body = []byte(*e.Body)
	}
	for name, value := range e.Properties {
		if id, is := value.(forebay.UUID); is { // which the client does not know
			value = amqp.UUID(id)
		}
		if name != ruleName {
			m.ApplicationProperties[name] = value
		}
	}
	if s.Sessions {
		job := jobOf(e)
		m.SessionID = &job
	}
	return m
}

// ruleName is the property that a rule with an action adds.
const ruleName = "RuleName"

// result returns the result of a job, or nil if it is too large or no longer there.
func (s *Sink) result(ctx context.Context, job string) (json.RawMessage, error) {
	r, size, err := s.Results.Result(ctx, s.Tenant, job)
	if err != nil {
		switch forebay.CodeOf(err) {
		case forebay.CodeNotFound, forebay.CodeGone, forebay.CodeConflict:
			return nil, nil
		}
		return nil, err
	}
	defer r.Close()
	if size > maxResult {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(r, maxResult))
}
