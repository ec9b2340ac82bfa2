package jobs

import (
	"slices"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// A line that begins with more jobs that may not go than a look tries would hide those behind them that call
// something else: there are few classes, and a task's model may have changed since its jobs came. So what
// stands behind is walked through, a piece at a time, for tasks of which none is held.

const (
	walkPiece = 1000 // messages
	// Milliseconds after a piece in which nothing may go, and after a walk that found no other task.
	walkPause = 250
	walkAgain = 2000
)

// walk is how far a line was walked through.
type walk struct {
	next         int64 // when the next piece may be taken
	visible, seq int64 // it begins behind this
	more         bool  // there is one; else it is the first again
	others       bool  // there are jobs of other tasks, and they are held too
}

// maxPassed is how many tasks a walk passes over.
const maxPassed = 4

const (
	sqlPiece = `
FROM messages WHERE lane = ?1 AND rank = ?2 AND visible <= ?3 AND (visible, seq) > (?4, ?5) ORDER BY visible, seq LIMIT `
	sqlBehind = "SELECT " + readyColumns + `
FROM (SELECT *, seq + 0 AS place` + sqlPiece + `?6 + 0) m JOIN jobs j ON j.seq = m.seq
WHERE j.task NOT IN (?7, ?8, ?9, ?10) ORDER BY m.visible, m.place LIMIT ?11 + 0`
	sqlPieceEnd = "SELECT visible, seq" + sqlPiece + "1 OFFSET ?6"
)

// lookBehind adds what may go from behind the beginnings of lines that are held.
func (t *Tx) lookBehind(l *look, claims []*claim) error {
	held := map[int64][]candidate{}
	for i := range l.held {
		if no := l.held[i].rank; l.cut[no] && !l.held[i].fresh && l.lines.of[no] != nil {
			held[no] = append(held[no], l.held[i])
		}
	}
	for no, list := range held {
		slots, w := wanted(claims)-len(l.found), &l.lines.of[no].walk
		if slots <= 0 {
			return nil
		}
		if pause := w.next - t.Now; pause > 0 && pause <= walkAgain {
			l.askAgain(w.next)
			continue
		}
		going := l.found
		if err := t.walk(l, no, w, list, claims, slots); err != nil {
			return err
		}
		l.found = append(going, l.found...)
	}
	return nil
}

// walk takes the next piece of a line. What may go of it is what the look has found then.
func (t *Tx) walk(l *look, no int64, w *walk, held []candidate, claims []*claim, slots int) error {
	last := &held[len(held)-1]
	if from := last.ScheduledAt.UnixMilli(); !w.more || w.visible < from || w.visible == from && w.seq < last.Seq {
		w.visible, w.seq = from, last.Seq
	}
	var passed []string
	for i := range held {
		if task := held[i].Task; len(passed) < maxPassed && !slices.Contains(passed, task) {
			passed = append(passed, task)
		}
	}
	piece := func(sql string) driver.Statement {
		return t.Prep(sql).Int(int64(l.subqueue)).Int(no).Int(t.Now).Int(w.visible).Int(w.seq)
	}
	st := piece(sqlBehind).Int(walkPiece)
	for i := range maxPassed {
		st = st.Text(passed[min(i, len(passed)-1)])
	}
	var found []candidate
	err := st.Int(int64(l.limit)).Each(func(r driver.Row) error {
		c := readCandidate(r, l.subqueue)
		c.rank = no
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
		l.askAgain(t.Now)
		return nil
	}
	w.others = w.others && w.more || len(found) > 0
	if len(found) == limit {
		last := &found[len(found)-1]
		w.visible, w.seq, w.more = last.ScheduledAt.UnixMilli(), last.Seq, true
	} else if w.more, err = piece(sqlPieceEnd).Int(walkPiece - 1).One(func(r driver.Row) { w.visible, w.seq = r.Int(0), r.Int(1) }); err != nil {
		return err
	}
	switch {
	case w.more:
		w.next = t.Now + walkPause
		l.askAgain(w.next)
	case w.others:
		w.next = t.Now + walkPause
	default:
		w.next = t.Now + walkAgain
	}
	return nil
}
