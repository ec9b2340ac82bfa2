package responses

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

func onEngines(t *testing.T, f func(*maker)) {
	t.Helper()
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(newMaker(t, fixture.Serving(t, database(t))))
		})
	}
}

// Only the latest attempt writes events, each after the one before, and nothing after the end.
func TestEventsAreFenced(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx, row := m.Context(), m.add()
		first := m.begin(row, 1)
		m.check(m.Responses.Append(ctx, first, group(2)))
		m.isLost(m.Responses.Append(ctx, first, group(2))) // it is stored already
		second := m.begin(row, 2)
		m.isLost(m.Responses.Append(ctx, first, group(3)))
		m.isLost(m.Responses.Finish(ctx, first, group(3), bridge.StatusCompleted, object))
		m.check(m.Responses.Append(ctx, second, group(3)))
		if now := m.read(row.ID); now.Status != bridge.StatusInProgress || now.State.Sequence != 4 || now.Over() {
			m.Errorf("%+v", now)
		}
		m.check(m.Responses.Finish(ctx, second, group(4), bridge.StatusCompleted, object))
		m.isLost(m.Responses.Append(ctx, second, group(5)))
		m.isLost(m.Responses.Finish(ctx, second, group(5), bridge.StatusCompleted, object))
		if now := m.read(row.ID); now.Status != bridge.StatusCompleted || now.State.Sequence != 5 || string(now.Object.Inline) != string(object.Inline) || now.EndedAt == nil {
			m.Errorf("%+v", now)
		}
		for from, want := range map[int64]int{0: 4, 1: 4, 2: 3, 4: 1, 9: 1} { // groups: two events, and three of one
			rows, err := m.Responses.Events(ctx, row, from, 10)
			if err != nil || len(rows) != want {
				m.Errorf("from %d: %d groups, %v", from, len(rows), err)
			}
		}
	})
}

// A job that ends without success ends its response, and never one that has ended.
func TestJobsEndResponses(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx := m.Context()
		cancelled, completed := m.add(), m.add()
		w := m.begin(cancelled, 1)
		_, err := m.Jobs.Cancel(ctx, cancelled.Seq)
		m.check(err)
		m.isLost(m.Responses.Finish(ctx, w, group(2), bridge.StatusCompleted, object))
		if now := m.read(cancelled.ID); now.Status != bridge.StatusCancelled || now.Failure != nil {
			m.Errorf("%+v", now)
		}
		m.check(m.Responses.Finish(ctx, m.begin(completed, 1), group(2), bridge.StatusCompleted, object))
		_, err = m.Jobs.Cancel(ctx, completed.Seq)
		m.check(err)
		if now := m.read(completed.ID); now.Status != bridge.StatusCompleted {
			m.Errorf("%+v", now)
		}
	})
}

// Repeats of a request find its response, as long as they may.
func TestRepeats(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx, n := m.Context(), m.row()
		if _, err := m.Responses.Add(ctx, n); err != nil {
			m.Fatal(err)
		}
		again := m.row()
		again.Repeat = n.Repeat
		if existing, err := m.Responses.Add(ctx, again); err != nil || existing != "" {
			m.Errorf("a new request: %q %v", existing, err)
		}
		repeat := m.row()
		repeat.Repeat, repeat.Repeated = n.Repeat, time.Hour.Milliseconds()
		if existing, err := m.Responses.Add(ctx, repeat); err != nil || existing != again.ID {
			m.Errorf("a repeat: %q %v", existing, err)
		}
		if _, err := m.Responses.Response(ctx, m.tenant, repeat.ID); forebay.CodeOf(err) != forebay.CodeNotFound {
			m.Errorf("a repeat was stored: %v", err)
		}
		keyed := m.row()
		keyed.Repeat, keyed.Repeated, keyed.Hash = n.Repeat, db.Never, digest("other")
		if _, err := m.Responses.Add(ctx, keyed); forebay.CodeOf(err) != forebay.CodeIdempotencyMismatch {
			m.Errorf("another request: %v", err)
		}
		_, err := m.Responses.Delete(ctx, m.read(again.ID))
		m.check(err)
		if keyed.Hash = n.Hash; err == nil {
			_, err = m.Responses.Add(ctx, keyed)
		}
		if forebay.CodeOf(err) != forebay.CodeGone {
			m.Errorf("a deleted response: %v", err)
		}
	})
}

// A response that is gone leaves nothing behind, and its blobs are named.
func TestPurge(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx, row, stays := m.Context(), m.add(), m.add()
		w := m.begin(row, 1)
		for i := range int64(2*purgeEvents + 10) {
			m.check(m.Responses.Append(ctx, w, group(2+i)))
		}
		large := Payload{Blob: "t/1/" + row.ID + "/object-1", Size: 1 << 20}
		m.check(m.Responses.Finish(ctx, w, Group{From: bridge.State{Sequence: 2*purgeEvents + 12}, Then: bridge.State{Sequence: 2*purgeEvents + 12}}, bridge.StatusCompleted, large))
		used := map[string]bool{}
		in := func() {
			m.check(m.Responses.BlobsInUse(ctx, map[string]string{large.Blob: row.ID, "t/1/" + row.ID + "/object-2": row.ID}, func(key string) { used[key] = true }))
		}
		if in(); !used[large.Blob] || len(used) != 1 {
			m.Errorf("in use: %v", used)
		}
		if deleted, err := m.Responses.Delete(ctx, row); err != nil || !deleted {
			m.Fatal(deleted, err)
		}
		if deleted, err := m.Responses.Delete(ctx, row); err != nil || deleted {
			m.Error("it was deleted twice", err)
		}
		if _, err := m.Responses.Response(ctx, m.tenant, row.ID); !errors.Is(err, forebay.ErrNotFound) {
			m.Error(err)
		}
		var blobs []string
		steps := 0
		for more := true; more; steps++ {
			some, left, err := m.Responses.Purge(ctx, 0)
			m.check(err)
			blobs, more = append(blobs, some...), left
		}
		if len(blobs) != 1 || blobs[0] != large.Blob || steps < 4 {
			m.Errorf("%v in %d steps", blobs, steps)
		}
		left := int64(-1)
		m.check(m.DB.Read(ctx, func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM response_events WHERE response = ?").Int(row.No).One(func(r driver.Row) { left = r.Int(0) })
			return err
		}))
		if left != 0 {
			m.Errorf("%d groups are left", left)
		}
		m.read(stays.ID)
	})
}

// SQLite gives the number of a response that was removed to another one. Whoever has read the
// former neither deletes the latter nor sees its events.
func TestNumbersOfRemovedResponsesAreGivenAgain(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx, removed := m.Context(), m.add()
		if deleted, err := m.Responses.Delete(ctx, removed); err != nil || !deleted {
			m.Fatal(deleted, err)
		}
		for more := true; more; {
			var err error
			_, more, err = m.Responses.Purge(ctx, 0)
			m.check(err)
		}
		other := m.add()
		if rows, err := m.Responses.Events(ctx, removed, 0, 10); err != nil || len(rows) != 0 {
			m.Errorf("%d groups of events of another: %v", len(rows), err)
		}
		if deleted, err := m.Responses.Delete(ctx, removed); err != nil || deleted {
			m.Errorf("deleted %t: %v", deleted, err)
		}
		m.read(other.ID)
	})
}

// Another tenant's response is not there.
func TestResponsesOfOthers(t *testing.T) {
	onEngines(t, func(m *maker) {
		row := m.add()
		other, err := m.Queues.EnsureTenant(m.Context(), "other")
		m.check(err)
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := m.Responses.Response(ctx, other, row.ID); return err },
			func(ctx context.Context) error {
				_, err := m.Responses.Begin(ctx, other, row.ID, 1, row.Job)
				return err
			},
			func(ctx context.Context) error {
				_, err := m.Responses.Begin(ctx, m.tenant, row.ID, 1, "job_other")
				return err
			},
		} {
			if err := ask(m.Context()); forebay.CodeOf(err) != forebay.CodeNotFound {
				m.Error(err)
			}
		}
	})
}

// A background response is answered as it was stored, also if its job is quicker than the answer.
func TestNewResponseIsQueued(t *testing.T) {
	t.Parallel()
	m := newMaker(t, fixture.Serving(t, dbtest.Databases["sqlite"](t)))
	n := m.row()
	_, err := m.Responses.Add(t.Context(), n)
	m.check(err)
	m.check(m.Responses.Finish(t.Context(), m.begin(m.read(n.ID), 1), group(2), bridge.StatusCompleted, object))
	row := m.read(n.ID)
	if !row.Over() {
		t.Fatalf("%+v", row)
	}
	row = asCreated(row, n, []byte(`{"status":"queued"}`))
	s := New(Options{Store: m.Responses, Payloads: payload.New(payload.Options{})})
	if o, err := s.Object(t.Context(), row); err != nil || !strings.Contains(string(o), `"status":"queued"`) || row.Over() || row.EndedAt != nil || row.State != n.State {
		t.Errorf("%s %v %+v", o, err, row)
	}
}

// A response that was deleted leaves the key of its request for a while, and nothing else. Its
// repeats are refused until then.
func TestKeysOfDeletedResponsesAreRemembered(t *testing.T) {
	onEngines(t, func(m *maker) {
		ctx := m.Context()
		purge := func(remember time.Duration) {
			m.Helper()
			for steps, more := 0, true; more; steps++ {
				var err error
				_, more, err = m.Responses.Purge(ctx, remember)
				if m.check(err); steps > 10 {
					m.Fatal("it is purged for ever")
				}
			}
		}
		n := m.row()
		n.Repeat, n.Hash, n.Repeated = "key", "hash", db.Never
		_, err := m.Responses.Add(ctx, n)
		m.check(err)
		row := m.read(n.ID)
		if deleted, err := m.Responses.Delete(ctx, row); err != nil || !deleted {
			m.Fatal(deleted, err)
		}
		again := m.row()
		again.Repeat, again.Hash, again.Repeated = n.Repeat, n.Hash, n.Repeated
		purge(time.Hour)
		if _, err := m.Responses.Add(ctx, again); forebay.CodeOf(err) != forebay.CodeGone {
			m.Errorf("a repeat: %v", err)
		}
		if _, err := m.Responses.Response(ctx, m.tenant, n.ID); !errors.Is(err, forebay.ErrNotFound) {
			m.Error(err)
		}
		if rows, err := m.Responses.Events(ctx, row, 0, 10); err != nil || len(rows) != 0 {
			m.Errorf("%d groups of events are left: %v", len(rows), err)
		}
		_, err = db.Transact(ctx, m.DB.Writer, db.Op{}, func(t *db.Tx) (struct{}, error) { // an hour later
			return struct{}{}, t.Prep("UPDATE responses SET created_at = created_at - 3600000, expires_at = expires_at + 3600000 WHERE id = ?").Text(n.ID).Exec()
		})
		m.check(err)
		purge(time.Hour)
		if existing, err := m.Responses.Add(ctx, again); err != nil || existing != "" {
			m.Errorf("%q %v", existing, err)
		}
	})
}
