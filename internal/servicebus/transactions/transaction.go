package transactions

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
)

// transaction is one that was declared and is not discharged yet.
type transaction struct {
	coordinator *Coordinator
	service     *Service

	// adding is held while a step is added, so that a discharge comes after the steps before it.
	adding sync.Mutex

	mu     sync.Mutex
	tenant string // of its steps; "": it has none
	steps  []messaging.Step
	calls  []calls // one of each step
	weight int
	bytes  int64
	letGo  []lock
	broken error // why no step can be added and nothing committed; nil: they can
	timer  *time.Timer
	claim  *memory.Claim
}

// calls are what is called for a step: before the commit, and after it unless that is nil.
type calls struct {
	allowed   Allowed
	committed func()
}

// lock is that of a message which its client cannot settle any more.
type lock struct{ path, token string }

// release abandons the messages that the client has let go of.
func (t *transaction) release(ctx context.Context) {
	t.mu.Lock()
	locks, tenant := t.letGo, t.tenant
	t.letGo = nil
	t.mu.Unlock()
	if len(locks) == 0 {
		return
	}
	steps := make([]messaging.Step, len(locks))
	for i, l := range locks {
		steps[i] = messaging.Step{Kind: bus.StepAbandon, Path: l.path, Token: l.token}
	}
	messages := t.service.messages
	_, err := messages.Commit(ctx, tenant, steps)
	if err == nil || isInDoubt(err) { // then they stay locked for their time
		return
	}
	for i := range steps { // one is locked no more
		_, _ = messages.Commit(ctx, tenant, steps[i:i+1])
	}
}

// begin starts the time of the transaction with its first step, and reserves room for the step.
func (t *transaction) begin(tenant string, step *messaging.Step) (claim *memory.Claim, size int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return nil, 0, t.broken
	}
	if t.tenant == "" {
		t.tenant = tenant
		t.claim = t.service.memory.Claim(tenant)
		t.timer = time.AfterFunc(Lifetime, func() { t.end(ErrTimeout) })
	}
	if t.tenant != tenant { // it must not break the transaction of another
		return nil, 0, ErrUnknown
	}
	weight, bytes := step.Weight()
	if err := bus.CheckCommit(t.weight+weight, t.bytes+bytes); err != nil {
		return nil, 0, err
	}
	t.weight, t.bytes = t.weight+weight, t.bytes+bytes
	return t.claim, bytes + int64(weight)*stepBytes, nil
}

// add adds a step. schedules has it take sequence numbers for the step's messages.
func (t *transaction) add(ctx context.Context, tenant string, step *messaging.Step, c calls, schedules bool) error {
	t.adding.Lock()
	defer t.adding.Unlock()
	claim, size, err := t.begin(tenant, step)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrTimeout) {
		return err
	}
	messages := t.service.messages
	if err == nil {
		err = messages.Check(ctx, tenant, *step)
	}
	if err == nil && schedules {
		step.Numbers, err = messages.TakeNumbers(ctx, tenant, step.Path, len(step.Messages))
	}
	if err == nil {
		err = claim.Grow(ctx, size)
	}
	if err != nil {
		t.end(&RolledBackError{err})
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil { // meanwhile, and its memory was given back
		claim.Release()
		return t.broken
	}
	t.steps, t.calls = append(t.steps, *step), append(t.calls, c)
	return nil
}

// end drops the steps. From then on the transaction answers with that error, if it has not ended
// before.
func (t *transaction) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = why
	}
	t.steps, t.calls = nil, nil
	if t.timer != nil {
		t.timer.Stop()
		t.claim.Release()
	}
}

// commit commits the steps. Their memory is given back at its end.
func (t *transaction) commit(ctx context.Context) error {
	t.adding.Lock()
	defer t.adding.Unlock()
	t.mu.Lock()
	steps, calls, tenant, broken := t.steps, t.calls, t.tenant, t.broken
	if broken == nil {
		t.broken = ErrUnknown // it can no longer time out
		if t.timer != nil {
			t.timer.Stop() // the steps are held until it is committed
		}
	}
	t.mu.Unlock()
	defer t.end(ErrUnknown)
	if broken != nil || len(steps) == 0 {
		return broken
	}
	for _, c := range calls {
		if err := c.allowed(); err != nil {
			return &RolledBackError{err}
		}
	}
	_, err := t.service.messages.Commit(ctx, tenant, steps)
	switch {
	case err == nil:
		for _, c := range calls {
			if c.committed != nil {
				c.committed()
			}
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isInDoubt(err):
		return errors.Join(ErrInDoubt, err)
	}
	return &RolledBackError{err}
}

// isInDoubt reports that the database failed.
func isInDoubt(err error) bool {
	code := forebay.CodeOf(err)
	return code == forebay.CodeUnavailable || code == forebay.CodeInternal
}
