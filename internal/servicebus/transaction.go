package servicebus

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"github.com/forebayhq/forebay/internal/servicebus/transactions"
)

// What belongs to transactions is carried out one after the other on a connection, in the order in
// which it came. So a discharge comes after all steps before it, also where a client does not wait
// for their answers.

// acceptCoordinator accepts a link on which transactions are declared and discharged (AMQP 1.0,
// 4.2 and 4.3). They are rolled back when it ends. It needs no token, but their steps do.
func (c *client) acceptCoordinator(l *amqp.Incoming) {
	k := c.transactions.Coordinator(l.Context())
	receive := func(d *amqp.Delivery) {
		c.transacting.do(func() { d.Settle(c.coordinate(k, d)) })
	}
	_ = l.Accept(amqp.IncomingOptions{Credit: transactions.MaxOpen, MaxMessageSize: maxFrameSize, Receive: receive}) // fails if the link has ended
}

// coordinate declares or discharges a transaction.
func (c *client) coordinate(k *transactions.Coordinator, d *amqp.Delivery) wire.DeliveryState {
	asked, err := wire.DecodeCoordinated(d.Payload)
	if err != nil {
		return &wire.Rejected{Error: errBadEncoding.wire()}
	}
	switch asked := asked.(type) {
	case *wire.Declare:
		var id []byte
		if asked.GlobalID != nil {
			err = fail(conditionNotImpl, 501, "Distributed transactions are not supported.")
		} else {
			id, err = k.Declare()
		}
		if err == nil {
			return &wire.Declared{TxnID: id}
		}
	case *wire.Discharge:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Link.Context()), storeTime)
		defer cancel()
		if err = k.Discharge(ctx, asked.TxnID, asked.Fail); err == nil {
			return &wire.Accepted{}
		}
	}
	return &wire.Rejected{Error: c.failure(err, "").wire()}
}

// transactionOf returns the id of the transaction that a state belongs to.
func transactionOf(s wire.DeliveryState) (id []byte, ok bool) {
	t, ok := s.(*wire.TransactionalState)
	if !ok {
		return nil, false
	}
	return t.TxnID, true
}

// sendWithin adds a delivery to its transaction. A refusal is no part of the transaction.
func (s *sender) sendWithin(d *amqp.Delivery, id []byte) {
	contents, err := content.FromAMQP(d.Format, d.Payload)
	if err == nil {
		err = s.pace()
	}
	if err != nil {
		s.transactions.Break(id, err)
	} else {
		err = s.transactions.Add(s.grant.acting(s.link.Context()), s.grant.tenant(), id, messaging.Step{Kind: bus.StepSend, Path: s.entity.Path, Messages: contents},
			s.stillAllowed(forebay.ScopeSend, s.entity.Path, s.grant.tenant()), nil)
	}
	if err != nil {
		d.Settle(&wire.Rejected{Error: s.failure(err, s.entity.Path).wire()})
		return
	}
	d.Settle(&wire.TransactionalState{TxnID: id, Outcome: &wire.Accepted{}})
}

// settleWithin adds a settlement to its transaction. A refusal is no part of the transaction: the
// SDK for Java takes any transactional state for the outcome that it asked for.
func (r *receiver) settleWithin(s amqp.Settlement, state *wire.TransactionalState) {
	step, outcome, err := stepOf(state.Outcome)
	if err == nil {
		step.Token, err = tokenOfTag(s.Tag)
	}
	// Until the commit the client may settle the message again, for a rollback leaves it locked.
	// The SDK for Java breaks if the state is of another kind then.
	within := &wire.TransactionalState{TxnID: state.TxnID, Outcome: outcome}
	if err != nil {
		r.transactions.Break(state.TxnID, err)
	} else {
		step.Path = r.entity.Path
		err = r.transactions.Add(r.grant.acting(r.link.Context()), r.grant.tenant(), state.TxnID, step,
			r.stillAllowed(forebay.ScopeListen, r.entity.Path, r.grant.tenant()), func() { r.link.Settle(s.ID, within) })
	}
	switch {
	case s.Settled: // the client wants no answer
		r.transactions.LetGo(r.grant.tenant(), state.TxnID, r.entity.Path, step.Token)
	case err != nil:
		r.link.Settle(s.ID, &wire.Rejected{Error: r.failure(r.lost(err), r.entity.Path).wire()})
	default:
		r.link.Tell(s.ID, within)
	}
}

// stepOf returns how a delivery state settles a message, and the state for the answer. Clients
// compare its kind with what they sent.
func stepOf(state wire.DeliveryState) (step messaging.Step, outcome wire.DeliveryState, err error) {
	switch s := state.(type) {
	case *wire.Accepted:
		step.Kind, outcome = bus.StepComplete, &wire.Accepted{}
	case *wire.Released:
		step.Kind, outcome = bus.StepRelease, &wire.Released{}
	case *wire.Modified:
		step.Kind, outcome = bus.StepAbandon, &wire.Modified{DeliveryFailed: s.DeliveryFailed}
		if s.UndeliverableHere {
			step.Kind, outcome = bus.StepDefer, &wire.Modified{UndeliverableHere: true}
		}
		step.How.Properties, err = propertiesOf(s.MessageAnnotations)
	case *wire.Rejected:
		// Without an error: one would be a failure.
		step.Kind, outcome = bus.StepDeadLetter, &wire.Rejected{}
		step.How, err = deadLettering(s.Error)
	default:
		err = badArgument("The delivery state is none that settles a message.")
	}
	return step, outcome, err
}

// settleAlone settles a message outside of transactions.
func (c *client) settleAlone(ctx context.Context, tenant string, s messaging.Step) error {
	switch m := c.messages.Messages; s.Kind {
	case bus.StepComplete:
		return m.Complete(ctx, tenant, s.Path, s.Token)
	case bus.StepRelease:
		return m.Release(ctx, tenant, s.Path, s.Token)
	case bus.StepDefer:
		return m.Defer(ctx, tenant, s.Path, s.Token, s.How)
	case bus.StepDeadLetter:
		return m.DeadLetter(ctx, tenant, s.Path, s.Token, s.How)
	}
	return c.messages.Messages.Abandon(ctx, tenant, s.Path, s.Token, s.How)
}

// The conditions of AMQP 1.0, 4.5.8.
const (
	conditionUnknownTransaction wire.Symbol = "amqp:transaction:unknown-id"
	conditionRolledBack         wire.Symbol = "amqp:transaction:rollback"
	conditionTransactionTimeout wire.Symbol = "amqp:transaction:timeout"
)

// transactionFailure says why a transaction failed, or returns nil.
func transactionFailure(err error) *failure {
	var back *transactions.RolledBackError
	switch {
	case errors.As(err, &back):
		cause, _ := failureOf(back.Cause, "")
		return fail(conditionRolledBack, 400, "The transaction was rolled back: %s", cause.text)
	case errors.Is(err, transactions.ErrUnknown):
		return fail(conditionUnknownTransaction, 404, "There is no such transaction on this connection: it is unknown, or has ended.")
	case errors.Is(err, transactions.ErrTimeout):
		return fail(conditionTransactionTimeout, 408, "%s", sentence(err.Error()))
	case errors.Is(err, transactions.ErrTooMany):
		return fail(conditionFull, 403, "%s", sentence(err.Error()))
	}
	return nil
}

// add adds a step of the request to its transaction.
func (m *managed) add(ctx context.Context, step messaging.Step) error {
	return m.transactions.Add(ctx, m.tenant, m.transaction, step, m.stillAllowed(m.needs, m.entity.Path, m.tenant), nil)
}

// stillAllowed says at the end of a transaction whether a token allows a step of it.
func (c *client) stillAllowed(right forebay.Scope, path, tenant string) transactions.Allowed {
	return func() error {
		_, err := c.allowed(right, path, tenant)
		return err
	}
}

// errNotInTransaction refuses a request that has no step.
var errNotInTransaction = &forebay.Error{Code: forebay.CodeNotSupported, Message: "the operation cannot be part of a transaction"}
