package jobs

import (
	"slices"
	"strconv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/record"
	"github.com/forebayhq/forebay/internal/queue"
)

// Jobs of one session, of one tenant in one queue, run one after the other. The job whose turn it
// is waits in the queue like any other. The others are invisible until it has ended for good. A
// retry, a throttle or a lost lock keeps the turn. So does a call of a cancelled job for as long
// as it may still run.

// sessionTx runs the jobs of a session one after the other.
type sessionTx struct{ *Tx }

func (t *Tx) sessions() sessionTx { return sessionTx{t} }

// heldUntil is the "visible_at" of a job that waits for its session's turn.
const heldUntil = record.HeldUntil

// jobSession is a session that a job belongs to.
type jobSession struct {
	tenant, queue int64
	id            string
}

// Whether a job of the session has the turn, and until when the call of a cancelled job may run.
const sqlTurn = `
SELECT CASE WHEN EXISTS (SELECT 1 FROM job_sessions s JOIN messages m ON m.seq = s.seq
    WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id = ?3 AND m.visible_at < ?4) THEN 1 ELSE 0 END,
  coalesce((SELECT h.ends_at FROM job_session_holds h WHERE h.tenant = ?1 AND h.queue = ?2 AND h.session_id = ?3), 0)`

// join puts a job that is about to be stored, or redriven, among those of its session, in the
// order of their numbers. A redriven job keeps its number. The job may begin at that time at the
// earliest. notBefore is that time if it differs from the submitted one, else 0. join returns when
// the job becomes visible, and what it waits for if that is its session.
func (t sessionTx) join(s jobSession, seq, at, notBefore int64) (visible int64, waiting string, err error) {
	if err := t.passTurns(); err != nil {
		return 0, "", err
	}
	is, known := t.turns[s]
	if !known {
		_, err := t.Prep(sqlTurn).Int(s.tenant).Int(s.queue).Text(s.id).Int(heldUntil).One(func(r driver.Row) { is = turn{r.Int(0) != 0, r.Int(1)} })
		if err != nil {
			return 0, "", err
		}
	}
	if t.turns == nil {
		t.turns = map[jobSession]turn{}
	}
	t.turns[s] = turn{taken: true, until: is.until}
	err = t.Prep("INSERT INTO job_sessions (tenant, queue, session_id, seq, not_before) VALUES (?, ?, ?, ?, ?)").
		Int(s.tenant).Int(s.queue).Text(s.id).Int(seq).IntOrNull(notBefore).Exec()
	if is.taken {
		return heldUntil, string(forebay.WaitSession), err
	}
	visible, waiting = afterCall(at, is.until)
	return visible, waiting, err
}

// turn is who has the turn in a session.
type turn struct {
	taken bool  // a job has it
	until int64 // until when the call of a cancelled job may run
}

// prefetchTurn is what sessionTx.join asks.
func (s jobSession) prefetchTurn() driver.Prefetch {
	return driver.NewPrefetch(sqlTurn, s.row()).Int(s.tenant).Int(s.queue).Text(s.id).Int(heldUntil)
}

// session is the one that the job belongs to.
func (j *NewJob) session() jobSession { return jobSession{j.Tenant, j.Queue, j.SessionID} }

func (d *LockedJob) session() jobSession {
	return jobSession{d.Tenant, d.Subqueue.Queue(), d.SessionID}
}

// row names it.
func (s jobSession) row() driver.RowName {
	return driver.RowName{Of: "job_sessions", No: s.queue, ID: strconv.FormatInt(s.tenant, 36) + "/" + s.id}
}

// afterCall returns when a job with the turn becomes visible, which may begin at that time. The
// call of a cancelled job may run until the other time.
func afterCall(at, until int64) (visible int64, waiting string) {
	if until > at {
		return until, string(forebay.WaitSession)
	}
	return at, ""
}

var sqlLeaveSession = driver.BatchForm("DELETE FROM job_sessions WHERE seq = ?", "DELETE FROM job_sessions s USING %s WHERE s.seq = ANY (ARRAY[p1])")

// The range of one session has PostgreSQL walk the primary key.
const sqlNextTurn = `
SELECT m.seq, m.subqueue, m.flow, coalesce(s.not_before, j.scheduled_at, 0), m.deadline,
  coalesce((SELECT h.ends_at FROM job_session_holds h WHERE h.tenant = s.tenant AND h.queue = s.queue AND h.session_id = s.session_id), 0),
  m.lock_token
FROM job_sessions s JOIN messages m ON m.seq = s.seq JOIN jobs j ON j.seq = s.seq
WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id >= ?3 AND s.session_id <= ?3 ORDER BY s.session_id, s.seq LIMIT 1`

// leaving is a job that has ended and leaves its session.
type leaving struct {
	seq     int64
	session jobSession
	held    bool // it was not its turn
}

// leaves notes that a job has ended.
func (t sessionTx) leaves(l leaving) {
	if i := slices.IndexFunc(t.rejoining, func(r rejoining) bool { return r.seq == l.seq }); i >= 0 {
		t.rejoining = slices.Delete(t.rejoining, i, i+1)
		return
	}
	t.leaving = append(t.leaving, l)
}

// passTurns has jobs that have ended leave their sessions, and gives the next ones their turns.
// It runs at the end of a stage, or earlier if a job joins a session.
func (t sessionTx) passTurns() error {
	if len(t.leaving) == 0 {
		return nil
	}
	var next []driver.PipelineQuery
	var turns []*nextTurn
	for _, l := range t.leaving {
		if err := t.Prep(sqlLeaveSession).Int(l.seq).Exec(); err != nil {
			return err
		}
		t.DropPrefetched(l.session.row())
		if l.held {
			continue
		}
		s, n := l.session, &nextTurn{}
		turns = append(turns, n)
		next = append(next, driver.PipelineQuery{SQL: sqlNextTurn, Bind: func(st driver.Statement) driver.Statement { return st.Int(s.tenant).Int(s.queue).Text(s.id) }, OnRow: n.read})
	}
	t.leaving, t.turns = t.leaving[:0], nil
	if len(next) == 0 {
		return nil
	}
	if err := t.RunPipeline(next); err != nil {
		return err
	}
	for _, n := range turns {
		if err := t.give(n); err != nil {
			return err
		}
	}
	return nil
}

// nextTurn is the job that gets the turn.
type nextTurn struct {
	seq, flow, at, deadline int64 // seq 0: there is none
	until                   int64 // as in turn
	subqueue                queue.Subqueue
}

func (n *nextTurn) read(r driver.Row) {
	if !r.IsNull(6) {
		return // it has had its turn
	}
	*n = nextTurn{seq: r.Int(0), subqueue: queue.Subqueue(r.Int(1)), flow: r.Int(2), at: r.Int(3), deadline: r.Int(4), until: r.Int(5)}
}

// give gives the turn to the job, if there is one.
func (t sessionTx) give(n *nextTurn) error {
	if n.seq == 0 {
		return nil
	}
	visible, waiting := afterCall(max(t.Now, n.at), n.until)
	t.Due(n.subqueue, n.flow, visible)
	t.deadlineAt(n.deadline)
	t.Changed(n.seq)
	t.DropPrefetched(queue.MessageRow(n.seq))
	return t.Prep(sqlGiveTurn).Int(visible).TextOrNull(waiting).Int(n.seq).Exec()
}

var sqlGiveTurn = driver.BatchForm("UPDATE messages SET visible_at = ?, waiting = ? WHERE seq = ?",
	"UPDATE messages m SET visible_at = p1, waiting = p2 FROM %s WHERE m.seq = ANY (ARRAY[p3])")

// rejoining is a redriven job of a session that may begin at that time.
type rejoining struct {
	seq     int64
	session jobSession
	at      int64
}

// rejoin has redriven jobs join their sessions again. A job is held while another has the turn. It
// runs at the end of a stage: no operation may be about to read or change who has the turn.
func (t sessionTx) rejoin() error {
	if len(t.rejoining) == 0 {
		return nil
	}
	if err := t.passTurns(); err != nil {
		return err
	}
	list := t.rejoining
	t.rejoining = nil
	if err := t.readTurns(list); err != nil {
		return err
	}
	for _, r := range list {
		visible, waiting, err := t.join(r.session, r.seq, r.at, r.at)
		if err == nil && waiting != "" {
			err = t.Prep(sqlGiveTurn).Int(visible).Text(waiting).Int(r.seq).Exec()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTurns reads at once who has the turns in the sessions of these jobs.
func (t sessionTx) readTurns(list []rejoining) error {
	if t.turns == nil {
		t.turns = map[jobSession]turn{}
	}
	var questions []driver.PipelineQuery
	for i := range list {
		s := list[i].session
		if _, known := t.turns[s]; known {
			continue
		}
		t.turns[s] = turn{}
		questions = append(questions, driver.PipelineQuery{SQL: sqlTurn, Bind: func(st driver.Statement) driver.Statement {
			return st.Int(s.tenant).Int(s.queue).Text(s.id).Int(heldUntil)
		}, OnRow: func(r driver.Row) { t.turns[s] = turn{r.Int(0) != 0, r.Int(1)} }})
	}
	return t.RunPipeline(questions)
}

var sqlHoldSession = driver.Only(`
INSERT INTO job_session_holds (tenant, queue, session_id, lock_token, ends_at)
SELECT tenant, queue, session_id, ?, ? FROM job_sessions WHERE seq = ?
ON CONFLICT (tenant, queue, session_id) DO UPDATE SET lock_token = excluded.lock_token, ends_at = excluded.ends_at`, driver.Rows{Table: "job_session_holds"}, driver.Rows{Table: "job_sessions"})

const sqlDropHolds = "DELETE FROM job_session_holds WHERE ends_at <= ?"

// hold keeps the turn of a job's session, if it has one, until the end of the lock that a cancel
// voids, or until callOver.
func (t sessionTx) hold(s jobSession, seq, token, until int64) error {
	if s.id == "" {
		return nil
	}
	delete(t.turns, s)
	t.DropPrefetched(s.row())
	if err := t.Prep(sqlDropHolds).Int(t.Now).Exec(); err != nil {
		return err
	}
	return t.Prep(sqlHoldSession).Int(token).Int(until).Int(seq).Exec()
}

const (
	sqlEndHold = "DELETE FROM job_session_holds WHERE tenant = ? AND queue = ? AND session_id = ? AND lock_token = ?"
	// The job with the turn, if it waits only for the call.
	sqlWaitsForCall = `
SELECT m.seq, m.subqueue, m.flow, coalesce(s.not_before, j.scheduled_at, 0), m.deadline, 0, m.lock_token
FROM job_sessions s JOIN messages m ON m.seq = s.seq JOIN jobs j ON j.seq = s.seq
WHERE s.tenant = ? AND s.queue = ? AND s.session_id = ? AND m.visible_at < ? AND m.lock_token IS NULL AND m.waiting = 'session' LIMIT 1`
)

// callOver records that a call is over whose lock a cancel may have voided. The next job of its
// session need not wait for the end of that lock.
func (t sessionTx) callOver(s jobSession, token int64) error {
	delete(t.turns, s)
	t.DropPrefetched(s.row())
	rows, err := t.Prep(sqlEndHold).Int(s.tenant).Int(s.queue).Text(s.id).Int(token).Count()
	if err != nil || rows == 0 {
		return err
	}
	var n nextTurn
	if _, err := t.Prep(sqlWaitsForCall).Int(s.tenant).Int(s.queue).Text(s.id).Int(heldUntil).One(n.read); err != nil {
		return err
	}
	return t.give(&n)
}

// endHolds is for a start after which no earlier call can run.
func (t sessionTx) endHolds() error {
	held := map[jobSession]int64{}
	err := t.Prep("SELECT tenant, queue, session_id, lock_token FROM job_session_holds").Each(func(r driver.Row) error {
		held[jobSession{r.Int(0), r.Int(1), r.Text(2)}] = r.Int(3)
		return nil
	})
	for s, token := range held {
		if err == nil {
			err = t.callOver(s, token)
		}
	}
	return err
}
