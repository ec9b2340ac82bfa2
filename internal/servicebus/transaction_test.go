package servicebus

import (
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/servicebus/transactions"
)

// Clients learn by the condition how a transaction has ended (AMQP 1.0, 4.5.8). An outcome that is
// unknown has none of these: a client would take it for a rollback.
func TestConditionsOfTransactions(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Symbol
	}{
		{transactions.ErrTimeout, "amqp:transaction:timeout"},
		{transactions.ErrUnknown, "amqp:transaction:unknown-id"},
		{&transactions.RolledBackError{Cause: forebay.ErrLockLost}, "amqp:transaction:rollback"},
		{&transactions.RolledBackError{Cause: transactions.ErrTimeout}, "amqp:transaction:rollback"},
		{transactions.ErrTooMany, "amqp:resource-limit-exceeded"},
	} {
		if f := transactionFailure(c.err); f == nil || f.condition != c.want {
			t.Errorf("%v: %+v instead of %s", c.err, f, c.want)
		}
	}
	if f := transactionFailure(errors.Join(transactions.ErrInDoubt, errors.New("x"))); f != nil {
		t.Errorf("in doubt: %+v", f)
	}
}
