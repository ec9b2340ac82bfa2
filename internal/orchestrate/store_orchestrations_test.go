package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// Work items with many lost deliveries are claimed one at a time, so that a poison one does not
// take others with it.
func TestSuspectsComeAlone(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		tenant := tenantOf(t, s, "acme")
		for i := range 3 {
			err := s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: fmt.Sprint(i), Execution: "first", Name: "deadly", Event: Inline([]byte("start"))})
			if err != nil {
				t.Fatal(err)
			}
		}
		for lost := range poisonSuspectAfter + 1 {
			orchestrations, err := s.Orchestrations.ClaimOrchestrations(t.Context(), anyWork(3))
			if err != nil {
				t.Fatal(err)
			}
			want := 3
			if lost == poisonSuspectAfter {
				want = 1
			}
			if len(orchestrations) != want || orchestrations[0].LostDeliveries != lost {
				t.Fatalf("%d at once, lost %d times", len(orchestrations), orchestrations[0].LostDeliveries)
			}
			for i := range orchestrations {
				if err := s.Orchestrations.AbandonOrchestration(t.Context(), &orchestrations[i], 0, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// The results of jobs count in the bytes of a work item, like those of other activities.
func TestItemSeesResultsOfJobsByTheirSize(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		tenant := tenantOf(t, s, "acme")
		if err := s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: Inline([]byte("start"))}); err != nil {
			t.Fatal(err)
		}
		item := takeItem(t, s)
		if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("start"))}); err != nil {
			t.Fatal(err)
		}
		_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
			for i := range int64(3) {
				id := fmt.Sprint("job_", i)
				err := errors.Join(
					t.Prep("INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, input_size) VALUES (?, ?, ?, 1, 'shout', 4, 1, 1, 0)").
						Int(1000+i).Text(id).Int(tenant).Exec(),
					t.Prep("INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at, result_size) VALUES (?, 'succeeded', 1, 1, 1, 1, ?)").
						Int(1000+i).Int(maxArrivedBytes/2+1).Exec(),
					t.Prep("INSERT INTO orchestration_inbox (instance, no, visible_at, answer, event_id, job) VALUES (?, ?, 1, 1, ?, ?)").
						Int(item.Instance).Int(1<<40+i).Int(i).Text(id).Exec())
				if err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, t.wakeInstance(item.Instance, item.Queue)
		})
		if err != nil {
			t.Fatal(err)
		}
		if item = takeItem(t, s); len(item.Arrived) != 1 {
			t.Errorf("one turn sees %d results of 8 MiB each", len(item.Arrived))
		}
	})
}

// The result of an activity is handled at once while its instance is suspended. That holds also
// if the suspension came during the work item that called it. At once means before the writer
// looks for missed notifications.
func TestAnswerWhileSuspended(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		take := func() *OrchestrationItem {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			orchestrations, err := s.Orchestrations.ClaimOrchestrations(ctx, anyWork(2)) // one more than there are: it looks when there is to be another
			if err != nil {
				t.Fatal(err)
			}
			return &orchestrations[0]
		}
		complete := func(item *OrchestrationItem, status forebay.OrchestrationStatus, activities ...NewActivity) {
			t.Helper()
			if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: status, Events: 1, History: Inline([]byte("event")), Activities: activities}); err != nil {
				t.Fatal(err)
			}
		}
		for id, amid := range map[string]bool{"before": false, "amid": true} {
			suspend := func() {
				if err := s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenant, ID: id, Event: Inline([]byte("suspend")), Effect: Suspends}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: id, Execution: "first", Name: "fan", Event: Inline([]byte("start"))}); err != nil {
				t.Fatal(err)
			}
			item := take()
			if amid {
				suspend()
			}
			complete(item, forebay.OrchestrationRunning, NewActivity{Name: "step", Event: Inline([]byte("do"))})
			if !amid {
				suspend()
			}
			if item = take(); !item.SkipsCode {
				t.Fatal("the code is to see that it is suspended")
			}
			complete(item, forebay.OrchestrationSuspended)
			activities, err := s.Orchestrations.ClaimActivities(t.Context(), anyWork(1))
			if err == nil {
				err = s.Orchestrations.SettleActivity(t.Context(), &activities[0], success)
			}
			if err != nil {
				t.Fatal(err)
			}
			if item = take(); item.ID != id || len(item.Arrived) != 1 {
				t.Fatalf("%s sees %d events", item.ID, len(item.Arrived))
			}
			complete(item, forebay.OrchestrationSuspended)
		}
	})
}

// The oldest work item of each orchestrator is known, however many orchestrators there are.
func TestOldestReadyOfManyQueues(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		tenant := tenantOf(t, s, "acme")
		_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
			for i := range queuesPage {
				err := t.Prep("INSERT INTO orchestration_queues (tenant, kind, name) VALUES (?, ?, ?)").Int(tenant).Int(int64(workqueues.Orchestrations)).Text(fmt.Sprint("early", i)).Exec()
				if err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		if err == nil {
			err = s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "late", Event: Inline([]byte("start"))})
		}
		if err != nil {
			t.Fatal(err)
		}
		orchestrations, err := s.Orchestrations.OldestReady(t.Context())
		if err != nil || len(orchestrations) != queuesPage+1 || orchestrations[queuesPage].Orchestrator != "late" {
			t.Fatalf("the turns of %d orchestrators are looked at: %v", len(orchestrations), err)
		}
	})
}

// The API key of an instance is that of its activities and of its sub-orchestrations.
func TestKeyOfAnInstance(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantOf(t, s, "acme")
		if err := s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: Inline([]byte("start")), KeyID: "key_payer"}); err != nil {
			t.Fatal(err)
		}
		item := takeItem(t, s)
		_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("event")), Activities: []NewActivity{{Name: "step", Event: Inline([]byte("do"))}},
			Messages: []OrchestrationMessage{{To: "two", Start: &NewOrchestration{Tenant: tenant, ID: "two", Execution: "first", Name: "fan", Event: Inline([]byte("start"))}}}})
		if err != nil {
			t.Fatal(err)
		}
		if item = takeItem(t, s); item.ID != "two" {
			t.Fatalf("the turn of %s", item.ID)
		}
		claims := make(chan []ActivityItem)
		go func() { // the second comes straight from the turn, if this waits by then
			for range 2 {
				activities, err := s.Orchestrations.ClaimActivities(t.Context(), anyWork(1))
				if err != nil {
					t.Error(err)
				}
				claims <- activities
			}
		}()
		first := <-claims
		if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("event")), Activities: []NewActivity{{Name: "step", Event: Inline([]byte("do"))}}}); err != nil {
			t.Fatal(err)
		}
		for _, a := range append(first, <-claims...) {
			if a.KeyID != "key_payer" {
				t.Errorf("%q pays for the activity of %s", a.KeyID, a.ID)
			}
		}
	})
}

// A suspension, resumption or termination writes the same number of rows with and without
// activities. Activities and their inputs stay as they are.
func TestSuspendAndTerminateLeaveActivitiesAlone(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const n, few = 50, 10
		o, _ := underWay(t, s, n)
		tenant := tenantOf(t, s, "acme")
		for _, does := range []Effect{Suspends, Resumes, Terminates} {
			written, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageSettle}, func(t *tx) (written int64, err error) {
				count := func() (rows int64) {
					sql := "SELECT total_changes()"
					if t.w.Shared() {
						sql = "SELECT CAST(sum(n_tup_ins + n_tup_upd + n_tup_del) AS bigint) FROM pg_stat_xact_user_tables"
					}
					if err == nil {
						_, err = t.Prep(sql).One(func(r driver.Row) { rows = r.Int(0) })
					}
					return rows
				}
				before := count()
				ref, failed := t.existing(tenant, o.ID)
				if failed == nil {
					failed = t.signal(tenant, ref, false, Inline([]byte("halt")), does)
				}
				return count() - before, errors.Join(err, failed)
			})
			if err != nil || written < 2 || written > few {
				t.Errorf("effect %d on %d activities: %d rows were written, %v", does, n, written, err)
			}
		}
	})
}
