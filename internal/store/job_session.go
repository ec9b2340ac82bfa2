package store

import "github.com/forebayhq/forebay"

// Jobs of one session, of one tenant in one queue, run one after the other. The one whose turn it is
// stands in the queue like any other; the rest is held, invisible, until it has ended for good. A
// retry, a throttle or a lost lock keeps the turn. So does a call whose job was cancelled, as long as it may
// still run.

// heldUntil is the "visible" of a job that waits for its turn.
const heldUntil = 1 << 62

// jobSession is a session that a job belongs to.
type jobSession struct {
	tenant, queue int64
	id            string
}

// Whether it is the turn of a job of the session, and until when a call may run whose job was cancelled.
const sqlTurn = `
SELECT CASE WHEN EXISTS (SELECT 1 FROM job_sessions s JOIN messages m ON m.seq = s.seq
    WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id = ?3 AND m.visible < ?4) THEN 1 ELSE 0 END,
  coalesce((SELECT h.ends_at FROM job_session_holds h WHERE h.tenant = ?1 AND h.queue = ?2 AND h.session_id = ?3), 0)`

// joinSession makes a job that is about to be stored, or redriven, the session's latest. It may begin at
// that time at the earliest; notBefore is that time if it is not when the job was submitted for, else 0.
// It returns when the job becomes visible and what it waits for until then, if that is its session.
func (t *tx) joinSession(s jobSession, seq, at, notBefore int64) (visible int64, waiting string, err error) {
	var taken bool
	var until int64
	if _, err := t.prep(sqlTurn).int(s.tenant).int(s.queue).text(s.id).int(heldUntil).one(func(r row) { taken, until = r.int(0) != 0, r.int(1) }); err != nil {
		return 0, "", err
	}
	err = t.prep("INSERT INTO job_sessions (tenant, queue, session_id, seq, not_before) VALUES (?, ?, ?, ?, ?)").
		int(s.tenant).int(s.queue).text(s.id).int(seq).intOrNull(notBefore).exec()
	if taken {
		return heldUntil, string(forebay.WaitSession), err
	}
	visible, waiting = afterCall(at, until)
	return visible, waiting, err
}

// afterCall is when a job becomes visible that has its turn and may begin at that time, while a call that
// was cancelled may run until then.
func afterCall(at, until int64) (visible int64, waiting string) {
	if until > at {
		return until, string(forebay.WaitSession)
	}
	return at, ""
}

const sqlNextTurn = `
SELECT m.seq, m.lane, m.rank, coalesce(s.not_before, j.scheduled_at, 0), m.deadline,
  coalesce((SELECT h.ends_at FROM job_session_holds h WHERE h.tenant = s.tenant AND h.queue = s.queue AND h.session_id = s.session_id), 0)
FROM job_sessions s JOIN messages m ON m.seq = s.seq JOIN jobs j ON j.seq = s.seq
WHERE s.tenant = ? AND s.queue = ? AND s.session_id = ? ORDER BY s.seq LIMIT 1`

// leaveSession is for a job that has ended. Unless it was held, it was its turn, and the next one's comes.
func (t *tx) leaveSession(seq int64, held bool) error {
	var s jobSession
	found, err := t.prep("DELETE FROM job_sessions WHERE seq = ? RETURNING tenant, queue, session_id").int(seq).
		one(func(r row) { s = jobSession{r.int(0), r.int(1), r.text(2)} })
	if err != nil || !found || held {
		return err
	}
	return t.turn(t.prep(sqlNextTurn).int(s.tenant).int(s.queue).text(s.id))
}

// turn gives the job that the statement finds its turn.
func (t *tx) turn(find statement) error {
	var next, rank, at, deadline, until int64
	var lane Lane
	found, err := find.one(func(r row) {
		next, lane, rank, at, deadline, until = r.int(0), Lane(r.int(1)), r.int(2), r.int(3), r.int(4), r.int(5)
	})
	if err != nil || !found {
		return err
	}
	visible, waiting := afterCall(max(t.now, at), until)
	t.due(lane, rank, visible)
	t.deadlineAt(deadline)
	t.changed(next)
	return t.prep("UPDATE messages SET visible = ?, waiting = ? WHERE seq = ?").int(visible).textOrNull(waiting).int(next).exec()
}

// rejoinSession holds a job that was redriven, to begin at that time, while it is another's turn.
func (t *tx) rejoinSession(seq, at int64) error {
	var s jobSession
	found, err := t.prep("SELECT tenant, queue, session_id FROM jobs WHERE seq = ? AND session_id IS NOT NULL").int(seq).
		one(func(r row) { s = jobSession{r.int(0), r.int(1), r.text(2)} })
	if err != nil || !found {
		return err
	}
	visible, waiting, err := t.joinSession(s, seq, at, at)
	if err != nil || waiting == "" {
		return err
	}
	return t.prep("UPDATE messages SET visible = ?, waiting = ? WHERE seq = ?").int(visible).text(waiting).int(seq).exec()
}

const (
	sqlHoldSession = `
INSERT INTO job_session_holds (tenant, queue, session_id, token, ends_at)
SELECT tenant, queue, session_id, ?, ? FROM job_sessions WHERE seq = ?
ON CONFLICT (tenant, queue, session_id) DO UPDATE SET token = excluded.token, ends_at = excluded.ends_at`
	sqlDropHolds = "DELETE FROM job_session_holds WHERE ends_at <= ?"
)

// holdSession keeps the turn of a job's session, if it has one, until the end of the lock that a cancel
// voids, or until callOver.
func (t *tx) holdSession(seq, token, until int64) error {
	if err := t.prep(sqlDropHolds).int(t.now).exec(); err != nil {
		return err
	}
	return t.prep(sqlHoldSession).int(token).int(until).int(seq).exec()
}

const (
	sqlEndHold = "DELETE FROM job_session_holds WHERE tenant = ? AND queue = ? AND session_id = ? AND token = ?"
	// The job whose turn it is, if it waits for the call alone.
	sqlWaitsForCall = `
SELECT m.seq, m.lane, m.rank, coalesce(s.not_before, j.scheduled_at, 0), m.deadline, 0
FROM job_sessions s JOIN messages m ON m.seq = s.seq JOIN jobs j ON j.seq = s.seq
WHERE s.tenant = ? AND s.queue = ? AND s.session_id = ? AND m.visible < ? AND m.token IS NULL AND m.waiting = 'session' LIMIT 1`
)

// callOver tells that a call is over whose lock a cancel may have voided: the next job of its session need
// not wait for the end of that lock.
func (t *tx) callOver(s jobSession, token int64) error {
	rows, err := t.prep(sqlEndHold).int(s.tenant).int(s.queue).text(s.id).int(token).count()
	if err != nil || rows == 0 {
		return err
	}
	return t.turn(t.prep(sqlWaitsForCall).int(s.tenant).int(s.queue).text(s.id).int(heldUntil))
}

// endHolds is for a start after which no call of before can run.
func (t *tx) endHolds() error {
	held := map[jobSession]int64{}
	err := t.prep("SELECT tenant, queue, session_id, token FROM job_session_holds").each(func(r row) error {
		held[jobSession{r.int(0), r.int(1), r.text(2)}] = r.int(3)
		return nil
	})
	for s, token := range held {
		if err == nil {
			err = t.callOver(s, token)
		}
	}
	return err
}
