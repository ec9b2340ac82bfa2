package responses

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// pages reads the list to its end.
func (m *maker) pages(q Query) (ids []string, requests int) {
	m.Helper()
	for {
		page, err := m.Responses.List(m.Context(), m.tenant, q)
		m.check(err)
		for _, r := range page.Data {
			ids = append(ids, r.ID)
		}
		if requests++; !page.HasMore {
			return ids, requests
		}
		q.After = page.LastID
	}
}

// The list has a tenant's responses in pages, newest first, without those that are gone.
func TestListOfResponses(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx := m.Context()
		var ids []string
		for range 7 {
			ids = append([]string{m.add().ID}, ids...)
		}
		gone := m.read(ids[2])
		_, err := m.Responses.Delete(ctx, gone)
		m.check(err)
		m.check(m.Responses.Finish(ctx, m.begin(m.read(ids[4]), 1), group(2), bridge.StatusCompleted, object))
		left := slices.Delete(slices.Clone(ids), 2, 3)
		if got, requests := m.pages(Query{Limit: 2}); !slices.Equal(got, left) || requests != 3 {
			m.Errorf("%q in %d requests, want %q", got, requests, left)
		}
		if got, _ := m.pages(Query{Limit: 10, Status: bridge.StatusCompleted}); !slices.Equal(got, ids[4:5]) {
			m.Errorf("completed are %q, want %q", got, ids[4:5])
		}
		yes, no := true, false
		if got, _ := m.pages(Query{Limit: 10, Background: &yes}); !slices.Equal(got, left) {
			m.Errorf("%q are in the background", got)
		}
		if got, _ := m.pages(Query{Limit: 10, Background: &no}); len(got) != 0 {
			m.Errorf("%q are not in the background", got)
		}
		page, err := m.Responses.List(ctx, m.tenant, Query{ID: ids[4], Limit: 1})
		if err != nil || len(page.Data) != 1 || page.Data[0].JobID == "" || !page.Data[0].Background || page.Data[0].CompletedAt == 0 || page.Data[0].Model != "chat" {
			m.Errorf("%+v, %v", page, err)
		}
		if page, err := m.Responses.List(ctx, m.tenant, Query{ID: ids[2], Limit: 1}); err != nil || len(page.Data) != 0 {
			m.Errorf("a deleted one is listed: %+v, %v", page, err)
		}
		other, err := m.Queues.EnsureTenant(ctx, "other")
		m.check(err)
		if page, err := m.Responses.List(ctx, other, Query{Limit: 10}); err != nil || len(page.Data) != 0 {
			m.Errorf("another tenant sees %+v, %v", page, err)
		}
		for _, q := range []Query{{After: ids[0], Limit: 10}, {After: "resp_0", Limit: 10}} {
			if _, err := m.Responses.List(ctx, other, q); forebay.CodeOf(err) != forebay.CodeNotFound {
				m.Errorf("after %q another tenant gets %v", q.After, err)
			}
		}
	})
}

// A page looks at so many rows and says how far it came.
func TestListStopsLooking(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx := m.Context()
		oldest := m.add()
		o := db.Op{Stage: db.StageChange, Party: m.tenant}
		_, err := db.Transact(ctx, m.Responses.Writer, o, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep(`INSERT INTO responses (id, tenant, created_at, expires_at, status, model, previous, request_size, object_size)
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
  SELECT 'resp_' || i, ?, ?, ?, 'completed', 'chat', '', 0, 0 FROM n`).Int(maxScan + 10).Int(m.tenant).Int(t.Now).Int(db.Never).Exec()
		})
		m.check(err)
		q := Query{Status: bridge.StatusQueued, Limit: 10}
		page, err := m.Responses.List(ctx, m.tenant, q)
		if err != nil || len(page.Data) != 0 || !page.HasMore || page.SearchedTo == 0 || page.LastID != fmt.Sprintf("resp_%d", 11) {
			m.Fatalf("%+v, %v", page, err)
		}
		if got, requests := m.pages(q); !slices.Equal(got, []string{oldest.ID}) || requests != 2 {
			m.Errorf("%q in %d requests", got, requests)
		}
	})
}
