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
	var next [scheduledFlow + 1]int64
	questions := []driver.PipelineQuery{entity.AskRefusal(subqueue.Queue(), &refusal)}
	for flow, after := range [len(next)]int64{w.floors.Next(subqueue, t.Now), scheduledFlow: t.Now} {
		questions = append(questions, driver.PipelineQuery{SQL: "SELECT visible_at FROM messages WHERE subqueue = ? AND flow = ? AND visible_at > ? ORDER BY visible_at LIMIT 1",
			Bind:  func(st driver.Statement) driver.Statement { return st.Int(int64(subqueue)).Int(int64(flow)).Int(after) },
			OnRow: func(r driver.Row) { next[flow] = r.Int(0) }})
	}
	if err := t.RunPipeline(questions); err != nil {
		return nil, err
	}
	delete(w.DueAt, subqueue)
	if refusal != nil { // a change of the status has it scanned
		return refusal, nil
	}
	w.floors.Empty(subqueue, t.Now, next[0])
	for _, at := range next {
		if at > 0 {
			w.ScanAt(subqueue, at)
		}
	}
	return nil, nil
}
