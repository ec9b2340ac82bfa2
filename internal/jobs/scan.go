package jobs

import (
	"cmp"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/quota"
)

// All claims that wait for a subqueue are served from one look at its lines. Where processes share a database
// that is one round trip to the server, and as a rule none of its own.

// What is asked of lines is given as arrays in PostgreSQL's notation.
const linesFrom = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[]), CAST(? AS bigint[])) AS r"

var sqlReadyShared = `
SELECT ` + readyColumns + `, m.rank
FROM (SELECT first.* FROM ` + linesFrom + `(line, floor, most),
    LATERAL (SELECT * FROM messages WHERE lane = ? AND rank = r.line AND visible >= r.floor AND visible <= (` + postgres.SQLNow + `)
      ORDER BY visible, seq LIMIT r.most) AS first
    WHERE NOT EXISTS (SELECT 1 FROM queues WHERE no = ? AND paused <> 0)
      AND NOT EXISTS (SELECT 1 FROM tenants WHERE no = ` + sqlTenantOf("r.line") + ` AND paused <> 0)) AS m
  JOIN jobs j ON j.seq = m.seq`

// The earliest of each line that is not ready yet, from waits on if near has passed.
const sqlNextShared = `
SELECT r.line, first.visible FROM ` + linesFrom + `(line, waits, near),
  LATERAL (SELECT visible FROM messages WHERE lane = ? AND rank = r.line AND visible > (` + postgres.SQLNow + `)
      AND visible >= CASE WHEN r.near <= (` + postgres.SQLNow + `) THEN r.waits ELSE 0 END
    ORDER BY visible LIMIT 1) AS first`

// maxLook bounds what one look reads, inputs included.
const maxLook = 256

// look is what is ready in a subqueue and was not taken yet.
type look struct {
	subqueue queue.Subqueue
	lines    *lines
	asks     []lineAsk
	horizon  *fairqueue.Horizon // see choose
	anew     bool               // it begins from the very beginning, or finds the lines
	brief    bool               // it does not ask what is not ready yet, for it expects to find enough
	limit    int
	share    Share
	plan     admission.Plan
	found    []candidate
	more     bool               // may be ready than was found
	cut      map[int64]bool     // lines of which only the beginning was found
	taken    map[int64]int64    // line → "visible" of the latest that was taken
	later    []candidate        // whose turn is after what was found
	held     []candidate        // ready, but not to be called now
	retryAt  int64              // when one of those may be called; 0: nobody knows
	why      forebay.WaitReason // the last of them is held
	called   []string           // deployments where those that were found could be called
	heldBy   []string           // those of them that refused some
	unasked  bool               // some may go as soon as another claim wants them
	deep     bool               // it looked at those behind that may go in their place
}

// newLook looks for as much as the claims want together, from where the last look at the subqueue ended.
func (w *participant) newLook(subqueue queue.Subqueue, claims []*claim, now int64) *look {
	l := &look{subqueue: subqueue, lines: w.linesOf(subqueue), share: claims[0].Share, plan: claims[0].Plan, taken: map[int64]int64{}}
	l.limit = wanted(claims)
	if _, l.deep = w.blocked[subqueue]; l.deep { // a smaller one may fit
		l.limit += quota.Backfill
	}
	l.limit = min(max(l.limit, 1), maxLook)
	l.anew = l.lines.sweep(now, w.pace.every(sweeping).Milliseconds())
	l.asks, l.horizon = l.lines.choose(l.limit, now, l.share, w.restsUntil)
	l.brief = l.lines.full
	return l
}

// questions are what the look asks.
func (l *look) questions() []driver.PipelineQuery {
	l.found = l.found[:0]
	at := map[int64]int{}
	for i := range l.asks {
		l.asks[i].got, l.asks[i].next = 0, db.Never
		at[l.asks[i].no] = i
	}
	ready := driver.PipelineQuery{SQL: sqlReadyShared, Bind: func(st driver.Statement) driver.Statement {
		return l.asked(st, func(a *lineAsk) (int64, int64) { return a.floor, a.limit }).Int(int64(l.subqueue)).Int(l.subqueue.Queue())
	}, OnRow: func(r driver.Row) {
		c := readCandidate(r, l.subqueue)
		c.rank = r.Int(29)
		l.found = append(l.found, c)
		l.asks[at[c.rank]].got++
	}}
	if l.brief {
		return []driver.PipelineQuery{ready}
	}
	// What is not ready comes first: what becomes ready between the two is then in both, and not in neither.
	return []driver.PipelineQuery{
		{SQL: sqlNextShared, Bind: func(st driver.Statement) driver.Statement {
			return l.asked(st, func(a *lineAsk) (int64, int64) { return a.waits, a.near }).Int(int64(l.subqueue))
		}, OnRow: func(r driver.Row) { l.asks[at[r.Int(0)]].next = r.Int(1) }},
		ready,
	}
}

// asked binds the numbers of the lines and what else is asked of each.
func (l *look) asked(st driver.Statement, of func(*lineAsk) (int64, int64)) driver.Statement {
	var numbers, firsts, seconds []int64
	for i := range l.asks {
		first, second := of(&l.asks[i])
		numbers, firsts, seconds = append(numbers, l.asks[i].no), append(firsts, first), append(seconds, second)
	}
	return st.Text(driver.ArrayOf(numbers)).Text(driver.ArrayOf(firsts)).Text(driver.ArrayOf(seconds))
}

// now looks in the middle of a transaction.
func (l *look) now(t *Tx, fresh []candidate) error {
	if !l.lines.known {
		l.anew = true
		if err := l.lines.find(t, l.subqueue); err != nil {
			return err
		}
	}
	l.lines.keepFloors(l.taken, l.later)
	l.brief = false
	l.again()
	l.asks, l.horizon = l.lines.choose(l.limit, t.Now, l.share, t.w.restsUntil)
	if !t.w.Shared() {
		if err := l.lineByLine(t); err != nil {
			return err
		}
	} else {
		for _, q := range l.questions() {
			if err := q.Run(t.Conn); err != nil {
				return err
			}
		}
	}
	l.arrange(fresh, t)
	return nil
}

// again forgets what the last look left for later, but for new jobs: they have no row yet.
func (l *look) again() {
	l.later = slices.DeleteFunc(l.later, func(c candidate) bool { return !c.fresh })
}

// lineByLine looks where a statement costs little.
func (l *look) lineByLine(t *Tx) error {
	l.found = l.found[:0]
	for i := range l.asks {
		a := &l.asks[i]
		a.next = db.Never
		err := t.Prep(sqlReady).Int(int64(l.subqueue)).Int(a.no).Int(t.Now).Int(a.limit).Each(func(r driver.Row) error {
			c := readCandidate(r, l.subqueue)
			c.rank = a.no
			l.found = append(l.found, c)
			a.got++
			return nil
		})
		if err != nil {
			return err
		}
		if a.got == a.limit {
			continue
		}
		next, err := t.Prep("SELECT visible FROM messages WHERE lane = ? AND rank = ? AND visible > ? ORDER BY visible LIMIT 1").
			Int(int64(l.subqueue)).Int(a.no).Int(t.Now).One(func(r driver.Row) { a.next = r.Int(0) })
		if err != nil {
			return err
		}
		if !next && a.got == 0 {
			delete(l.lines.of, a.no)
		}
	}
	return nil
}

// inLine compares by line and, within it, by whose turn it is.
func inLine(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.Seq, b.Seq))
}

// arrange puts what was found, and new jobs, in order.
func (l *look) arrange(fresh []candidate, t *Tx) {
	if !slices.IsSortedFunc(l.found, inLine) {
		slices.SortFunc(l.found, inLine)
	}
	asked, informs := map[int64]bool{}, map[int64]bool{}
	l.cut = map[int64]bool{}
	l.lines.full = len(l.asks) > 0
	for _, a := range l.asks {
		if asked[a.no] = true; a.got == a.limit {
			l.cut[a.no] = true
		} else {
			l.lines.full = false
		}
		informs[a.no] = a.informs
		if one := l.lines.of[a.no]; one != nil {
			if !l.brief {
				one.waits = a.next
			}
			if one.next = min(a.next, one.noted); l.cut[a.no] || l.brief {
				one.next = 0
			}
		}
	}
	unasked := len(l.asks) == maxLines && l.lines.nextDue(t.w.restsUntil, func(no int64) bool { return asked[no] }) <= t.Now
	for i := range fresh {
		no := fresh[i].rank
		if one := l.lines.of[no]; l.cut[no] || !asked[no] && one != nil && one.next <= t.Now { // others of its line come before it
			l.later = append(l.later, fresh[i])
		} else {
			l.found = append(l.found, fresh[i])
		}
	}
	for i := len(l.found) - 1; i >= 0; i-- { // the first of each line comes last
		if one := l.lines.of[l.found[i].rank]; one != nil {
			one.head = l.found[i].ScheduledAt.UnixMilli()
		}
	}
	l.found = slices.DeleteFunc(l.found, func(m candidate) bool {
		if informs[m.rank] {
			l.later, unasked = append(l.later, m), true
		}
		return informs[m.rank]
	})
	all := l.found
	l.found, l.more = l.lines.order(all, l.cut, l.horizon, func(m *candidate) float64 { return l.share.cost(m.Tenant, t.expected(m, l.plan)) }, t.Now)
	l.found = l.shareScarce(t, all, l.found)
	l.more = l.more || unasked
	if len(l.found) < len(all) {
		kept := map[int64]bool{}
		for i := range l.found {
			kept[l.found[i].Seq] = true
		}
		for i := range all {
			if !kept[all[i].Seq] {
				l.later = append(l.later, all[i])
			}
		}
	}
}

// lookAt returns what is ready for the claims that wait for a subqueue and may be called: what is stored,
// and new jobs. It is nil if there is nothing.
func (w *participant) lookAt(t *Tx, subqueue queue.Subqueue, looks bool) (*look, error) {
	var l *look
	fresh, claims := t.fresh[subqueue], w.Waiters[subqueue]
	switch {
	case looks:
		if l = t.lookedAhead(subqueue); l == nil {
			l = w.newLook(subqueue, claims, t.Now)
			if err := l.now(t, fresh); err != nil {
				return nil, err
			}
		} else {
			l.arrange(fresh, t)
		}
		delete(w.blocked, subqueue)
	case len(fresh) == 0:
		return nil, nil
	default: // nothing else is ready
		l = &look{subqueue: subqueue, lines: w.linesOf(subqueue), share: claims[0].Share, plan: claims[0].Plan, taken: map[int64]int64{}}
		l.arrange(fresh, t)
	}
	if l.anew {
		t.anew++
	}
	delete(t.fresh, subqueue)
	for _, u := range t.admission.Slots { // what the looks before have let go is locked by now, or stays
		u.Going = 0
	}
	if err := t.admit(l, claims, wanted(claims)); err != nil || !l.deep {
		return l, err
	}
	return l, t.lookBehind(l, claims)
}

// lookedAhead returns what the transaction found in a subqueue as it began, unless it may not be true any more.
func (t *Tx) lookedAhead(subqueue queue.Subqueue) *look {
	if t.ended { // jobs whose deadline had passed, which may be among them
		return nil
	}
	for _, l := range t.looks {
		if l.subqueue == subqueue {
			l.found = slices.DeleteFunc(l.found, func(c candidate) bool {
				settled := t.Touches(queue.MessageRow(c.Seq))
				if settled { // or not: it may be that its lock was lost
					l.later = append(l.later, c)
					l.lines.note(c.rank, t.Now, t.Now)
				}
				return settled
			})
			return l
		}
	}
	return nil
}

// noteDue notes when the subqueue is worth another look.
func (l *look) noteDue(w *participant, now int64) {
	held := map[int64]bool{}
	clear(l.lines.held[:])
	for i := range l.held {
		held[l.held[i].rank], l.lines.held[classOf(l.held[i].rank)] = true, true
	}
	next := l.lines.nextDue(w.restsUntil, func(no int64) bool { return held[no] && l.lines.of[no].next <= now })
	switch {
	case len(l.found) > 0, l.unasked, l.more && (len(l.held) == 0 || !l.deep), l.passes():
		next = now
	case len(l.held) == 0:
	case next <= now: // in lines that were not asked
		next = now + blockedPause
	}
	if len(l.held) > 0 && l.retryAt > 0 {
		next = min(next, max(l.retryAt, now+heldPause))
	}
	if w.DueAt[l.subqueue] = next; next == db.Never {
		delete(w.DueAt, l.subqueue)
	}
	for _, left := range [][]candidate{l.found, l.later, l.held} {
		for i := range left {
			if one := l.lines.of[left[i].rank]; one != nil && !left[i].fresh {
				one.next = 0
			}
		}
	}
}

// passes reports whether there are more jobs of a class of which none is held.
func (l *look) passes() bool {
	held := map[int64]bool{}
	for i := range l.held {
		held[classOf(l.held[i].rank)] = true
	}
	for no := range l.cut {
		if !held[classOf(no)] {
			return true
		}
	}
	return false
}

// serveFrom takes ready messages for one claim.
func (w *participant) serveFrom(t *Tx, l *look, c *claim) error {
	var bytes int64
	for len(c.deliveries) < c.Max {
		if len(l.found) == 0 {
			if !l.more || len(l.held) > 0 {
				return nil
			}
			if err := l.now(t, nil); err != nil {
				return err
			}
			if err := t.admit(l, []*claim{c}, c.Max-len(c.deliveries)+wanted(w.Waiters[l.subqueue])); err != nil {
				return err
			}
			continue
		}
		m := &l.found[0]
		if bytes+m.InputSize > c.MaxBytes && bytes > 0 {
			return nil
		}
		bytes += m.InputSize
		if !m.fresh {
			l.taken[m.rank] = m.ScheduledAt.UnixMilli()
		}
		l.lines.note(m.rank, t.Now+c.Lock.Milliseconds(), t.Now)
		before := len(c.deliveries)
		if err := t.take(m, c); err != nil {
			return err
		}
		if len(c.deliveries) == before { // it was too late for it
			if err := t.withdraw(l.found[:1]); err != nil {
				return err
			}
			m.Admission = nil // its tenant does not pay for what it gave back
		}
		t.charge(l.lines, m, l.share)
		l.found = l.found[1:]
	}
	return nil
}
