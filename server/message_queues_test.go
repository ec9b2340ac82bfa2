package server_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Declared queues of messages are made once, whatever forwards to what, brought to a changed
// declaration, and left alone otherwise.
func TestDeclaredMessageQueues(t *testing.T) {
	t.Parallel()
	for engine, database := range map[string]string{
		"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "f.db"), "postgresql": dbtest.Postgres(t),
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			// The log of operators' acts tells what was changed.
			declared := func(t *testing.T, queues map[string]server.MessageQueue) (got map[string]forebay.MessageQueue, acts int) {
				t.Helper()
				got = map[string]forebay.MessageQueue{}
				t.Run("start", func(t *testing.T) {
					s := servertest.Start(t, server.Options{Database: database, MessageQueues: queues, Topics: map[string]server.Topic{
						"news": {Subscriptions: map[string]server.Subscription{"all": {ForwardTo: "a"}}}}})
					for name := range queues {
						var q forebay.MessageQueue
						if err := servertest.Over(t, s).Get(t.Context(), "/v1/queues/"+name, &q); err != nil {
							t.Fatal(err)
						}
						got[name] = q
					}
					var log forebay.Page[forebay.AuditEntry]
					if err := servertest.Over(t, s).Get(t.Context(), "/v1/audit?limit=100", &log); err != nil {
						t.Fatal(err)
					}
					acts = len(log.Items)
				})
				return got, acts
			}
			queues := map[string]server.MessageQueue{
				"a": {ForwardTo: "b", ForwardDeadLettersTo: "news"}, "b": {ForwardDeadLettersTo: "a", LockDuration: 5 * time.Second},
				"s": {RequiresSession: new(true), DuplicateDetection: time.Minute},
			}
			first, acts := declared(t, queues)
			if first["a"].ForwardTo != "b" || first["a"].ForwardDeadLettersTo != "news" || first["b"].ForwardDeadLettersTo != "a" || first["b"].LockSeconds != 5 ||
				!first["s"].RequiresSession || *first["s"].DuplicateWindowSeconds != 60 {
				t.Fatalf("queues are %+v", first)
			}
			again, later := declared(t, queues)
			if later != acts || !again["a"].CreatedAt.Equal(first["a"].CreatedAt) {
				t.Errorf("a restart changed something: %d acts, then %d; %+v", acts, later, again)
			}
			queues["b"] = server.MessageQueue{MaxDeliveryCount: 3}
			if changed, later := declared(t, queues); changed["b"].MaxDeliveryCount != 3 || changed["b"].LockSeconds != 60 || changed["b"].ForwardDeadLettersTo != "" || later != acts+1 {
				t.Errorf("the changed declaration gave %+v, by %d acts", changed["b"], later-acts)
			}
			// A status and a note that are not declared stay as they are.
			queues["b"] = server.MessageQueue{MaxDeliveryCount: 3, Status: "send_disabled", UserMetadata: new("declared"), MaxMessageBytes: 100}
			if changed, _ := declared(t, queues); changed["b"].Status != forebay.EntitySendDisabled || changed["b"].UserMetadata != "declared" || changed["b"].MaxMessageBytes != 100 {
				t.Errorf("the declared status gave %+v", changed["b"])
			}
			queues["b"] = server.MessageQueue{MaxDeliveryCount: 3}
			if changed, _ := declared(t, queues); changed["b"].Status != forebay.EntitySendDisabled || changed["b"].UserMetadata != "declared" || changed["b"].MaxMessageBytes != 0 {
				t.Errorf("without a status in the declaration, the queue is %+v", changed["b"])
			}
			// What cannot be changed is an error, and nothing is left out silently.
			other := maps.Clone(queues)
			other["s"] = server.MessageQueue{RequiresSession: new(false)}
			_, err := server.New(server.Options{Database: database, MessageQueues: other, Blob: t.TempDir()})
			if err == nil || !strings.HasPrefix(err.Error(), "message_queues.s.requires_session: was settled when the queue was made") {
				t.Errorf("a queue that cannot be so: %v", err)
			}
		})
	}
}

func TestMessageQueueOptionErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		queue server.MessageQueue
		want  string
	}{
		{"a b", server.MessageQueue{}, "message_queues.a b: must be 1 to 260"},
		{"default", server.MessageQueue{}, "message_queues.default: is the name of a queue for jobs too"},
		{"news", server.MessageQueue{}, "message_queues.news: is the name of a topic too"},
		{"q", server.MessageQueue{Tenant: "a/b"}, "message_queues.q.tenant: is not a valid name"},
		{"q", server.MessageQueue{LockDuration: time.Hour}, "message_queues.q.lock_duration: goes from 1 to 300"},
		{"q", server.MessageQueue{DuplicateDetection: time.Second}, "message_queues.q.duplicate_detection_window: goes from 20 to 604800"},
		{"q", server.MessageQueue{MaxDeliveryCount: -1}, "message_queues.q.max_delivery_count: goes from 1 to 2000"},
		{"q", server.MessageQueue{RequiresSession: new(true), ForwardTo: "r"}, "message_queues.q.forward_to: a queue that requires sessions cannot forward"},
		{"q", server.MessageQueue{ForwardTo: "job-events"}, "message_queues.q.forward_to: cannot be job-events"},
		{"q", server.MessageQueue{ForwardTo: "operations"}, "message_queues.q.forward_to: cannot be operations"},
		{"q", server.MessageQueue{ForwardTo: "q"}, "message_queues.q.forward_to: must not be the queue itself"},
		{"q", server.MessageQueue{ForwardDeadLettersTo: "q"}, "message_queues.q.forward_dead_lettered_messages_to: must not be the queue itself"},
		{"q", server.MessageQueue{AutoDeleteOnIdle: time.Second}, "message_queues.q.auto_delete_on_idle: goes from 300"},
	} {
		err := server.Options{MessageQueues: map[string]server.MessageQueue{c.name: c.queue}, Topics: map[string]server.Topic{"news": {}}}.WithDefaults().Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, expected %s", c.queue, err, c.want)
		}
	}
	_, err := server.New(server.Options{Database: "sqlite:" + filepath.Join(t.TempDir(), "f.db"), MessageQueues: map[string]server.MessageQueue{"q": {ForwardTo: "none"}}})
	if err == nil || err.Error() != "message_queues.q.forward_to: there is no such queue of messages" {
		t.Errorf("forwarding to nowhere: %v", err)
	}
}
