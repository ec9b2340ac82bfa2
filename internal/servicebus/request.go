package servicebus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/memory"
)

const (
	// maxRequests is how many requests of one connection are under way at once. A client that
	// takes no answers keeps as many waiting.
	maxRequests = 256
	// freeAnswer is how many bytes an answer may have without memory being reserved for it.
	freeAnswer = 4 << 10
	// replyTime is how long an answer waits for credit.
	replyTime = 30 * time.Second
	// requestTime is the longest that a request may take.
	requestTime = time.Minute
)

// replies is a link on which answers of one node go to the client.
type replies struct {
	link    *amqp.Outgoing
	session *amqp.Session
	node    node
	address string // what requests may name in reply-to

	sending chan struct{} // full while an answer is being sent
	sent    uint64        // answers, which number their delivery tags
}

// acceptReplies accepts a link for answers.
func (c *client) acceptReplies(l *amqp.Outgoing, at node) {
	r := &replies{link: l, session: l.Session(), node: at, sending: make(chan struct{}, 1)}
	r.address, _ = targetAddress(l.Attach())
	if at.management {
		if _, err := c.awaitGrant(l.Context(), rightAny, at.path); err != nil {
			l.Refuse(c.failure(err, at.path).wire())
			return
		}
	}
	// The link is known before the client is told of it and can ask.
	c.mu.Lock()
	c.replies = append(c.replies, r)
	c.mu.Unlock()
	context.AfterFunc(l.Context(), func() { c.forget(r) })
	_ = l.Accept(amqp.OutgoingOptions{Source: l.Attach().Source}) // it fails for a link that has ended
}

func (c *client) forget(r *replies) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies = slices.DeleteFunc(c.replies, func(other *replies) bool { return other == r })
}

// replyLink finds the link for the answer to a request that came in a session. Some clients name
// the target of their link in reply-to, some its name, and some nothing. Clients use the same
// names in all sessions, so those of the request's session come first. In Microsoft's older SDK
// for Java each link has a session of its own. So one of another session is taken if this one has
// none, and only one link has that target.
func (c *client) replyLink(s *amqp.Session, at node, replyTo string) *replies {
	c.mu.Lock()
	defer c.mu.Unlock()
	var byName, only, elsewhere *replies
	found, foundElsewhere := 0, 0
	for _, r := range c.replies {
		if r.node.cbs != at.cbs || !strings.EqualFold(r.node.path, at.path) {
			continue
		}
		if r.session != s {
			if replyTo != "" && r.address == replyTo {
				foundElsewhere++
				elsewhere = r
			}
			continue
		}
		if replyTo != "" && r.address == replyTo {
			return r
		}
		if replyTo != "" && r.link.Name() == replyTo {
			byName = r
		}
		found++
		only = r
	}
	switch {
	case found == 1:
		return only
	case found == 0 && foundElsewhere == 1:
		return elsewhere
	}
	return byName
}

// send sends an answer once the client gives credit.
func (r *replies) send(ctx context.Context, payload []byte) error {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	select {
	case r.sending <- struct{}{}:
		defer func() { <-r.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		credit, drain, err := r.link.WaitCredit(ctx)
		if err != nil {
			return err
		}
		if credit == 0 {
			if drain {
				r.link.Drained()
			}
			continue
		}
		r.sent++
		_, err = r.link.Send(ctx, amqp.Transfer{Tag: numberTag(r.sent), Payload: payload, Settled: true})
		if !errors.Is(err, amqp.ErrNoCredit) {
			return err
		}
	}
}

// numberTag returns a delivery tag for what nobody settles.
func numberTag(n uint64) []byte {
	return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// request is one request of a client to a node.
type request struct {
	*client
	node  node
	props wire.Map // application properties
	value any      // the body
	// session is the AMQP session that it came in.
	session *amqp.Session
	// transaction is the id of the one that it is a step of; nil: none.
	transaction []byte
}

// answer is what a request leads to.
type answer struct {
	status      int32
	description string
	condition   wire.Symbol // "": none
	body        any
	held        *memory.Claim // of the tenant, until the answer is sent; nil: none
}

// reserve reserves memory for an answer of that size. What was reserved before the answer was read
// goes on to it.
func (a *answer) reserve(ctx context.Context, size int) error {
	switch {
	case a.held == nil || size <= freeAnswer:
		return nil
	case a.held.Held() > 0:
		a.held.Shrink(int64(size))
		return nil
	}
	return a.held.Grow(ctx, int64(size))
}

// acceptRequester accepts a link on which requests come. Requests of a connection are carried out
// side by side, and an answer names its request.
func (c *client) acceptRequester(l *amqp.Incoming, at node, statusCode, statusText string, maxBytes int64, carryOut func(context.Context, *request) answer) {
	receive := func(d *amqp.Delivery) {
		w := c.requesting
		if _, within := transactionOf(d.State); within {
			w = c.transacting
		}
		w.do(func() { c.answer(d, at, statusCode, statusText, carryOut) })
	}
	_ = l.Accept(amqp.IncomingOptions{Credit: 100, MaxMessageSize: uint64(maxBytes), Receive: receive})
}

// maxRequestBytes bounds a request. One may schedule several messages.
func (c *client) maxRequestBytes() int64 { return c.messages.Messages.MaxBytes() + 64<<10 }

func (c *client) answer(d *amqp.Delivery, at node, statusCode, statusText string, carryOut func(context.Context, *request) answer) {
	m, err := wire.DecodeMessage(d.Payload)
	if err != nil {
		d.Settle(&wire.Rejected{Error: errBadEncoding.wire()})
		return
	}
	session := d.Link.Session()
	replyTo, id := "", any(nil)
	if m.Properties != nil {
		replyTo, id = wire.ValueOr(m.Properties.ReplyTo, ""), m.Properties.MessageID
		if id == nil {
			id = m.Properties.CorrelationID
		}
	}
	r := c.replyLink(session, at, replyTo)
	if r == nil {
		d.Settle(&wire.Rejected{Error: badArgument("The request names no link of its session for the answer.").wire()})
		return
	}
	outcome := wire.DeliveryState(&wire.Accepted{})
	transaction, within := transactionOf(d.State)
	if within {
		outcome = &wire.TransactionalState{TxnID: transaction, Outcome: outcome}
	}
	ctx, cancel := context.WithTimeout(d.Link.Context(), requestTime)
	defer cancel()
	asked := &request{client: c, node: at, props: m.ApplicationProperties, value: m.Value, session: session, transaction: transaction}
	a := carryOut(ctx, asked)
	defer func() { a.held.Release() }()
	payload, err := a.encode(id, statusCode, statusText)
	if err == nil {
		err = a.reserve(ctx, len(payload))
	}
	if err != nil {
		a.held.Release()
		a = asked.failed(err)
		payload, _ = a.encode(id, statusCode, statusText)
	}
	d.Settle(outcome) // only now: until then the memory of the request is in use
	d.Payload, a.body = nil, nil
	if asked.transaction != nil && a.condition != "" { // a client that does not wait for answers would commit a part
		c.transactions.Break(transaction, fail(a.condition, a.status, "%s", a.description))
	}
	_ = r.send(r.link.Context(), payload) // a client that went away needs no answer
}

// encode returns the message of an answer to the request of that id.
func (a *answer) encode(id any, statusCode, statusText string) ([]byte, error) {
	body := a.body
	if body == nil {
		body = wire.Map{}
	}
	told := wire.Map{{Key: statusCode, Value: a.status}, {Key: statusText, Value: a.description}}
	if a.condition != "" {
		told = append(told, wire.Pair{Key: "errorCondition", Value: a.condition}, wire.Pair{Key: "error-condition", Value: a.condition})
	}
	m := wire.Message{Properties: &wire.Properties{CorrelationID: id}, ApplicationProperties: told, Value: body, HasValue: true}
	return m.Append(nil)
}

// failed is the answer that tells of an error.
func (r *request) failed(err error) answer {
	f := r.failure(err, r.node.path)
	return answer{status: f.status, description: f.text, condition: f.condition}
}

// property returns an application property of a request.
func (r *request) property(name string) any {
	v, _ := r.props.Get(name)
	return v
}
