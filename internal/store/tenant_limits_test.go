package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// What is counted of a tenant is what it has, and nothing of another's.
func TestLimitUsedIsTheTruth(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		ctx, acme, other, queue := t.Context(), tenantOf(t, s, "acme"), tenantOf(t, s, "other"), queueOf(t, s, "q")
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		expect := func(tenant int64, want map[forebay.LimitName]int64) {
			t.Helper()
			for _, name := range forebay.LimitNames() {
				got, err := s.LimitUsed(ctx, tenant, name, 100)
				ok(err)
				if got != want[name] {
					t.Errorf("%d %s, want %d", got, name, want[name])
				}
			}
		}
		expect(acme, nil)

		later, far := time.Now().Add(time.Hour), time.Now().Add(24*time.Hour)
		var jobs []NewJob
		for i := range 5 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("acme-", i), Tenant: acme, Queue: queue, Task: "t", Priority: i, InputSize: 10, MaxAttempts: 3, Input: []byte("1")})
		}
		jobs[4].ScheduledAt = &later
		jobs = append(jobs, NewJob{ID: "other", Tenant: other, Queue: queue, Task: "t", InputSize: 7, MaxAttempts: 3, Input: []byte("1"), ScheduledAt: &far})
		made, err := s.Submit(ctx, jobs)
		ok(err)
		expect(acme, map[forebay.LimitName]int64{forebay.LimitWaitingJobs: 5, forebay.LimitScheduled: 1, forebay.LimitStoredBytes: 50})
		expect(other, map[forebay.LimitName]int64{forebay.LimitWaitingJobs: 1, forebay.LimitScheduled: 1, forebay.LimitStoredBytes: 7})
		_, err = s.Cancel(ctx, made[0].Seq)
		ok(err)
		_, err = s.Cancel(ctx, made[4].Seq)
		ok(err)

		q, _, err := s.PutMessageQueue(ctx, MessageQueue{Name: "acme/m", Tenant: acme, Lock: time.Minute, MaxDeliveries: 3, RequiresSession: true}, 10)
		ok(err)
		_, err = s.Send(ctx, q, []MessageContent{{MessageID: "12", SessionID: "s"}, {MessageID: "34", SessionID: "r", Body: []byte("567")}, {MessageID: "89", SessionID: "s", ScheduledAt: &later}})
		ok(err)
		if fresh, err := s.NewSessions(ctx, q, map[string]bool{"s": true, "x": true}); err != nil || fresh != 1 {
			t.Errorf("%d new sessions (%v)", fresh, err)
		}
		topic, _, err := s.PutMessageQueue(ctx, MessageQueue{Name: "acme/t", Tenant: acme, topicPart: topicPart{IsTopic: true}}, 10)
		ok(err)
		_, _, err = s.PutSubscription(ctx, topic, MessageQueue{Name: SubscriptionName(topic.Name, "sub"), Tenant: acme, Lock: time.Minute, MaxDeliveries: 3}, []Rule{{Name: forebay.DefaultRule}}, 10)
		ok(err)
		want := map[forebay.LimitName]int64{
			forebay.LimitWaitingJobs: 3, forebay.LimitWaitingMessages: 3, forebay.LimitScheduled: 1, forebay.LimitSessions: 2, forebay.LimitStoredBytes: 50 + 12,
			forebay.LimitMessageQueues: 1, forebay.LimitTopics: 1, forebay.LimitSubscriptions: 1, forebay.LimitRules: 1,
		}
		expect(acme, want)
		_, err = s.Send(ctx, topic, []MessageContent{{MessageID: "0"}})
		ok(err)
		want[forebay.LimitWaitingMessages]++
		want[forebay.LimitStoredBytes]++
		expect(acme, want)
	})
}

// What the configuration says wins over what was set since only when it changes.
func TestConfiguredLimits(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		acme := tenantOf(t, s, "acme")
		configure := func(wanted map[int64]forebay.TenantLimits, then int64) {
			t.Helper()
			if err := s.ConfigureLimits(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
			got, err := s.TenantLimits(t.Context(), acme)
			if most := got.Of(forebay.LimitWaitingJobs); err != nil || most != then {
				t.Fatalf("%d, want %d (%v)", most, then, err)
			}
		}
		limited := func(n int64) forebay.TenantLimits { return forebay.TenantLimits{WaitingJobs: &n} }
		standard := forebay.TenantLimits{}.Of(forebay.LimitWaitingJobs)
		configure(nil, standard)
		configure(map[int64]forebay.TenantLimits{acme: limited(5)}, 5)
		set := limited(7)
		if err := s.SetTenant(t.Context(), acme, forebay.TenantSettings{Limits: &set}); err != nil {
			t.Fatal(err)
		}
		configure(map[int64]forebay.TenantLimits{acme: limited(5)}, 7)
		configure(map[int64]forebay.TenantLimits{acme: limited(6)}, 6)
		configure(nil, standard)
	})
}
