package store

import (
	"cmp"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Where processes share a database a claim is a round trip to the server, so all claims that wait for
// a lane are served from one look at all its ranks.

// What the ranks' floors are given as: an array in PostgreSQL's notation.
const ranksFrom = "unnest(CAST(? AS bigint[])) WITH ORDINALITY AS r(floor, no)"

const sqlReadyShared = `
SELECT ` + readyColumns + `, m.rank
FROM (SELECT first.* FROM ` + ranksFrom + `,
    LATERAL (SELECT * FROM messages WHERE lane = ? AND rank = r.no - 1 AND visible >= r.floor AND visible <= (` + sqlNow + `)
      ORDER BY visible, seq LIMIT ?) AS first
    WHERE NOT EXISTS (SELECT 1 FROM queues WHERE no = ? AND paused <> 0)
    ORDER BY first.rank, first.visible, first.seq LIMIT ?) AS m
  JOIN jobs j ON j.seq = m.seq
ORDER BY m.rank, m.visible, m.seq`

// The earliest of a lane that is not ready yet, by one look into the index for each rank.
const sqlNextShared = `
SELECT min(first.visible) FROM ` + ranksFrom + `,
  LATERAL (SELECT visible FROM messages WHERE lane = ? AND rank = r.no - 1 AND visible >= r.floor AND visible > (` + sqlNow + `)
    ORDER BY visible LIMIT 1) AS first`

// maxLook bounds what one look reads, inputs included.
const maxLook = 256

// floors tells for each rank of a lane the "visible" of the latest message that was taken. All before
// it have been taken too, and whatever becomes ready is behind it: so a look that begins there need not
// pass what is left of those, which an old snapshot anywhere on the server keeps from being removed.
// Should the clock be set back, a look from the very beginning, once in a while, finds what is before it.
type floors struct {
	of    [forebay.MaxPriority + 1]int64
	swept int64 // when the latest look from the very beginning was
}

const sweeping = 1000 // milliseconds between looks from the very beginning

// look is what is ready in a lane and was not taken yet.
type look struct {
	lane    int64
	floors  floors
	limit   int
	found   []candidate
	more    bool               // may be ready than was found
	next    int64              // when the earliest that is not ready will be; 0: there is none
	held    []candidate        // ready, but not to be called now
	retryAt int64              // when one of those may be called; 0: nobody knows
	why     forebay.WaitReason // the last of them is held
}

// newLook looks for as much as the claims want together, from where the last look at the lane ended.
func (w *writer) newLook(lane int64, claims []*claim, now int64) *look {
	l := &look{lane: lane, floors: w.floors[lane]}
	if since := now - l.floors.swept; since < 0 || since >= sweeping {
		l.floors = floors{swept: now}
	}
	l.limit = wanted(claims)
	if _, blocked := w.blocked[lane]; blocked { // a smaller one may fit
		l.limit += quota.Backfill
	}
	l.limit = min(l.limit, maxLook)
	return l
}

// questions are what the look asks.
func (l *look) questions() []question {
	from := arrayOf(l.floors.of[:])
	return []question{
		{sqlReadyShared, func(st statement) statement {
			return st.text(from).int(l.lane).int(int64(l.limit)).int(l.lane / laneKinds).int(int64(l.limit))
		}, func(r row) {
			c := readCandidate(r, Lane(l.lane))
			c.rank = r.int(26)
			l.found = append(l.found, c)
			l.more = len(l.found) == l.limit
		}},
		l.whenNext(),
	}
}

func (l *look) whenNext() question {
	from := arrayOf(l.floors.of[:])
	return question{sqlNextShared, func(st statement) statement { return st.text(from).int(l.lane) }, func(r row) { l.next = r.int(0) }}
}

// now looks in the middle of a transaction.
func (l *look) now(t *tx) error {
	l.found, l.more = l.found[:0], false
	if t.w.share == nil {
		return l.byRank(t)
	}
	for _, q := range l.questions() {
		if err := q.askOf(t.conn); err != nil {
			return err
		}
	}
	return nil
}

// byRank looks where a statement costs little, rank after rank.
func (l *look) byRank(t *tx) error {
	l.next = 0
	for rank := int64(0); rank <= forebay.MaxPriority && len(l.found) < l.limit; rank++ {
		if t.w.ranks[l.lane]&(1<<rank) == 0 {
			continue
		}
		before := len(l.found)
		err := t.prep(sqlReady).int(l.lane).int(rank).int(t.now).int(int64(l.limit - before)).each(func(r row) error {
			c := readCandidate(r, Lane(l.lane))
			c.rank = rank
			l.found = append(l.found, c)
			return nil
		})
		if err != nil {
			return err
		}
		if l.more = len(l.found) == l.limit; l.more {
			return nil
		}
		next, err := t.prep("SELECT visible FROM messages WHERE lane = ? AND rank = ? AND visible > ? ORDER BY visible LIMIT 1").
			int(l.lane).int(rank).int(t.now).one(func(r row) {
			if at := r.int(0); l.next == 0 || at < l.next {
				l.next = at
			}
		})
		if err != nil {
			return err
		}
		if !next && len(l.found) == before {
			t.w.ranks[l.lane] &^= 1 << rank
		}
	}
	return nil
}

// looksAhead are those that a transaction can make as it begins, because its operations leave alone
// what waits in lanes: they store new jobs and settle what they hold locks of.
func (w *writer) looksAhead(batch []operation) (looks []*look, states bool) {
	if w.share == nil {
		return nil, false
	}
	for _, op := range batch {
		if !op.plain() {
			return nil, false
		}
	}
	now := w.clock()
	for lane, claims := range w.parked {
		if due, ok := w.dueAt[lane]; ok && due <= now && lane >= 0 && claims[0].receive == nil && !w.paused[lane/laneKinds] {
			looks = append(looks, w.newLook(lane, claims, now))
			states = states || claims[0].Plan != nil
		}
	}
	return looks, states
}

// lookAt returns what is ready for the claims that wait for a lane and may be called: what is stored,
// and new jobs. If it is nil each claim looks for itself.
func (w *writer) lookAt(t *tx, lane int64, looks bool) (*look, error) {
	var l *look
	fresh, claims := t.fresh[lane], w.parked[lane]
	switch {
	case looks && lane >= 0 && claims[0].receive == nil && (w.share != nil || claims[0].Plan != nil):
		if l = t.lookedAhead(lane); l == nil {
			l = w.newLook(lane, claims, t.now)
			if err := l.now(t); err != nil {
				return nil, err
			}
		}
		t.after = append(t.after, func() { w.floors[lane] = l.floors })
	case looks: // where each has its place
		return nil, t.storeFresh(lane, fresh)
	case len(fresh) == 0:
		return nil, nil
	default:
		l = &look{lane: lane} // nothing else is ready
	}
	if len(fresh) > 0 {
		l.found = append(l.found, fresh...)
		slices.SortStableFunc(l.found, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
		delete(t.fresh, lane)
	}
	if looks {
		delete(w.blocked, lane)
	}
	return l, t.admit(l, claims, wanted(claims))
}

// lookedAhead returns what the transaction found in a lane as it began, unless it may not be true any more.
func (t *tx) lookedAhead(lane int64) *look {
	if t.ended { // jobs whose deadline had passed, which may be among them
		return nil
	}
	for _, l := range t.looks {
		if l.lane == lane {
			l.found = slices.DeleteFunc(l.found, func(c candidate) bool { return slices.Contains(t.locks, c.Seq) })
			return l
		}
	}
	return nil
}

// noteDue notes when the lane is worth another look.
func (l *look) noteDue(w *writer, now int64) {
	const least = 10 // milliseconds between looks at a lane in which jobs are held
	next := l.next
	if retryAt := max(l.retryAt, now+least); len(l.held) > 0 && l.retryAt > 0 && (next == 0 || retryAt < next) {
		next = retryAt
	}
	switch {
	case len(l.held) == 0 && l.more || len(l.found) > 0:
		w.dueAt[l.lane] = now
	case next > 0:
		w.dueAt[l.lane] = next
	default:
		delete(w.dueAt, l.lane)
	}
}

// serveFrom takes ready messages for one claim.
func (w *writer) serveFrom(t *tx, l *look, c *claim) error {
	var bytes int64
	for len(c.deliveries) < c.Max {
		if len(l.found) == 0 {
			if !l.more || len(l.held) > 0 {
				return nil
			}
			if err := l.now(t); err != nil {
				return err
			}
			if err := t.admit(l, []*claim{c}, c.Max-len(c.deliveries)+wanted(w.parked[l.lane])); err != nil {
				return err
			}
			continue
		}
		m := &l.found[0]
		if bytes+m.InputSize > c.MaxBytes && bytes > 0 {
			return nil
		}
		bytes += m.InputSize
		l.floors.of[m.rank] = m.ScheduledAt.UnixMilli()
		until := t.now + c.Lock.Milliseconds()
		if l.next == 0 || until < l.next {
			l.next = until
		}
		before := len(c.deliveries)
		if err := t.take(m, c); err != nil {
			return err
		}
		if len(c.deliveries) == before { // it was too late for it
			if err := t.withdraw(l.found[:1]); err != nil {
				return err
			}
		}
		l.found = l.found[1:]
	}
	return nil
}
