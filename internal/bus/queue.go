package bus

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
)

// Put creates a queue of messages, or changes its settings. New settings apply to what is
// sent and received from then on. A receiver that waits already keeps the old ones.
func (s Queues) Put(ctx context.Context, tenant, name string, settings forebay.MessageQueueSettings) (q forebay.MessageQueue, created bool, err error) {
	if err := checkEntity("queue", name); err != nil {
		return q, false, err
	}
	if s.taken(ctx, tenant, name) {
		return q, false, errJobsQueue
	}
	wanted, err := s.wanted(ctx, tenant, storeName(tenant, name), settings)
	if err != nil {
		return q, false, err
	}
	done, err := s.takeNew(ctx, tenant, wanted.Name, want{forebay.LimitMessageQueues, 1})
	if err != nil {
		return q, false, err
	}
	defer done()
	stored, created, err := s.store.PutMessageQueue(ctx, wanted, forebay.MaxMessageQueues)
	s.changed(wanted.Name) // even if it failed
	if err != nil {
		return q, false, err
	}
	q, err = s.describe(ctx, name, stored, CountLimit)
	return q, created, err
}

// wanted returns the queue with the settings that are asked for.
func (s *entities) wanted(ctx context.Context, tenant, key string, settings forebay.MessageQueueSettings) (q MessageQueue, err error) {
	q.Name = key
	if q.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
		return q, err
	}
	if settings.RequiresSession == nil || settings.DetectsDuplicates == nil {
		before, _, err := s.store.MessageQueue(ctx, key)
		if err != nil {
			return q, err
		}
		q.RequiresSession, q.DuplicateWindow = before.RequiresSession, before.DuplicateWindow
	}
	return q, apply(settings, tenant, &q)
}

// apply checks settings and sets them, with their defaults, on the queue.
func apply(settings forebay.MessageQueueSettings, tenant string, q *MessageQueue) (err error) {
	detects := q.DuplicateWindow > 0
	if settings.DetectsDuplicates != nil {
		detects = *settings.DetectsDuplicates
	}
	window := time.Duration(0)
	if detects {
		window = forebay.DefaultDuplicateWindow
	} else if settings.DuplicateWindowSeconds != 0 {
		return forebay.Invalid("duplicate_detection_window_seconds", "needs requires_duplicate_detection")
	}
	for _, d := range []struct {
		field     string
		given     float64
		byDefault time.Duration
		min, max  time.Duration
		set       *time.Duration
	}{
		{"lock_seconds", settings.LockSeconds, forebay.DefaultLockDuration, forebay.MinLockDuration, forebay.MaxLockDuration, &q.Lock},
		{"default_message_ttl_seconds", settings.DefaultTTLSeconds, 0, time.Millisecond, forebay.MaxTimeToLive, &q.DefaultTTL},
		{"duplicate_detection_window_seconds", settings.DuplicateWindowSeconds, window, forebay.MinDuplicateWindow, forebay.MaxDuplicateWindow, &q.DuplicateWindow},
		{"auto_delete_on_idle_seconds", settings.AutoDeleteOnIdleSeconds, 0, forebay.MinAutoDelete, forebay.MaxTimeToLive, &q.Idle},
	} {
		if *d.set = d.byDefault; d.given == 0 {
			continue
		}
		if !(d.given >= d.min.Seconds() && d.given <= d.max.Seconds()) {
			return forebay.Invalid(d.field, "goes from %g to %g", d.min.Seconds(), d.max.Seconds())
		}
		*d.set = message.Seconds(d.given)
	}
	q.MaxDeliveries = cmp.Or(settings.MaxDeliveryCount, forebay.DefaultMaxDeliveryCount)
	if q.MaxDeliveries < 1 || q.MaxDeliveries > forebay.MaxMaxDeliveryCount {
		return forebay.Invalid("max_delivery_count", "goes from 1 to %d", forebay.MaxMaxDeliveryCount)
	}
	if settings.RequiresSession != nil {
		q.RequiresSession = *settings.RequiresSession
	}
	q.DeadLetterExpired = settings.DeadLetterOnExpiration
	if q.ForwardTo, err = target("forward_to", settings.ForwardTo, tenant, q); err != nil {
		return err
	}
	q.ForwardDeadLettersTo, err = target("forward_dead_lettered_messages_to", settings.ForwardDeadLettersTo, tenant, q)
	return err
}

// target returns the stored name of a queue to forward to.
func target(field, name, tenant string, from *MessageQueue) (string, error) {
	switch {
	case name == "":
		return "", nil
	case !forebay.ValidEntityName(name):
		return "", forebay.Invalid(field, "is not the name of a queue")
	case OnlyForebayPublishes(storeName(tenant, name)):
		return "", forebay.Invalid(field, "cannot be %s: only Forebay publishes to that topic", name)
	case from.RequiresSession:
		return "", forebay.Invalid(field, "a queue that requires sessions cannot forward")
	}
	return storeName(tenant, name), nil
}

var errJobsQueue = &forebay.Error{Code: forebay.CodeConflict, Field: "queue", Message: "this queue is for jobs, as configured; a queue of messages needs another name"}

// Get returns a queue with counts of its messages.
func (s Queues) Get(ctx context.Context, tenant, name string) (forebay.MessageQueue, error) {
	q, err := s.queue(ctx, tenant, name)
	if err != nil {
		return forebay.MessageQueue{}, err
	}
	return s.describe(ctx, name, q, CountLimit)
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
		if queues[i], err = s.describe(ctx, strings.TrimPrefix(q.Name, storeName(tenant, "")), q, CountLimitOf(len(stored))); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// describe returns a queue with counts of its messages, up to limit of each kind.
func (s *entities) describe(ctx context.Context, name string, q MessageQueue, limit int64) (forebay.MessageQueue, error) {
	counts, err := s.store.MessageCounts(ctx, q, limit)
	info := forebay.MessageQueue{
		Name: name, Kind: forebay.KindMessages, Active: counts.Active, Scheduled: counts.Scheduled, Locked: counts.Locked,
		Deferred: counts.Deferred, DeadLetter: counts.DeadLetter,
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DefaultTTLSeconds: secondsOrNil(q.DefaultTTL),
		DeadLetterOnExpiration: q.DeadLetterExpired, DetectsDuplicates: q.DuplicateWindow > 0, DuplicateWindowSeconds: secondsOrNil(q.DuplicateWindow), RequiresSession: q.RequiresSession,
		ForwardTo: nameOf(q.ForwardTo), ForwardDeadLettersTo: nameOf(q.ForwardDeadLettersTo), AutoDeleteOnIdleSeconds: secondsOrNil(q.Idle),
		CountsCapped: counts.Capped, CreatedAt: q.CreatedAt,
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
		return ErrNoQueue
	}
	return s.store.PurgeDropped(context.WithoutCancel(ctx))
}
