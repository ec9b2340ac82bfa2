package store

import "github.com/forebayhq/forebay"

// Jobs of one session, of one tenant in one queue, run one after the other. The one whose turn it is
// stands in the queue like any other; the rest is held, invisible, until it has ended for good. A
// retry, a throttle or a lost lock keeps the turn.

// heldUntil is the "visible" of a job that waits for its turn.
const heldUntil = 1 << 62

// jobSession is a session that a job belongs to.
type jobSession struct {
	tenant, queue int64
	id            string
}

const sqlTurn = `
SELECT 1 FROM job_sessions s JOIN messages m ON m.seq = s.seq
WHERE s.tenant = ? AND s.queue = ? AND s.session_id = ? AND m.visible < ? LIMIT 1`

// taken reports whether it is the turn of a job of the session.
func (t *tx) taken(s jobSession) (bool, error) {
	return t.prep(sqlTurn).int(s.tenant).int(s.queue).text(s.id).int(heldUntil).one(func(row) {})
}

// joinSession makes a job that is about to be stored, or redriven, the session's latest. It reports
// whether it is held.
func (t *tx) joinSession(s jobSession, seq int64) (held bool, err error) {
	if held, err = t.taken(s); err != nil {
		return false, err
	}
	return held, t.prep("INSERT INTO job_sessions (tenant, queue, session_id, seq) VALUES (?, ?, ?, ?)").
		int(s.tenant).int(s.queue).text(s.id).int(seq).exec()
}

const sqlNextTurn = `
SELECT m.seq, m.lane, m.rank, coalesce(j.scheduled_at, 0), m.deadline FROM job_sessions s JOIN messages m ON m.seq = s.seq JOIN jobs j ON j.seq = s.seq
WHERE s.tenant = ? AND s.queue = ? AND s.session_id = ? ORDER BY s.seq LIMIT 1`

// leaveSession is for a job that has ended. Unless it was held, it was its turn, and the next one's comes.
func (t *tx) leaveSession(seq int64, held bool) error {
	var s jobSession
	found, err := t.prep("DELETE FROM job_sessions WHERE seq = ? RETURNING tenant, queue, session_id").int(seq).
		one(func(r row) { s = jobSession{r.int(0), r.int(1), r.text(2)} })
	if err != nil || !found || held {
		return err
	}
	var next, rank, scheduled, deadline int64
	var lane Lane
	found, err = t.prep(sqlNextTurn).int(s.tenant).int(s.queue).text(s.id).one(func(r row) {
		next, lane, rank, scheduled, deadline = r.int(0), Lane(r.int(1)), r.int(2), r.int(3), r.int(4)
	})
	if err != nil || !found {
		return err
	}
	visible := max(t.now, scheduled)
	t.due(lane, rank, visible)
	t.deadlineAt(deadline)
	t.changed(next)
	return t.prep("UPDATE messages SET visible = ?, waiting = NULL WHERE seq = ?").int(visible).int(next).exec()
}

// rejoinSession holds a job that was redriven while it is another's turn.
func (t *tx) rejoinSession(seq int64) error {
	var s jobSession
	found, err := t.prep("SELECT tenant, queue, session_id FROM jobs WHERE seq = ? AND session_id IS NOT NULL").int(seq).
		one(func(r row) { s = jobSession{r.int(0), r.int(1), r.text(2)} })
	if err != nil || !found {
		return err
	}
	held, err := t.joinSession(s, seq)
	if err != nil || !held {
		return err
	}
	return t.prep("UPDATE messages SET visible = ?, waiting = ? WHERE seq = ?").int(heldUntil).text(string(forebay.WaitSession)).int(seq).exec()
}
