package tenant_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/tenant"
)

// What is counted of a tenant is what it has, and nothing of another's.
func TestLimitUsedIsTheTruth(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		ctx, acme, other, queue := t.Context(), tenantOf(t, s, "acme"), tenantOf(t, s, "other"), queueOf(t, s, "q")
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		expect := func(of int64, want map[forebay.LimitName]int64) {
			t.Helper()
			for _, name := range forebay.LimitNames() {
				got, err := s.Tenants.LimitUsed(ctx, of, name, 100)
				ok(err)
				if got != want[name] {
					t.Errorf("%d %s, want %d", got, name, want[name])
				}
			}
		}
		expect(acme, nil)

		later, far := time.Now().Add(time.Hour), time.Now().Add(24*time.Hour)
		var list []jobs.NewJob
		for i := range 5 {
			list = append(list, jobs.NewJob{ID: fmt.Sprint("acme-", i), Tenant: acme, Queue: queue, Task: "t", Priority: i, InputSize: 10, MaxAttempts: 3, Input: []byte("1")})
		}
		list[4].ScheduledAt = &later
		list = append(list, jobs.NewJob{ID: "other", Tenant: other, Queue: queue, Task: "t", InputSize: 7, MaxAttempts: 3, Input: []byte("1"), ScheduledAt: &far})
		made, err := s.Jobs.Submit(ctx, list)
		ok(err)
		expect(acme, map[forebay.LimitName]int64{forebay.LimitWaitingJobs: 5, forebay.LimitScheduled: 1, forebay.LimitStoredBytes: 50})
		expect(other, map[forebay.LimitName]int64{forebay.LimitWaitingJobs: 1, forebay.LimitScheduled: 1, forebay.LimitStoredBytes: 7})
		_, err = s.Jobs.Cancel(ctx, made[0].Seq)
		ok(err)
		_, err = s.Jobs.Cancel(ctx, made[4].Seq)
		ok(err)

		q, _, err := s.Bus.PutMessageQueue(ctx, bus.MessageQueue{Name: "acme/m", Tenant: acme, Lock: time.Minute, MaxDeliveries: 3, RequiresSession: true}, 10)
		ok(err)
		_, err = s.Bus.Send(ctx, q, []bus.MessageContent{{MessageID: "12", SessionID: "s"}, {MessageID: "34", SessionID: "r", Body: []byte("567")}, {MessageID: "89", SessionID: "s", ScheduledAt: &later}})
		ok(err)
		if fresh, err := s.Bus.Sessions().CountNewSessions(ctx, q, map[string]bool{"s": true, "x": true}); err != nil || fresh != 1 {
			t.Errorf("%d new sessions (%v)", fresh, err)
		}
		topic := bus.MessageQueue{Name: "acme/t", Tenant: acme}
		topic.IsTopic = true
		topic, _, err = s.Bus.PutMessageQueue(ctx, topic, 10)
		ok(err)
		_, _, err = s.Bus.PutSubscription(ctx, topic, bus.MessageQueue{Name: entity.SubscriptionName(topic.Name, "sub"), Tenant: acme, Lock: time.Minute, MaxDeliveries: 3}, []bus.Rule{{Name: forebay.DefaultRule}}, 10)
		ok(err)
		want := map[forebay.LimitName]int64{
			forebay.LimitWaitingJobs: 3, forebay.LimitWaitingMessages: 3, forebay.LimitScheduled: 1, forebay.LimitSessions: 2, forebay.LimitStoredBytes: 50 + 12,
			forebay.LimitMessageQueues: 1, forebay.LimitTopics: 1, forebay.LimitSubscriptions: 1, forebay.LimitRules: 1,
		}
		expect(acme, want)
		_, err = s.Bus.Send(ctx, topic, []bus.MessageContent{{MessageID: "0"}})
		ok(err)
		want[forebay.LimitWaitingMessages]++
		want[forebay.LimitStoredBytes]++
		expect(acme, want)
	})
}

// What the configuration says wins over what was set since only when it changes.
func TestConfiguredLimits(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		acme := tenantOf(t, s, "acme")
		configure := func(wanted map[int64]forebay.TenantLimits, then int64) {
			t.Helper()
			if err := s.Tenants.ConfigureLimits(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
			got, err := s.Tenants.TenantLimits(t.Context(), acme)
			if most := got.Of(forebay.LimitWaitingJobs); err != nil || most != then {
				t.Fatalf("%d, want %d (%v)", most, then, err)
			}
		}
		limited := func(n int64) forebay.TenantLimits { return forebay.TenantLimits{WaitingJobs: &n} }
		standard := forebay.TenantLimits{}.Of(forebay.LimitWaitingJobs)
		configure(nil, standard)
		configure(map[int64]forebay.TenantLimits{acme: limited(5)}, 5)
		set := limited(7)
		if err := s.Tenants.SetTenant(t.Context(), acme, forebay.TenantSettings{Limits: &set}); err != nil {
			t.Fatal(err)
		}
		configure(map[int64]forebay.TenantLimits{acme: limited(5)}, 7)
		configure(map[int64]forebay.TenantLimits{acme: limited(6)}, 6)
		configure(nil, standard)
	})
}

// Stored bytes are all that a tenant has stored: payloads in blob storage, vectors, states of
// sessions, and messages. One queue has more of them than one read takes in.
func TestStoredBytesAreAll(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores.Stores) {
		acme, other := tenantOf(t, s, "acme"), tenantOf(t, s, "other")
		expect := func(what string, want int64) {
			t.Helper()
			if got, err := s.Tenants.LimitUsed(t.Context(), acme, forebay.LimitStoredBytes, 1); err != nil || got != want {
				t.Errorf("%s: %d bytes, want %d (%v)", what, got, want, err)
			}
		}
		run := func(sql string, values ...any) { // numbers and bytes
			t.Helper()
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(x *db.Tx) (struct{}, error) {
				st := x.Prep(sql)
				for _, v := range values {
					switch v := v.(type) {
					case int64:
						st = st.Int(v)
					case string:
						st = st.Blob([]byte(v))
					}
				}
				return struct{}{}, st.Exec()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, owner := range []int64{acme, other} {
			no := int64(i + 1)
			run(`INSERT INTO orchestrations (no, tenant, id, execution, name, created_at, input_blob, output, failure)
				VALUES (?1, ?2, 'i', 'x', 'n', 1, 't/1/orchestrations/ABC7/70000', ?3, ?4)`, no, owner, "12345", "123")
			run("INSERT INTO orchestration_history (instance, item, count, events, events_blob) VALUES (?1, 1, 1, ?2, 't/1/orchestrations/ABC/1000')", no, "")
			run("INSERT INTO orchestration_history (instance, item, count, events) VALUES (?1, 2, 1, ?2)", no, "1234")
			run("INSERT INTO orchestration_inbox (instance, no, visible_at, answer, event_blob) VALUES (?1, 1, 1, 0, 't/1/orchestrations/A/200')", no)
			run(`INSERT INTO orchestration_activities (instance, event_id, run, work_queue, visible_at, scheduled_at, event, event_blob)
				VALUES (?1, 1, 0, 1, 1, 1, ?2, 't/1/orchestrations/A/30')`, no, "")
		}
		orchestrations := int64(70000 + 5 + 3 + 1000 + 4 + 200 + 30)
		expect("an instance", orchestrations)

		run("INSERT INTO document_indexes (tenant, dimensions) VALUES (?1, 16)", acme)
		run("INSERT INTO document_indexes (tenant, dimensions) VALUES (?1, 3000)", other)
		run("INSERT INTO documents (no, tenant, id, latest, created_at) VALUES (1, ?1, 'd', 2, 1)", acme)
		for revision := range int64(2) {
			run(`INSERT INTO document_revisions (no, id, tenant, document, hash, media_type, charset, name, size, content_blob, metadata, uploaded_at, text_bytes, embedded)
				VALUES (?1 + 1, CAST(?1 AS TEXT), ?2, 1, ?3, 'm', '', '', 1000, 'b', ?4, 1, 300, ?1 * 2)`, revision, acme, "h", "{}")
		}
		documents := int64(2*(1000+2+300) + 2*(16*4+2))
		expect("a document of two revisions, one of them with vectors", orchestrations+documents)

		for i, owner := range []int64{acme, acme, other} {
			run("INSERT INTO files (id, tenant, purpose, name, size, content_blob, created_at, deleted) VALUES (CAST(?1 AS TEXT), ?2, 'vision', 'f', 4000, 'b', 1, ?1 % 2)",
				int64(i), owner)
		}
		documents += 2 * 4000 // a deleted one counts for as long as it is there
		expect("two files", orchestrations+documents)

		q, _, err := s.Bus.PutMessageQueue(t.Context(), bus.MessageQueue{Name: "acme/m", Tenant: acme, Lock: time.Minute, MaxDeliveries: 3, RequiresSession: true}, 10)
		mustDo(t, err)
		session, err := s.Bus.Sessions().Accept(t.Context(), q, "s")
		mustDo(t, err)
		mustDo(t, s.Bus.Sessions().SetState(t.Context(), q, session.SessionLock, make([]byte, 500)))
		expect("the state of a session", orchestrations+documents+500)

		large, _, err := s.Bus.PutMessageQueue(t.Context(), bus.MessageQueue{Name: "acme/large", Tenant: acme, Lock: time.Minute, MaxDeliveries: 3}, 10)
		mustDo(t, err)
		const more = 2*tenant.BytePage + 7
		for subqueue, n := range map[int64]int64{0: more, 2: 5} {
			run("INSERT INTO messages (seq, subqueue, flow, visible_at, size) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT ?2 * 100000 + 1000000 + i, ?2, 0, 0, 3 FROM n",
				n, large.No*4+subqueue)
			run("INSERT INTO bodies (seq, subqueue, enqueued_at, message_id, is_text) SELECT seq, subqueue, 1, 'x', 0 FROM messages WHERE subqueue = ?1", large.No*4+subqueue)
		}
		expect("a large queue", orchestrations+documents+500+3*(more+5))
	})
}

// Rows that this process has not written are counted like its own.
func TestCountsOfRowsThatWereThere(t *testing.T) {
	fixture.FromOutside(t, testCountsOfRowsThatWereThere)
}

func testCountsOfRowsThatWereThere(t *testing.T, e dbtest.Outside[*stores.Stores]) {
	if err := e.Open().DB.Close(); err != nil {
		t.Fatal(err)
	}
	err := e.Tamper(`
INSERT INTO tenants (no, name, created_at) VALUES (1, 'acme', 1), (2, 'other', 1);
INSERT INTO queues (no, name, created_at) VALUES (1, 'q', 1);
INSERT INTO queues (no, name, created_at, kind, tenant, lock, max_deliveries, is_topic, topic) VALUES
  (2, 'acme/m', 1, 'messages', 1, 1000, 3, 0, NULL), (3, 'acme/t', 1, 'messages', 1, NULL, NULL, 1, NULL), (4, 'acme/t/subscriptions/s', 1, 'messages', 1, 1000, 3, 0, 3);
INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, scheduled_at, input_size) VALUES
  (1, 'waits', 1, 1, 't', 5, 1, 1, NULL, 10), (2, 'scheduled', 1, 1, 't', 5, 1, 1, 9000000000000, 20), (3, 'over', 1, 1, 't', 5, 1, 1, NULL, 40),
  (4, 'dead', 1, 1, 't', 5, 1, 1, NULL, 80), (5, 'other', 2, 1, 't', 5, 1, 1, NULL, 7);
INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at, result_size) VALUES (3, 'succeeded', 1, 1, 2, 1, 100), (4, 'dead_lettered', 1, 1, 2, 1, 0);
INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) VALUES
  (1, 4, 1028, 1, 10, 1), (2, 4, 1028, 9000000000000, 20, 1), (4, 6, 1028, 1, 80, 1), (5, 4, 2052, 1, 7, 2),
  (6, 8, 0, 1, 1000, 1), (7, 8, 1, 1, 2000, 1), (8, 10, 0, 1, 4000, 1), (9, 16, 0, 1, 8000, 1);
INSERT INTO bodies (seq, subqueue, enqueued_at, message_id, is_text) VALUES (6, 8, 1, 'a', 1), (7, 8, 1, 'scheduled', 1), (8, 10, 1, 'dead', 1), (9, 16, 1, 'copy', 1);
INSERT INTO sessions (no, queue, id) VALUES (1, 2, 's');
INSERT INTO orchestrations (no, tenant, id, execution, name, status, created_at, input_blob) VALUES
  (1, 1, 'goes on', 'x', 'n', NULL, 1, 't/1/orchestrations/AAA/100000'), (2, 1, 'over', 'x', 'n', 'Completed', 1, NULL);`)
	if err != nil {
		t.Fatal(err)
	}
	s := e.Open()
	limits, err := s.Tenants.TenantLimits(t.Context(), 1)
	if err != nil || limits != (forebay.TenantLimits{}) {
		t.Errorf("its limits are %+v (%v)", limits, err)
	}
	for name, want := range map[forebay.LimitName]int64{
		forebay.LimitWaitingJobs: 2, forebay.LimitScheduled: 2, forebay.LimitWaitingMessages: 4, forebay.LimitSessions: 1, forebay.LimitMessageQueues: 1,
		forebay.LimitTopics: 1, forebay.LimitSubscriptions: 1, forebay.LimitOrchestrations: 1, forebay.LimitStoredBytes: 10 + 20 + 40 + 100 + 80 + 15000 + 100000,
	} {
		if got, err := s.Tenants.LimitUsed(t.Context(), 1, name, 1<<40); err != nil || got != want {
			t.Errorf("%d %s, want %d (%v)", got, name, want, err)
		}
	}
}
