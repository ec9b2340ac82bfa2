package store

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// tx is the transaction under way. Its bookkeeping takes effect only when it commits.
type tx struct {
	conn
	w        *writer
	now      int64 // by the database's clock
	parts    []any // the participants' parts of it, by the index of their keys
	batch    []operation
	apart    bool             // it need not be alone: it only adds rows
	withDue  bool             // it also does what is due
	together bool             // the stage that is under way is that of several operations
	after    []func()         // to run once committed
	notice   notification     // for the other processes
	answered int              // how many of those that waited it has served
	touched  []int64          // what changed that others may watch
	drop     func(rowName)    // forget
	named    map[rowName]bool // by operations; nil: not put together yet
	full     func() bool      // it has made so much that the rest had better wait; nil: it cannot
	took     time.Duration    // from BEGIN to the end of COMMIT; 0: it is not over
}

// notify has the other processes hear a word, with a time if it tells one.
func (t *tx) notify(kind wordKind, a, b, at int64) {
	if t.w.shared() {
		t.notice.add(kind, a, b, at)
	}
}

// changed notes that something changed that others may watch: see Store.Watch.
func (t *tx) changed(no int64) {
	if last := len(t.touched) - 1; last < 0 || t.touched[last] != no { // most come in pairs
		t.touched = append(t.touched, no)
	}
}

// settingsChanged has everybody look again at everything, here and in other processes.
func (t *tx) settingsChanged() {
	t.notify(wordSettings, 0, 0, 0)
	t.w.everybodyLooks(true)
}

// commit runs the batch, and what is due, in one transaction. If that breaks, though the disk works,
// each operation runs in a transaction of its own, so that only the culprit fails; and if the culprit
// was what is due, those that waited for it are refused, so that they know. It returns how the last
// transaction ended.
func (w *writer) commit(batch []operation) error {
	background, err := w.transactionOrAgain(batch, true)
	switch {
	case err == nil || !w.isolates(err) || len(batch) == 1 && !background:
		if err != nil {
			w.postponed = nil // they end as the others do
		}
		// Settlements wake many workers at once. Whoever has brought something new need not stand behind them.
		for _, brings := range []bool{true, false} {
			for _, op := range batch {
				if (op.party() != 0) == brings && !slices.Contains(w.postponed, op) {
					op.finish(err)
				}
			}
		}
	default:
		w.postponed = nil
		for _, op := range batch {
			_, opErr := w.transactionOrAgain([]operation{op}, false)
			op.finish(opErr)
		}
	}
	if err != nil && background && w.isolates(err) {
		w.refuseAll(err)
	}
	return err
}

// isolates reports whether trying the operations one by one can help: not when the disk fails.
func (w *writer) isolates(err error) bool {
	var refused *forebay.Error
	if errors.Is(err, errRolledBack) { // nothing was made, so the culprit can be found
		return true
	}
	return !errors.As(w.conn.domainError(err), &refused)
}

// transactionOrAgain is transaction, again if another that ran beside it came first, or if it must be alone.
func (w *writer) transactionOrAgain(batch []operation, withDue bool) (background bool, err error) {
	const tries = 4
	defer func() { w.exclusive = false }()
	for n := 1; ; n++ {
		if background, err = w.transaction(batch, withDue); !w.takesAnother(err) || n == tries {
			return background, err
		}
		w.exclusive = errors.Is(err, errNotAlone)
	}
}

// begin starts the transaction, and asks with that what is known to be needed.
func (w *writer) begin(t *tx) error {
	if w.apart { // those of other processes store keys in the same order: none waits for one that waits for it
		slices.SortStableFunc(t.batch, func(a, b operation) int { return strings.Compare(a.key(), b.key()) })
		t.apart = !w.exclusive
		for _, p := range w.parts {
			if l, ok := p.(loner); ok {
				t.apart = t.apart && l.mayStoreBeside()
			}
		}
	}
	var questions []question
	if w.shared() {
		local := t.withDue && !slices.ContainsFunc(t.batch, func(op operation) bool { return !op.local() })
		for _, p := range w.parts {
			if o, ok := p.(opener); ok {
				questions = append(questions, o.opens(t, t.batch, local)...)
			}
		}
	}
	b := beginning{apart: t.apart, questions: questions}
	if w.shared() {
		for _, op := range t.batch {
			op.askedAhead(&b.ahead)
		}
	}
	now, err := w.conn.begin(b)
	if err != nil {
		return err
	}
	if t.now = now; w.shared() {
		w.noticeClock(now)
	} else {
		t.now = w.tick(now)
	}
	return nil
}

// transaction runs the operations, then, if withDue, does what is due, and commits. Nobody is told anything
// before the commit is on disk. background tells that an error came from what was due and not from an
// operation.
func (w *writer) transaction(batch []operation, withDue bool) (background bool, err error) {
	if len(batch) == 0 && !w.anythingDue() {
		return false, nil
	}
	t, began := &tx{conn: w.conn, w: w, batch: batch, withDue: withDue}, time.Now()
	if err = w.begin(t); err != nil {
		err = errors.Join(err, t.rollback())
		w.undo(t, w.clock(), invalidPause)
		w.observed(t, began, err)
		return false, err
	}
	if err = w.refreshParts(); err == nil {
		err = w.apply(t)
	}
	if err == nil && withDue {
		err = w.serveDue(t)
		background = err != nil
	}
	for _, p := range w.parts {
		if c, ok := p.(closer); ok && err == nil {
			err = c.closes(t)
		}
	}
	if err == nil && slices.ContainsFunc(batch, operation.tells) {
		err = t.assure()
	}
	worked := time.Since(began)
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		err = errors.Join(err, t.rollback())
		pause := invalidPause
		if w.takesAnother(err) {
			pause = 0
		}
		w.undo(t, t.now, pause)
		w.observed(t, began, err)
		return background, err
	}
	took, rows := time.Since(began), 0
	for _, op := range batch {
		rows += op.rows()
	}
	w.appetite.note(rows, worked, took-worked)
	w.checkpoints.committed()
	w.tell(t, took)
	w.observed(t, began, nil)
	return false, nil
}

// apply runs the operations, stage by stage. Once they have made as much as is good for one transaction it
// leaves for the next one what can wait.
func (w *writer) apply(t *tx) error {
	w.postponed = nil
	for at := range stages {
		t.together = at == stageSettle
		for _, op := range t.batch {
			if op.stage() != at {
				continue
			}
			if op.postponable() && t.full != nil && t.full() {
				w.postponed = append(w.postponed, op)
				continue
			}
			if err := op.apply(t); err != nil {
				return err
			}
			t.applied(op)
		}
		t.together = false
		for _, p := range w.parts {
			if s, ok := p.(stager); ok {
				if err := s.stageEnded(t, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// applied has operations ask again what was asked ahead and the one before them may have changed.
func (t *tx) applied(op operation) {
	switch {
	case !t.w.shared():
	case !op.local():
		t.forgetAll()
	case len(t.batch) > 1:
		if t.drop == nil {
			t.drop = t.forget
		}
		op.names(t.drop)
	}
}

// touches reports whether an operation of the transaction has named the row.
func (t *tx) touches(row rowName) bool {
	if t.named == nil {
		t.named = make(map[rowName]bool, len(t.batch))
		for _, op := range t.batch {
			op.names(func(row rowName) { t.named[row] = true })
		}
	}
	return t.named[row]
}

// tell tells everybody what is now on disk.
func (w *writer) tell(t *tx, took time.Duration) {
	t.took = took
	for _, f := range t.after {
		f()
	}
	for _, p := range w.parts {
		p.committed(t)
	}
	w.watches.notify(t.touched)
	for _, no := range t.touched {
		t.notify(wordChanged, no, 0, 0)
	}
	if w.shared() && !t.notice.empty() {
		w.publish(&t.notice)
	}
}

// undo forgets what a failed transaction may have made of the participants' memory: everything gets
// another look, but after a pause. So a failing disk is not tried in a tight loop, and once it works again,
// workers that wait to settle come before claims that would take their expired locks.
func (w *writer) undo(t *tx, now int64, pause time.Duration) {
	for _, p := range w.parts {
		p.rolledBack(t, now+pause.Milliseconds())
	}
}

// invalidPause is longer than any worker waits between two tries to settle.
const invalidPause = time.Second
