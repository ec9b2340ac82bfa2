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
	maxReasons = 16 << 20 // bytes of their reasons together
	maxGroups  = 200      // reasons that it tells apart
)

// Count counts the messages of a dead-letter subqueue by reason, locked and deferred ones too. It
// looks at the newest maxCounted.
func Count(c driver.Conn, subqueue queue.Subqueue) (forebay.DeadMessageGroups, error) {
	counts := forebay.DeadMessageGroups{Groups: []forebay.DeadMessageGroup{}, Complete: true}
	groups := map[string]*forebay.DeadMessageGroup{}
	size := 0
	err := c.Prep(SQLGroups).Int(int64(subqueue)).Int(maxCounted + 1).Each(func(r driver.Row) error {
		seq, reason, at := r.Int(0), r.Text(1), driver.FromMillis(r.Int(2))
		if size += len(reason); counts.Counted == maxCounted || size > maxReasons {
			counts.Complete = false
			return driver.ErrStop
		}
		counts.Counted++
		counts.UpTo = max(counts.UpTo, seq)
		g := groups[reason]
		switch {
		case g == nil && len(groups) == maxGroups:
			counts.Other++
			return nil
		case g == nil:
			g = &forebay.DeadMessageGroup{Reason: reason, NewestEnqueued: at, OldestEnqueued: at, Example: seq}
			groups[reason] = g
		case at.After(g.NewestEnqueued):
			g.NewestEnqueued = at
		case at.Before(g.OldestEnqueued):
			g.OldestEnqueued = at
		}
		g.Count++
		return nil
	})
	if err := driver.UnlessStopped(err); err != nil {
		return counts, err
	}
	for _, g := range groups {
		counts.Groups = append(counts.Groups, *g)
	}
	slices.SortFunc(counts.Groups, func(a, b forebay.DeadMessageGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return counts, nil
}
