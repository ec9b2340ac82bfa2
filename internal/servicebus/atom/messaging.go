package atom

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/messaging"
)

// Messaging returns the entities of a service of plain messages.
func Messaging(s *messaging.Service) Entities { return entities{s} }

type entities struct{ *messaging.Service }

var kinds = map[messaging.ManagedKind]Kind{messaging.ManagedQueue: Queue, messaging.ManagedTopic: Topic, messaging.ManagedSubscription: Subscription}

func kindOf(k Kind) messaging.ManagedKind {
	return [...]messaging.ManagedKind{messaging.ManagedQueue, messaging.ManagedTopic, messaging.ManagedSubscription}[k]
}

func (s entities) Find(ctx context.Context, tenant, path string) (Entity, error) {
	e, err := s.Management.Get(ctx, tenant, path)
	if err != nil {
		return Entity{}, err
	}
	return s.counted(ctx, e, 1)
}

func (s entities) List(ctx context.Context, tenant string, kind Kind, topic string, skip, limit int) ([]Entity, error) {
	var list []Entity
	for limit > 0 {
		size := min(limit, messaging.MaxManagedPage)
		page, err := s.page(ctx, tenant, kind, topic, skip, size)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			counted, err := s.counted(ctx, e, chunk)
			if err != nil {
				return nil, err
			}
			list = append(list, counted)
		}
		if skip, limit = skip+size, limit-size; len(page) < size {
			break
		}
	}
	return list, nil
}

func (s entities) page(ctx context.Context, tenant string, kind Kind, topic string, skip, limit int) ([]messaging.ManagedEntity, error) {
	switch kind {
	case Queue:
		return s.Management.Queues(ctx, tenant, skip, limit)
	case Topic:
		return s.Management.Topics(ctx, tenant, skip, limit)
	}
	return s.Management.Subscriptions(ctx, tenant, topic, skip, limit)
}

// counted completes an entity, which is one of so many, with its counts.
func (s entities) counted(ctx context.Context, m messaging.ManagedEntity, listed int) (Entity, error) {
	counts, err := s.Management.CountsOf(ctx, m, listed)
	q := m.Settings
	e := Entity{Kind: kinds[m.Kind], Attributes: q.Attributes, Subscriptions: counts.Subscriptions,
		SQLFilters: counts.SQLFilters, CorrelationFilters: counts.CorrelationFilters}
	e.Topic, e.DeadLetterOnFilterError = m.Topic, q.DeadLetterFilterErrors
	e.MessageQueue = forebay.MessageQueue{
		Name: m.Name(), Active: counts.Active, Scheduled: counts.Scheduled, Deferred: counts.Deferred, DeadLetter: counts.DeadLetter,
		LockSeconds: q.Lock.Seconds(), MaxDeliveryCount: q.MaxDeliveries, DeadLetterOnExpiration: q.DeadLetterExpired, RequiresSession: q.RequiresSession,
		DetectsDuplicates: q.DuplicateWindow > 0, ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, MaxMessageBytes: q.MaxMessage,
		EntityState: forebay.EntityState{Status: q.Status, UserMetadata: q.UserMetadata, SizeBytes: counts.SizeBytes, CreatedAt: q.CreatedAt, UpdatedAt: q.UpdatedAt},
	}
	if !q.AccessedAt.IsZero() {
		e.AccessedAt = &q.AccessedAt
	}
	if q.DefaultTTL > 0 {
		e.DefaultTTLSeconds = new(q.DefaultTTL.Seconds())
	}
	if q.DuplicateWindow > 0 {
		e.DuplicateWindowSeconds = new(q.DuplicateWindow.Seconds())
	}
	if q.Idle > 0 {
		e.AutoDeleteOnIdleSeconds = new(q.Idle.Seconds())
	}
	return e, err
}

func modeOf(update bool) entity.PutMode {
	if update {
		return entity.PutExisting
	}
	return entity.PutNew
}

// taken translates the errors that say that a name is taken.
func taken(err error) error {
	if errors.Is(err, entity.ErrExists) && isName(err) {
		return ErrExists
	}
	return err
}

func isName(err error) bool {
	var e *forebay.Error
	return errors.As(err, &e) && e.Field == entity.ErrExists.Field
}

func (s entities) Put(ctx context.Context, tenant string, c Change) (Entity, error) {
	stored, _, err := s.Management.Put(ctx, tenant, messaging.ManagedPut{
		Kind: kindOf(c.Kind), Path: c.Path(), Mode: modeOf(c.Update), Settings: c.Settings, Attributes: c.Attributes,
	})
	if err != nil {
		return Entity{}, taken(err)
	}
	return s.counted(ctx, stored, 1)
}

func (s entities) Delete(ctx context.Context, tenant string, name Name) error {
	return s.Management.Delete(ctx, tenant, name.Path())
}

func (s entities) Rules(ctx context.Context, tenant string, subscription Name) ([]forebay.Rule, error) {
	return s.Service.Rules.List(ctx, tenant, subscription.Topic, subscription.Name)
}

func (s entities) PutRule(ctx context.Context, tenant string, subscription Name, rule forebay.NewRule, update bool) (forebay.Rule, error) {
	stored, err := s.Management.PutRule(ctx, tenant, subscription.Topic, subscription.Name, rule, modeOf(update))
	return stored, taken(err)
}

func (s entities) DeleteRule(ctx context.Context, tenant string, subscription Name, rule string) error {
	return s.Service.Rules.Delete(ctx, tenant, subscription.Topic, subscription.Name, rule)
}
