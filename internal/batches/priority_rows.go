package batches

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
)

const sqlWaitingFlow = "SELECT m.subqueue, m.flow, m.visible_at FROM messages m WHERE m.seq = ? AND m.lock_token IS NULL AND m.subqueue % 4 < 2"

var (
	sqlSetFlow = driver.BatchForm("UPDATE messages SET flow = ? WHERE seq = ?",
		"UPDATE messages m SET flow = p1 FROM %s WHERE m.seq = ANY (ARRAY[p2])")
	sqlSetPriority = driver.BatchForm("UPDATE jobs SET priority = ? WHERE seq = ?",
		"UPDATE jobs j SET priority = p1 FROM %s WHERE j.seq = ANY (ARRAY[p2])")
)

// raise gives jobs that wait, and have a lower priority, that priority. Others stay as they are.
// The operation names their messages.
func (t *tx) raise(seqs []int64, priority int) error {
	type waiting struct {
		seq, flow, visible int64
		subqueue           queue.Subqueue
	}
	var raised []waiting
	questions := make([]driver.PipelineQuery, len(seqs))
	for i, seq := range seqs {
		questions[i] = driver.PipelineQuery{SQL: sqlWaitingFlow, Bind: func(st driver.Statement) driver.Statement { return st.Int(seq) }, OnRow: func(r driver.Row) {
			raised = append(raised, waiting{seq, r.Int(1), r.Int(2), queue.Subqueue(r.Int(0))})
		}}
	}
	if err := t.RunPipeline(questions); err != nil {
		return err
	}
	for _, m := range raised {
		flow := flows.ID(flows.TenantOf(m.flow), int(flows.ClassOf(m.flow)), priority)
		if flow >= m.flow || m.visible >= never { // the rank falls as the priority rises
			continue
		}
		if err := t.Prep(sqlSetFlow).Int(flow).Int(m.seq).Exec(); err != nil {
			return err
		}
		if err := t.Prep(sqlSetPriority).Int(int64(priority)).Int(m.seq).Exec(); err != nil {
			return err
		}
		t.DropPrefetched(queue.MessageRow(m.seq))
		t.Changed(m.seq)
		jobs.Key.Of(t.Tx).Due(m.subqueue, flow, m.visible) // it keeps its age
	}
	return nil
}
