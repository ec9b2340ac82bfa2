package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// drops are mixes of entities that are dropped.
func (t tripping) drops() map[string]mix {
	drop := func(q MessageQueue) func() error {
		return func() error {
			dropped, err := t.Bus.DropMessageQueue(t.Context(), q)
			if err == nil && !dropped {
				err = fmt.Errorf("%s was not there", q.Name)
			}
			return err
		}
	}
	each := func(calls func(i int) []func() error) mix {
		return func(many int) func() []func() error {
			return func() (all []func() error) {
				for i := range many {
					all = append(all, calls(i)...)
				}
				t.settled()
				return all
			}
		}
	}
	filled := func(change func(*MessageQueue)) MessageQueue {
		q := t.made(change)
		sendTo(t, t.stores, q, t.sessionContent(1), t.sessionContent(2))
		return q
	}
	subscribed := func() (topic MessageQueue, subs []MessageQueue) {
		topic = t.topic(nil, nil)
		t.subscription(topic, "other", needsSessions)
		subs, err := t.Bus.Subscriptions(t.Context(), topic)
		mustDo(t, err)
		return topic, subs
	}
	return map[string]mix{
		"drop":                each(func(int) []func() error { return []func() error{drop(filled(nil))} }),
		"drop with sessions":  each(func(int) []func() error { return []func() error{drop(filled(needsSessions))} }),
		"drop topics":         each(func(int) []func() error { topic, _ := subscribed(); return []func() error{drop(topic)} }),
		"drop a subscription": each(func(int) []func() error { _, subs := subscribed(); return []func() error{drop(subs[0])} }),
		"drop subscriptions of a topic": each(func(int) []func() error {
			_, subs := subscribed()
			return []func() error{drop(subs[0]), drop(subs[1])}
		}),
		"drop what is sent to": each(func(i int) []func() error {
			q := filled(nil)
			return []func() error{drop(q), func() error {
				_, err := t.Bus.Send(t.Context(), q, []MessageContent{t.content(i)})
				if forebay.CodeOf(err) == forebay.CodeUnknownQueue { // it was not in the same transaction
					err = nil
				}
				return err
			}}
		}),
		"drop and purge": each(func(int) []func() error {
			q := filled(duplicates)
			return []func() error{func() error {
				if err := drop(q)(); err != nil {
					return err
				}
				return t.Bus.PurgeDropped(t.Context())
			}}
		}),
	}
}

// Queues that are idle, or only seem so, take as many round trips as other operations, however
// many there are.
func TestRoundTripsOfIdleQueues(t *testing.T) {
	t.Parallel()
	trips := fixture.Trips(t)
	x := tripping{T: t, stores: trips.Stores, made: makesQueues(t, trips.Stores)}
	kinds := []struct {
		name string
		made func(idle time.Duration, target MessageQueue)
	}{ // in this order: those that are kept seem idle again later
		{"unused", func(idle time.Duration, _ MessageQueue) {
			sendTo(t, x.stores, x.made(func(q *MessageQueue) { q.Idle = idle }), MessageContent{MessageID: "m"})
		}},
		{"unused topics", func(idle time.Duration, _ MessageQueue) {
			topic := x.topic(func(q *MessageQueue) { q.Idle = idle }, nil)
			x.subscription(topic, "other", nil)
		}},
		{"unused subscriptions", func(idle time.Duration, _ MessageQueue) {
			x.topic(nil, func(q *MessageQueue) { q.Idle = idle })
		}},
		{"kept", func(idle time.Duration, target MessageQueue) {
			x.made(func(q *MessageQueue) { q.Idle, q.ForwardTo = idle, target.Name })
		}},
	}
	const least = 300 * time.Millisecond
	idle := least
	for _, kind := range kinds {
		for _, many := range []int{1, entity.IdleAtOnce} {
			idle = max(idle/2, least) // so that the first try has what was enough for the kind before
			trips.Together(t, fmt.Sprint(many, " ", kind.name), func() []func() error {
				idle *= 2 // more time for a slow machine
				target := x.made(nil)
				for range many {
					kind.made(idle, target)
				}
				x.settled()
				made := time.Now()
				return []func() error{func() error {
					<-time.After(time.Until(made.Add(idle*61/60 + 50*time.Millisecond)))
					seeming := int64(0)
					mustDo(t, x.DB.Read(t.Context(), func(c driver.Conn) error {
						_, err := c.Prep("SELECT count(*) FROM queues WHERE delete_at <= ?").Int(time.Now().UnixMilli()).One(func(r driver.Row) { seeming = r.Int(0) })
						return err
					}))
					if seeming < int64(many) { // those that were kept in an earlier try may be among them
						return fmt.Errorf("%w: %d queues seem idle", dbtest.ErrApart, seeming)
					}
					_, err := x.Bus.Send(t.Context(), target, []MessageContent{{MessageID: "m"}})
					return err
				}}
			})
		}
	}
	trips.Plans(t)
}
