package orchestrate

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// A claim that does not ask all empty queues in one transaction goes on in the next.
func TestManyEmptyQueues(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
			for i := range 2*mostAsked + 1 {
				if _, err := t.workItems().queueOf(tenant, workqueues.Orchestrations, fmt.Sprint("empty", i)); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		mustDo(t, err)
		mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "late", Event: Inline([]byte("start"))}))
		if items, err := s.Orchestrations.ClaimOrchestrations(t.Context(), anyWork(mostAsked/2)); err != nil || len(items) != 1 || items[0].ID != "one" {
			t.Fatalf("%+v: %v", items, err)
		}
	})
}

// Many queues are asked rarely, unless something has changed: a tenant can have any number.
func TestManyQueuesAreAskedRarely(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(now *tx) (struct{}, error) {
			queues := &now.w.queues
			due := func(want bool, why string) {
				t.Helper()
				if q := queues.Find(-1); q.DueBy(0) != want {
					t.Errorf("due: %v, %s", !want, why)
				}
				queues.SetDue(queues.Find(-1), neverVisible)
			}
			add := func(upTo int) {
				for no := queues.Len(); no <= upTo; no++ {
					queues.Add(-1-int64(no), workqueues.ID{Kind: workqueues.Activities, Name: fmt.Sprint(no)})
				}
			}
			add(mostAsked / 2)
			now.w.MarkAllDue(false)
			due(true, "there are few")
			now.w.MarkAllDue(false)
			due(true, "there are few")
			add(3 * mostAsked)
			now.w.Polling = time.Hour
			now.w.MarkAllDue(false)
			due(false, "there are many, which were asked just now")
			now.w.MarkAllDue(true)
			due(true, "something has changed")
			now.w.Notified(&db.Notification{Many: map[db.WordKind]bool{notifyReady: true}})
			due(true, "more have become ready than are named")
			now.w.allDueAt -= (4 * time.Hour).Milliseconds()
			now.w.MarkAllDue(false)
			due(true, "it is long ago")
			return struct{}{}, errors.New("nothing is stored")
		})
		if err == nil {
			t.Error("it is stored")
		}
	})
}

// A process takes what another process has made ready in queues that it did not know, also if
// they are too many to be read one by one.
func TestQueuesOfAnotherProcess(t *testing.T) {
	t.Parallel()
	where := db.Options{URL: dbtest.Postgres(t), Serve: true}
	a, b := fixture.Serving(t, where), fixture.Serving(t, where)
	tenant := tenantOf(t, a, "acme")
	seen := map[string]bool{}
	takes := func(all int) {
		t.Helper()
		for len(seen) < all {
			items, err := b.Orchestrations.ClaimOrchestrations(t.Context(), ClaimRequest{Max: 64, Lock: time.Hour, Taker: &takesAny})
			mustDo(t, err)
			for i := range items {
				seen[items[i].Name] = true
			}
		}
	}
	creates := func(from, to int) {
		t.Helper()
		var group sync.WaitGroup
		for i := from; i < to; i++ {
			group.Go(func() {
				name := fmt.Sprint("name", i)
				if err := a.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: name, Execution: "first", Name: name, Event: Inline([]byte("start"))}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	creates(0, 3)
	takes(3)
	creates(3, mostUnknown+10)
	takes(mostUnknown + 10)
}
