package messaging

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

// toQueue is what is sent to a queue or a topic.
type toQueue struct {
	bus.MessageQueue
	contents []bus.MessageContent
}

// takeMessages reserves what messages need of the tenant's limits, all of it or nothing. Copies
// made by topics and forwarding count once they are stored.
func (s *entities) takeMessages(ctx context.Context, tenant string, sends ...toQueue) (done func(), err error) {
	if s.limits == nil {
		return func() {}, nil
	}
	var messages, scheduled, size, fresh int64
	now, sessions := s.store.Now(), map[bus.MessageQueue]map[string]bool{}
	for _, to := range sends {
		for i := range to.contents {
			m := &to.contents[i]
			if err := s.limits.CheckSchedule(ctx, tenant, "scheduled_enqueue_time", m.ScheduledAt, now); err != nil {
				return nil, inMessage(err, i, len(to.contents))
			}
			if m.ScheduledAt != nil && m.ScheduledAt.After(now) {
				scheduled++
			}
			if to.RequiresSession {
				if sessions[to.MessageQueue] == nil {
					sessions[to.MessageQueue] = map[string]bool{}
				}
				sessions[to.MessageQueue][m.SessionID] = true
			}
			size += m.Size()
			messages++
		}
	}
	for q, ids := range sessions {
		of, err := s.store.Sessions().CountNewSessions(ctx, q, ids)
		if err != nil {
			return nil, err
		}
		fresh += of
	}
	return s.takeAll(ctx, tenant, []want{
		{forebay.LimitWaitingMessages, messages}, {forebay.LimitScheduled, scheduled}, {forebay.LimitSessions, fresh}, {forebay.LimitStoredBytes, size},
	})
}

// takeSession reserves what accepting a session by its id needs: the session is created if it
// does not exist.
func (s Sessions) takeSession(ctx context.Context, tenant string, q bus.MessageQueue, id string) (done func(), err error) {
	if s.limits == nil {
		return func() {}, nil
	}
	fresh, err := s.store.Sessions().CountNewSessions(ctx, q, map[string]bool{id: true})
	if err != nil {
		return nil, err
	}
	return s.limits.Take(ctx, tenant, forebay.LimitSessions, fresh)
}

// takeState reserves what the state of a session needs. A state that is no larger than the one
// before is never refused.
func (s *entities) takeState(ctx context.Context, tenant string, q bus.MessageQueue, lock bus.SessionLock, size int64) (done func(), err error) {
	done, refusal := s.limits.Take(ctx, tenant, forebay.LimitStoredBytes, size)
	if refusal == nil {
		return done, nil
	}
	before, err := s.store.Sessions().State(ctx, q, lock)
	if err == nil && size > int64(len(before)) {
		err = refusal
	}
	return done, err
}

// want is an amount of one limit.
type want struct {
	name forebay.LimitName
	n    int64
}

// takeAll reserves all amounts, or none.
func (s *entities) takeAll(ctx context.Context, tenant string, wants []want) (done func(), err error) {
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, w := range wants {
		end, err := s.limits.Take(ctx, tenant, w.name, w.n)
		if err != nil {
			done()
			return nil, err
		}
		ends = append(ends, end)
	}
	return done, nil
}

// takeNew reserves what a new entity needs, and nothing if the entity exists already.
func (s *entities) takeNew(ctx context.Context, tenant, key string, wants ...want) (done func(), err error) {
	if s.limits == nil || configuring(ctx) {
		return func() {}, nil
	}
	if _, err := s.stored(ctx, key); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		return func() {}, err
	}
	return s.takeAll(ctx, tenant, wants)
}

// takeRule reserves what a rule needs, unless the rule exists already.
func (s Rules) takeRule(ctx context.Context, tenant string, q bus.MessageQueue, name string) (done func(), err error) {
	if s.limits == nil || configuring(ctx) {
		return func() {}, nil
	}
	if found, err := s.store.Rules().HasRule(ctx, q, name); err != nil || found {
		return func() {}, err
	}
	return s.takeAll(ctx, tenant, []want{{forebay.LimitRules, 1}})
}

type configuringKey struct{}

// Configuring returns a context for entities that the configuration declares. The tenant's limits
// do not refuse them.
func Configuring(ctx context.Context) context.Context {
	return context.WithValue(ctx, configuringKey{}, true)
}

func configuring(ctx context.Context) bool { return ctx.Value(configuringKey{}) != nil }
