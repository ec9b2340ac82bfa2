package jobs

import (
	"slices"

	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs/events"
)

// Every event of a job is published to the topic job-events of its tenant, in the transaction of
// the change, if somebody subscribes to it. An event without subscribers costs only the check,
// once a transaction. Events of the types that Store.Audited names become entries of the audit
// log. That is done for a stage together, at its end. Events are published together once all
// operations are done, and before messages are delivered.

// publish notes an event for its subscribers, if there are any, and for the audit log, if its type
// is audited.
func (t *Tx) publish(e event) error {
	if t.Heard() {
		t.Tell(&feed.Job{Seq: e.seq, Tenant: e.tenant, Queue: e.queue, Number: e.number, Type: e.kind, Status: e.status, Generation: e.generation,
			Attempt: e.attempt, Class: e.class, Code: Bounded(e.code), Delay: e.delay})
	}
	if slices.Contains(t.w.store.Audited, e.kind) {
		t.audited = append(t.audited, e.told())
	}
	topics := &bus.Key.Of(t.Tx).Topics
	f, err := topics.Followed()
	if err != nil || len(f.Topics) == 0 || e.tenant != 0 && f.Topics[e.tenant] == "" {
		return err
	}
	if t.Concurrent {
		return db.ErrNotAlone
	}
	topics.WillPublish(f.Topics[e.tenant])
	t.published = append(t.published, e.told())
	return nil
}

// told is the event as others are told of it.
func (e *event) told() events.Event {
	return events.Event{Seq: e.seq, Number: e.number, Kind: e.kind, Status: e.status, Generation: e.generation, Attempt: e.attempt,
		Class: e.class, Code: Bounded(e.code), Delay: e.delay, Result: e.result}
}

// TellEvents sends the answers, and publishes and audits the events, since the last call. It must
// come before a job of theirs is removed.
func (t *Tx) TellEvents() error {
	if err := t.sendAnswers(); err != nil {
		return err
	}
	return t.tellEvents()
}

// tellEvents is TellEvents without the answers.
func (t *Tx) tellEvents() error {
	published := t.published
	t.published = nil
	if err := t.auditEvents(); err != nil || len(published) == 0 {
		return err
	}
	return events.Publish(t.Tx, published)
}

// auditEvents appends events to the audit log. It keeps the order in which stages changed things.
func (t *Tx) auditEvents() error {
	audited := t.audited
	t.audited = nil
	return events.Audit(t.Tx, audited)
}
