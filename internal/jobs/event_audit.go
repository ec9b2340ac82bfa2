package jobs

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Events of the types that Store.Audited names become entries of the audit log, in the
// transaction of the change. Those of a stage are appended together at its end.

// auditedEvent is the Detail of such an entry. It holds names and codes, nothing of a job's input
// or result.
type auditedEvent struct {
	Number     int64              `json:"number"` // of the event within its job
	Queue      string             `json:"queue"`
	Task       string             `json:"task"`
	Generation int                `json:"generation"`
	Attempt    int                `json:"attempt,omitempty"`
	ErrorClass forebay.ErrorClass `json:"error_class,omitempty"`
	ErrorCode  string             `json:"error_code,omitempty"`
}

// auditedJob is what an entry says of the job itself.
type auditedJob struct{ tenant, id, task, queue string }

const (
	auditedColumns = "SELECT x.no, t.name, j.id, j.task, q.name"
	ofAuditedJobs  = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue JOIN tenants t ON t.no = j.tenant"
)

// auditEvents appends the events since the last call.
func (t *Tx) auditEvents() error {
	if len(t.audited) == 0 {
		return nil
	}
	events := t.audited
	t.audited = nil
	jobs := make(map[int64]auditedJob, len(events))
	err := driver.EachOf(t.Conn, auditedColumns, ofAuditedJobs, seqsOf(events), func(r driver.Row) error {
		jobs[r.Int(0)] = auditedJob{tenant: r.Text(1), id: r.Text(2), task: r.Text(3), queue: r.Text(4)}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range events {
		job, found := jobs[e.seq]
		if !found {
			return fmt.Errorf("job %d has an event, %s, and is not there", e.seq, e.kind)
		}
		detail, err := json.Marshal(auditedEvent{Number: e.number, Queue: job.queue, Task: job.task, Generation: e.generation,
			Attempt: e.attempt, ErrorClass: e.class, ErrorCode: Bounded(e.code)})
		if err != nil {
			return err
		}
		if err := audit.Append(t.Tx, audit.Act{Tenant: job.tenant, Actor: forebay.ServerActor, Action: string(e.kind), Target: job.id, Detail: string(detail)}); err != nil {
			return err
		}
	}
	return nil
}
