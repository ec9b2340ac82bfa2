package bus

import (
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

const sqlCreateSession = `INSERT INTO sessions (queue, id, visible_at) VALUES (?, ?, ?)
ON CONFLICT (queue, id) DO UPDATE SET visible_at = coalesce(sessions.visible_at, excluded.visible_at) RETURNING no, id`

// sqlCreateSessions does the same for sessionsAtOnce sessions.
var sqlCreateSessions = strings.Replace(sqlCreateSession, "(?, ?, ?)", "(?, ?, ?)"+strings.Repeat(", (?, ?, ?)", sessionsAtOnce-1), 1)

const sessionsAtOnce = 16

// numberOf returns the number of the session that gets a message. It creates the session unless
// the number is known.
func (t *sessionTx) numberOf(q MessageQueue, id string, known int64) (no int64, err error) {
	switch no = known; {
	case no != 0:
	case t.W.Shared():
		no, err = t.arrive(q.No, id)
	default:
		_, err = t.Prep(sqlCreateSession).Int(q.No).Text(id).Int(t.Now).One(func(r driver.Row) { no = r.Int(0) })
	}
	t.wake(q.No, no)
	return no, err
}

// knownSession is what the transaction knows of a session, where a statement costs a round trip.
// Calls that wait for answers keep it up to date for each other.
type knownSession struct {
	no      int64
	stored  bool // its row exists, and is not to be woken
	arrived bool // a message came in this transaction
}

// sqlSessionNumber finds the number of a session, or takes one for it.
const sqlSessionNumber = `SELECT coalesce((SELECT no FROM sessions WHERE queue = ? AND id = ?), nextval(pg_get_serial_sequence('sessions', 'no')))`

var sqlStoreSession = driver.BatchForm(`INSERT INTO sessions (no, queue, id, visible_at) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, id) DO UPDATE SET visible_at = coalesce(sessions.visible_at, excluded.visible_at)`,
	`INSERT INTO sessions (no, queue, id, visible_at) SELECT p1, p2, p3, p4 FROM %s
ON CONFLICT (queue, id) DO UPDATE SET visible_at = coalesce(sessions.visible_at, excluded.visible_at)`)

// named returns what is known of the session of that id. The transaction asks once.
func (t *sessionTx) named(queue int64, id string) (*knownSession, error) {
	name := messageName{queue, id}
	if s := t.known[name]; s != nil {
		return s, nil
	}
	s := &knownSession{}
	_, err := t.Prep(sqlSessionNumber).Int(queue).Text(id).One(func(r driver.Row) { s.no = r.Int(0) })
	if known := t.known[name]; known != nil || err != nil {
		return known, err
	}
	if t.known == nil {
		t.known, t.byNumber = map[messageName]*knownSession{}, map[int64]*knownSession{}
	}
	t.known[name], t.byNumber[s.no] = s, s
	return s, nil
}

// arrive wakes the session of a message, which it makes if there is none, and returns its number.
func (t *sessionTx) arrive(queue int64, id string) (no int64, err error) {
	s, err := t.named(queue, id)
	if err != nil {
		return 0, err
	}
	s.arrived = true
	return s.no, t.store(s, queue, id, t.Now)
}

// store makes the row of a session, or wakes it, once.
func (t *sessionTx) store(s *knownSession, queue int64, id string, visible int64) error {
	if s.stored {
		return nil
	}
	s.stored = true
	return t.Prep(sqlStoreSession).Int(s.no).Int(queue).Text(id).IntOrNull(visible).Exec()
}

// create makes the sessions of messages that are about to enter the queue, sessionsAtOnce at a
// time, and returns their numbers. Sessions that are left over are created one by one later.
func (t *sessionTx) create(q MessageQueue, messages []MessageContent) (nos map[string]int64, err error) {
	if !q.RequiresSession || q.IsTopic || q.ForwardTo != "" || q.DuplicateWindow > 0 || len(messages) < sessionsAtOnce || t.W.Shared() {
		return nil, nil
	}
	var ids []string
	nos = map[string]int64{}
	for i := range messages {
		m := &messages[i]
		if _, seen := nos[m.SessionID]; !seen && driver.Millis(m.ScheduledAt) <= t.Now {
			nos[m.SessionID] = 0
			ids = append(ids, m.SessionID)
		}
	}
	for ; len(ids) >= sessionsAtOnce; ids = ids[sessionsAtOnce:] {
		st := t.Prep(sqlCreateSessions)
		for _, id := range ids[:sessionsAtOnce] {
			st = st.Int(q.No).Text(id).Int(t.Now)
		}
		if err := st.Each(func(r driver.Row) error { nos[r.Text(1)] = r.Int(0); return nil }); err != nil {
			return nil, err
		}
	}
	return nos, nil
}

// wake has the queue scanned for receivers that wait for a session, and the session for its own
// receiver.
func (t *sessionTx) wake(queueID, no int64) {
	t.Queue.WakeAt(queue.SubqueueOf(queueID, subqueueSessions), t.Now)
	t.Queue.WakeAt(SessionLock{No: no}.subqueue(), t.Now)
}
