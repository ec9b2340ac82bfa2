package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/queue"
)

// Jobs are submitted while others are claimed and settled, several times under the same key. Each
// is made once and delivered once.
func TestSubmitBesideClaims(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const producers, each = 16, 60
		tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		var delivered sync.Map
		var left atomic.Int64
		left.Store(producers / 2 * each)
		var workers, clients sync.WaitGroup
		working, stop := context.WithCancel(ctx)
		for range 2 {
			workers.Go(func() {
				for working.Err() == nil {
					got, err := s.Jobs.Claim(working, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 5, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
					if err != nil {
						return
					}
					for i := range got {
						if _, again := delivered.LoadOrStore(got[i].ID, true); again {
							t.Errorf("%s is delivered twice", got[i].ID)
						}
						if err := s.Jobs.Succeed(ctx, &got[i], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: got[i].Input, Size: 1}); err != nil {
							t.Error(err)
						}
						left.Add(-1)
					}
				}
			})
		}
		var ids sync.Map // key → the job it made
		for p := range producers {
			clients.Go(func() {
				for n := range each {
					key := fmt.Sprintf("%d,\"%d\\", p/2, n) // two producers share it
					made, err := s.Jobs.Submit(ctx, []NewJob{{ID: fmt.Sprintf("job_%d_%d", p, n), Tenant: tenant, Queue: queueID, Task: "echo", MaxAttempts: 5,
						Input: []byte("1"), InputSize: 1, IdempotencyKey: key, BodyHash: []byte(key)}})
					if err != nil || made[0].Err != nil {
						t.Errorf("%v, %v", err, made)
						return
					}
					if first, _ := ids.LoadOrStore(key, made[0].ID); first != made[0].ID {
						t.Errorf("the key %q has made %s and %s", key, first, made[0].ID)
					}
				}
			})
		}
		clients.Wait()
		for left.Load() > 0 && ctx.Err() == nil {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		stop()
		workers.Wait()
		if left.Load() != 0 {
			t.Fatalf("%d jobs were not delivered", left.Load())
		}
		made, err := s.Jobs.Submit(ctx, []NewJob{{ID: "job_other", Tenant: tenant, Queue: queueID, Task: "echo", MaxAttempts: 5, IdempotencyKey: `0,"0\`, BodyHash: []byte("other")}})
		var refused *forebay.Error
		if err != nil || !errors.As(made[0].Err, &refused) || refused.Code != forebay.CodeIdempotencyMismatch {
			t.Errorf("the same key with another body: %v, %+v", err, made)
		}
	})
}

// A subscription that is made between submissions gets the events of all jobs that are submitted
// after it.
func TestFollowBetweenSubmissions(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queue := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		submit := func(id string) {
			if _, err := s.Jobs.Submit(t.Context(), []NewJob{{ID: id, Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		submit("job_before")
		settings := bus.MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic := settings
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		topic, _, err := s.Bus.PutMessageQueue(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		all, everything := settings, true
		all.Name = entity.SubscriptionName(topic.Name, "all")
		all, _, err = s.Bus.PutSubscription(t.Context(), topic, all, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			submit(fmt.Sprintf("job_%d", n))
		}
		got, err := s.Bus.Receive(t.Context(), bus.ReceiveRequest{Queue: all, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil || len(got) != 3 {
			t.Fatalf("%d events (%v)", len(got), err)
		}
		for n, m := range got {
			if want := fmt.Sprintf("job_%d-1", n); m.MessageID != want {
				t.Errorf("event %d is %s instead of %s", n, m.MessageID, want)
			}
		}
	})
}

// The old holder of an expired lock and the new one settle in the same transaction. The old one
// gets forebay.ErrLockLost, and no transaction fails.
func TestTwoHoldersInOneTransaction(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		put(t, s, tenant, queueID, 1, nil)
		old := take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 1, time.Millisecond)[0]
		current := take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 1, time.Minute)[0]
		s.DB.OnCommit(func(c db.Commit) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		ends := dbtest.InOneTransaction(t, s.DB, func() error {
			return s.Jobs.Succeed(t.Context(), &old, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("0"), Size: 1})
		}, func() error {
			return s.Jobs.Succeed(t.Context(), &current, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
		})
		if !errors.Is(ends[0], forebay.ErrLockLost) || ends[1] != nil {
			t.Errorf("the old holder got %v, the new one %v", ends[0], ends[1])
		}
	})
}

// A writer for new jobs whose transaction has failed reads no budget, unlike the other writer. It
// would change what it has no right to.
func TestSubmitterLeavesBudgetsAlone(t *testing.T) {
	url := dbtest.Postgres(t)
	s, err := openStores(t.Context(), db.Options{URL: url, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	tenant, queueID, other := tenantNamed(t, s, "acme"), queueOf(t, s, "q"), queueOf(t, s, "other")
	nothing := int64(0)
	if err := setBudget(s, tenant, "", forebay.Budget{DailyTokens: &nothing}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "set-budget"}); err != nil {
		t.Fatal(err)
	}
	waiting := NewJob{ID: "job_waiting", Tenant: tenant, Queue: queueID, Task: "t0", MaxAttempts: 5}
	made, err := s.Jobs.Submit(t.Context(), []NewJob{waiting})
	if err != nil {
		t.Fatal(err)
	}
	changes, stop := s.DB.Watch(made[0].Seq)
	defer stop()
	waits := func() bool {
		job, err := s.Jobs.Job(t.Context(), tenant, waiting.ID)
		if err != nil {
			t.Fatal(err)
		}
		return job.Waiting == forebay.WaitBudget
	}
	until := func(want bool) {
		for waits() != want {
			<-changes
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		if got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, Plan: paidPlan}); !errors.Is(err, context.Canceled) {
			t.Errorf("a claim beyond the budget got %+v, %v", got, err)
		}
	}()
	until(true)
	cancel()
	<-claimed

	// Whatever is not apart waits from now on; and there is room again, of which nobody was told.
	admin, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	run := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	run(fmt.Sprintf("SELECT pg_advisory_lock(%d); UPDATE forebay.budgets SET daily_tokens = 1000000", schema.ApplicationID))
	if _, err := s.Jobs.Submit(t.Context(), []NewJob{{ID: waiting.ID, Tenant: tenant, Queue: other, Task: "t0", MaxAttempts: 5}}); err == nil {
		t.Error("two jobs have one id")
	}
	put(t, s, tenant, other, 1, nil)
	if !waits() {
		t.Error("the transaction has made a job ready that waited")
	}
	run(fmt.Sprintf("SELECT pg_advisory_unlock(%d)", schema.ApplicationID))
	s.DB.Notified(&db.Notification{Lost: true})
	until(false) // as soon as the other writer looks
}

// Two processes store jobs with the same key at once. There is one job, and both get it. The
// process whose transaction has failed serves its waiting claims in the next one.
func TestSameKeyAtOnce(t *testing.T) {
	for name, claims := range map[string]bool{"by the writers for new jobs": false, "by a writer that serves claims": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSameKeyAtOnce(t, claims)
		})
	}
}

func testSameKeyAtOnce(t *testing.T, claims bool) {
	url := dbtest.Postgres(t)
	var processes [2]*stores
	for i := range processes {
		s, err := openStores(t.Context(), db.Options{URL: url, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		put(t, s, tenantNamed(t, s, "acme"), queueOf(t, s, "before"), 1, nil) // the first of a process is stored alone
		processes[i] = s
	}
	first, second := processes[0], processes[1]
	tenant, queueID := tenantNamed(t, first, "acme"), queueOf(t, first, "q")

	// With a lock an administrator keeps a transaction that has stored a key from being committed.
	const key = 42
	admin, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	ask := func(sql string) (rows int) {
		t.Helper()
		results, err := admin.Exec(t.Context(), sql).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return len(results[len(results)-1].Rows)
	}
	until := func(sql string) {
		for ask(sql) == 0 {
			<-time.After(time.Millisecond)
		}
	}
	ask(fmt.Sprintf(`CREATE FUNCTION forebay.held() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(%[1]d); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER held AFTER INSERT ON forebay.idempotency DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION forebay.held();
		SELECT pg_advisory_lock(%[1]d)`, key))

	c := &claim{ClaimRequest: ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1, Lock: time.Minute, MaxDeliveries: 3}, Waiter: queue.NewWaiter()}
	jobOf := func(id string) []NewJob {
		return []NewJob{{ID: id, Tenant: tenant, Queue: queueID, Task: "echo", MaxAttempts: 5, IdempotencyKey: "once", BodyHash: []byte("same")}}
	}
	writer := second.DB.Inserter
	if claims {
		writer = second.DB.Writer
		c.part = Key.In(writer)
		writer.Visits <- c
		for second.Jobs.writerFor(jobOf("")) != writer {
			<-time.After(time.Millisecond)
		}
	}
	if first.Jobs.writerFor(jobOf("")) != first.DB.Inserter || second.Jobs.writerFor(jobOf("")) != writer {
		t.Fatal("the wrong writer would store the job")
	}
	var failed atomic.Int32
	second.DB.OnCommit(func(c db.Commit) {
		if c.Err != nil {
			failed.Add(1)
		}
	})
	var callers sync.WaitGroup
	submit := func(s *stores, id string, existing bool) {
		callers.Go(func() {
			made, err := s.Jobs.Submit(t.Context(), jobOf(id))
			if err != nil || made[0].Err != nil || made[0].ID != "job_1" || made[0].Existing != existing {
				t.Errorf("%s became %+v: %v", id, made, err)
			}
			if !existing || !claims {
				return
			}
			if c.Waits() {
				t.Error("the claim was not served")
			} else if len(c.deliveries) != 1 || c.deliveries[0].ID != "job_1" {
				t.Errorf("the claim was given %+v: %v", c.deliveries, c.Err)
			}
		})
	}
	submit(first, "job_1", false)
	until(fmt.Sprintf("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %d AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", key))
	submit(second, "job_2", true)
	until("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'")
	ask(fmt.Sprintf("SELECT pg_advisory_unlock(%d)", key))
	callers.Wait()
	if n := failed.Load(); n != 1 {
		t.Errorf("%d transactions failed", n)
	}
	if n := ask("SELECT 1 FROM forebay.jobs WHERE id IN ('job_1', 'job_2')"); n != 1 {
		t.Errorf("there are %d jobs", n)
	}
}
