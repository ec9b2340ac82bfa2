package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"github.com/forebayhq/forebay/internal/stores"
)

// sdkBroker is a server by Azure's SDK for Go. What that cannot do is read from the store. This
// concerns all messages of a queue with sessions, or of one that forwards, and the counts of
// locked and deferred messages.
type sdkBroker struct {
	client *azservicebus.Client
	store  *stores.Stores
	// own returns a client for one receiver: the SDK closes the connection of one that is refused,
	// with all that others do by it. nil: all have the same.
	own func() (*azservicebus.Client, error)

	mu       sync.Mutex                                // some receive while others send
	senders  map[int64]*azservicebus.Sender            // by queue
	peekers  map[queue.Subqueue]*azservicebus.Receiver // also for what the management node does
	held     map[queue.Lock]sdkDelivery
	sessions map[bus.SessionLock]*azservicebus.SessionReceiver
}

// sdkDelivery is a delivery, and by whom it came.
type sdkDelivery struct {
	*azservicebus.ReceivedMessage
	by   settler
	from queue.Subqueue
}

// settler is what a receiver, of a session or not, does with a message.
type settler interface {
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
}

// receiving is what a receiver, of a session or not, receives.
type receiving interface {
	settler
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	Close(context.Context) error
}

func newSDKBroker(client *azservicebus.Client, s *stores.Stores) *sdkBroker {
	return &sdkBroker{client: client, store: s, senders: map[int64]*azservicebus.Sender{},
		peekers: map[queue.Subqueue]*azservicebus.Receiver{}, held: map[queue.Lock]sdkDelivery{}, sessions: map[bus.SessionLock]*azservicebus.SessionReceiver{}}
}

// sdkPatience is how long an answer that must come may take.
const sdkPatience = 2 * time.Minute

// inTime bounds a call that must come to an end. A client's own error says what it waited for.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, sdkPatience)
}

// told is an error of the SDK as the store has it.
func told(err error) error {
	var known *azservicebus.Error
	var condition *amqp.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && known.Code == azservicebus.CodeLockLost:
		return errors.Join(forebay.ErrLockLost, err)
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return errors.Join(forebay.Errorf(forebay.CodePayloadTooLarge, "as the client says"), err)
	case strings.Contains(err.Error(), "is currently disabled"): // of a management node, the SDK tells only the text
		return errors.Join(forebay.Errorf(forebay.CodeEntityDisabled, "as the client says"), err)
	case errors.As(err, &condition) && conditions[condition.Condition] != nil:
		return errors.Join(conditions[condition.Condition], err)
	}
	return err
}

// conditions are those that links are refused and ended with.
var conditions = map[amqp.ErrCond]error{
	"com.microsoft:session-cannot-be-locked": forebay.ErrSessionLocked,
	"com.microsoft:entity-disabled":          forebay.Errorf(forebay.CodeEntityDisabled, "as the client says"),
	amqp.ErrCondNotFound:                     forebay.Errorf(forebay.CodeUnknownQueue, "as the client says"),
	amqp.ErrCondNotAllowed:                   forebay.Errorf(forebay.CodeInvalidRequest, "as the client says"),
	amqp.ErrCondMessageSizeExceeded:          forebay.Errorf(forebay.CodePayloadTooLarge, "as the client says"),
}

func notFound(err error) bool {
	var known *azservicebus.Error
	return errors.As(err, &known) && known.Code == azservicebus.CodeNotFound
}

// settled returns once no receiver of the client waits in the store any more.
func (b *sdkBroker) settled(ctx context.Context) error {
	for {
		waiting, err := db.TransactIn(ctx, bus.Key, b.store.DB.Writer, db.Op{Stage: db.StageChange}, func(t *bus.Tx) (int, error) { return len(t.W.Waiters), nil })
		if err != nil || waiting == 0 {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

// broker is this one, by the clock of an engine.
func (b *sdkBroker) broker(e allEngine) bus.Broker {
	return bus.Broker{Messages: b, Settle: b, Sessions: sdkSessions{b}, Waits: sdkWaits{b}, Clock: clockOf{e, b.store}, Client: true}
}

func (b *sdkBroker) sender(q bus.MessageQueue) (*azservicebus.Sender, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.senders[q.No]; s != nil {
		return s, nil
	}
	s, err := b.client.NewSender(entity.NameOf(q.Name), nil)
	b.senders[q.No] = s
	return s, err
}

// open opens a receiver.
func (b *sdkBroker) open(q bus.MessageQueue, deadLetter, deletes bool) (*azservicebus.Receiver, error) {
	o := azservicebus.ReceiverOptions{}
	if deadLetter {
		o.SubQueue = azservicebus.SubQueueDeadLetter
	}
	if deletes {
		o.ReceiveMode = azservicebus.ReceiveModeReceiveAndDelete
	}
	c, err := b.another()
	if err != nil {
		return nil, err
	}
	return c.NewReceiverForQueue(entity.NameOf(q.Name), &o)
}

func (b *sdkBroker) another() (*azservicebus.Client, error) {
	if b.own == nil {
		return b.client, nil
	}
	return b.own()
}

// peeker is a receiver that never receives.
func (b *sdkBroker) peeker(q bus.MessageQueue, deadLetter bool) (*azservicebus.Receiver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	subqueue := q.Subqueue(deadLetter)
	if r := b.peekers[subqueue]; r != nil {
		return r, nil
	}
	r, err := b.open(q, deadLetter, false)
	b.peekers[subqueue] = r
	return r, err
}

func sdkMessage(c bus.MessageContent) *azservicebus.Message {
	m := &azservicebus.Message{Body: c.Body, MessageID: &c.MessageID, ScheduledEnqueueTime: c.ScheduledAt}
	for field, s := range map[**string]*string{&m.Subject: &c.Subject, &m.SessionID: &c.SessionID, &m.CorrelationID: &c.CorrelationID, &m.To: &c.To, &m.ContentType: &c.ContentType} {
		if *s != "" {
			*field = s
		}
	}
	if c.Properties != nil {
		var properties forebay.Properties
		if err := json.Unmarshal(c.Properties, &properties); err != nil {
			panic(err)
		}
		m.ApplicationProperties = map[string]any{}
		for name, v := range properties {
			if id, ok := v.(forebay.UUID); ok {
				v = amqp.UUID(id)
			}
			m.ApplicationProperties[name] = v
		}
	}
	if c.TTL > 0 {
		m.TimeToLive = &c.TTL
	}
	if m.Body == nil {
		m.Body = []byte{}
	}
	return m
}

// Send sends one message, or a batch. Those that all wait for one time are scheduled by an
// operation of its own, which tells their numbers. The others have theirs from looking at the
// queue.
func (b *sdkBroker) Send(ctx context.Context, q bus.MessageQueue, contents []bus.MessageContent) ([]int64, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	s, err := b.sender(q)
	if err != nil {
		return nil, err
	}
	messages := make([]*azservicebus.Message, len(contents))
	together := contents[0].ScheduledAt != nil
	for i, c := range contents {
		messages[i] = sdkMessage(c)
		together = together && c.ScheduledAt != nil && c.ScheduledAt.Equal(*contents[0].ScheduledAt)
	}
	if together {
		seqs, err := s.ScheduleMessages(ctx, messages, *contents[0].ScheduledAt, nil)
		return seqs, told(err)
	}
	if len(messages) == 1 {
		return nil, told(s.SendMessage(ctx, messages[0], nil))
	}
	batch, err := s.NewMessageBatch(ctx, nil)
	if err != nil {
		return nil, told(err)
	}
	for _, m := range messages {
		if err := batch.AddMessage(m, nil); err != nil {
			return nil, told(err)
		}
	}
	return nil, told(s.SendMessageBatch(ctx, batch, nil))
}

func (b *sdkBroker) CancelScheduled(ctx context.Context, q bus.MessageQueue, seq int64) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	s, err := b.sender(q)
	if err != nil {
		return false, err
	}
	err = s.CancelScheduledMessages(ctx, []int64{seq}, nil)
	if notFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Receive asks for as many as are to come, so that no credit is left, or waits for a moment where
// none are.
func (b *sdkBroker) Receive(ctx context.Context, req bus.ReceiveRequest, expected int) (messages []bus.Message, err error) {
	if req.Session != nil {
		return b.receive(ctx, b.session(*req.Session), req, expected)
	}
	r, err := b.open(req.Queue, req.DeadLetter, req.Delete)
	if err != nil {
		return nil, err
	}
	if expected > 0 {
		return b.receive(ctx, r, req, expected)
	}
	short, cancel := context.WithTimeout(ctx, bus.ClientPatience)
	defer cancel()
	messages, err = b.receive(short, r, req, req.Max)
	if outOfTime(err) {
		err = nil
	}
	return messages, errors.Join(err, r.Close(ctx), b.settled(ctx))
}

// outOfTime reports whether a client gave up because its time was over. The SDK may say so before
// its context does, and of what comes before a link in words alone.
func outOfTime(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), context.DeadlineExceeded.Error())
}

// session is the receiver of a session.
func (b *sdkBroker) session(l bus.SessionLock) *azservicebus.SessionReceiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[l]
}

// receive receives exactly so many messages. The SDK is to wait for all: what comes between two
// calls it gives back, and then it comes out of order.
func (b *sdkBroker) receive(ctx context.Context, r receiving, req bus.ReceiveRequest, n int) (messages []bus.Message, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	for len(messages) < n {
		got, err := r.ReceiveMessages(ctx, n-len(messages), &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: sdkPatience})
		if err != nil {
			return messages, told(err)
		}
		messages = append(messages, b.take(req, got, r)...)
	}
	return messages, nil
}

// take notes what was received, and by whom.
func (b *sdkBroker) take(req bus.ReceiveRequest, got []*azservicebus.ReceivedMessage, by settler) (messages []bus.Message) {
	for _, m := range got {
		taken := storedMessage(m)
		if !req.Delete {
			taken.Token = content.LockOf(wire.UUID(m.LockToken)).Token
			b.mu.Lock()
			b.held[taken.Lock] = sdkDelivery{m, by, req.Queue.Subqueue(req.DeadLetter)}
			b.mu.Unlock()
		}
		messages = append(messages, taken)
	}
	return messages
}

func (b *sdkBroker) ReceiveDeferred(ctx context.Context, req bus.ReceiveRequest, seqs []int64) ([]bus.Message, error) {
	if len(seqs) == 0 {
		return nil, nil // the SDK refuses to ask
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	var r receiving
	if req.Session != nil {
		r = b.session(*req.Session)
	} else {
		p, err := b.peeker(req.Queue, req.DeadLetter)
		if err != nil {
			return nil, err
		}
		r = p
	}
	got, err := r.ReceiveDeferredMessages(ctx, seqs, nil)
	if notFound(err) {
		err = nil
	}
	return b.take(req, got, r), told(err)
}

// Peek looks at a page.
func (b *sdkBroker) Peek(ctx context.Context, p bus.PeekQuery) (messages []bus.Message, next int64, cut bool, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	deadLetter := p.Subqueue.Kind() == queue.SubqueueDeadLetter
	var q bus.MessageQueue
	if err := b.store.DB.Read(ctx, func(c driver.Conn) (err error) {
		q, _, err = entity.Numbered(c, p.Subqueue.Queue())
		return err
	}); err != nil {
		return nil, 0, false, err
	}
	if !bus.Opens(q, deadLetter) || !q.Status.Receives() { // the SDK peeks only with a link
		messages, next, cut, err = b.store.Bus.Peek(ctx, p)
		for i := range messages {
			if m := &messages[i]; m.LockedUntil == nil {
				m.Deliveries++ // as a client would see it
			}
		}
		return messages, next, cut, err
	}
	r, err := b.peeker(q, deadLetter)
	if err != nil {
		return nil, 0, false, err
	}
	for next = p.From; len(messages) < p.Limit; {
		page, err := r.PeekMessages(ctx, p.Limit-len(messages), &azservicebus.PeekMessagesOptions{FromSequenceNumber: &next})
		if err != nil || len(page) == 0 {
			return messages, 0, false, err
		}
		for _, m := range page {
			messages = append(messages, storedMessage(m))
			next = *m.SequenceNumber + 1
		}
	}
	return messages, next, false, nil
}

func (b *sdkBroker) MessageCounts(ctx context.Context, q bus.MessageQueue, limit int64) (entity.Counts, error) {
	return b.store.Bus.MessageCounts(ctx, q, limit)
}

// storedMessage is what the SDK tells of a message.
func storedMessage(m *azservicebus.ReceivedMessage) bus.Message {
	said := bus.Message{
		EnqueuedSeq: value(m.EnqueuedSequenceNumber), LockedUntil: m.LockedUntil, Deliveries: int(m.DeliveryCount), EnqueuedAt: value(m.EnqueuedTime),
		DeadLetterReason: value(m.DeadLetterReason), DeadLetterSource: value(m.DeadLetterSource), DeadLetterDescription: value(m.DeadLetterErrorDescription),
	}
	said.Seq, said.MessageID, said.Subject, said.SessionID, said.Body = value(m.SequenceNumber), m.MessageID, value(m.Subject), value(m.SessionID), m.Body
	said.State = map[azservicebus.MessageState]forebay.MessageState{
		azservicebus.MessageStateActive: forebay.MessageActive, azservicebus.MessageStateDeferred: forebay.MessageDeferred, azservicebus.MessageStateScheduled: forebay.MessageScheduled,
	}[m.State]
	properties := forebay.Properties{}
	for name, v := range m.ApplicationProperties {
		if id, ok := v.(amqp.UUID); ok {
			v = forebay.UUID(id)
		}
		if name != "DeadLetterReason" && name != "DeadLetterErrorDescription" {
			properties[name] = v
		}
	}
	said.Properties, _ = json.Marshal(properties)
	return said
}

func value[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

func (b *sdkBroker) delivery(l queue.Lock) sdkDelivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[l]
}

// settlerOf is the receiver that has the message, if the step names its queue. Otherwise the token
// alone goes to the management node of the queue that is named.
func (b *sdkBroker) settlerOf(s *bus.Step) (settler, *azservicebus.ReceivedMessage, error) {
	d := b.delivery(s.Lock)
	if d.by != nil && d.from == s.Queue.Subqueue(s.DeadLetters) {
		by, m := d.by, d.ReceivedMessage
		// A link that has settled a message does nothing more about it: only the token tells.
		d.ReceivedMessage = &azservicebus.ReceivedMessage{LockToken: m.LockToken}
		b.mu.Lock()
		b.held[s.Lock] = d
		b.mu.Unlock()
		return by, m, nil
	}
	r, err := b.peeker(s.Queue, s.DeadLetters)
	return r, &azservicebus.ReceivedMessage{LockToken: content.LockToken(s.Lock)}, err
}

func (b *sdkBroker) Settle(ctx context.Context, s *bus.Step) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	r, m, err := b.settlerOf(s)
	if err != nil {
		return err
	}
	changed := map[string]any(s.Changed)
	switch s.Kind {
	case bus.StepComplete:
		err = r.CompleteMessage(ctx, m, nil)
	case bus.StepAbandon:
		err = r.AbandonMessage(ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: changed})
	case bus.StepDefer:
		err = r.DeferMessage(ctx, m, &azservicebus.DeferMessageOptions{PropertiesToModify: changed})
	default:
		err = r.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &s.Why.Reason, ErrorDescription: &s.Why.Description, PropertiesToModify: changed})
	}
	if err = told(err); forebay.CodeOf(err) == forebay.CodeEntityDisabled {
		return bus.SettlementsOf(b.store.Bus).Settle(ctx, s) // the SDK settles only with a link
	}
	return err
}

func (b *sdkBroker) Renew(ctx context.Context, s *bus.Step, lock time.Duration) (time.Time, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	r, err := b.peeker(s.Queue, s.DeadLetters)
	if err != nil {
		return time.Time{}, err
	}
	m := &azservicebus.ReceivedMessage{LockToken: content.LockToken(s.Lock)}
	if err = told(r.RenewMessageLock(ctx, m, nil)); forebay.CodeOf(err) == forebay.CodeEntityDisabled {
		return bus.SettlementsOf(b.store.Bus).Renew(ctx, s, lock) // the SDK renews only with a link
	}
	return value(m.LockedUntil), err
}
