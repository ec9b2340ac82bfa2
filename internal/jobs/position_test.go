package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

var noShare = func(int64) float64 { return 1 }

// A transaction reads the states of the deployments that it is about, whatever they are called.
func TestStatesThatAreRead(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		names := []string{"east", `we"st`, `{no\rth,NULL}`, "", "süd"}
		for _, name := range names {
			if err := s.Admission.PauseDeployment(t.Context(), name, true, audit.Act{Actor: "a", Action: "pause-deployment", Target: name}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			_, err := db.TransactIn(t.Context(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
				d, err := tx.Deployment(name)
				if err != nil {
					return struct{}{}, err
				}
				if _, verdict := d.Reserve(tx.Now, quota.Limits{}, quota.Request{}); verdict.Reason != forebay.WaitPaused {
					t.Errorf("%q is not paused: %+v", name, verdict)
				}
				if read := len(tx.Deployments); s.DB.Shared() && read != 1 {
					t.Errorf("%d states were read for %q", read, name)
				}
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A job's position counts what is claimed before it. Those are jobs of its flow, jobs of a higher
// priority, and as many jobs of other tenants as have their turn meanwhile.
func TestPosition(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "default")
		other := tenantNamed(t, s, "other")
		queue := queueOf(t, s, "q")
		submit := func(tenant int64, prefix string, priority, n int) {
			jobs := make([]NewJob, n)
			for i := range jobs {
				jobs[i] = NewJob{ID: fmt.Sprintf("%s-%d", prefix, i), Tenant: tenant, Queue: queue, Task: "t", Priority: priority, MaxAttempts: 1, Input: []byte("1"), InputSize: 1}
			}
			if _, err := s.Jobs.Submit(t.Context(), jobs); err != nil {
				t.Fatal(err)
			}
		}
		estimated := func(tenant int64, id string, share flows.Shares, limit, want, counted int64) {
			t.Helper()
			row, err := s.Jobs.Job(t.Context(), tenant, id)
			if err != nil || !row.Ready {
				t.Fatalf("%+v (%v)", row, err)
			}
			at, err := position(t, s, &row, share, limit)
			if err != nil || at.Jobs != want || at.Counted != counted {
				t.Errorf("%s: %+v (%v); want %d ahead, %d of them counted", id, at.Ahead, err, want, counted)
			}
		}
		standing := func(tenant int64, id string, share flows.Shares, limit, want int64) {
			t.Helper()
			estimated(tenant, id, share, limit, want, 0)
		}
		submit(tenant, "plain", 5, 100)
		standing(tenant, "plain-0", noShare, 1000, 0)
		standing(tenant, "plain-70", noShare, 1000, 70)
		estimated(tenant, "plain-70", noShare, 50, 70, 50)

		submit(tenant, "urgent", 7, 10)
		submit(tenant, "late", 1, 10)
		standing(tenant, "plain-0", noShare, 1000, 10)
		standing(tenant, "urgent-5", noShare, 1000, 5)
		standing(tenant, "late-3", noShare, 1000, 113)

		// Of another tenant as many go as of this one, if it has as many.
		submit(other, "theirs", 5, 30)
		standing(tenant, "plain-0", noShare, 1000, 10+11)
		standing(tenant, "plain-70", noShare, 1000, 10+70+30)
		standing(other, "theirs-9", noShare, 1000, 9+10)
		half := func(tenant int64) float64 {
			if tenant == other {
				return 0.5
			}
			return 1
		}
		standing(tenant, "plain-9", half, 1000, 10+9+10)
		if err := s.Jobs.SetTenantPaused(t.Context(), other, true, audit.Act{Actor: "a", Action: "pause-tenant", Target: "other"}); err != nil {
			t.Fatal(err)
		}
		standing(tenant, "plain-70", noShare, 1000, 10+70)
	})
}

// More jobs than are counted are estimated, also those of other flows. Of jobs that become ready
// in the same millisecond, those with lower numbers go first. A locked job whose lock ends before
// a job is ready is not ahead of it.
func TestPositionAmongMany(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const jobs, tenants, limit = 20_000, 5, 100
		queueID := queueOf(t, s, "q")
		subqueue := int64(queue.SubqueueOf(queueID, queue.SubqueueMain))
		var now int64
		fill := func(rank, visible string) {
			t.Helper()
			_, err := db.TransactIn(t.Context(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
				if err := tx.Prep("DELETE FROM messages").Exec(); err != nil {
					return struct{}{}, err
				}
				now = tx.Now
				return struct{}{}, tx.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size) WITH RECURSIVE c(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM c WHERE i < ?3)" +
					" SELECT i, ?1 + 0, " + rank + ", " + visible + ", 1 FROM c").Int(subqueue).Int(now).Int(jobs).Exec()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		standing := func(seq, line, visible int64) backlog.Position {
			t.Helper()
			at, err := s.Backlog.Position(t.Context(), &backlog.Job{Seq: seq, Tenant: line / flows.PerTenant, Subqueue: queue.Subqueue(subqueue), Flow: line, Visible: visible}, noShare, limit)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		near := func(what string, a backlog.Ahead, want, counted int64) {
			t.Helper()
			if a.Jobs < want*9/10 || a.Jobs > want*11/10 || a.Counted != counted {
				t.Errorf("%s: %+v; want about %d, and %d counted", what, a, want, counted)
			}
		}
		const line = flows.PerTenant + 4
		fill("1024 + 4", "?2 - 60000 + i")
		if at := standing(limit, line, now-60_000+limit); at.Ahead != (backlog.Ahead{Jobs: limit - 1, Own: limit - 1}) {
			t.Errorf("of one line, few: %+v", at.Ahead)
		}
		near("of one line", standing(15_000, line, now-60_000+15_000).Ahead, 15_000, limit)
		fill("1024 + 4 - i % 2", "?2 - 60000 + i")
		near("with as many of a higher priority", standing(10_000, line, now-60_000+10_000).Ahead, 15_000, 2*limit)
		fill("(1 + i % 5) * 1024 + 4", "?2 - 60000 + i")
		at := standing(10_000, line, now-60_000+10_000).Ahead
		near("of one of five tenants", at, 10_000, 2*limit)
		if at.Own < 1_800 || at.Own > 2_200 {
			t.Errorf("%d of them are its tenant's", at.Own)
		}
		for name, visible := range map[string]string{"ready in the same millisecond": "?2 - 5", "ready tomorrow": "?2 + 86400000"} {
			fill("1024 + 4", visible)
			at := now - 5
			if name == "ready tomorrow" {
				at = now + 86_400_000
			}
			if got := standing(50, line, at); got.Ahead != (backlog.Ahead{Jobs: 49, Own: 49}) || at > now != (got.With == got.Ahead) {
				t.Errorf("%s: %+v with %+v", name, got.Ahead, got.With)
			}
			near(name, standing(15_000, line, at).Ahead, 15_000, limit)
		}
		// The first hundred are with workers, the others are ready by then.
		fill("1024 + 4", "?2 + CASE WHEN i <= 100 THEN 30000 ELSE -i END")
		if _, err := db.TransactIn(t.Context(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
			return struct{}{}, tx.Prep("UPDATE messages SET lock_token = 1 WHERE seq <= 100").Exec()
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.TransactIn(t.Context(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
			return struct{}{}, tx.Prep("DELETE FROM messages WHERE seq > 150").Exec()
		}); err != nil {
			t.Fatal(err)
		}
		if got := standing(jobs+1, line, now+60_000); got.Ahead != (backlog.Ahead{Jobs: 50, Own: 50}) || got.With != (backlog.Ahead{}) {
			t.Errorf("behind locks: %+v with %+v", got.Ahead, got.With)
		}
	})
}

// The position tells how long calls take, for a tenant with a limit and for retries. For a job
// that waits for a budget, it tells whether the budget can ever pay.
func TestPositionKnowsCalls(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		capped, free, queueID := tenantNamed(t, s, "default"), tenantNamed(t, s, "other"), queueOf(t, s, "q")
		capTenant(t, s, capped, 2)
		var jobs []NewJob
		for i := range 6 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("capped-", i), Tenant: capped, Queue: queueID, Task: "t", Priority: 9, MaxAttempts: 3})
		}
		later := s.DB.Now().Add(time.Hour)
		jobs = append(jobs, NewJob{ID: "free-0", Tenant: free, Queue: queueID, Task: "t", MaxAttempts: 3, ScheduledAt: &later})
		submitAll(t, s, jobs...)
		standing := func(tenant int64, id string) backlog.Position {
			t.Helper()
			row, err := s.Jobs.Job(t.Context(), tenant, id)
			if err != nil {
				t.Fatal(err)
			}
			at, err := position(t, s, &row, noShare, 100)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		claim := func(n int) []LockedJob {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: n, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
			if err != nil || len(got) != n {
				t.Fatalf("%+v %v", got, err)
			}
			return got
		}
		if at := standing(free, "free-0"); at.Calls.Most != 0 || at.Calls.Duration != 0 {
			t.Errorf("of a tenant without a limit: %+v", at.Calls)
		}
		got := claim(2)
		if at := standing(capped, "capped-5"); at.Calls.Most != 2 || len(at.Calls.Running) != 2 || at.Calls.Duration != 0 || at.Own != 3 {
			t.Errorf("before a call has ended: %+v, %+v", at.Calls, at.Ahead)
		}
		// As if it had begun half a minute ago, by the record.
		begun := got[0]
		begun.LockedAt = begun.LockedAt.Add(-30 * time.Second)
		if err := s.Jobs.Succeed(t.Context(), &begun, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
			t.Fatal(err)
		}
		if at := standing(capped, "capped-5"); len(at.Calls.Running) != 1 || at.Calls.Duration < 30*time.Second {
			t.Errorf("after a call: %+v", at.Calls)
		}
		if err := s.Jobs.Retry(t.Context(), &got[1], AttemptRecord{Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, RetryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if at := standing(capped, "capped-1"); at.Jobs != 0 || at.Calls.Duration < 15*time.Second {
			t.Errorf("of a retry: %+v, %+v", at.Ahead, at.Calls)
		}

		for limit, never := range map[int64]bool{0: true, 10: true, 11: false} {
			if err := setBudget(s, free, "", forebay.Budget{DailyTokens: &limit}, audit.Act{Tenant: "other", Actor: "a", Action: "set-budget"}); err != nil {
				t.Fatal(err)
			}
			_, err := db.TransactIn(t.Context(), admission.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
				err := tx.Prep("UPDATE messages SET visible_at = ?, waiting = 'budget' WHERE seq IN (SELECT seq FROM jobs WHERE id = 'free-0')").Int(admission.PeriodEnd(0, tx.Now)).Exec()
				if err == nil {
					err = tx.Prep(`INSERT INTO budget_waits (seq, budget, flow, key_id, until, tokens, cost)
						SELECT j.seq, b.no, 0, '', 0, 11, 0 FROM jobs j JOIN budgets b ON b.tenant = j.tenant WHERE j.id = 'free-0' ON CONFLICT (seq) DO NOTHING`).Exec()
				}
				return struct{}{}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			if at := standing(free, "free-0"); at.Unaffordable != never {
				t.Errorf("11 tokens of %d a day: never %t", limit, at.Unaffordable)
			}
		}
	})
}

// What happens to a deployment is stored. It is reported once to listeners in the process whose
// transaction it was, and published to the subscribers of the operators' topic.
func TestDeploymentChangesAreTold(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "default")
		settings := bus.MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic, sub := settings, settings
		topic.Name, topic.IsTopic = forebay.DefaultTenant+"/"+forebay.TopicOperations, true
		topic, _, err := s.Bus.PutMessageQueue(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		everything := true
		sub.Name = entity.SubscriptionName(topic.Name, "all")
		sub, _, err = s.Bus.PutSubscription(t.Context(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan []bus.Message, 1)
		go func() { // which waits already
			messages, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true, Wait: true})
			if err != nil {
				t.Error(err)
			}
			got <- messages
		}()
		heard := make(chan forebay.DeploymentChange, 10)
		s.Admission.OnDeploymentChange(func(c forebay.DeploymentChange) { heard <- c })
		fail := func(name string, n int) {
			for range n {
				if err := s.Admission.RecordOutcome(ctx, admission.Admission{Option: admission.Option{Deployment: name}, Reservation: quota.Reservation{Seq: 1}, Outcome: &quota.Outcome{Kind: quota.Transient}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		fail("east", 10)
		fail("west", 9)
		change := <-heard
		if change.Deployment != "east" || change.Type != string(quota.BreakerOpened) || change.Until == nil || !change.Until.After(change.At) {
			t.Errorf("heard of %+v", change)
		}
		messages := <-got
		if len(messages) != 1 {
			t.Fatalf("received %+v", messages)
		}
		var told forebay.DeploymentChange
		if err := json.Unmarshal(messages[0].Body, &told); err != nil || told.Number != change.Number || told.Deployment != "east" || messages[0].Subject != change.Type {
			t.Errorf("%+v was told as %s: %v", change, messages[0].Body, err)
		}
		fail("west", 1)
		<-heard
		for name, want := range map[string]int{"east": 1, "west": 1, "north": 0, "": 2} {
			changes, err := s.Admission.DeploymentChanges(ctx, name, 0, 10)
			if err != nil || len(changes) != want {
				t.Errorf("of %q: %+v (%v)", name, changes, err)
			}
		}
		if changes, err := s.Admission.DeploymentChanges(ctx, "", change.Number+1, 10); err != nil || len(changes) != 1 || changes[0].Deployment != "east" {
			t.Errorf("below the newest: %+v (%v)", changes, err)
		}
		holding, err := s.Admission.Holding(ctx)
		if err != nil || holding.Deployments["east"].Status(holding.Now, quota.Limits{}).Breaker != quota.Open {
			t.Errorf("east is %+v (%v)", holding.Deployments["east"], err)
		}
		if err := s.Admission.PauseDeployment(ctx, "west", true, audit.Act{Actor: "a", Action: "pause-deployment", Target: "west"}); err != nil {
			t.Fatal(err)
		}
		if holding, err = s.Admission.Holding(ctx); err != nil || !holding.Deployments["west"].Status(holding.Now, quota.Limits{}).Operator {
			t.Errorf("west is not paused: %v", err)
		}
		if len(heard) > 0 {
			t.Errorf("heard more: %+v", <-heard)
		}
	})
}

// position returns where a job stands.
func position(t *testing.T, s *stores, row *JobRow, shares flows.Shares, limit int64) (backlog.Position, error) {
	t.Helper()
	job := backlogJob(row)
	return s.Backlog.Position(t.Context(), &job, shares, limit)
}
