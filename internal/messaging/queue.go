package messaging

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// Put creates a queue of messages, or changes its settings. New settings apply to what is
// sent and received from then on. A receiver that waits already keeps the old ones.
func (s Queues) Put(ctx context.Context, tenant, name string, settings forebay.MessageQueueSettings) (q forebay.MessageQueue, created bool, err error) {
	stored, created, err := s.put(ctx, tenant, name, settings, putting{})
	if err != nil {
		return q, false, err
	}
	q, err = s.describe(ctx, name, stored, entity.CountLimit)
	return q, created, err
}

func (s Queues) put(ctx context.Context, tenant, name string, settings forebay.MessageQueueSettings, opts putting) (q bus.MessageQueue, created bool, err error) {
	if err := entity.CheckName("queue", name); err != nil {
		return q, false, err
	}
	if s.taken(ctx, tenant, name) {
		return q, false, errJobsQueue
	}
	wanted, keep, err := s.wanted(ctx, tenant, bus.MessageQueue{Name: entity.StoredName(tenant, name)}, settings, opts)
	if err != nil {
		return q, false, err
	}
	done, err := s.takeNew(ctx, tenant, wanted.Name, want{forebay.LimitMessageQueues, 1})
	if err != nil {
		return q, false, err
	}
	defer done()
	q, created, err = s.store.Entities().Put(ctx, wanted, opts.options(ctx, forebay.MaxMessageQueues, keep))
	s.changed(wanted.Name) // even if it failed
	return q, created, err
}

// wanted gives an entity, of which the name and the kind are set, the settings that are asked for.
// keep says what it keeps if it exists.
func (s *entities) wanted(ctx context.Context, tenant string, q bus.MessageQueue, settings forebay.MessageQueueSettings, opts putting) (_ bus.MessageQueue, keep entity.Keep, err error) {
	key := q.Name
	if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
		return q, keep, err
	}
	if opts.attributes != nil {
		q.Attributes = *opts.attributes
	}
	if keep, err = entity.ApplyChange(settings.EntityChange, &q); err != nil {
		return q, keep, err
	}
	if settings.RequiresSession == nil || settings.DetectsDuplicates == nil {
		before, _, err := s.store.MessageQueue(ctx, key)
		if err != nil {
			return q, keep, err
		}
		q.RequiresSession, q.DuplicateWindow = before.RequiresSession, before.DuplicateWindow
	}
	err = entity.Apply(settings, tenant, &q)
	return q, keep, err
}

var errJobsQueue = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "this queue is for jobs, as configured; a queue of messages needs another name"}

// Get returns a queue with counts of its messages.
func (s Queues) Get(ctx context.Context, tenant, name string) (forebay.MessageQueue, error) {
	q, err := s.queueNow(ctx, tenant, name)
	if err != nil {
		return forebay.MessageQueue{}, err
	}
	return s.describe(ctx, name, q, entity.CountLimit)
}

// List returns the tenant's queues by name.
func (s Queues) List(ctx context.Context, tenant string) ([]forebay.MessageQueue, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.MessageQueues(ctx, no)
	if err != nil {
		return nil, err
	}
	queues := make([]forebay.MessageQueue, len(stored))
	for i, q := range stored {
		if queues[i], err = s.describe(ctx, strings.TrimPrefix(q.Name, entity.StoredName(tenant, "")), q, entity.CountLimitOf(len(stored))); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// describe returns a queue with counts of its messages, up to limit of each kind.
func (s *entities) describe(ctx context.Context, name string, q bus.MessageQueue, limit int64) (forebay.MessageQueue, error) {
	counts, err := s.store.MessageCounts(ctx, q, limit)
	info := forebay.MessageQueue{
		Name: name, Kind: forebay.KindMessages, Active: counts.Active, Scheduled: counts.Scheduled, Locked: counts.Locked,
		Deferred: counts.Deferred, DeadLetter: counts.DeadLetter,
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DefaultTTLSeconds: secondsOrNil(q.DefaultTTL),
		DeadLetterOnExpiration: q.DeadLetterExpired, DetectsDuplicates: q.DuplicateWindow > 0, DuplicateWindowSeconds: secondsOrNil(q.DuplicateWindow), RequiresSession: q.RequiresSession,
		ForwardTo: entity.NameOf(q.ForwardTo), ForwardDeadLettersTo: entity.NameOf(q.ForwardDeadLettersTo), AutoDeleteOnIdleSeconds: secondsOrNil(q.Idle),
		CountsCapped: counts.Capped, MaxMessageBytes: q.MaxMessage, EntityState: stateOf(q, counts.Size),
	}
	if counts.OldestActive > 0 {
		age := max(0, s.store.Now().Sub(time.UnixMilli(counts.OldestActive)).Seconds())
		info.OldestAgeSeconds = &age
	}
	return info, err
}

// Delete removes a queue with all its messages. Nobody can use it once the first transaction
// is committed. Its messages go in small transactions after that, whether the caller waits or
// not.
func (s Queues) Delete(ctx context.Context, tenant, name string) error {
	q, err := s.queueNow(ctx, tenant, name)
	if err != nil {
		if s.taken(ctx, tenant, name) {
			return errJobsQueue
		}
		return err
	}
	dropped, err := s.store.DropMessageQueue(ctx, q)
	s.changed(q.Name)
	if err != nil {
		return err
	}
	if !dropped {
		return entity.ErrNoQueue
	}
	return s.store.PurgeDropped(context.WithoutCancel(ctx))
}
