package dead

import (
	"math"
	"slices"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Selection selects messages of a dead-letter subqueue: those with these numbers or, without
// numbers, those with the reason, or all. It leaves out locked and deferred messages.
type Selection struct {
	Numbers []int64
	Reason  string // "": any
	After   int64  // only higher numbers
	Until   int64  // only numbers up to this one; 0: up to the highest there is
	Limit   int    // of one step
}

// Step is the result of one step over dead messages.
type Step struct {
	Done  int
	After int64 // the next step takes higher numbers
	Until int64 // the last step ends here: messages with later numbers are left out
	More  bool
	Next  time.Time // when one more would become active, by the pace
}

// Pace is how fast dead letters that are sent back become active.
type Pace struct {
	First time.Time     // when the first becomes active; one that is past stands for now
	Every time.Duration // after which the next becomes active; 0: all at once
}

// At is when a message becomes active before which the step has sent back that many. Times are in
// milliseconds. It never lets more messages go at once because time has passed since First.
func (p Pace) At(now int64, before int) int64 {
	if p.Every == 0 {
		return now
	}
	late := time.Duration(before)*p.Every + time.Millisecond - 1 // rounded up, so that small steps are no faster
	return max(now, driver.MillisOrZero(p.First)) + late.Milliseconds()
}

// Letter is a dead message that was selected.
type Letter struct{ Seq, Size int64 }

// atOnce is how many messages one statement reads.
const atOnce = 1000

const (
	state = `CASE WHEN m.subqueue = b.subqueue AND (m.lock_token IS NULL OR m.visible_at <= ?2) THEN 1 ELSE 0 END`

	SQLSelect = `SELECT b.seq, ` + state + `, b.dead_letter_reason, m.size FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.subqueue = ?1 AND b.seq > ?3 AND b.seq <= ?5 ORDER BY b.seq LIMIT ?4 + 0`
	SQLOne  = `SELECT b.seq, ` + state + `, b.dead_letter_reason, m.size FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.seq = ?3 AND b.subqueue + 0 = ?1`
	SQLLast = `SELECT b.seq FROM bodies b WHERE b.subqueue = ? ORDER BY b.seq DESC LIMIT 1 + 0`
)

// Find finds the selected messages in the order of their numbers. One step scans at most atOnce
// messages.
func Find(c driver.Conn, subqueue queue.Subqueue, sel Selection, at int64) (found []Letter, step Step, err error) {
	step.Until = sel.Until
	take := func(r driver.Row) {
		if r.Int(1) != 0 && (sel.Reason == "" || r.Text(2) == sel.Reason) {
			found = append(found, Letter{r.Int(0), r.Int(3)})
		}
	}
	if len(sel.Numbers) > 0 {
		numbers := slices.Compact(slices.Sorted(slices.Values(sel.Numbers)))
		asks := make([]driver.Prefetch, len(numbers))
		for i, seq := range numbers {
			asks[i] = driver.NewPrefetch(SQLOne, queue.MessageRow(seq)).Int(int64(subqueue)).Int(at).Int(seq)
		}
		if err := c.Prefetch(asks); err != nil {
			return nil, step, err
		}
		for _, seq := range numbers {
			if _, err := c.Prep(SQLOne).Int(int64(subqueue)).Int(at).Int(seq).One(take); err != nil {
				return nil, step, err
			}
		}
		return found, step, nil
	}
	scanned := 0
	row := func(r driver.Row) error {
		if len(found) == sel.Limit {
			step.More = true
			return driver.ErrStop
		}
		scanned++
		step.After = r.Int(0)
		take(r)
		return nil
	}
	find := func(st driver.Statement, until int64) driver.Statement {
		return st.Int(int64(subqueue)).Int(at).Int(sel.After).Int(atOnce).Int(until)
	}
	last := driver.PipelineQuery{SQL: SQLLast, Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(subqueue)) },
		OnRow: func(r driver.Row) { step.Until = r.Int(0) }}
	step.After = sel.After
	switch {
	case step.Until == 0 && c.Arrays(): // both in one round trip
		err = c.RunPipeline([]driver.PipelineQuery{last, {SQL: SQLSelect, Bind: func(st driver.Statement) driver.Statement { return find(st, math.MaxInt64) },
			OnRow: func(r driver.Row) {
				if !step.More {
					_ = row(r)
				}
			}}})
	case step.Until == 0:
		err = last.Run(c)
	}
	if err != nil || step.Until == 0 {
		step.After = 0
		return nil, step, err
	}
	if sel.Until != 0 || !c.Arrays() {
		err = find(c.Prep(SQLSelect), step.Until).Each(row)
	}
	step.More = step.More || scanned == atOnce
	return found, step, driver.UnlessStopped(err)
}
