package dead

import (
	"cmp"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// SQLGroups reads dead letters from the newest on.
const SQLGroups = `SELECT b.seq, b.dead_letter_reason, b.enqueued_at FROM bodies b WHERE b.subqueue = ?1 ORDER BY b.seq DESC LIMIT ?2 + 0`

// Bounds of one call.
const (
	maxCounted = 20_000   // dead letters that it looks at
	maxOfEach  = 1000     // of one of many subqueues
	maxReasons = 16 << 20 // bytes of their reasons together
	maxGroups  = 200      // groups that it tells apart
	atATime    = 20       // subqueues that are asked in one round trip
)

// counter counts dead letters by queue and reason.
type counter struct {
	forebay.DeadMessageGroups
	groups map[[2]string]*forebay.DeadMessageGroup
	size   int
}

func newCounter() *counter {
	return &counter{DeadMessageGroups: forebay.DeadMessageGroups{Groups: []forebay.DeadMessageGroup{}, Complete: true}, groups: map[[2]string]*forebay.DeadMessageGroup{}}
}

// add counts what SQLGroups has found in a queue. It returns false if that is too much.
func (c *counter) add(queue string, r driver.Row) bool {
	seq, reason, at := r.Int(0), r.Text(1), driver.FromMillis(r.Int(2))
	if c.size += len(reason); c.Counted == maxCounted || c.size > maxReasons {
		c.Complete = false
		return false
	}
	c.Counted++
	c.UpTo = max(c.UpTo, seq)
	name := [2]string{queue, reason}
	g := c.groups[name]
	switch {
	case g == nil && len(c.groups) == maxGroups:
		c.Other++
		return true
	case g == nil:
		g = &forebay.DeadMessageGroup{Queue: queue, Reason: reason, NewestEnqueued: at, OldestEnqueued: at, Example: seq}
		c.groups[name] = g
	case at.After(g.NewestEnqueued):
		g.NewestEnqueued = at
	case at.Before(g.OldestEnqueued):
		g.OldestEnqueued = at
	}
	g.Count++
	return true
}

// result is what was counted, the most frequent first.
func (c *counter) result() forebay.DeadMessageGroups {
	for _, g := range c.groups {
		c.Groups = append(c.Groups, *g)
	}
	slices.SortFunc(c.Groups, func(a, b forebay.DeadMessageGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Reason, b.Reason))
	})
	return c.DeadMessageGroups
}

// Count counts the messages of a dead-letter subqueue by reason, locked and deferred ones too. It
// looks at the newest maxCounted.
func Count(c driver.Conn, subqueue queue.Subqueue) (forebay.DeadMessageGroups, error) {
	counts := newCounter()
	err := c.Prep(SQLGroups).Int(int64(subqueue)).Int(maxCounted + 1).Each(func(r driver.Row) error {
		if !counts.add("", r) {
			return driver.ErrStop
		}
		return nil
	})
	return counts.result(), driver.UnlessStopped(err)
}

// Of is a dead-letter subqueue, and the name of its queue or subscription.
type Of struct {
	Name     string
	Subqueue queue.Subqueue
}

// CountAll counts the messages of several dead-letter subqueues by queue and reason. It looks at
// the newest maxOfEach of each, and at maxCounted in all.
func CountAll(c driver.Conn, list []Of) (forebay.DeadMessageGroups, error) {
	counts := newCounter()
	for len(list) > 0 && counts.Counted < maxCounted && counts.size <= maxReasons {
		some := list[:min(len(list), atATime)]
		list = list[len(some):]
		questions := make([]driver.PipelineQuery, len(some))
		for i, of := range some {
			read := 0
			questions[i] = driver.PipelineQuery{SQL: SQLGroups, Bind: func(st driver.Statement) driver.Statement {
				return st.Int(int64(of.Subqueue)).Int(maxOfEach + 1)
			}, OnRow: func(r driver.Row) {
				if read++; read > maxOfEach {
					counts.Complete = false
					return
				}
				counts.add(of.Name, r)
			}}
		}
		if err := c.RunPipeline(questions); err != nil {
			return counts.result(), err
		}
	}
	counts.Complete = counts.Complete && len(list) == 0
	counts.UpTo = 0 // of several subqueues it bounds nothing
	return counts.result(), nil
}
