package entity

import (
	"context"
	"slices"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// A dropped entity is purged in steps: first its messages, then its sessions, then the message ids
// that it remembers. The step that finds none of these removes its row. What a step does to all
// entities together is bounded.

// purgedAtOnce is how many dropped entities have a step at the same time. SQL says it as a number.
const purgedAtOnce = 16

// What is left of a dropped entity, as left says it. Only the first is looked for.
const (
	notDropped = iota
	leftMessages
	leftSessions
	leftIDs
	leftNothing
)

const (
	left = `CASE WHEN q.kind <> 'deleting' THEN 0 WHEN (SELECT 1 FROM bodies b WHERE b.subqueue BETWEEN q.no * 4 AND q.no * 4 + 3 LIMIT 1) = 1 THEN 1
  WHEN (SELECT 1 FROM sessions s WHERE s.queue = q.no LIMIT 1) = 1 THEN 2 WHEN (SELECT 1 FROM message_ids i WHERE i.queue = q.no LIMIT 1) = 1 THEN 3 ELSE 4 END `
	messagesLeft = ` bounded_queue CROSS JOIN bodies b ON b.subqueue BETWEEN bounded_queue.no * 4 AND bounded_queue.no * 4 + 3
WHERE bounded_queue.kind = 'deleting' LIMIT ?2 + 0`

	// SQLDue finds what is due: one entity, or several that are dropped, and whether there are more.
	SQLDue = "SELECT q.no, " + left + ", q.forward_to FROM queues q WHERE q.due_at <= ?1 ORDER BY q.due_at LIMIT 17"
	// SQLDueMessages finds messages of those that are dropped.
	SQLDueMessages = "SELECT bounded_queue.no, b.seq FROM (SELECT no, kind FROM queues WHERE due_at <= ?1 ORDER BY due_at LIMIT 17)" + messagesLeft

	// These find the same of any that are dropped. ?1 is 0.
	sqlLeft         = "SELECT q.no, " + left + "FROM queues q WHERE q.kind = 'deleting' AND q.no > ?1 ORDER BY q.no LIMIT 16"
	sqlMessagesLeft = "SELECT bounded_queue.no, b.seq FROM (SELECT no, kind FROM queues WHERE kind = 'deleting' AND no > ?1 ORDER BY no LIMIT 16)" + messagesLeft
)

var (
	sqlPurgeSessions = driver.BatchForm("DELETE FROM sessions WHERE no IN (SELECT no FROM sessions WHERE queue = ? LIMIT ? + 0)",
		"DELETE FROM sessions s USING %s, LATERAL (SELECT f.no FROM sessions f WHERE f.queue = p1 LIMIT p2 + 0) f WHERE s.no = ANY (ARRAY[f.no])")
	sqlPurgeIDs = driver.BatchForm("DELETE FROM message_ids WHERE (queue, id) IN (SELECT queue, id FROM message_ids WHERE queue = ? LIMIT ? + 0)",
		"DELETE FROM message_ids m USING %s, LATERAL (SELECT f.queue, f.id FROM message_ids f WHERE f.queue = p1 LIMIT p2 + 0) f "+
			"WHERE m.queue = ANY (ARRAY[f.queue]) AND m.id = f.id")
	// sqlForget says again that nothing is left: it was asked before.
	sqlForget = driver.BatchForm("DELETE FROM queues WHERE no = ? AND kind = 'deleting'"+nothingOf("queues"),
		"DELETE FROM queues q USING %s WHERE q.no = ANY (ARRAY[p1]) AND q.kind = 'deleting'"+nothingOf("q"))
)

// nothingOf is a condition on queues. The planner would walk the tables for others that say that.
func nothingOf(q string) string {
	return " AND coalesce((SELECT 1 FROM bodies b WHERE b.subqueue BETWEEN " + q + ".no * 4 AND " + q + ".no * 4 + 3 LIMIT 1)," +
		" (SELECT 1 FROM sessions s WHERE s.queue = " + q + ".no LIMIT 1), (SELECT 1 FROM message_ids i WHERE i.queue = " + q + ".no LIMIT 1), 0) = 0"
}

// Purging is a step of the purge of dropped entities.
type Purging struct {
	Dropped  []int64 // the entities
	messages []int64
	by       [leftNothing + 1][]int64 // the entities, by what is left
}

func (p *Purging) found(no, left int64) {
	p.Dropped, p.by[left] = append(p.Dropped, no), append(p.by[left], no)
}

func (p *Purging) foundMessage(r driver.Row) {
	if slices.Contains(p.Dropped, r.Int(0)) {
		p.messages = append(p.messages, r.Int(1))
	}
}

// Write does the step, with up to most messages, and as many sessions and message ids. remove
// removes a message. more reports that something may be left.
func (p *Purging) Write(c driver.Conn, most int64, remove func(seq int64) error) (more bool, err error) {
	for _, seq := range p.messages {
		if err := remove(seq); err != nil {
			return false, err
		}
	}
	each := max(most/max(int64(len(p.Dropped)), 1), 1)
	for _, no := range p.by[leftSessions] {
		if err := c.Prep(sqlPurgeSessions).Int(no).Int(each).Exec(); err != nil {
			return false, err
		}
	}
	for _, no := range p.by[leftIDs] {
		if err := c.Prep(sqlPurgeIDs).Int(no).Int(each).Exec(); err != nil {
			return false, err
		}
	}
	for _, no := range p.by[leftNothing] {
		if err := c.Prep(sqlForget).Int(no).Exec(); err != nil {
			return false, err
		}
	}
	return len(p.by[leftNothing]) < len(p.Dropped), nil
}

// Due is what is to be done for entities now.
type Due struct {
	Purging
	No        int64  // or else the one that is to be forwarded; 0: none
	ForwardTo string // from that one
	More      bool   // others are due after these
}

// AskDue asks what is due: several entities that are dropped, with up to most messages of theirs,
// or another one.
func AskDue(now, most int64, due *Due) []driver.PipelineQuery {
	return []driver.PipelineQuery{
		{SQL: SQLDue, Bind: func(st driver.Statement) driver.Statement { return st.Int(now) }, OnRow: func(r driver.Row) {
			switch left := r.Int(1); {
			case due.No != 0, len(due.Dropped) == purgedAtOnce, left == notDropped && len(due.Dropped) > 0:
				due.More = true
			case left == notDropped:
				due.No, due.ForwardTo = r.Int(0), r.Text(2)
			default:
				due.found(r.Int(0), left)
			}
		}},
		{SQL: SQLDueMessages, Bind: func(st driver.Statement) driver.Statement { return st.Int(now).Int(most) },
			OnRow: due.foundMessage, Skip: func() bool { return len(due.Dropped) == 0 }},
	}
}

// PrefetchPurging is what [AskPurging] asks.
func PrefetchPurging(most int64) []driver.Prefetch {
	row := driver.RowName{Of: "dropped"}
	asks := []driver.Prefetch{driver.NewPrefetch(sqlLeft, row).Int(0), driver.NewPrefetch(sqlMessagesLeft, row).Int(0).Int(most)}
	for i := range asks {
		asks[i].Shared = true // by several who wait until all is purged: one of them purges
	}
	return asks
}

// AskPurging returns a step for any entities that are dropped, with up to most messages of theirs.
func AskPurging(c driver.Conn, most int64) (p Purging, err error) {
	asks := PrefetchPurging(most)
	err = c.Ask(asks[0]).Each(func(r driver.Row) error { p.found(r.Int(0), r.Int(1)); return nil })
	if err == nil && len(p.Dropped) > 0 {
		err = c.Ask(asks[1]).Each(func(r driver.Row) error { p.foundMessage(r); return nil })
	}
	return p, err
}

// AnyDropped reports whether an entity is still to be purged.
func (s Reader) AnyDropped(ctx context.Context) (some bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		some, err = c.Prep("SELECT 1 FROM queues WHERE kind = 'deleting' LIMIT 1").One(func(driver.Row) {})
		return err
	})
	return some, err
}
