package jobs

import (
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
)

// attempted is the call that an attempt's row is about.
type attempted struct {
	seq, tenant        int64
	task               string
	subqueue           queue.Subqueue
	generation, number int
	startedAt          int64
}

func (d *LockedJob) attempted() attempted {
	return attempted{d.Seq, d.Tenant, d.Task, d.Subqueue, d.Generation, d.Number, d.LockedAt.UnixMilli()}
}

// countHour adds an attempt to reports n times. Only jobs of the retry subqueue were retried
// before.
func (t *Tx) countHour(c attempted, finishedAt int64, a AttemptRecord, n int64) {
	report.Key.Of(t.Tx).Count(report.Attempt{
		Tenant: c.tenant, FinishedAt: finishedAt, Task: c.task, Deployment: Bounded(a.Deployment), Number: c.number, Outcome: a.Outcome,
		Class: a.ErrorClass, Code: Bounded(a.ErrorCode), Retried: c.subqueue.Kind() == queue.SubqueueRetry,
	}, n)
}
