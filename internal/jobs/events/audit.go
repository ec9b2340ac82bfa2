package events

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// AuditedEvent is the Detail of an entry of the audit log. It holds names and codes, nothing of a
// job's input or result.
type AuditedEvent struct {
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

// What Audit reads of jobs.
const (
	AuditedColumns = "SELECT x.no, t.name, j.id, j.task, q.name"
	OfAuditedJobs  = " JOIN jobs j ON j.seq = x.no JOIN queues q ON q.no = j.queue JOIN tenants t ON t.no = j.tenant"
)

// Audit appends events to the audit log.
func Audit(t *db.Tx, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	jobs := make(map[int64]auditedJob, len(events))
	err := driver.EachOf(t.Conn, AuditedColumns, OfAuditedJobs, seqsOf(events), func(r driver.Row) error {
		jobs[r.Int(0)] = auditedJob{tenant: r.Text(1), id: r.Text(2), task: r.Text(3), queue: r.Text(4)}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range events {
		job, found := jobs[e.Seq]
		if !found {
			return fmt.Errorf("job %d has an event, %s, and is not there", e.Seq, e.Kind)
		}
		detail, err := json.Marshal(AuditedEvent{Number: e.Number, Queue: job.queue, Task: job.task, Generation: e.Generation,
			Attempt: e.Attempt, ErrorClass: e.Class, ErrorCode: e.Code})
		if err != nil {
			return err
		}
		if err := audit.Append(t, audit.Act{Tenant: job.tenant, Actor: forebay.ServerActor, Action: string(e.Kind), Target: job.id, Detail: string(detail)}); err != nil {
			return err
		}
	}
	return nil
}
