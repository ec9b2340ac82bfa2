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

// publish notes an event for its subscribers, if there are any, and for the audit log, if its type
// is audited.
func (t *Tx) publish(e event) error {
	if slices.Contains(t.w.store.Audited, e.kind) {
		t.audited = append(t.audited, e)
	}
	f, err := bus.Key.Of(t.Tx).Topics.Followed()
	if err != nil || len(f.Topics) == 0 {
		return err
	}
	if t.Concurrent {
		return db.ErrNotAlone
	}
	t.published = append(t.published, e)
	return nil
}

// TellEvents publishes and audits the events since the last call. It must come before a job of
// theirs is removed.
func (t *Tx) TellEvents() error {
	if err := t.auditEvents(); err != nil {
		return err
	}
	return t.publishEvents()
}

// publishedJob is what a published event says of the job itself.
type publishedJob struct {
	tenant                       int64
	id, correlation, task, queue string
	metadata                     map[string]string
}

const (
	publishedColumns = "SELECT x.no, j.tenant, j.id, coalesce(j.correlation_id, j.id), j.task, q.name, j.metadata"
	ofPublishedJobs  = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue"
)

// publishEvents publishes the events since the last call. What it needs of their jobs is read at
// once, together with the numbers of the messages.
func (t *Tx) publishEvents() error {
	if len(t.published) == 0 {
		return nil
	}
	events := t.published
	t.published = nil
	jobs, err := t.publishedJobs(seqsOf(events), len(events))
	if err != nil {
		return err
	}
	topics := &bus.Key.Of(t.Tx).Topics
	f, err := topics.Followed()
	if err != nil {
		return err
	}
	for i := range events {
		job := jobs[events[i].seq]
		topic := f.Topics[job.tenant]
		if topic == "" {
			continue
		}
		published := events[i].of(&job, t.Now)
		if err := topics.Publish(topic, func() (bus.MessageContent, error) { return eventMessage(published) }); err != nil {
			return err
		}
	}
	return nil
}

// publishedJobs reads jobs, and takes numbers for so many messages and a copy of each.
func (t *Tx) publishedJobs(seqs []int64, messages int) (map[int64]publishedJob, error) {
	jobs := make(map[int64]publishedJob, len(seqs))
	read := func(r driver.Row) {
		j := publishedJob{tenant: r.Int(1), id: r.Text(2), correlation: r.Text(3), task: r.Text(4), queue: r.Text(5), metadata: map[string]string{}}
		if encoded := r.Blob(6); len(encoded) > 0 {
			_ = json.Unmarshal(encoded, &j.metadata) // encoded by ourselves
		}
		jobs[r.Int(0)] = j
	}
	if t.Arrays() {
		bind := func(st driver.Statement) driver.Statement { return st.Text(driver.ArrayOf(seqs)) }
		return jobs, t.RunPipeline([]driver.PipelineQuery{t.Queue.SeqsQuery(2 * messages),
			{SQL: publishedColumns + driver.OfNumbersShared + ofPublishedJobs, Bind: bind, OnRow: read}})
	}
	return jobs, driver.EachOf(t.Conn, publishedColumns, ofPublishedJobs, seqs, func(r driver.Row) error { read(r); return nil })
}

// of is the event as it is published.
func (e *event) of(j *publishedJob, now int64) forebay.Event {
	published := forebay.Event{Number: e.number, Type: e.kind, JobID: j.id, CorrelationID: j.correlation, At: driver.FromMillis(now), Status: e.status,
		Generation: e.generation, Attempt: e.attempt, ErrorCode: Bounded(e.code)}
	if e.class != "" {
		published.ErrorClass = &e.class
	}
	if e.delay > 0 {
		seconds := float64(e.delay) / 1000
		published.RetryDelaySeconds = &seconds
	}
	published.Describe(j.task, j.queue, j.metadata)
	if len(e.result) <= forebay.MaxEventResultBytes {
		published.Result = e.result
	}
	return published
}

// seqsOf lists the jobs of events, each once.
func seqsOf(events []event) []int64 {
	seqs := make([]int64, len(events))
	for i := range events {
		seqs[i] = events[i].seq
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
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
