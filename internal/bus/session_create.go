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
	if no = known; no == 0 {
		_, err = t.Prep(sqlCreateSession).Int(q.No).Text(id).Int(t.Now).One(func(r driver.Row) { no = r.Int(0) })
	}
	t.wake(q.No, no)
	return no, err
}

// create makes the sessions of messages that are about to enter the queue, sessionsAtOnce at a
// time, and returns their numbers. Sessions that are left over are created one by one later.
func (t *sessionTx) create(q MessageQueue, messages []MessageContent) (nos map[string]int64, err error) {
	if !q.RequiresSession || q.IsTopic || q.ForwardTo != "" || q.DuplicateWindow > 0 || len(messages) < sessionsAtOnce {
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
