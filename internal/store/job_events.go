package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// Every event of a job is published to the topic job-events of its tenant in the transaction that made
// the change, if somebody subscribes to it. What no subscription wants costs nothing but a look, once a
// transaction, whether that is still so.

// topicsCounter is the counter that goes up with every change of a topic, a subscription or a rule.
const topicsCounter = "topics"

// followedTenants is whose job events somebody subscribes to: the name of each tenant's topic.
type followedTenants struct {
	version int64 // of all topics
	topics  map[int64]string
	most    int64 // subscriptions of one of them
}

const sqlFollowed = `
SELECT tenant, name, n FROM (
  SELECT t.tenant, t.name, (SELECT count(*) FROM queues s WHERE s.topic = t.no AND s.kind = 'messages') AS n
  FROM queues t WHERE t.is_topic = 1 AND t.kind = 'messages' AND t.name LIKE ?) x
WHERE n > 0`

// mostOps is how many operations one transaction takes. Each may tell two events or so, and what topics make of those
// cannot be put off as what callers send to them can: it is stored with the change.
func (f *followedTenants) mostOps() int {
	if f == nil || f.most == 0 {
		return maxBatchOps
	}
	return min(maxBatchOps, max(fullCopies/int(f.most), 1))
}

func (t *tx) followed() (*followedTenants, error) {
	if t.topics.followed != nil {
		return t.topics.followed, nil
	}
	f := &followedTenants{topics: map[int64]string{}}
	if t.start.topics != nil {
		f.version = *t.start.topics
	} else if _, err := t.prep("SELECT value FROM counters WHERE name = ?").text(topicsCounter).one(func(r row) { f.version = r.int(0) }); err != nil {
		return nil, err
	}
	if known := t.w.followed; known != nil && known.version == f.version {
		t.topics.followed = known
		return known, nil
	}
	err := t.prep(sqlFollowed).text("%/" + forebay.TopicJobEvents).each(func(r row) error {
		if name := r.text(1); entityOf(name) == forebay.TopicJobEvents {
			f.topics[r.int(0)], f.most = name, max(f.most, r.int(2))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.topics.followed = f
	t.after = append(t.after, func() { t.w.followed = f })
	return f, nil
}

// forgetTopics is for a transaction that has changed one.
func (t *tx) forgetTopics() {
	t.topics.named, t.topics.targets, t.topics.followed, t.start.topics = nil, nil, nil, nil
}

// tell publishes an event, and notes it for the audit log if that is to have it.
func (t *tx) tell(e event) error {
	if slices.Contains(t.w.audited, e.kind) {
		t.audited = append(t.audited, e)
	}
	f, err := t.followed()
	if err != nil || len(f.topics) == 0 {
		return err
	}
	if t.apart {
		return errNotAlone
	}
	return t.tellFollowers(f, e)
}

// tellFollowers is apart from tell, so that what nobody follows costs no memory.
func (t *tx) tellFollowers(f *followedTenants, e event) error {
	var topic, task, queue string
	metadata := map[string]string{}
	var told forebay.Event
	found, err := t.prep("SELECT j.tenant, j.id, coalesce(j.correlation_id, j.id), j.task, q.name, j.metadata FROM jobs j JOIN queues q ON q.no = j.queue WHERE j.seq = ?").
		int(e.seq).one(func(r row) {
		topic, task, queue = f.topics[r.int(0)], r.text(3), r.text(4)
		told = forebay.Event{Number: e.number, Type: e.kind, JobID: r.text(1), CorrelationID: r.text(2), At: fromMillis(t.now), Status: e.status,
			Generation: e.generation, Attempt: e.attempt, ErrorCode: bounded(e.code)}
		if encoded := r.blob(5); len(encoded) > 0 {
			_ = json.Unmarshal(encoded, &metadata) // encoded by ourselves
		}
	})
	if err != nil || !found || topic == "" {
		return err
	}
	if e.class != "" {
		told.ErrorClass = &e.class
	}
	if e.delay > 0 {
		seconds := float64(e.delay) / 1000
		told.RetryDelaySeconds = &seconds
	}
	told.Describe(task, queue, metadata)
	if len(e.result) <= forebay.MaxEventResultBytes {
		told.Result = e.result
	}
	return t.publish(topic, func() (MessageContent, error) { return eventMessage(told) })
}

// publishedEvent is an event as subscribers get it. Standard Webhooks wants its time under that name
// (specification, "Payload structure").
type publishedEvent struct {
	forebay.Event
	Timestamp time.Time `json:"timestamp"`
}

// eventMessage is the message that tells an event. Its id is the same however often it is delivered,
// and has no dot, which separates the parts that a webhook signs.
func eventMessage(e forebay.Event) (m MessageContent, err error) {
	m = MessageContent{
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
