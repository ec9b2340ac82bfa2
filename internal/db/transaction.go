package db

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// Tx is the transaction under way. Its bookkeeping takes effect only when it commits.
type Tx struct {
	driver.Conn
	w           *Writer
	Now         int64 // by the database's clock
	parts       []any // the participants' parts of it, by the index of their keys
	batch       []Operation
	Concurrent  bool                    // it need not be alone: it only adds rows
	WithDue     bool                    // it also does what is due
	Volatile    bool                    // its commit does not wait for the disk
	After       []func()                // to run once committed
	notice      Notification            // for the other processes
	Served      int                     // how many of those that waited it has served
	touched     []int64                 // what changed that others may watch
	told        []any                   // see Tell
	drop        func(driver.RowName)    // forget
	named       map[driver.RowName]bool // by operations; nil: not put together yet
	Full        func() bool             // it has made so much that the rest had better wait; nil: it cannot
	tripsBefore int64                   // round trips of the connection before it began
	Took        time.Duration           // from BEGIN to the end of COMMIT; 0: it is not over
}

// Notify tells the other processes of a change, with its time if it has one.
func (t *Tx) Notify(kind WordKind, a, b, at int64) {
	if t.w.Shared() {
		t.notice.add(kind, a, b, at)
	}
}

// Changed notes that something changed that others may watch: see Store.Watch.
func (t *Tx) Changed(no int64) {
	if last := len(t.touched) - 1; last < 0 || t.touched[last] != no { // most come in pairs
		t.touched = append(t.touched, no)
	}
}

// Heard reports whether somebody wants to be told what happens: see Tell.
func (t *Tx) Heard() bool { return t.w.watches.hears.Load() }

// Tell tells what happens to whoever listens, once the transaction is on disk. It costs nothing
// while nobody does, if Heard was asked first.
func (t *Tx) Tell(what any) { t.told = append(t.told, what) }

// SettingsChanged has everybody look again at everything, here and in other processes.
func (t *Tx) SettingsChanged() {
	t.Notify(WordSettings, 0, 0, 0)
	t.w.RescanAll(true)
}

// commit runs the batch, and what is due, in one transaction. If that fails though the disk
// works, each operation runs in a transaction of its own, so that only the culprit fails. If
// the culprit was what is due, those that waited for it are refused. It returns how the last
// transaction ended.
func (w *Writer) commit(batch []Operation) error {
	background, err := w.transactionOrAgain(batch, true)
	switch {
	case err == nil || !w.Isolates(err) || len(batch) == 1 && !background:
		if err != nil {
			w.postponed = nil // they end as the others do
		}
		// Settlements wake many workers at once. Whoever has brought something new need not stand
		// behind them.
		for _, brings := range []bool{true, false} {
			for _, op := range batch {
				if (op.What().Party != 0) == brings && !slices.Contains(w.postponed, op) {
					op.finish(err)
				}
			}
		}
	default:
		w.postponed = nil
		for _, op := range batch {
			_, opErr := w.transactionOrAgain([]Operation{op}, false)
			op.finish(opErr)
		}
	}
	if err != nil && background && w.Isolates(err) {
		w.refuseAll(err)
	}
	return err
}

// Isolates reports whether trying the operations one by one can help: not when the disk fails.
func (w *Writer) Isolates(err error) bool {
	var refused *forebay.Error
	if errors.Is(err, postgres.ErrRolledBack) { // nothing was made, so the culprit can be found
		return true
	}
	return !errors.As(w.Conn.UserError(err), &refused)
}

// transactionOrAgain is transaction, again if another that ran beside it came first, or if it
// must be alone.
func (w *Writer) transactionOrAgain(batch []Operation, withDue bool) (background bool, err error) {
	const tries = 4
	defer func() { w.exclusive = false }()
	for n := 1; ; n++ {
		if background, err = w.transaction(batch, withDue); !w.takesAnother(err) || n == tries {
			return background, err
		}
		w.exclusive = errors.Is(err, ErrNotAlone)
	}
}

// begin starts the transaction, and asks with that what is known to be needed.
func (w *Writer) begin(t *Tx) error {
	if w.Inserter { // those of other processes store keys in the same order: none waits for one that waits for it
		slices.SortStableFunc(t.batch, func(a, b Operation) int { return strings.Compare(a.What().Key, b.What().Key) })
		t.Concurrent = !w.exclusive
		for _, p := range w.parts {
			if l, ok := p.(loner); ok {
				t.Concurrent = t.Concurrent && l.MayStoreBeside()
			}
		}
	}
	questions, refreshed := w.refreshParts()
	if w.Shared() {
		local := t.WithDue && !slices.ContainsFunc(t.batch, func(op Operation) bool { return !op.What().Local })
		for _, p := range w.parts {
			if o, ok := p.(opener); ok {
				questions = append(questions, o.Opens(t, t.batch, local)...)
			}
		}
	}
	b := driver.BeginOptions{Concurrent: t.Concurrent, Volatile: t.Volatile, Pipeline: questions}
	if w.Shared() {
		asked := 0
		for _, op := range t.batch {
			asked += len(op.What().asked)
		}
		b.Prefetch = make([]driver.Prefetch, 0, asked)
		for _, op := range t.batch {
			b.Prefetch = append(b.Prefetch, op.What().asked...)
		}
	}
	now, err := w.Conn.Begin(b)
	if err != nil {
		return err
	}
	for _, answered := range refreshed {
		answered()
	}
	w.stale = false
	if t.Now = now; w.Shared() {
		w.noticeClock(now)
	} else {
		t.Now = w.tick(now)
	}
	return nil
}

// transaction runs the operations, then, if withDue, does what is due, and commits. Nobody is
// told anything before the commit is on disk. background tells that an error came from what was
// due and not from an operation.
func (w *Writer) transaction(batch []Operation, withDue bool) (background bool, err error) {
	if len(batch) == 0 && !w.anythingDue() {
		return false, nil
	}
	t, began := &Tx{Conn: w.Conn, w: w, batch: batch, WithDue: withDue, Volatile: w.volatile(batch)}, time.Now()
	if server, ok := w.Conn.Driver.(*postgres.Conn); ok {
		t.tripsBefore = server.RoundTrips()
	}
	if err = w.begin(t); err != nil {
		err = errors.Join(err, t.Rollback())
		w.invalidate(t, w.Clock(), invalidPause)
		w.observed(t, began, err)
		return false, err
	}
	err = w.apply(t)
	if err == nil && withDue {
		err = w.serveDue(t)
		background = err != nil
	}
	for _, p := range w.parts {
		if c, ok := p.(closer); ok && err == nil {
			err = c.Closes(t)
		}
	}
	if err == nil && len(batch) > 0 && !t.Volatile {
		err = t.EnsureDurable()
	}
	worked := time.Since(began)
	if err == nil {
		if err = t.Commit(); err != nil {
			w.doubts(t)
		}
	}
	if err != nil {
		err = errors.Join(err, t.Rollback())
		pause := invalidPause
		if w.takesAnother(err) {
			pause = 0
		}
		w.invalidate(t, t.Now, pause)
		w.observed(t, began, err)
		return background, err
	}
	took, rows := time.Since(began), 0
	for _, op := range batch {
		rows += op.What().rows()
	}
	if server, ok := w.Conn.Driver.(*postgres.Conn); ok {
		trips := time.Duration(server.RoundTrips() - t.tripsBefore)
		w.sizer.noteServer(rows, took, trips*server.Latency())
	} else {
		w.sizer.note(rows, worked, took-worked)
	}
	w.checkpoints.committed()
	w.publishCommit(t, took)
	w.observed(t, began, nil)
	return false, nil
}

// volatile reports whether nobody needs the batch's commit to be on disk. What was due before may
// need it, and must not wait while volatile operations come.
func (w *Writer) volatile(batch []Operation) bool {
	return len(batch) > 0 && !w.anythingDue() && !slices.ContainsFunc(batch, func(op Operation) bool { return !op.What().Volatile })
}

// apply runs the operations, stage by stage. Once they have made as much as is good for one
// transaction it leaves for the next one what can wait.
func (w *Writer) apply(t *Tx) error {
	w.postponed = nil
	for at := range Stages {
		if err := w.applyStage(t, at); err != nil {
			return err
		}
		for _, p := range w.parts {
			if s, ok := p.(stager); ok {
				if err := s.StageEnded(t, at); err != nil {
					return err
				}
			}
		}
	}
	return t.Interleave(len(w.parts), func(i int) error {
		if r, ok := w.parts[i].(reporter); ok {
			return r.OperationsEnded(t)
		}
		return nil
	})
}

// applyStage runs the operations of a stage. Where other processes share the database, those
// that interleave wait for their answers together.
func (w *Writer) applyStage(t *Tx, at Stage) error {
	apply := func(op Operation) error {
		if op.What().postponable() && t.Full != nil && t.Full() {
			w.postponed = append(w.postponed, op)
			return nil
		}
		err := op.apply(t)
		if err == nil {
			t.applied(op)
		}
		return err
	}
	if !w.Shared() || len(t.batch) == 1 {
		for _, op := range t.batch {
			if op.What().Stage != at {
				continue
			}
			if err := apply(op); err != nil {
				return err
			}
		}
		return nil
	}
	for _, ops := range inRounds(t.batch, at) {
		if err := t.Interleave(len(ops), func(i int) error { return apply(ops[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// rowRounds are the first rounds in which a row may be read, and changed.
type rowRounds struct{ read, change int }

// inRounds parts the operations of a stage into rounds of those that can run together. Whoever
// changes a row comes after those before it that name the row, and before those after it. One
// that does not interleave, or changes what it does not name, has a round of its own.
func inRounds(batch []Operation, at Stage) (rounds [][]Operation) {
	if !slices.ContainsFunc(batch, func(op Operation) bool { return op.What().Stage == at }) {
		return nil
	}
	rows := make(map[driver.RowName]rowRounds, len(batch))
	first := 0 // round after the latest operation that ran alone
	for _, op := range batch {
		what := op.What()
		if what.Stage != at {
			continue
		}
		n := first
		if !what.Interleaves || !what.Local {
			n = len(rounds)
			first = n + 1
		}
		what.reads(func(row driver.RowName) { n = max(n, rows[row].read) })
		what.names(func(row driver.RowName) { n = max(n, rows[row].change) })
		what.reads(func(row driver.RowName) { rows[row] = rowRounds{rows[row].read, max(rows[row].change, n+1)} })
		what.names(func(row driver.RowName) { rows[row] = rowRounds{n + 1, n + 1} })
		for len(rounds) <= n {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], op)
	}
	return rounds
}

// applied has operations ask again what was asked ahead and the one before them may have changed.
func (t *Tx) applied(op Operation) {
	switch {
	case !t.w.Shared():
	case !op.What().Local:
		t.DropAllPrefetched()
	case len(t.batch) > 1:
		if t.drop == nil {
			t.drop = t.DropPrefetched
		}
		op.What().names(t.drop)
	}
}

// Keeps reports whether all operations of the transaction leave the row as it was when the
// transaction began. If so, they change what they have named alone, and that is not among it.
func (t *Tx) Keeps(row driver.RowName) bool {
	return !t.Touches(row) && !slices.ContainsFunc(t.batch, func(op Operation) bool { return !op.What().Local })
}

// Touches reports whether an operation of the transaction has named the row.
func (t *Tx) Touches(row driver.RowName) bool {
	if t.named == nil {
		t.named = make(map[driver.RowName]bool, len(t.batch))
		for _, op := range t.batch {
			op.What().names(func(row driver.RowName) { t.named[row] = true })
		}
	}
	return t.named[row]
}

// publishCommit tells everybody what is now on disk.
func (w *Writer) publishCommit(t *Tx, took time.Duration) {
	t.Took = took
	for _, f := range t.After {
		f()
	}
	for _, p := range w.parts {
		p.Committed(t)
	}
	w.watches.notify(t.touched)
	if len(t.told) > 0 {
		w.watches.told.Notify(Told{t.Now, t.told})
	}
	if !w.doubtful.empty() {
		w.watches.received(&w.doubtful)
		t.notice.addAll(&w.doubtful)
		w.doubtful = Notification{}
	}
	if !w.Shared() {
		return
	}
	t.notice.addChanged(t.touched...)
	if !t.notice.empty() {
		w.publish(&t.notice)
	}
}

// doubts remembers what a transaction changed whose commit was not answered well. It may last all
// the same, and its watchers have not been told. The next commit of this writer tells them. Where
// the lock lets one transaction at a time write, that commit has waited until this one was over.
// The second writer takes no lock and only adds rows. Those of a commit in doubt may be seen only
// after its next one, and are found when somebody looks again.
func (w *Writer) doubts(t *Tx) { w.doubtful.addChanged(t.touched...) }

// invalidate drops what a failed transaction may have made of the participants' memory. All is
// read again after a pause, so a failing disk is not tried in a tight loop. Once it works again,
// settlements come before claims, which would take their expired locks.
//
// A failure within a pause does not prolong it. Otherwise operations that fail one after the other
// would keep all who wait from being served.
func (w *Writer) invalidate(t *Tx, now int64, pause time.Duration) {
	until := now + pause.Milliseconds()
	if now < w.rests {
		until = min(until, w.rests)
	}
	w.rests = until
	for _, p := range w.parts {
		p.Invalidate(t, until)
	}
}

// invalidPause is longer than any worker waits between two tries to settle.
const invalidPause = time.Second
