package responses

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// On PostgreSQL, the round trips of a transaction do not grow with the transitions of responses in
// it. Each has an entry here. Purging is done by one caller in each process.
func TestRoundTripsOfResponses(t *testing.T) {
	trips := fixture.Trips(t)
	m := newMaker(t, trips.Stores)
	for _, followed := range []bool{false, true} {
		if followed {
			m.follow()
		}
		for name, mix := range m.mixes() {
			trips.Together(t, fmt.Sprint(name, ", followed: ", followed), func() []func() error { return mix(16) })
		}
		trips.Together(t, fmt.Sprint("all, followed: ", followed), func() (calls []func() error) {
			for _, mix := range m.mixes() {
				calls = append(calls, mix(2)...)
			}
			return calls
		})
	}
	trips.Plans(t)
}

// follow has the events of the tenant go to a subscription.
func (m *maker) follow() {
	settings := bus.MessageQueue{Tenant: m.tenant, Lock: time.Minute, MaxDeliveries: 5}
	topic, sub := settings, settings
	topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
	topic, _, err := m.Bus.PutMessageQueue(m.Context(), topic, 10)
	m.check(err)
	sub.Name = entity.SubscriptionName(topic.Name, "all")
	_, _, err = m.Bus.PutSubscription(m.Context(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: "1 = 1"}}}, 10)
	m.check(err)
}

// mixes are all transitions, so many of each.
func (m *maker) mixes() map[string]func(n int) []func() error {
	ctx := m.Context()
	return map[string]func(n int) []func() error{
		"add": func(n int) (calls []func() error) {
			for range n {
				row := m.row()
				calls = append(calls, func() error { _, err := m.Responses.Add(ctx, row); return err })
			}
			return calls
		},
		"begin": func(n int) (calls []func() error) {
			for range n {
				row := m.add()
				calls = append(calls, func() error { _, err := m.Responses.Begin(ctx, m.tenant, row.ID, 1, row.Job); return err })
			}
			return calls
		},
		"append": func(n int) (calls []func() error) {
			for range n {
				w := m.begin(m.add(), 1)
				calls = append(calls, func() error { return m.Responses.Append(ctx, w, group(2)) })
			}
			return calls
		},
		"finish": func(n int) (calls []func() error) {
			for range n {
				w := m.begin(m.add(), 1)
				calls = append(calls, func() error { return m.Responses.Finish(ctx, w, group(2), bridge.StatusCompleted, object) })
			}
			return calls
		},
		"cancel": func(n int) (calls []func() error) {
			for range n {
				row := m.add()
				calls = append(calls, func() error { _, err := m.Jobs.Cancel(ctx, row.Seq); return err })
			}
			return calls
		},
		"delete": func(n int) (calls []func() error) {
			for range n {
				row := m.add()
				calls = append(calls, func() error { _, err := m.Responses.Delete(ctx, row); return err })
			}
			return calls
		},
	}
}
