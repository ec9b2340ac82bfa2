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
			if err := s.PauseDeployment(t.Context(), name, true, Audit{Actor: "a", Action: "pause-deployment", Target: name}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			_, err := transact(t.Context(), s, stageChange, func(tx *tx) (struct{}, error) {
				d, err := tx.deployment(name)
				if err != nil {
					return struct{}{}, err
				}
				if _, verdict := d.Reserve(tx.now, quota.Limits{}, quota.Request{}); verdict.Reason != forebay.WaitPaused {
					t.Errorf("%q is not paused: %+v", name, verdict)
				}
				if read := len(tx.deployments); s.Shared() && read != 1 {
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
			if _, err := s.Submit(t.Context(), jobs); err != nil {
				t.Fatal(err)
			}
		}
		standing := func(tenant int64, id string, share Share, limit, want int64, more bool) {
			t.Helper()
			row, err := s.Job(t.Context(), tenant, id)
			if err != nil || !row.Ready {
				t.Fatalf("%+v (%v)", row, err)
			}
			at, err := s.Standing(t.Context(), &row, share, limit)
			if err != nil || at.Ahead != want || at.More != more {
				t.Errorf("%s: %d ahead, more %t (%v); want %d, %t", id, at.Ahead, at.More, err, want, more)
			}
		}
		submit(tenant, "plain", 5, 100)
		standing(tenant, "plain-0", noShare, 1000, 0, false)
		standing(tenant, "plain-70", noShare, 1000, 70, false)
		standing(tenant, "plain-70", noShare, 50, 50, true)

		submit(tenant, "urgent", 7, 10)
		submit(tenant, "late", 1, 10)
		standing(tenant, "plain-0", noShare, 1000, 10, false)
		standing(tenant, "urgent-5", noShare, 1000, 5, false)
		standing(tenant, "late-3", noShare, 1000, 113, false)

		// Of another tenant as many go as of this one, if it has as many.
		submit(other, "theirs", 5, 30)
		standing(tenant, "plain-0", noShare, 1000, 10+11, false)
		standing(tenant, "plain-70", noShare, 1000, 10+70+30, false)
		standing(other, "theirs-9", noShare, 1000, 10+9+20, false)
		half := func(tenant int64) float64 {
			if tenant == other {
				return 0.5
			}
			return 1
		}
		standing(tenant, "plain-9", half, 1000, 10+9+10, false)
		if err := s.SetTenantPaused(t.Context(), other, true, Audit{Actor: "a", Action: "pause-tenant", Target: "other"}); err != nil {
			t.Fatal(err)
		}
		standing(tenant, "plain-70", noShare, 1000, 10+70, false)
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
		topic, _, err := s.PutMessageQueue(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		everything := true
		sub.Name = SubscriptionName(topic.Name, "all")
		sub, _, err = s.PutSubscription(t.Context(), topic, sub, []Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan []Message, 1)
		go func() { // which waits already
			messages, err := s.Receive(ctx, ReceiveRequest{Queue: sub, Max: 10, MaxBytes: 1 << 20, Delete: true, Wait: true})
			if err != nil {
				t.Error(err)
			}
			got <- messages
		}()
		heard := make(chan forebay.DeploymentChange, 10)
		s.OnDeploymentChange(func(c forebay.DeploymentChange) { heard <- c })
		fail := func(name string, n int) {
			for range n {
				if err := s.Tells(ctx, Admission{Option: Option{Deployment: name}, Reservation: quota.Reservation{Seq: 1}, Outcome: &quota.Outcome{Kind: quota.Transient}}); err != nil {
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
			changes, err := s.DeploymentChanges(ctx, name, 0, 10)
			if err != nil || len(changes) != want {
				t.Errorf("of %q: %+v (%v)", name, changes, err)
			}
		}
		if changes, err := s.DeploymentChanges(ctx, "", change.Number+1, 10); err != nil || len(changes) != 1 || changes[0].Deployment != "east" {
			t.Errorf("below the newest: %+v (%v)", changes, err)
		}
		holding, err := s.Holding(ctx)
		if err != nil || holding.Deployments["east"].Status(holding.Now, quota.Limits{}).Breaker != quota.Open {
			t.Errorf("east is %+v (%v)", holding.Deployments["east"], err)
		}
		if err := s.PauseDeployment(ctx, "west", true, Audit{Actor: "a", Action: "pause-deployment", Target: "west"}); err != nil {
			t.Fatal(err)
		}
		if holding, err = s.Holding(ctx); err != nil || !holding.Deployments["west"].Status(holding.Now, quota.Limits{}).Operator {
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
			if err := s.Tells(ctx, Admission{Option: Option{Deployment: name}, Reservation: r, Outcome: &o}); err != nil {
				t.Fatal(err)
			}
		}
		// tried reports whether a deployment takes a call now, and makes it.
		tried := func(name string) (r quota.Reservation, takes bool) {
			t.Helper()
			_, err := transact(ctx, s, stageChange, func(tx *tx) (struct{}, error) {
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
		changes, err := s.DeploymentChanges(ctx, "east", 0, 10)
		if err != nil || len(changes) != 1 || changes[0].Type != string(quota.BreakerOpened) || changes[0].Reason != "insufficient_quota" || changes[0].Until == nil {
			t.Errorf("%+v (%v)", changes, err)
		}
		if err := s.RetryDenied(ctx, []string{"north", "east"}); err != nil {
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
		if err := s.PauseDeployment(ctx, "east", false, Audit{Actor: "a", Action: "resume-deployment", Target: "east"}); err != nil {
			t.Fatal(err)
		}
		if r, takes := tried("east"); !takes || !r.Probe {
			t.Error("east takes no call after it was resumed")
		}
		if holding, err := s.Holding(ctx); err != nil || holding.Deployments["north"] != nil {
			t.Errorf("something is known of a deployment that nobody called: %v", err)
		}
	})
}
