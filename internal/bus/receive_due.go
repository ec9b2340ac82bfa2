package bus

import (
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// updateDue notes when the subqueue is to be scanned again. That is now, unless it was found
// empty. Otherwise it is when its earliest message becomes visible. refusal says why nobody may
// receive from its queue, if it was found empty for that.
func (w *Participant) updateDue(t *Tx, subqueue queue.Subqueue, foundEmpty bool) (refusal, err error) {
	if !subqueue.IsOfQueue() || foundEmpty && subqueue.Kind() == subqueueSessions {
		return w.updateSessionDue(t, subqueue, foundEmpty)
	}
	if !foundEmpty {
		w.DueAt[subqueue] = t.Now
		return nil, nil
	}
	if until := w.pausedUntil(subqueue); until > 0 {
		w.DueAt[subqueue] = until
		return nil, nil
	}
	var earliest int64
	questions := []driver.PipelineQuery{entity.AskRefusal(subqueue.Queue(), &refusal)}
	for flow := range int64(scheduledFlow + 1) {
		questions = append(questions, driver.PipelineQuery{SQL: "SELECT visible_at FROM messages WHERE subqueue = ? AND flow = ? ORDER BY visible_at LIMIT 1",
			Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(subqueue)).Int(flow) },
			OnRow: func(r driver.Row) {
				if at := r.Int(0); earliest == 0 || at < earliest {
					earliest = at
				}
			}})
	}
	if err := t.RunPipeline(questions); err != nil {
		return nil, err
	}
	delete(w.DueAt, subqueue)
	if earliest > 0 && refusal == nil { // else a change of the status has it scanned
		w.DueAt[subqueue] = earliest
	}
	return refusal, nil
}
