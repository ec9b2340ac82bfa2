package entity

import (
	"fmt"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Idle is a queue, a topic or a subscription that seems idle, with what may keep it.
type Idle struct {
	Queue        // with what is needed to drop it
	idle   int64 // milliseconds
	served bool  // it or a subscription of it forwards, or has a webhook: then it is in use
	until  int64 // the end of the last lock or schedule in it or its subscriptions; 0: there is none
}

const (
	// IdleAtOnce is how many [AskIdle] finds at most.
	IdleAtOnce = 16
	// IdleSubscriptions is how many subscriptions these may have together. If they have more, it
	// finds one of them. To look at two thousand takes some hundredth of a second.
	IdleSubscriptions = 500
)

// SQLIdle finds what seems idle. A topic counts with its subscriptions. A free message has been
// visible for a while.
var SQLIdle = func() string {
	const each = "FROM (SELECT i.no AS no UNION ALL SELECT s.no FROM queues s WHERE s.topic = i.no) bounded_by_topic)"
	var b strings.Builder
	b.WriteString(`
SELECT i.no, i.topic, i.is_topic, i.idle,
  CASE WHEN i.is_topic = 1 AND (SELECT 1 FROM messages m WHERE m.subqueue = i.no * 4 AND m.flow = 2 LIMIT 1) = 1 THEN 1 ELSE 0 END,
  CASE WHEN i.forward_to IS NOT NULL OR (SELECT 1 FROM queues s WHERE s.topic = i.no AND s.forward_to IS NOT NULL LIMIT 1) = 1
    OR (SELECT max((SELECT 1 FROM webhooks w WHERE w.queue = bounded_by_topic.no)) ` + each + ` = 1 THEN 1 ELSE 0 END,
  (SELECT max((SELECT n.visible_at FROM sessions n WHERE n.queue = bounded_by_topic.no AND n.visible_at IS NOT NULL ORDER BY n.visible_at DESC LIMIT 1)) ` + each)
	last := func(kind queue.SubqueueKind, flow int) {
		fmt.Fprintf(&b, `,
  (SELECT max((SELECT m.visible_at FROM messages m WHERE m.subqueue = bounded_by_topic.no * 4 + %d AND m.flow = %d ORDER BY m.visible_at DESC LIMIT 1)) %s`, kind, flow, each)
	}
	last(queue.SubqueueMain, ScheduledFlow)
	for kind := range queue.SubqueueKind(queue.SubqueueKinds) {
		last(kind, 0)
	}
	fmt.Fprintf(&b, `
FROM queues i WHERE i.delete_at <= ?1 ORDER BY i.delete_at LIMIT (
  SELECT CASE WHEN sum((SELECT count(*) FROM queues s WHERE s.topic = bounded_idle.no)) > %d THEN 1 ELSE %d END
  FROM (SELECT no FROM queues WHERE delete_at <= ?1 ORDER BY delete_at LIMIT %[2]d) bounded_idle)`, IdleSubscriptions, IdleAtOnce)
	return b.String()
}()

// lastTimes is how many columns of SQLIdle have the ends of locks and schedules.
const lastTimes = 2 + queue.SubqueueKinds

// AskIdle asks for what seems idle.
func AskIdle(now int64, found *[]Idle) driver.PipelineQuery {
	return driver.PipelineQuery{SQL: SQLIdle, Bind: func(st driver.Statement) driver.Statement { return st.Int(now) }, OnRow: func(r driver.Row) {
		i := Idle{Queue: Queue{No: r.Int(0), Topic: r.Int(1), IsTopic: r.Int(2) != 0, CopiesPending: r.Int(4) != 0}, idle: r.Int(3), served: r.Int(5) != 0}
		for n := range lastTimes {
			i.until = max(i.until, r.Int(6+n))
		}
		*found = append(*found, i)
	}}
}

// Kept returns when something that is not idle after all is to be looked at again; 0: it is idle.
func (i Idle) Kept(now int64) int64 {
	if i.until <= now && !i.served && !i.CopiesPending {
		return 0
	}
	return max(i.until, now) + i.idle
}

// SQLKeep sets when a queue is deleted as idle.
var SQLKeep = driver.BatchForm("UPDATE queues SET delete_at = ? WHERE no = ?", "UPDATE queues q SET delete_at = p1 FROM %s WHERE q.no = ANY (ARRAY[p2])")
