package jobs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// sessionsOf returns what all pages of a list of sessions hold, by cursors.
func sessionsOf(t *testing.T, s *stores, q record.SessionQuery) (list []record.Session) {
	t.Helper()
	for range 100 {
		var page record.SessionPage
		err := s.DB.Read(t.Context(), func(c driver.Conn) (err error) {
			page, err = record.Sessions(c, q)
			return err
		})
		mustDo(t, err)
		if len(page.Sessions) > q.Limit {
			t.Fatalf("%d sessions on a page of %d", len(page.Sessions), q.Limit)
		}
		list = append(list, page.Sessions...)
		cursor := page.Next.Cursor()
		if q.After, err = record.SessionAfter(cursor); err != nil || cursor == "" {
			mustDo(t, err)
			return list
		}
	}
	t.Fatal("the list does not end")
	return nil
}

func namesOf(list []record.Session) (names []string) {
	for _, s := range list {
		names = append(names, fmt.Sprintf("%d/%d/%s", s.Tenant, s.Queue, s.ID))
	}
	return names
}

// A list of sessions has each session with jobs that are not over once, whatever its pages, and
// says which job has the turn.
func TestSessionsOfJobsAreListed(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenants := []int64{tenantNamed(t, s, "a"), tenantNamed(t, s, "b")}
		queues := []int64{queueOf(t, s, "q"), queueOf(t, s, "r")}
		var want []string
		n := 0
		job := func(tenant, queue int64, session string) NewJob {
			n++
			return NewJob{ID: fmt.Sprintf("job_%d", n), Tenant: tenant, Queue: queue, Task: "t", SessionID: session}
		}
		for _, tenant := range tenants {
			for _, q := range queues {
				for _, id := range []string{"é", "a", "b/../c", "Z", "zz"} {
					submitAll(t, s, job(tenant, q, id), job(tenant, q, id), job(tenant, q, id))
					want = append(want, fmt.Sprintf("%d/%d/%s", tenant, q, id))
				}
				submitAll(t, s, job(tenant, q, ""))
			}
		}
		for _, limit := range []int{1, 2, 3, 5, 50} {
			got := namesOf(sessionsOf(t, s, record.SessionQuery{Limit: limit}))
			if len(got) != len(want) {
				t.Errorf("pages of %d: %d sessions, want %d", limit, len(got), len(want))
			}
			for _, name := range want {
				if !slices.Contains(got, name) {
					t.Errorf("pages of %d lack %s", limit, name)
				}
			}
		}
		of := func(change func(*record.SessionQuery)) []record.Session {
			q := record.SessionQuery{Limit: 2}
			change(&q)
			return sessionsOf(t, s, q)
		}
		if got := of(func(q *record.SessionQuery) { q.Tenant = tenants[1] }); len(got) != 10 || slices.ContainsFunc(got, func(s record.Session) bool { return s.Tenant != tenants[1] }) {
			t.Errorf("of a tenant %v", namesOf(got))
		}
		if got := of(func(q *record.SessionQuery) { q.Queue = queues[1] }); len(got) != 10 || slices.ContainsFunc(got, func(s record.Session) bool { return s.Queue != queues[1] }) {
			t.Errorf("of a queue %v", namesOf(got))
		}
		if got := of(func(q *record.SessionQuery) { q.ID = "Z" }); len(got) != 4 {
			t.Errorf("of an id %v", namesOf(got))
		}
		if got := of(func(q *record.SessionQuery) {
			q.Tenant, q.After = tenants[0], record.SessionKey{Tenant: tenants[1], Queue: queues[1], ID: "zz"}
		}); len(got) != 10 { // another tenant's cursor
			t.Errorf("of a tenant by another's cursor %v", namesOf(got))
		}

		// One runs, one is set aside, the others wait.
		main := queue.SubqueueOf(queues[0], queue.SubqueueMain)
		taken := take(t, s, main, 12, time.Hour) // two have no session
		for i := range taken {
			if d := &taken[i]; d.SessionID == "a" {
				mustDo(t, s.Jobs.DeadLetter(t.Context(), d, AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "x"}, queue.SubqueueDeadLetter, "x"))
			}
		}
		for _, got := range of(func(q *record.SessionQuery) { q.Queue = queues[0] }) {
			switch {
			case got.First == nil || got.First.SessionID != got.ID:
				t.Errorf("%s has no first job", got.ID)
			case got.ID == "a" && (got.Live != 2 || got.SetAside != 1 || got.SetAsideCapped || got.First.Status != forebay.StatusQueued):
				t.Errorf("with a dead letter: %+v, %s", got, got.First.Status)
			case got.ID != "a" && (got.Live != 3 || got.SetAside != 0 || got.First.Status != forebay.StatusRunning):
				t.Errorf("that runs: %+v, %s", got, got.First.Status)
			}
		}
		// The call of a cancelled job holds the session up.
		for i := range taken {
			if d := &taken[i]; d.SessionID == "zz" && d.Tenant == tenants[0] {
				_, err := s.Jobs.Cancel(t.Context(), d.Seq)
				mustDo(t, err)
			}
		}
		held := of(func(q *record.SessionQuery) { q.Tenant, q.Queue, q.ID = tenants[0], queues[0], "zz" })
		if len(held) != 1 || held[0].HeldUntil == nil || held[0].Live != 2 || held[0].First == nil || held[0].First.Waiting != forebay.WaitSession {
			t.Errorf("held: %+v", held)
		}
	})
}

// Counts of a session with very many jobs are bounded.
func TestManyJobsOfASession(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, q := tenantNamed(t, s, "a"), queueOf(t, s, "q")
		var jobs []NewJob
		for i := range 1100 {
			jobs = append(jobs, NewJob{ID: fmt.Sprintf("job_%d", i), Tenant: tenant, Queue: q, Task: "t", SessionID: "s"})
		}
		submitAll(t, s, jobs...)
		list := sessionsOf(t, s, record.SessionQuery{Tenant: tenant, Limit: 10})
		if len(list) != 1 {
			t.Fatalf("%d sessions", len(list))
		}
		view := list[0].View("a", "q", nil)
		if view.Waiting != 1000 || !view.More || !view.SetAsideCapped || list[0].First == nil || list[0].First.ID != "job_0" {
			t.Errorf("%+v", view)
		}
	})
}

func TestCursorsOfSessions(t *testing.T) {
	key := record.SessionKey{Tenant: 7, Queue: 9, ID: "a/é"}
	cursor := key.Cursor()
	if got, err := record.SessionAfter(cursor); err != nil || got != key {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"x", cursor[1:], cursor + "=", (&record.SessionKey{}).Cursor(), "AgAAAAAAAAAHAAAAAAAAAAkA", "AgAAAAAAAAAHAAAAAAAAAAn_"} {
		if _, err := record.SessionAfter(bad); forebay.CodeOf(err) != forebay.CodeInvalidCursor {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
