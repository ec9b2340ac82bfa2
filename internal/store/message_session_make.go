package store

import "strings"

const sqlMakeSession = `INSERT INTO sessions (queue, id, visible) VALUES (?, ?, ?)
ON CONFLICT (queue, id) DO UPDATE SET visible = coalesce(sessions.visible, excluded.visible) RETURNING no, id`

// sqlMakeSessions is the same for so many.
var sqlMakeSessions = strings.Replace(sqlMakeSession, "(?, ?, ?)", "(?, ?, ?)"+strings.Repeat(", (?, ?, ?)", sessionsAtOnce-1), 1)

const sessionsAtOnce = 16

// messageForSession returns the number of the session that gets a message, making it unless it was made.
func (t *busTx) messageForSession(q MessageQueue, id string, made int64) (no int64, err error) {
	if no = made; no == 0 {
		_, err = t.prep(sqlMakeSession).int(q.No).text(id).int(t.now).one(func(r row) { no = r.int(0) })
	}
	t.wakeSession(q.No, no)
	return no, err
}

// makeSessions makes the sessions of messages that are about to enter the queue, as far as that can be
// done for many at once, and returns their numbers.
func (t *busTx) makeSessions(q MessageQueue, messages []MessageContent) (nos map[string]int64, err error) {
	if !q.RequiresSession || q.IsTopic || q.ForwardTo != "" || q.DuplicateWindow > 0 || len(messages) < sessionsAtOnce {
		return nil, nil
	}
	var ids []string
	nos = map[string]int64{}
	for i := range messages {
		m := &messages[i]
		if _, seen := nos[m.SessionID]; !seen && millis(m.ScheduledAt) <= t.now {
			nos[m.SessionID] = 0
			ids = append(ids, m.SessionID)
		}
	}
	for ; len(ids) >= sessionsAtOnce; ids = ids[sessionsAtOnce:] {
		st := t.prep(sqlMakeSessions)
		for _, id := range ids[:sessionsAtOnce] {
			st = st.int(q.No).text(id).int(t.now)
		}
		if err := st.each(func(r row) error { nos[r.text(1)] = r.int(0); return nil }); err != nil {
			return nil, err
		}
	}
	return nos, nil
}

// wakeSession wakes who waits for a session of the queue, and who waits for messages of this one.
func (t *busTx) wakeSession(queue, no int64) {
	t.queue.wakes(SubqueueOf(queue, subqueueSessions), t.now)
	t.queue.wakes(SessionLock{No: no}.subqueue(), t.now)
}
