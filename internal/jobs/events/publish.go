// Package events tells subscribers and the audit log of what happens to jobs. What it says of the
// jobs themselves is read for all events at once, in the transaction of the changes.
package events

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Event is what has happened to a job.
type Event struct {
	Seq        int64
	Number     int64 // of the event within its job
	Kind       forebay.EventType
	Status     forebay.Status
	Generation int
	Attempt    int
	Class      forebay.ErrorClass
	Code       string
	Delay      int64  // milliseconds before the next attempt
	Result     []byte // of a job that has succeeded, if it is in the database
}

// publishedJob is what a published event says of the job itself.
type publishedJob struct {
	tenant                       int64
	id, correlation, task, queue string
	traceparent                  string
	metadata                     map[string]string
}

// What Publish reads of jobs.
const (
	PublishedColumns = "SELECT x.no, j.tenant, j.id, coalesce(j.correlation_id, j.id), j.task, q.name, j.metadata, j.traceparent"
	OfPublishedJobs  = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue"
)

// Publish sends events to the topics of their tenants.
func Publish(t *db.Tx, events []Event) error {
	jobs, err := publishedJobs(t, seqsOf(events), len(events))
	if err != nil {
		return err
	}
	topics := &bus.Key.Of(t).Topics
	f, err := topics.Followed()
	if err != nil {
		return err
	}
	var list []bus.Publication
	for i := range events {
		job := jobs[events[i].Seq]
		if topic := f.Topics[job.tenant]; topic != "" {
			published := events[i].of(&job, t.Now)
			list = append(list, bus.Publication{Topic: topic, Message: func() (bus.MessageContent, error) { return eventMessage(published, job.traceparent) }})
		}
	}
	return topics.PublishAll(list)
}

// maxNumbers bounds how many numbers are taken at once.
const maxNumbers = 4096

// publishedJobs reads jobs, and takes numbers for so many messages and their copies.
func publishedJobs(t *db.Tx, seqs []int64, messages int) (map[int64]publishedJob, error) {
	jobs := make(map[int64]publishedJob, len(seqs))
	read := func(r driver.Row) {
		j := publishedJob{tenant: r.Int(1), id: r.Text(2), correlation: r.Text(3), task: r.Text(4), queue: r.Text(5), traceparent: r.Text(7), metadata: map[string]string{}}
		if encoded := r.Blob(6); len(encoded) > 0 {
			_ = json.Unmarshal(encoded, &j.metadata) // encoded by ourselves
		}
		jobs[r.Int(0)] = j
	}
	if t.Arrays() {
		bind := func(st driver.Statement) driver.Statement { return st.Text(driver.ArrayOf(seqs)) }
		// Numbers that are there already were taken for others.
		return jobs, t.RunPipeline([]driver.PipelineQuery{queue.Key.Of(t).SeqsQuery(min(bus.EventNumbers*messages, maxNumbers)),
			{SQL: PublishedColumns + driver.OfNumbersShared + OfPublishedJobs, Bind: bind, OnRow: read}})
	}
	return jobs, driver.EachOf(t.Conn, PublishedColumns, OfPublishedJobs, seqs, func(r driver.Row) error { read(r); return nil })
}

// of is the event as it is published.
func (e *Event) of(j *publishedJob, now int64) forebay.Event {
	published := forebay.Event{Number: e.Number, Type: e.Kind, JobID: j.id, CorrelationID: j.correlation, At: driver.FromMillis(now), Status: e.Status,
		Generation: e.Generation, Attempt: e.Attempt, ErrorCode: e.Code}
	if e.Class != "" {
		published.ErrorClass = &e.Class
	}
	if e.Delay > 0 {
		seconds := float64(e.Delay) / 1000
		published.RetryDelaySeconds = &seconds
	}
	published.Describe(j.task, j.queue, j.metadata)
	if len(e.Result) <= forebay.MaxEventResultBytes {
		published.Result = e.Result
	}
	return published
}

// seqsOf lists the jobs of events, each once.
func seqsOf(events []Event) []int64 {
	seqs := make([]int64, len(events))
	for i := range events {
		seqs[i] = events[i].Seq
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
// has no dot, which separates the parts that a webhook signs. The job's trace context is a
// property, where OpenTelemetry's binding for AMQP has it.
func eventMessage(e forebay.Event, traceparent string) (m bus.MessageContent, err error) {
	m = bus.MessageContent{
		MessageID: fmt.Sprintf("%s-%d", e.JobID, e.Number), CorrelationID: e.CorrelationID, Subject: string(e.Type),
		ContentType: "application/json", Text: true,
	}
	if m.Body, err = json.Marshal(publishedEvent{e, e.At}); err != nil {
		return m, err
	}
	properties := forebay.Properties{
		"job_id": e.JobID, "task": e.Task, "queue": e.Queue, "status": string(e.Status), "attempt": int64(e.Attempt), "generation": int64(e.Generation),
	}
	if traceparent != "" {
		properties["traceparent"] = traceparent
	}
	m.Properties, err = json.Marshal(properties)
	return m, err
}
