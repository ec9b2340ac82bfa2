package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Every event of a job is published to the topic job-events of its tenant, in the transaction of
// the change, if somebody subscribes to it. An event without subscribers costs only the check,
// once a transaction.

// publish publishes an event, and notes it for the audit log if its type is audited.
func (t *Tx) publish(e event) error {
	if slices.Contains(t.w.store.Audited, e.kind) {
		t.audited = append(t.audited, e)
	}
	bus := bus.Key.Of(t.Tx)
	f, err := bus.Topics.Followed()
	if err != nil || len(f.Topics) == 0 {
		return err
	}
	if t.Concurrent {
		return db.ErrNotAlone
	}
	return t.publishToTopic(bus, f, e)
}

// publishToTopic is apart from publish, so that an event without subscribers allocates nothing.
func (t *Tx) publishToTopic(b *bus.Tx, f *bus.FollowedTenants, e event) error {
	var topic, task, queue string
	metadata := map[string]string{}
	var published forebay.Event
	found, err := t.Prep("SELECT j.tenant, j.id, coalesce(j.correlation_id, j.id), j.task, q.name, j.metadata FROM jobs j JOIN queues q ON q.no = j.queue WHERE j.seq = ?").
		Int(e.seq).One(func(r driver.Row) {
		topic, task, queue = f.Topics[r.Int(0)], r.Text(3), r.Text(4)
		published = forebay.Event{Number: e.number, Type: e.kind, JobID: r.Text(1), CorrelationID: r.Text(2), At: driver.FromMillis(t.Now), Status: e.status,
			Generation: e.generation, Attempt: e.attempt, ErrorCode: Bounded(e.code)}
		if encoded := r.Blob(5); len(encoded) > 0 {
			_ = json.Unmarshal(encoded, &metadata) // encoded by ourselves
		}
	})
	if err != nil || !found || topic == "" {
		return err
	}
	if e.class != "" {
		published.ErrorClass = &e.class
	}
	if e.delay > 0 {
		seconds := float64(e.delay) / 1000
		published.RetryDelaySeconds = &seconds
	}
	published.Describe(task, queue, metadata)
	if len(e.result) <= forebay.MaxEventResultBytes {
		published.Result = e.result
	}
	return b.Topics.Publish(topic, func() (bus.MessageContent, error) { return eventMessage(published) })
}

// publishedEvent is an event as subscribers get it. Standard Webhooks prescribes the name of its
// time (specification, "Payload structure").
type publishedEvent struct {
	forebay.Event
	Timestamp time.Time `json:"timestamp"`
}

// eventMessage is the message of an event. Its id is the same however often it is delivered, and
// has no dot, which separates the parts that a webhook signs.
func eventMessage(e forebay.Event) (m bus.MessageContent, err error) {
	m = bus.MessageContent{
		MessageID: fmt.Sprintf("%s-%d", e.JobID, e.Number), CorrelationID: e.CorrelationID, Subject: string(e.Type),
		ContentType: "application/json", Text: true,
	}
	if m.Body, err = json.Marshal(publishedEvent{e, e.At}); err != nil {
		return m, err
	}
	m.Properties, err = json.Marshal(forebay.Properties{
		"job_id": e.JobID, "task": e.Task, "queue": e.Queue, "status": string(e.Status), "attempt": int64(e.Attempt), "generation": int64(e.Generation),
	})
	return m, err
}
