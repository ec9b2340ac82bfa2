package responses

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// On PostgreSQL, the round trips of a transaction do not grow with the transitions of responses in
// it. Each has an entry here. Purging is done by one caller in each process.
func TestRoundTripsOfResponses(t *testing.T) {
	trips := fixture.Trips(t)
	m := newMaker(t, trips.Stores)
	ctx := t.Context()
	mixes := map[string]func(n int) []func() error{
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
	for name, mix := range mixes {
		trips.Within(t, dbtest.MostTrips, name, func() []func() error { return mix(16) })
	}
	trips.Within(t, dbtest.MostTrips, "all", func() (calls []func() error) {
		for _, mix := range mixes {
			calls = append(calls, mix(2)...)
		}
		return calls
	})
}
