package jobs

import (
	"slices"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
)

// A flow's first jobs may be held, while jobs behind them call something else and could go. There
// are few classes, and a task's model may have changed since its jobs came. A backfill scan
// searches behind the held jobs, piece by piece, for tasks of which no job is held.

const (
	backfillPiece = 1000 // messages
	// Milliseconds after a piece in which nothing may go, and after a search that found no other
	// task.
	backfillPause = 250
	backfillAgain = 2000
)

// maxSkippedTasks is how many tasks a backfill scan leaves out.
const maxSkippedTasks = 4

const (
	sqlBackfillPiece = `
FROM messages WHERE subqueue = ?1 AND flow = ?2 AND visible_at <= ?3 AND (visible_at, seq) > (?4, ?5) ORDER BY visible_at, seq LIMIT `
	sqlBackfill = "SELECT " + readyColumns + `
FROM (SELECT *, seq + 0 AS place` + sqlBackfillPiece + `?6 + 0) m JOIN jobs j ON j.seq = m.seq
WHERE j.task NOT IN (?7, ?8, ?9, ?10) ORDER BY m.visible_at, m.place LIMIT ?11 + 0`
	sqlBackfillEnd = "SELECT visible_at, seq" + sqlBackfillPiece + "1 OFFSET ?6"
)

// backfill adds jobs that may go from behind the held beginnings of flows.
func (t claimTx) backfill(l *scan, claims []*claim) error {
	held := map[int64][]candidate{}
	for i := range l.held {
		if no := l.held[i].flow; l.cut[no] && !l.held[i].isNew && l.flows.Flows[no] != nil {
			held[no] = append(held[no], l.held[i])
		}
	}
	for no, list := range held {
		slots, w := wanted(claims)-len(l.found), &l.flows.Flows[no].Backfill
		if slots <= 0 {
			return nil
		}
		if pause := w.Next - t.Now; pause > 0 && pause <= backfillAgain {
			l.scanAgain(w.Next)
			continue
		}
		l.going = l.found
		if err := t.backfillScan(l, no, w, list, claims, slots); err != nil {
			return err
		}
		l.found, l.going = append(l.going, l.found...), nil
	}
	return nil
}

// backfillScan scans the next piece of a flow. The scan's found jobs are those of the piece that
// may go.
func (t claimTx) backfillScan(l *scan, no int64, w *flows.Backfill, held []candidate, claims []*claim, slots int) error {
	// From before a job that goes already, the search would find that one again.
	going := slices.DeleteFunc(slices.Clone(l.going), func(m candidate) bool { return m.flow != no })
	last := slices.MaxFunc(append(going, held...), byFlow)
	if from := last.ScheduledAt.UnixMilli(); !w.More || w.Visible < from || w.Visible == from && w.Seq < last.Seq {
		w.Visible, w.Seq = from, last.Seq
	}
	var passed []string
	for i := range held {
		if task := held[i].Task; len(passed) < maxSkippedTasks && !slices.Contains(passed, task) {
			passed = append(passed, task)
		}
	}
	piece := func(sql string) driver.Statement {
		return t.Prep(sql).Int(int64(l.subqueue)).Int(no).Int(t.Now).Int(w.Visible).Int(w.Seq)
	}
	st := piece(sqlBackfill).Int(backfillPiece)
	for i := range maxSkippedTasks {
		st = st.Text(passed[min(i, len(passed)-1)])
	}
	var found []candidate
	err := st.Int(int64(l.limit)).Each(func(r driver.Row) error {
		c := readCandidate(r, l.subqueue)
		c.flow = no
		found = append(found, c)
		return nil
	})
	if err != nil {
		return err
	}
	limit := l.limit // admit may ask for more next time
	l.found = slices.Clone(found)
	if err := t.admit(l, claims, slots); err != nil {
		return err
	}
	if len(l.found) > 0 { // there may be more there
		l.scanAgain(t.Now)
		return nil
	}
	w.OthersHeld = w.OthersHeld && w.More || len(found) > 0
	if len(found) == limit {
		last := &found[len(found)-1]
		w.Visible, w.Seq, w.More = last.ScheduledAt.UnixMilli(), last.Seq, true
	} else if w.More, err = piece(sqlBackfillEnd).Int(backfillPiece - 1).One(func(r driver.Row) { w.Visible, w.Seq = r.Int(0), r.Int(1) }); err != nil {
		return err
	}
	switch {
	case w.More:
		w.Next = t.Now + backfillPause
		l.scanAgain(w.Next)
	case w.OthersHeld:
		w.Next = t.Now + backfillPause
	default:
		w.Next = t.Now + backfillAgain
	}
	return nil
}
