package messaging

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// Management is queues, topics and subscriptions as Service Bus's management protocol has them.
// Paths match in any case; an exact name comes before others. Attributes are kept for clients
// of that protocol, and Forebay does nothing by them. So the HTTP API does not show them.
type Management struct{ *entities }

// ManagedKind is the kind of a managed entity.
type ManagedKind string

// The kinds of entities.
const (
	ManagedQueue        ManagedKind = "queue"
	ManagedTopic        ManagedKind = "topic"
	ManagedSubscription ManagedKind = "subscription"
)

// ManagedEntity is a queue, a topic or a subscription with its settings.
type ManagedEntity struct {
	Kind  ManagedKind
	Path  string // exact; of a subscription "<topic>/subscriptions/<name>"
	Topic string // of a subscription: its topic
	// Settings has names as the tenant knows them.
	Settings bus.MessageQueue
}

// Name is the name of a queue or a topic, or of a subscription within its topic.
func (e ManagedEntity) Name() string {
	if e.Kind == ManagedSubscription {
		return entity.SubscriptionOf(e.Path)
	}
	return e.Path
}

func managed(q bus.MessageQueue) ManagedEntity {
	e := ManagedEntity{Kind: ManagedQueue, Path: entity.NameOf(q.Name), Settings: q}
	switch {
	case q.IsTopic:
		e.Kind = ManagedTopic
	case q.Topic != 0:
		e.Kind = ManagedSubscription
		e.Topic, _, _ = forebay.CutEntityPath(e.Path)
	}
	s := &e.Settings
	s.Name, s.ForwardTo, s.ForwardDeadLettersTo = e.Path, entity.NameOf(s.ForwardTo), entity.NameOf(s.ForwardDeadLettersTo)
	return e
}

// find returns an entity by its path in any case.
func (s Management) find(ctx context.Context, tenant, path string) (q bus.MessageQueue, err error) {
	name, subscription, subqueue := forebay.CutEntityPath(path)
	missing := entity.ErrNoQueue
	if subscription != "" {
		missing = entity.ErrNoSubscription
		name = forebay.SubscriptionPath(name, subscription)
	}
	if subqueue != "" || !entity.ValidName(name) {
		return q, missing
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return q, err
	}
	q, found, err := s.store.Entities().Folded(ctx, no, entity.StoredName(tenant, name))
	if err == nil && !found {
		err = missing
	}
	return q, err
}

// Get returns an entity by its path. It returns entity.ErrNoQueue or entity.ErrNoSubscription
// if there is none, also for a topic.
func (s Management) Get(ctx context.Context, tenant, path string) (ManagedEntity, error) {
	q, err := s.find(ctx, tenant, path)
	return managed(q), err
}

// MaxManagedPage is how many entities a page may have.
const MaxManagedPage = 100

// Queues returns up to limit queues by name, after leaving out the first skip.
func (s Management) Queues(ctx context.Context, tenant string, skip, limit int) ([]ManagedEntity, error) {
	return s.list(ctx, tenant, false, skip, limit)
}

// Topics does the same for topics.
func (s Management) Topics(ctx context.Context, tenant string, skip, limit int) ([]ManagedEntity, error) {
	return s.list(ctx, tenant, true, skip, limit)
}

func (s Management) list(ctx context.Context, tenant string, topics bool, skip, limit int) ([]ManagedEntity, error) {
	if err := checkPage(skip, limit); err != nil {
		return nil, err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	page, err := s.store.Entities().Page(ctx, no, topics, skip, limit)
	return allManaged(page), err
}

// Subscriptions does the same for the subscriptions of a topic. It returns entity.ErrNoTopic if
// there is no such topic.
func (s Management) Subscriptions(ctx context.Context, tenant, topic string, skip, limit int) ([]ManagedEntity, error) {
	if err := checkPage(skip, limit); err != nil {
		return nil, err
	}
	t, err := s.findTopic(ctx, tenant, topic)
	if err != nil {
		return nil, err
	}
	page, err := s.store.Entities().SubscriptionPage(ctx, t, skip, limit)
	return allManaged(page), err
}

func (s Management) findTopic(ctx context.Context, tenant, topic string) (bus.MessageQueue, error) {
	t, err := s.find(ctx, tenant, topic)
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue || err == nil && !t.IsTopic {
		err = entity.ErrNoTopic
	}
	return t, err
}

func checkPage(skip, limit int) error {
	if skip < 0 || limit < 1 || limit > MaxManagedPage {
		return forebay.Invalid("limit", "goes from 1 to %d, and what is skipped must not be negative", MaxManagedPage)
	}
	return nil
}

func allManaged(page []bus.MessageQueue) []ManagedEntity {
	list := make([]ManagedEntity, len(page))
	for i, q := range page {
		list[i] = managed(q)
	}
	return list
}

// EntityCounts counts what an entity holds. What is forwarded is never under way between two
// entities, so the transfer counts of Service Bus are 0. What waits to be forwarded is active.
type EntityCounts struct {
	Active        int64 // locked ones too
	Scheduled     int64
	Deferred      int64
	DeadLetter    int64
	Subscriptions int64 // of a topic
	SizeBytes     int64 // of the messages that were counted
	AtLeast       bool  // a count stopped at its limit: there are at least so many messages and bytes

	// Filters of all subscriptions of a topic.
	SQLFilters, CorrelationFilters int64
}

// Counts counts what an entity holds, by its path.
func (s Management) Counts(ctx context.Context, tenant, path string) (EntityCounts, error) {
	e, err := s.Get(ctx, tenant, path)
	if err != nil {
		return EntityCounts{}, err
	}
	return s.CountsOf(ctx, e, 1)
}

// CountsOf counts what an entity holds, which is one of so many of a list.
func (s Management) CountsOf(ctx context.Context, e ManagedEntity, listed int) (EntityCounts, error) {
	q, limit := e.Settings, entity.CountLimitOf(listed)
	if q.IsTopic {
		c, err := s.store.Entities().TopicCounts(ctx, q, limit)
		if err != nil {
			return EntityCounts{}, err
		}
		sql, correlation, err := s.store.Entities().TopicFilters(ctx, q, limit)
		return EntityCounts{Scheduled: c.Scheduled, Subscriptions: c.Subscriptions, SizeBytes: c.Size, SQLFilters: sql, CorrelationFilters: correlation, AtLeast: c.Scheduled >= limit}, err
	}
	c, err := s.store.MessageCounts(ctx, q, limit)
	return EntityCounts{Active: c.Active + c.Locked, Scheduled: c.Scheduled, Deferred: c.Deferred, DeadLetter: c.DeadLetter, SizeBytes: c.Size, AtLeast: c.Capped}, err
}

// ManagedPut creates or changes an entity.
type ManagedPut struct {
	Kind ManagedKind
	Path string
	Mode entity.PutMode
	// Settings are those of any kind. DeadLetterOnFilterError and Rules are for subscriptions.
	// A status or metadata that is left out stays what it is.
	Settings   forebay.SubscriptionSettings
	Attributes string // a JSON object of at most forebay.MaxEntityAttributes bytes; "": none
}

// Put creates or changes an entity in one transaction. It returns entity.ErrExists for an entity
// that was to be created and exists. For one that was to be changed and does not exist it returns
// entity.ErrNoQueue, entity.ErrNoTopic or entity.ErrNoSubscription. For a setting that cannot
// change it returns a forebay.CodeConflict with the Field requires_session or
// requires_duplicate_detection. An entity that exists keeps its name as it was first written.
func (s Management) Put(ctx context.Context, tenant string, put ManagedPut) (e ManagedEntity, created bool, err error) {
	if err := entity.CheckAttributes(put.Attributes); err != nil {
		return e, false, err
	}
	opts := putting{mode: put.Mode, attributes: &put.Attributes}
	name, subscription, subqueue := forebay.CutEntityPath(put.Path)
	if subqueue != "" || (subscription != "") != (put.Kind == ManagedSubscription) {
		return e, false, forebay.Invalid("path", "is not that of a %s", put.Kind)
	}
	known, err := s.find(ctx, tenant, put.Path)
	switch code := forebay.CodeOf(err); {
	case err == nil && put.Mode != entity.PutNew:
		name, subscription, _ = forebay.CutEntityPath(entity.NameOf(known.Name))
	case err != nil && code != forebay.CodeUnknownQueue && code != forebay.CodeNotFound:
		return e, false, err
	}
	var stored bus.MessageQueue
	switch put.Kind {
	case ManagedQueue:
		stored, created, err = Queues(s).put(ctx, tenant, name, put.Settings.MessageQueueSettings, opts)
	case ManagedTopic:
		stored, created, err = Topics(s).put(ctx, tenant, name, put.Settings.MessageQueueSettings, opts)
	case ManagedSubscription:
		var topic bus.MessageQueue
		if topic, err = s.findTopic(ctx, tenant, name); err == nil {
			stored, created, err = Subscriptions(s).put(ctx, tenant, topic, subscription, put.Settings, opts)
		}
	default:
		err = forebay.Invalid("kind", "is not known")
	}
	if err != nil {
		return e, false, err
	}
	return managed(stored), created, nil
}

// Delete removes an entity with its messages, a topic with its subscriptions.
func (s Management) Delete(ctx context.Context, tenant, path string) error {
	q, err := s.find(ctx, tenant, path)
	if err != nil {
		return err
	}
	if q.IsTopic {
		defer s.changedBelow(q.Name)
	}
	return s.drop(ctx, q, entity.ErrNoQueue)
}

// PutRule creates a rule of a subscription, or changes one. Names are exact. A rule that was to
// be created and exists is entity.ErrExists. One that was to be changed and does not is
// entity.ErrNoRule.
func (s Management) PutRule(ctx context.Context, tenant, topic, subscription string, rule forebay.NewRule, mode entity.PutMode) (forebay.Rule, error) {
	stored, _, err := Rules(s).put(ctx, tenant, topic, subscription, rule, mode)
	return stored, err
}

// putting is how an entity is put.
type putting struct {
	mode       entity.PutMode
	attributes *string // nil: those of an existing entity stay
}

// options are those of the store.
func (p putting) options(ctx context.Context, limit int, keep entity.Keep) entity.PutOptions {
	keep.Attributes = p.attributes == nil
	return entity.PutOptions{Limit: limit, Mode: p.mode, Keep: keep, If: forebay.ConditionOf(ctx)}
}

// change changes an entity's status and metadata.
func (s *entities) change(ctx context.Context, q bus.MessageQueue, change forebay.EntityChange) (bus.MessageQueue, error) {
	changed, err := s.store.Entities().Change(ctx, q, change)
	s.changed(q.Name)
	return changed, err
}

// stateOf is what clients see of an entity of any kind.
func stateOf(q bus.MessageQueue, size int64) forebay.EntityState {
	state := forebay.EntityState{Status: q.Status, UserMetadata: q.UserMetadata, SizeBytes: size, CreatedAt: q.CreatedAt, UpdatedAt: q.UpdatedAt, Tagged: forebay.Tagged{ETag: q.ETag()}}
	if !q.AccessedAt.IsZero() {
		state.AccessedAt = &q.AccessedAt
	}
	return state
}

// Change changes the status and the metadata of a queue.
func (s Queues) Change(ctx context.Context, tenant, name string, change forebay.EntityChange) (forebay.MessageQueue, error) {
	q, err := s.queueNow(ctx, tenant, name)
	if err == nil && q.Topic != 0 {
		err = entity.ErrNoQueue
	}
	if err == nil {
		q, err = s.change(ctx, q, change)
	}
	if err != nil {
		return forebay.MessageQueue{}, err
	}
	return s.describe(ctx, name, q, entity.CountLimit)
}

// Change changes the status and the metadata of a topic.
func (s Topics) Change(ctx context.Context, tenant, name string, change forebay.EntityChange) (forebay.Topic, error) {
	q, err := s.topicNow(ctx, tenant, name)
	if err == nil {
		q, err = s.change(ctx, q, change)
	}
	if err != nil {
		return forebay.Topic{}, err
	}
	return s.info(ctx, name, q, entity.CountLimit)
}

// Change changes the status and the metadata of a subscription.
func (s Subscriptions) Change(ctx context.Context, tenant, topic, name string, change forebay.EntityChange) (forebay.Subscription, error) {
	q, err := s.subscription(ctx, tenant, topic, name)
	if err == nil {
		q, err = s.change(ctx, q, change)
	}
	if err != nil {
		return forebay.Subscription{}, err
	}
	return s.info(ctx, topic, q, entity.CountLimit)
}
