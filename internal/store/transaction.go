package store

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/panics"
)

// tx is the transaction under way. Its bookkeeping takes effect only when it commits.
type tx struct {
	conn
	w       *writer
	touched []int64               // jobs that changed, for watchers
	ready   map[int64]int64       // subqueue → earliest time at which a message of it became ready
	wake    int64                 // the earliest new deadline; 0: none
	after   []func()              // to run once committed
	fresh   map[int64][]candidate // subqueue → new jobs whose messages are not stored yet; nil: store them at once
	news    news                  // for the other processes, beside what follows from the above
	needs
	anew   int  // how many of its looks were
	ended  bool // jobs whose deadline had passed were
	start       // what was asked at the beginning and was not used yet
	topics topicMemory
	copied spread         // copies that topics and forwarding have made
	tended bool           // something that was due is done
	served []*workClaim   // claims of work that this transaction serves
	woken  map[int64]bool // orchestrations that it has made ready
	pools  map[Pool]int64 // of work, that it has looked up or made

	sessions  sessionMemory
	budgets   budgetMemory
	slots     map[string]*slotUse    // by holder; nil: not read yet
	rooms     map[int64]*webhookRoom // by subscription, as far as read
	placeOnly map[int64]bool         // subqueues of webhooks that have room again; true: only for as many deliveries as ended
	tally     Tally
	hours     map[hourKey]hourSum // what reports count of the attempts that it records
	leaving   []leaving           // jobs that have ended and are in their sessions still
	together  bool                // they leave at the end of the stage
	turns     map[jobSession]turn // of the jobs that are being submitted; nil: ask
	auditEnd  *auditEnd           // nil: not read yet
	audited   []event             // that the audit log does not have yet
}

// changed notes that a job changed.
func (t *tx) changed(seq int64) { t.touched = append(t.touched, seq) }

// due notes that a message of that line of the subqueue can be delivered from that time on; line 0: of a subqueue
// that is not for jobs.
func (t *tx) due(subqueue Subqueue, line, at int64) {
	l := int64(subqueue)
	if known := t.w.lines[l]; known != nil && line > 0 {
		known.note(line, at, t.now)
	}
	if line > 0 && t.w.share != nil {
		if t.news.addLine(l, line); at > t.now {
			t.news.later = earliest(t.news.later, l, at)
		}
	}
	t.wakes(l, at)
}

// wakes notes that whoever waits for the subqueue is to look at it from that time on.
func (t *tx) wakes(subqueue, at int64) {
	if earliest, ok := t.ready[subqueue]; !ok || at < earliest {
		t.ready[subqueue] = at
	}
	if t.w.heeds(subqueue) {
		t.w.lookBy(subqueue, t.w.notBefore(subqueue, at))
	}
}

// commit runs the batch, and what is due, in one transaction. If that breaks, though the disk works,
// each operation runs in a transaction of its own, so that only the culprit fails; and if the culprit
// was what is due, the claims that waited for it are refused, so that their callers know. It returns
// how the last transaction ended.
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
		w.refuseDue(err)
	}
	return err
}

// refuseDue answers the claims of all subqueues that are due with an error.
func (w *writer) refuseDue(err error) {
	for subqueue, claims := range w.parked {
		if w.paused[subqueue/subqueueKinds] {
			continue
		}
		for _, c := range claims {
			c.refuse(err)
		}
		w.leave(subqueue)
	}
	for _, c := range w.work.parked {
		c.refuse(err)
	}
	w.work.parked = nil
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
		if background, err = w.transaction(batch, withDue); !takesAnother(err) || n == tries {
			return background, err
		}
		w.exclusive = errors.Is(err, errNotAlone)
	}
}

// transaction runs the operations, then, if withDue, ends overdue jobs and serves the claims that
// wait, and commits. Nobody is told anything before the commit is on disk. background tells that an
// error came from what was due and not from an operation.
func (w *writer) transaction(batch []operation, withDue bool) (background bool, err error) {
	if len(batch) == 0 && !w.anythingDue() {
		return false, nil
	}
	t, began := &tx{conn: w.conn, w: w, ready: map[int64]int64{}}, time.Now()
	for _, op := range batch {
		op.needs(&t.needs)
	}
	// Subscribers of events get copies, which takes more than adding rows, and the audit log has one order.
	t.apart = w.apart && !w.exclusive && w.followed != nil && len(w.followed.topics) == 0 && !slices.Contains(w.audited, forebay.EventAccepted)
	if w.apart { // those of other processes store keys in the same order: none waits for one that waits for it
		slices.SortStableFunc(batch, func(a, b operation) int { return strings.Compare(a.key(), b.key()) })
	}
	if withDue {
		t.fresh = map[int64][]candidate{}
		var states []string
		t.looks, states = w.looksAhead(batch)
		t.states = append(t.states, states...)
	}
	identities := w.identities.Load()
	if w.known != identities {
		w.known, w.deployments = identities, nil
	}
	t.identities = *identities
	if t.start, err = t.begin(t.needs); err != nil {
		w.distrust(w.clock(), distrustPause)
		w.observed(t, began, len(batch), 0, err)
		return false, errors.Join(err, t.rollback())
	}
	if w.share == nil {
		t.now = w.tick(t.now)
	} else {
		w.noticeClock(t.now)
	}
	seq := w.nextSeq
	var served []*claim
	if err = w.refresh(); err == nil {
		err = w.apply(t, batch)
	}
	if err == nil && withDue {
		err = panics.Run(slog.Default(), "what is due in the store", func() (err error) {
			served, err = w.serveDue(t)
			return err
		})
		background = err != nil
	}
	if err == nil {
		err = t.storeDeployments()
	}
	if err == nil {
		err = t.storeSpending()
	}
	if err == nil {
		err = t.storeHours()
	}
	if err == nil {
		err = t.allReleased()
	}
	if err == nil && slices.ContainsFunc(batch, operation.tells) {
		err = t.assure()
	}
	worked := time.Since(began)
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		w.nextSeq = seq
		err = errors.Join(err, t.rollback())
		for _, c := range served {
			c.unserve()
		}
		for _, c := range t.served {
			c.unserve()
		}
		pause := distrustPause
		if takesAnother(err) {
			pause = 0
		}
		w.distrust(t.now, pause)
		w.observed(t, began, len(batch), 0, err)
		return background, err
	}
	took, rows := time.Since(began), 0
	for _, op := range batch {
		rows += op.rows()
	}
	w.appetite.note(rows, worked, took-worked)
	w.pace.note(took, t.anew)
	w.checkpoints.committed()
	w.committed(t, served)
	w.observed(t, began, len(batch), len(served), nil)
	return false, nil
}

// apply runs the operations, stage by stage. Once topics have made as much of them as is good for one transaction
// it leaves for the next one what can wait.
func (w *writer) apply(t *tx, batch []operation) error {
	w.postponed = nil
	for at := range stages {
		t.together = at == stageSettle
		for _, op := range batch {
			if op.stage() != at {
				continue
			}
			if t.copied.full() {
				if r, ok := op.(interface{ postponable() bool }); ok && r.postponable() {
					w.postponed = append(w.postponed, op)
					continue
				}
			}
			if err := op.apply(t); err != nil {
				return err
			}
		}
		err := t.passTurns()
		if err == nil {
			err = t.auditEvents()
		}
		if err != nil {
			return err
		}
	}
	t.together = false
	if w.apart { // which must leave alone what others change
		return nil
	}
	return t.resumeWaiting()
}

// serveDue does what is due without anybody asking: it ends overdue jobs and serves waiting claims.
func (w *writer) serveDue(t *tx) (served []*claim, err error) {
	if err := w.expireDue(t); err != nil {
		return nil, err
	}
	if served, err = w.serveClaims(t); err == nil {
		err = w.serveWork(t)
	}
	if err == nil {
		err = t.auditEvents()
	}
	return served, err
}

// committed tells everybody what is now on disk.
func (w *writer) committed(t *tx, served []*claim) {
	if t.wake > 0 && (w.deadline == 0 || t.wake < w.deadline) {
		w.deadline = t.wake
	}
	for _, f := range t.after {
		f()
	}
	for _, c := range served {
		c.deliver()
	}
	w.deliverWork(t)
	w.watches.notify(t.touched)
	if w.share != nil {
		t.news.ready, t.news.changed, t.news.wake = t.ready, t.touched, t.wake
		if !t.news.empty() {
			w.share(&t.news)
		}
	}
}

// distrust forgets what a failed transaction may have made of the writer's memory: every subqueue gets
// another look, but after a pause. So a failing disk is not tried in a tight loop, and once it works
// again, workers that wait to settle come before claims that would take their expired locks.
func (w *writer) distrust(now int64, pause time.Duration) {
	at := now + pause.Milliseconds()
	w.reservedSeq = 0
	w.deployments, w.budgets, w.sweeps = nil, nil, true
	w.work.distrust(at)
	clear(w.blocked)
	clear(w.full)
	clear(w.resting)
	for subqueue := range w.lines {
		w.lines[subqueue] = newLines()
		w.dueAt[subqueue] = at
	}
	for subqueue := range w.parked {
		w.dueAt[subqueue] = at
	}
	w.deadline = at
}

// distrustPause is longer than any worker waits between two tries to settle.
const distrustPause = time.Second
