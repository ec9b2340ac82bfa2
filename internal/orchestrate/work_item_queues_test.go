package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/queue"
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

// A transaction whose claim finds nothing ends after some rounds of questions: each is a round
// trip to PostgreSQL. The next transactions go on, and so they reach what is due in every queue.
func TestRoundsThatFindNothing(t *testing.T) {
	t.Parallel()
	const names = 10 * mostEmptyRounds
	s := fixture.Serving(t, db.Options{URL: dbtest.Postgres(t)})
	ctx := t.Context()
	loud, quiet := tenantOf(t, s, "loud"), tenantOf(t, s, "quiet")
	inWriter := func(do func(t *tx) error) {
		t.Helper()
		_, err := db.TransactIn(ctx, key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) { return struct{}{}, do(t) })
		mustDo(t, err)
	}
	queueOf := func(tenant int64, name string) (no int64) {
		inWriter(func(t *tx) (err error) {
			no, err = t.workItems().queueOf(tenant, workqueues.Orchestrations, name)
			return err
		})
		return no
	}
	for i := range names {
		queueOf(loud, fmt.Sprint("empty", i))
	}
	late := queueOf(loud, "late")
	commits := make(chan db.Commit, 10_000)
	s.DB.OnCommit(func(c db.Commit) { commits <- c })
	claimed := make(chan OrchestrationItem, 2)
	var claimant sync.WaitGroup
	t.Cleanup(claimant.Wait)
	claimant.Go(func() {
		for range cap(claimed) {
			items, err := s.Orchestrations.ClaimOrchestrations(ctx, ClaimRequest{Max: 1, Lock: time.Hour, Taker: &takesAny})
			if err != nil || len(items) != 1 {
				t.Errorf("%+v: %v", items, err)
				break
			}
			claimed <- items[0]
		}
		close(claimed)
	})
	by := workqueues.By{Kind: workqueues.Orchestrations, Taker: &takesAny}
	for waits, next := 0, int64(0); waits == 0 || next != neverVisible; {
		inWriter(func(t *tx) error {
			waits, next = len(t.w.waiting), t.w.queues.NextDue(by, func(int64) int { return 1 })
			return nil
		})
	}
	for tenant, id := range map[int64]string{loud: "one", quiet: "two"} {
		o := NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "late", Event: Inline([]byte("start")), StartAt: s.DB.Now().Add(time.Hour).UnixMilli()}
		mustDo(t, s.Orchestrations.CreateOrchestration(ctx, o))
	}
	inWriter(func(t *tx) error { // they become ready, which nobody is told, and the loud tenant's is asked last
		t.w.Polling = time.Hour
		t.w.MarkAllDue(true)
		t.w.queues.SetDue(t.w.queues.Find(late), 0)
		return errors.Join(t.Prep("UPDATE orchestration_items SET visible_at = 1").Exec(), t.Prep("UPDATE orchestration_inbox SET visible_at = 1").Exec())
	})
	got := map[string]bool{}
	for item := range claimed {
		got[item.ID] = true
	}
	if !got["one"] || !got["two"] {
		t.Errorf("claimed: %v", got)
	}
	inWriter(func(*tx) error { return nil }) // what was before has been observed
	most, all := int64(0), int64(0)
	for len(commits) > 0 {
		trips := (<-commits).RoundTrips
		most, all = max(most, trips), all+trips
	}
	if most > mostEmptyRounds+dbtest.MostTrips {
		t.Errorf("a transaction took %d round trips", most)
	}
	if all < names {
		t.Errorf("%d queues were asked in %d round trips", names, all)
	}
}

// failing has the transactions of one process fail that store activities. On PostgreSQL they fail
// as they commit, and on SQLite after they have found or made the queue.
type failing struct {
	outside
	s    *stores
	none *claim // waits for what does not come
}

func newFailing(e outside, s *stores) *failing {
	c := &claim{ClaimRequest: ClaimRequest{Max: 1, Lock: time.Hour, Taker: workqueues.Only("none")}, part: key.In(s.DB.Writer), Waiter: queue.NewWaiter()}
	c.by = workqueues.By{Kind: workqueues.Activities, Taker: c.Taker}
	return &failing{e, s, c}
}

// during fails the transaction of a call while a claim waits and somebody else's queues may not be
// known.
func (f *failing) during(t *testing.T, call func() error) {
	t.Helper()
	fails, works := "CREATE TRIGGER fails BEFORE INSERT ON orchestration_activities BEGIN SELECT RAISE(ABORT, 'not now'); END", "DROP TRIGGER fails"
	if f.Name == "postgresql" {
		fails = `CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
			CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON orchestration_activities DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails()`
		works += " ON orchestration_activities"
	}
	mustDo(t, f.Tamper(fails))
	learns := func() error {
		_, err := db.TransactIn(t.Context(), key, f.s.DB.Writer, db.Op{Stage: db.StageSettle}, func(t *tx) (struct{}, error) {
			if !slices.Contains(t.w.waiting, f.none) { // and not when it is tried alone
				f.none.Visit()
				t.w.Polling, t.w.stale = time.Hour, t.w.Shared()
			}
			return struct{}{}, nil
		})
		return err
	}
	if ends := dbtest.InOneTransaction(t, f.s.DB, learns, call); ends[1] == nil {
		t.Fatal("it did not fail")
	}
	mustDo(t, f.Tamper(works))
}

// calls completes a work item with one activity.
func calls(t *testing.T, s *stores, item *OrchestrationItem, name string) error {
	_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")),
		Activities: []NewActivity{{EventID: 1, Name: name, Event: Inline([]byte("do"))}}})
	return err
}

// starts makes an instance for each ID, and claims them.
func starts(t *testing.T, s *stores, ids ...string) (items []*OrchestrationItem) {
	t.Helper()
	for _, id := range ids {
		mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenantOf(t, s, "acme"), ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
		items = append(items, takeItem(t, s))
	}
	return items
}

// What is stored after a transaction that made a queue and failed is found by every process, under
// its name. SQLite gives the number of the failed transaction again. PostgreSQL never does.
func TestQueueOfAFailedTransaction(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		items := starts(t, s, "one", "two")
		newFailing(e, s).during(t, func() error { return calls(t, s, items[1], "made twice") })
		mustDo(t, calls(t, s, items[0], "made in between"))
		mustDo(t, calls(t, s, items[1], "made twice"))
		mustDo(t, s.DB.Close())
		s = e.Open()
		got, want := map[string]string{}, map[string]string{"one": "made in between", "two": "made twice"}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for len(got) < len(want) {
			activities, err := s.Orchestrations.ClaimActivities(soon, anyWork(2))
			if err != nil {
				t.Fatalf("only %v was found: %v", got, err)
			}
			for _, a := range activities {
				got[a.ID] = a.Name
			}
		}
		if !maps.Equal(got, want) {
			t.Error(got)
		}
	})
}

// A queue that another process has made is found also if the first transaction here that reads it
// fails.
func TestFailedTransactionReadsAQueue(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		if e.Name == "sqlite" {
			return // there is no other process
		}
		s, other := e.Open(), e.Open()
		items := starts(t, s, "one", "two")
		number := func(name string) (no int64) {
			_, err := db.TransactIn(t.Context(), key, other.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (_ struct{}, err error) {
				no, err = t.workItems().queueOf(items[0].Tenant, workqueues.Activities, name)
				t.workItems().ready(no, t.Now)
				return struct{}{}, err
			})
			mustDo(t, err)
			return no
		}
		told := func(no int64) (told bool) {
			_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
				told = t.w.unknown[no]
				return struct{}{}, nil
			})
			mustDo(t, err)
			return told
		}
		for !told(number("heard")) { // it listens
			<-time.After(time.Millisecond)
		}
		mustDo(t, calls(t, other, items[0], "shared"))
		var shared int64
		mustDo(t, other.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT no FROM orchestration_queues WHERE name = 'shared'").One(func(r driver.Row) { shared = r.Int(0) })
			return err
		}))
		for !told(shared) {
			<-time.After(time.Millisecond)
		}
		newFailing(e, s).during(t, func() error { return calls(t, s, items[1], "shared") })
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		activities, err := s.Orchestrations.ClaimActivities(soon, ClaimRequest{Max: 1, Lock: time.Hour, Taker: workqueues.Only("shared")})
		if err != nil || activities[0].ID != "one" {
			t.Errorf("%+v: %v", activities, err)
		}
	})
}
