package store

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

var noShare = func(int64) float64 { return 1 }

// A transaction reads the states of the deployments that it is about, whatever they are called.
func TestStatesThatAreRead(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		names := []string{"east", `we"st`, `{no\rth,NULL}`, "", "süd"}
		for _, name := range names {
			if err := s.Admission.PauseDeployment(t.Context(), name, true, Audit{Actor: "a", Action: "pause-deployment", Target: name}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				d, err := tx.deployment(name)
				if err != nil {
					return struct{}{}, err
				}
				if _, verdict := d.Reserve(tx.now, quota.Limits{}, quota.Request{}); verdict.Reason != forebay.WaitPaused {
					t.Errorf("%q is not paused: %+v", name, verdict)
				}
				if read := len(tx.deployments); s.DB.Shared() && read != 1 {
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

// A job's position is by what is claimed before it: those of its line, those of a higher priority, and of
// other tenants as many as have their turn meanwhile.
func TestStanding(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant := tenantOf(t, s, "default")
		other := tenantOf(t, s, "other")
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
		estimated := func(tenant int64, id string, share Share, limit, want, counted int64) {
			t.Helper()
			row, err := s.Jobs.Job(t.Context(), tenant, id)
			if err != nil || !row.Ready {
				t.Fatalf("%+v (%v)", row, err)
			}
			at, err := s.Jobs.Standing(t.Context(), &row, share, limit)
			if err != nil || at.Jobs != want || at.Counted != counted {
				t.Errorf("%s: %+v (%v); want %d ahead, %d of them counted", id, at.Ahead, err, want, counted)
			}
		}
		standing := func(tenant int64, id string, share Share, limit, want int64) {
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
		if err := s.Jobs.SetTenantPaused(t.Context(), other, true, Audit{Actor: "a", Action: "pause-tenant", Target: "other"}); err != nil {
			t.Fatal(err)
		}
		standing(tenant, "plain-70", noShare, 1000, 10+70)
	})
}

// More jobs than are counted are estimated, also those of other lines; and of those that became ready in the same millisecond, or will, the
// ones with lower numbers go first. A lock that ends before a job is ready is nobody ahead of it.
func TestStandingOfMany(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const jobs, tenants, limit = 20_000, 5, 100
		queue := queueOf(t, s, "q")
		subqueue := int64(SubqueueOf(queue, SubqueueMain))
		var now int64
		fill := func(rank, visible string) {
			t.Helper()
			_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				if err := tx.prep("DELETE FROM messages").exec(); err != nil {
					return struct{}{}, err
				}
				now = tx.now
				return struct{}{}, tx.prep("INSERT INTO messages (seq, lane, rank, visible, size) WITH RECURSIVE c(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM c WHERE i < ?3)" +
					" SELECT i, ?1 + 0, " + rank + ", " + visible + ", 1 FROM c").int(subqueue).int(now).int(jobs).exec()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		standing := func(seq, line, visible int64) Standing {
			t.Helper()
			at, err := s.Jobs.Standing(t.Context(), &JobRow{Seq: seq, Tenant: line / ranksOfTenant, subqueue: subqueue, line: line, visible: visible}, noShare, limit)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		near := func(what string, a Ahead, want, counted int64) {
			t.Helper()
			if a.Jobs < want*9/10 || a.Jobs > want*11/10 || a.Counted != counted {
				t.Errorf("%s: %+v; want about %d, and %d counted", what, a, want, counted)
			}
		}
		const line = ranksOfTenant + 4
		fill("1024 + 4", "?2 - 60000 + i")
		if at := standing(limit, line, now-60_000+limit); at.Ahead != (Ahead{Jobs: limit - 1, Own: limit - 1}) {
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
			if got := standing(50, line, at); got.Ahead != (Ahead{Jobs: 49, Own: 49}) || at > now != (got.With == got.Ahead) {
				t.Errorf("%s: %+v with %+v", name, got.Ahead, got.With)
			}
			near(name, standing(15_000, line, at).Ahead, 15_000, limit)
		}
		// The first hundred are with workers, the others are ready by then.
		fill("1024 + 4", "?2 + CASE WHEN i <= 100 THEN 30000 ELSE -i END")
		if _, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
			return struct{}{}, tx.prep("UPDATE messages SET token = 1 WHERE seq <= 100").exec()
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
			return struct{}{}, tx.prep("DELETE FROM messages WHERE seq > 150").exec()
		}); err != nil {
			t.Fatal(err)
		}
		if got := standing(jobs+1, line, now+60_000); got.Ahead != (Ahead{Jobs: 50, Own: 50}) || got.With != (Ahead{}) {
			t.Errorf("behind locks: %+v with %+v", got.Ahead, got.With)
		}
	})
}

// However many lines a subqueue has, few of them are visited to tell what is ahead of a job, and what was not counted is told as such.
func TestStandingVisitsFewLines(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const tenants, jobs, limit = 700, 14_000, 100
		subqueue := int64(SubqueueOf(queueOf(t, s, "q"), SubqueueMain))
		var now int64
		// Each tenant has two jobs of each of ten priorities, of its own one of 40 classes or of class 1.
		_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
			now = tx.now
			return struct{}{}, tx.prep("INSERT INTO messages (seq, lane, rank, visible, size) WITH RECURSIVE c(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM c WHERE i < ?3)" +
				" SELECT i, ?1 + 0, (1 + i % 700) * 1024 + CASE WHEN i % 2 = 0 THEN 16 ELSE 32 + i % 40 * 16 END + i / 700 % 10, ?2 - 14000 + i, 1 FROM c").int(subqueue).int(now).int(jobs).exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range []int64{2, jobs / 2, jobs} {
			line := (1+seq%tenants)*ranksOfTenant + ranksOfClass + seq/tenants%10
			job := JobRow{Seq: seq, Tenant: tenantOfLine(line), subqueue: subqueue, line: line, visible: now - jobs + seq}
			visited := 0
			err := s.DB.read(t.Context(), func(c conn) error {
				visited = 0
				return c.prep(sqlListBeside).int(subqueue).int(line).int(ranksOfClass).int(never).int(maxAheadSteps).each(func(row) error { visited++; return nil })
			})
			if err != nil || visited != maxAheadSteps {
				t.Errorf("%d lines are visited (%v)", visited, err)
			}
			at, err := s.Jobs.Standing(t.Context(), &job, noShare, limit)
			if err != nil || at.Counted == 0 || at.Counted > at.Jobs || at.Own > jobs/tenants || at.Jobs > (at.Own+1)*tenants {
				t.Errorf("job %d: %+v (%v)", seq, at.Ahead, err)
			}
		}
	})
}

// Of a tenant with a limit, and of retries, it is told how long calls take; of a job that waits for a budget, whether that can ever pay.
func TestStandingOfCalls(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		capped, free, queue := tenantOf(t, s, "default"), tenantOf(t, s, "other"), queueOf(t, s, "q")
		capTenant(t, s, capped, 2)
		var jobs []NewJob
		for i := range 6 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("capped-", i), Tenant: capped, Queue: queue, Task: "t", Priority: 9, MaxAttempts: 3})
		}
		later := s.DB.Now().Add(time.Hour)
		jobs = append(jobs, NewJob{ID: "free-0", Tenant: free, Queue: queue, Task: "t", MaxAttempts: 3, ScheduledAt: &later})
		submitAll(t, s, jobs...)
		standing := func(tenant int64, id string) Standing {
			t.Helper()
			row, err := s.Jobs.Job(t.Context(), tenant, id)
			if err != nil {
				t.Fatal(err)
			}
			at, err := s.Jobs.Standing(t.Context(), &row, noShare, 100)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		claim := func(n int) []Delivery {
			t.Helper()
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: n, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
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
			if err := setBudget(s, free, "", forebay.Budget{DailyTokens: &limit}, Audit{Tenant: "other", Actor: "a", Action: "set-budget"}); err != nil {
				t.Fatal(err)
			}
			_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				err := tx.prep("UPDATE messages SET visible = ?, waiting = 'budget' WHERE seq IN (SELECT seq FROM jobs WHERE id = 'free-0')").int(periodEnd(0, tx.now)).exec()
				if err == nil {
					err = tx.prep(`INSERT INTO budget_waits (seq, budget, rank, key_id, until, tokens, cost)
						SELECT j.seq, b.no, 0, '', 0, 11, 0 FROM jobs j JOIN budgets b ON b.tenant = j.tenant WHERE j.id = 'free-0' ON CONFLICT (seq) DO NOTHING`).exec()
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

// What happens to a deployment is kept, told to whoever listens in the process whose transaction it was, once,
// and to the subscribers of the operators' topic.
func TestDeploymentChangesAreTold(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant := tenantOf(t, s, "default")
		settings := MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic, sub := settings, settings
		topic.Name, topic.IsTopic = forebay.DefaultTenant+"/"+forebay.TopicOperations, true
		topic, _, err := s.Bus.PutMessageQueue(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		everything := true
		sub.Name = SubscriptionName(topic.Name, "all")
		sub, _, err = s.Bus.PutSubscription(t.Context(), topic, sub, []Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan []Message, 1)
		go func() { // which waits already
			messages, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true, Wait: true})
			if err != nil {
				t.Error(err)
			}
			got <- messages
		}()
		heard := make(chan forebay.DeploymentChange, 10)
		s.Admission.OnDeploymentChange(func(c forebay.DeploymentChange) { heard <- c })
		fail := func(name string, n int) {
			for range n {
				if err := s.Admission.Tells(ctx, Admission{Option: Option{Deployment: name}, Reservation: quota.Reservation{Seq: 1}, Outcome: &quota.Outcome{Kind: quota.Transient}}); err != nil {
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
		if err := s.Admission.PauseDeployment(ctx, "west", true, Audit{Actor: "a", Action: "pause-deployment", Target: "west"}); err != nil {
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

// Of a deployment that turns calls away operators are told why, and they, or a start of the server, have it tried again at
// once; of others that says nothing.
func TestDeniedDeployments(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		deny := func(name string, r quota.Reservation) {
			t.Helper()
			o := quota.Outcome{Kind: quota.Denied, Denial: quota.Unpaid, Certain: true}
			if err := s.Admission.Tells(ctx, Admission{Option: Option{Deployment: name}, Reservation: r, Outcome: &o}); err != nil {
				t.Fatal(err)
			}
		}
		// tried reports whether a deployment takes a call now, and makes it.
		tried := func(name string) (r quota.Reservation, takes bool) {
			t.Helper()
			_, err := transactIn(ctx, admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				d, err := tx.deployment(name)
				if err != nil {
					return struct{}{}, err
				}
				r, _ = d.Reserve(tx.now, quota.Limits{}, quota.Request{})
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return r, r.Seq != 0
		}
		for _, name := range []string{"east", "west"} {
			r, _ := tried(name)
			deny(name, r)
			if _, takes := tried(name); takes {
				t.Fatalf("%s takes calls", name)
			}
		}
		changes, err := s.Admission.DeploymentChanges(ctx, "east", 0, 10)
		if err != nil || len(changes) != 1 || changes[0].Type != string(quota.BreakerOpened) || changes[0].Reason != "insufficient_quota" || changes[0].Until == nil {
			t.Errorf("%+v (%v)", changes, err)
		}
		if err := s.Admission.RetryDenied(ctx, []string{"north", "east"}); err != nil {
			t.Fatal(err)
		}
		r, takes := tried("east")
		if _, more := tried("east"); !takes || !r.Probe || more {
			t.Errorf("east takes a call: %t; more: %t", takes, more)
		}
		if _, takes := tried("west"); takes {
			t.Error("west takes calls, which another server has")
		}
		deny("east", r)
		if err := s.Admission.PauseDeployment(ctx, "east", false, Audit{Actor: "a", Action: "resume-deployment", Target: "east"}); err != nil {
			t.Fatal(err)
		}
		if r, takes := tried("east"); !takes || !r.Probe {
			t.Error("east takes no call after it was resumed")
		}
		if holding, err := s.Admission.Holding(ctx); err != nil || holding.Deployments["north"] != nil {
			t.Errorf("something is known of a deployment that nobody called: %v", err)
		}
	})
}

// turnedAway is what is told of a call that was turned away, perhaps for the job's own fault.
func turnedAway(d *Delivery, why quota.Denial) (a, back AttemptRecord) {
	d.Admission.Outcome = &quota.Outcome{Kind: quota.Denied, Denial: why}
	a = AttemptRecord{Deployment: d.Admission.Deployment, Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: why.String()}
	back = a
	back.Outcome = forebay.OutcomeRetried
	return a, back
}

// An endpoint fails, and turns away the calls that are still under way, as an ingress does while what is behind it goes: no job
// fails for good.
func TestRefusalsOfAnOutageCostNoJob(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const all, failing = 40, 15
		ctx, tenant, queue := t.Context(), tenantOf(t, s, "a"), queueOf(t, s, "q")
		for i := range all {
			submitAll(t, s, NewJob{ID: fmt.Sprint(i), Tenant: tenant, Queue: queue, Task: "east", Priority: 5})
		}
		var calls []Delivery
		for len(calls) < all {
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: all, MaxBytes: 1 << 20, Lock: time.Hour, Plan: planOf(quota.Limits{})})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, got...)
		}
		for i := range calls[:failing] {
			calls[i].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
			a := AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, ErrorCode: "unavailable", RetryDelay: time.Hour}
			if err := s.Jobs.Retry(ctx, &calls[i], a); err != nil {
				t.Fatal(err)
			}
		}
		for i := range calls[failing:] {
			d := &calls[failing+i]
			a, back := turnedAway(d, quota.NotFound)
			if failed, err := s.Jobs.SetAsideUnlessDenied(ctx, d, a, back, SubqueueDeadLetter, "not_found"); err != nil || failed {
				t.Errorf("job %s failed for good: %t (%v)", d.ID, failed, err)
			}
		}
		if holding, err := s.Admission.Holding(ctx); err != nil || holding.Deployments["east"].Status(holding.Now, quota.Limits{}).Breaker != quota.Open {
			t.Errorf("east is %+v (%v)", holding.Deployments["east"], err)
		}
		jobs, _, err := s.Jobs.Jobs(ctx, JobQuery{Tenant: tenant, Limit: all})
		if err != nil || len(jobs) != all {
			t.Fatal(len(jobs), err)
		}
		for _, job := range jobs {
			if job.Status != forebay.StatusQueued && job.Status != forebay.StatusRetrying {
				t.Errorf("%s is %s", job.ID, job.Status)
			}
		}
	})
}

// Calls of a tenant's that are refused one by one, as a firewall refuses prompts, do not keep another tenant's from a deployment that
// both use: it is tried about once a minute, at least every other time with the job whose turn it is.
func TestRefusedPromptsKeepNoOtherTenantAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, queue int64) {
		const batch, forgiven = 30, 3
		a, b := tenantOf(t, s, "a"), tenantOf(t, s, "b")
		for i := range batch {
			submitAll(t, s, NewJob{ID: fmt.Sprint("bad", i), Tenant: a, Queue: queue, Task: "east", Priority: 5})
		}
		var came time.Duration
		began, good := time.Now(), "good"
		for ended := 0; ended <= batch; {
			if time.Since(began) >= 10*time.Minute && came == 0 {
				came = time.Since(began)
				if holding, err := s.Admission.Holding(t.Context()); err != nil || holding.Deployments["east"].Denied() != quota.Unauthorized {
					t.Fatalf("it takes calls, with %d jobs ended (%v)", ended, err)
				}
				submitAll(t, s, NewJob{ID: good, Tenant: b, Queue: queue, Task: "east", Priority: 5})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: 4, MaxBytes: 1 << 20, Lock: time.Hour, Plan: planOf(quota.Limits{})})
			if cancel(); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			if time.Since(began) > 24*time.Hour {
				t.Fatalf("after a day %d jobs have ended", ended)
			}
			<-time.After(100 * time.Millisecond)
			for i := range got {
				d := &got[i]
				if d.ID == good {
					if waited := d.LockedAt.Sub(d.CreatedAt); waited > 6*time.Minute {
						t.Errorf("it waited for %s", waited)
					}
					ended++
					d.Admission.Outcome = &quota.Outcome{Kind: quota.Succeeded}
					if err := s.Jobs.Succeed(t.Context(), d, AttemptRecord{Deployment: "east", Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				record, back := turnedAway(d, quota.Unauthorized)
				failed := d.Number-1 >= forgiven
				if failed {
					err = s.Jobs.SetAside(t.Context(), d, record, SubqueueDeadLetter, "unauthorized")
				} else {
					failed, err = s.Jobs.SetAsideUnlessDenied(t.Context(), d, record, back, SubqueueDeadLetter, "unauthorized")
				}
				if err != nil {
					t.Fatal(err)
				}
				if failed {
					ended++
				}
			}
		}
	})
}
