package bus

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/store"
)

// PutQueue makes a queue of messages, or gives an existing one these settings. They apply to what is
// received from then on; a receiver already waiting keeps those it began with.
func (s *Service) PutQueue(ctx context.Context, tenant, name string, settings forebay.MessageQueueSettings) (q forebay.MessageQueue, created bool, err error) {
	if !forebay.ValidName(name) {
		return q, false, forebay.Invalid("queue", "must be 1 to %d letters, digits, dots, underscores and hyphens, beginning with a letter or digit", forebay.MaxNameBytes)
	}
	lock := cmp.Or(settings.LockSeconds, forebay.DefaultLockDuration.Seconds())
	if !(lock >= forebay.MinLockDuration.Seconds() && lock <= forebay.MaxLockDuration.Seconds()) {
		return q, false, forebay.Invalid("lock_seconds", "goes from %g to %g", forebay.MinLockDuration.Seconds(), forebay.MaxLockDuration.Seconds())
	}
	deliveries := cmp.Or(settings.MaxDeliveryCount, forebay.DefaultMaxDeliveryCount)
	if deliveries < 1 || deliveries > forebay.MaxMaxDeliveryCount {
		return q, false, forebay.Invalid("max_delivery_count", "goes from 1 to %d", forebay.MaxMaxDeliveryCount)
	}
	if s.taken(ctx, tenant, name) {
		return q, false, errJobsQueue
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return q, false, err
	}
	wanted := store.MessageQueue{Tenant: no, Name: storeName(tenant, name), Lock: seconds(lock), MaxDeliveries: deliveries}
	stored, created, err := s.store.PutMessageQueue(ctx, wanted, forebay.MaxMessageQueues)
	s.changed(wanted.Name) // whatever became of it
	if err != nil {
		return q, false, err
	}
	q, err = s.info(ctx, name, stored)
	return q, created, err
}

var errJobsQueue = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "this queue is for jobs, as configured; a queue of messages needs another name"}

// Queue returns a queue and what stands in it.
func (s *Service) Queue(ctx context.Context, tenant, name string) (forebay.MessageQueue, error) {
	q, err := s.queue(ctx, tenant, name)
	if err != nil {
		return forebay.MessageQueue{}, err
	}
	return s.info(ctx, name, q)
}

// Queues returns the tenant's queues by name.
func (s *Service) Queues(ctx context.Context, tenant string) ([]forebay.MessageQueue, error) {
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
		if queues[i], err = s.info(ctx, strings.TrimPrefix(q.Name, storeName(tenant, "")), q); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

func (s *Service) info(ctx context.Context, name string, q store.MessageQueue) (forebay.MessageQueue, error) {
	counts, err := s.store.MessageCounts(ctx, q)
	info := forebay.MessageQueue{
		Name: name, Kind: forebay.KindMessages, Active: counts.Active, Scheduled: counts.Scheduled, Locked: counts.Locked,
		Deferred: counts.Deferred, DeadLetter: counts.DeadLetter,
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, CreatedAt: q.CreatedAt,
	}
	if counts.OldestActive > 0 {
		age := max(0, time.Since(time.UnixMilli(counts.OldestActive)).Seconds())
		info.OldestAgeSeconds = &age
	}
	return info, err
}

// DeleteQueue removes a queue with all its messages. Nobody can use it any more once its first
// transaction is over; the messages go in small ones after that, whether the caller waits or not.
func (s *Service) DeleteQueue(ctx context.Context, tenant, name string) error {
	q, err := s.queue(ctx, tenant, name)
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
		return errNoQueue
	}
	return s.store.PurgeDropped(context.WithoutCancel(ctx))
}
