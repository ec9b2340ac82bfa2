package servicebus

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
)

// operationPrefix begins the names of the operations of management nodes.
const operationPrefix = "com.microsoft:"

// operation is one operation of a management node. Its result is the body of the answer; nil says
// that there is nothing, which has a status of its own.
type operation struct {
	needs    forebay.Scope
	carryOut func(context.Context, *managed) (wire.Map, error)
	looks    bool // it changes nothing, so it may be refused when its answer is known
	// within says what a transaction means to it.
	within membership
}

// membership is what an operation has to do with the transaction that its request names. The SDK
// for .NET names that of its scope in all requests but those that peek.
type membership int

const (
	besideTransaction membership = iota // it is carried out at once, whatever becomes of that
	inTransaction                       // it is a step
	notInTransaction                    // it is refused, as it cannot wait for the end
)

// operations are those of an entity's management node, by name without the prefix.
var operations = map[string]operation{
	"renew-lock":                 {forebay.ScopeListen, renewLocks, false, besideTransaction},
	"renew-session-lock":         {forebay.ScopeListen, renewSession, false, besideTransaction},
	"peek-message":               {forebay.ScopeListen, peek, true, besideTransaction},
	"receive-by-sequence-number": {forebay.ScopeListen, receiveDeferred, false, inTransaction},
	"update-disposition":         {forebay.ScopeListen, updateDisposition, false, inTransaction},
	"schedule-message":           {forebay.ScopeSend, schedule, false, inTransaction},
	"cancel-scheduled-message":   {forebay.ScopeSend, cancelScheduled, false, inTransaction},
	"get-session-state":          {forebay.ScopeListen, sessionState, true, besideTransaction},
	"set-session-state":          {forebay.ScopeListen, setSessionState, false, inTransaction},
	"get-message-sessions":       {forebay.ScopeListen, listSessions, true, besideTransaction},
	"enumerate-rules":            {forebay.ScopeManage, listRules, true, besideTransaction},
	"add-rule":                   {forebay.ScopeManage, addRule, false, notInTransaction},
	"remove-rule":                {forebay.ScopeManage, removeRule, false, notInTransaction},
	"batch-delete-messages":      {forebay.ScopeListen, deleteMessages, false, notInTransaction},
}

// managed is a request to the management node of an entity.
type managed struct {
	*request
	tenant string
	needs  forebay.Scope
	entity messaging.Entity
	body   wire.Map
}

// acceptRequests accepts a link on which requests to a management node come.
func (c *client) acceptRequests(l *amqp.Incoming, at node) {
	g, err := c.awaitGrant(l.Context(), rightAny, at.path)
	if err == nil {
		path, _ := at.entity()
		_, err = c.messages.Raw.Current(l.Context(), g.tenant(), path)
	}
	if err != nil {
		l.Refuse(c.failure(err, at.path).wire())
		return
	}
	c.acceptRequester(l, at, "statusCode", "statusDescription", c.maxRequestBytes(), manage)
}

// manage carries out a request to a management node.
func manage(ctx context.Context, r *request) (a answer) {
	name, _ := textOf(r.property("operation"))
	name = strings.TrimPrefix(name, operationPrefix)
	op, known := operations[name]
	if !known {
		return r.failed(fail(conditionNotImpl, 501, "There is no operation of that name."))
	}
	if op.within == besideTransaction {
		r.transaction = nil
	}
	g, err := r.grantFor(op.needs, r.node.path)
	if err != nil {
		return r.failed(err)
	}
	if err := r.limits.Request(ctx, g.tenant(), g.Caller.KeyID); err != nil {
		return r.failed(err)
	}
	ctx = g.acting(ctx)
	if r.transaction != nil && op.within == notInTransaction {
		return r.failed(errNotInTransaction)
	}
	m := &managed{request: r, tenant: g.tenant(), needs: op.needs}
	path, transfer := r.node.entity()
	if m.entity, err = r.messages.Raw.Entity(ctx, m.tenant, path); err != nil {
		return r.failed(err)
	}
	if transfer {
		if name == "peek-message" {
			return answeredNone
		}
		return r.failed(forebay.Errorf(forebay.CodeNotFound, "the transfer dead-letter subqueue is always empty"))
	}
	m.body, _ = r.value.(wire.Map)
	claim := r.sent.Claim(m.tenant) // of what is read for the answer, and of the answer
	defer func() {
		if a.held == nil {
			claim.Release()
		}
	}()
	body, err := op.carryOut(memory.With(ctx, claim), m)
	switch {
	case err != nil:
		r.log.Debug("refused an operation of a Service Bus client", slog.String("operation", name), slog.Any("error", err))
		return r.failed(err)
	case body == nil:
		return answeredNone
	}
	a = answer{status: 200, description: "OK", body: body}
	if op.looks || claim.Held() > 0 {
		a.held = claim
	}
	return a
}

// answeredNone says that there is nothing of what was asked for.
var answeredNone = answer{status: 204, description: "No content."}

// Fields of bodies. Clients write lists or arrays, and integers of any width.

func (m *managed) field(name string) any {
	v, _ := m.body.Get(name)
	return v
}

func (m *managed) text(name string) string {
	s, _ := textOf(m.field(name))
	return s
}

// integer returns a field of at most that value, or absent if it is missing.
func (m *managed) integer(name string, absent, most int64) (int64, error) {
	v := m.field(name)
	if v == nil {
		return absent, nil
	}
	n, ok := integer(v)
	if !ok || n < 0 || n > most {
		return 0, badArgument("The field %s must be an integer from 0 to %d.", name, most)
	}
	return n, nil
}

func (m *managed) time(name string) (time.Time, error) {
	t, ok := m.field(name).(time.Time)
	if !ok {
		return t, badArgument("The field %s must be a timestamp.", name)
	}
	return t, nil
}

// list returns the elements of a field.
func (m *managed) list(name string, most int) ([]any, error) {
	elements, ok := elementsOf(m.field(name))
	if !ok || len(elements) == 0 || len(elements) > most {
		return nil, badArgument("The field %s must hold 1 to %d elements.", name, most)
	}
	return elements, nil
}

// numbers returns sequence numbers.
func (m *managed) numbers(most int) ([]int64, error) {
	const field = "sequence-numbers"
	elements, err := m.list(field, most)
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, len(elements))
	for i, e := range elements {
		n, ok := integer(e)
		if !ok {
			return nil, badArgument("The field %s must hold integers.", field)
		}
		numbers[i] = n
	}
	return numbers, nil
}

func elementsOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case wire.List:
		return v, true
	case wire.Array:
		return v, true
	}
	return nil, false
}

// integer returns an integer of any width.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint64:
		return int64(min(v, math.MaxInt64)), true
	case uint32:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint8:
		return int64(v), true
	}
	return 0, false
}
