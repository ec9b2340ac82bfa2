package record

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// SessionKey names a session of jobs.
type SessionKey struct {
	Tenant, Queue int64
	ID            string
}

// Session is a session that has jobs that are not over.
type Session struct {
	SessionKey
	Live           int // jobs that are not over, of maxSessionJobs at most
	SetAside       int // jobs that stand in a dead-letter or quarantine subqueue
	SetAsideCapped bool
	First          *Job       // the job with the turn; nil: it was not found among those that were looked at
	HeldUntil      *time.Time // until when the call of a cancelled job may run
}

// SessionQuery selects sessions in the order of tenants, queues and ids.
type SessionQuery struct {
	Tenant int64      // 0: of all tenants
	Queue  int64      // 0: of all queues
	ID     string     // only sessions of this id; "": all
	After  SessionKey // only later ones
	Limit  int
}

// SessionPage is what a list of sessions found. Next is where it goes on; nil: there are no more.
type SessionPage struct {
	Sessions []Session
	Next     *SessionKey
}

const (
	maxSessionJobs = 1000 // jobs of one session that are counted
	maxTurnJobs    = 100  // jobs of one session that are looked at for the one with the turn
	maxPastJobs    = 100  // latest jobs of one session that are looked at for those set aside
	maxQueuesRead  = 500  // queues, each for each tenant, that one list looks into
)

// What finds sessions along the primary key of job_sessions, without reading all their jobs.
const (
	SQLNextSessionQueue = "SELECT s.tenant, s.queue FROM job_sessions s WHERE (s.tenant, s.queue) > (?1, ?2) ORDER BY s.tenant, s.queue LIMIT 1 + 0"
	SQLSessionIDs       = `WITH RECURSIVE bounded(id, n) AS (
  SELECT (SELECT min(s.session_id) FROM job_sessions s WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id > ?3), 1
  UNION ALL
  SELECT (SELECT min(s.session_id) FROM job_sessions s WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id > bounded.id), bounded.n + 1
    FROM bounded WHERE bounded.id IS NOT NULL AND bounded.n < ?4
) SELECT bounded.id FROM bounded WHERE bounded.id IS NOT NULL`
	SQLSessionExists = "SELECT s.session_id FROM job_sessions s WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id = ?3 LIMIT 1 + 0"
)

// What is read of each session that was found. The order is that of the primary key, by which
// PostgreSQL then finds the jobs.
const (
	SQLSessionLive  = "SELECT count(*) FROM (SELECT s.seq FROM job_sessions s WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id >= ?3 AND s.session_id <= ?3 ORDER BY s.session_id, s.seq LIMIT ?4 + 0) bounded"
	SQLSessionFirst = `SELECT bounded.seq FROM (SELECT s.seq FROM job_sessions s WHERE s.tenant = ?1 AND s.queue = ?2 AND s.session_id >= ?3 AND s.session_id <= ?3 ORDER BY s.session_id, s.seq LIMIT ?4 + 0) bounded
WHERE (SELECT m.visible_at FROM messages m WHERE m.seq = bounded.seq) < ?5`
	SQLSessionSetAside = `SELECT bounded.queue, (SELECT m.subqueue % 4 FROM messages m WHERE m.seq = bounded.seq)
FROM (SELECT owned.seq, owned.queue FROM jobs owned INDEXED BY jobs_session WHERE owned.tenant = ?1 AND owned.session_id = ?2 ORDER BY owned.seq DESC LIMIT ?3 + 0) bounded`
	SQLSessionHold = "SELECT h.ends_at FROM job_session_holds h WHERE h.tenant = ?1 AND h.queue = ?2 AND h.session_id = ?3 AND h.ends_at + 0 > ?4"
)

// Sessions returns the page that the query selects. It may have fewer sessions than the limit and
// a Next all the same.
func Sessions(c driver.Conn, q SessionQuery) (page SessionPage, err error) {
	at := q.After
	if q.Tenant != 0 && at.Tenant != q.Tenant { // a cursor of another tenant leads nowhere
		at = SessionKey{Tenant: q.Tenant}
	}
	for range maxQueuesRead {
		if at.Queue != 0 && (q.Queue == 0 || q.Queue == at.Queue) {
			ids, err := q.ids(c, at, q.Limit+1-len(page.Sessions))
			if err != nil {
				return page, err
			}
			for _, id := range ids {
				if len(page.Sessions) == q.Limit {
					last := page.Sessions[q.Limit-1].SessionKey
					page.Next = &last
					return page, readSessions(c, page.Sessions)
				}
				page.Sessions = append(page.Sessions, Session{SessionKey: SessionKey{at.Tenant, at.Queue, id}})
			}
		}
		found, err := c.Prep(SQLNextSessionQueue).Int(at.Tenant).Int(at.Queue).One(func(r driver.Row) { at = SessionKey{Tenant: r.Int(0), Queue: r.Int(1)} })
		if err != nil {
			return page, err
		}
		if !found || q.Tenant != 0 && at.Tenant != q.Tenant {
			return page, readSessions(c, page.Sessions)
		}
	}
	page.Next = &at
	return page, readSessions(c, page.Sessions)
}

// ids returns the ids of sessions of one tenant and queue that come after the key.
func (q *SessionQuery) ids(c driver.Conn, after SessionKey, limit int) (ids []string, err error) {
	add := func(r driver.Row) error {
		ids = append(ids, r.Text(0))
		return nil
	}
	switch {
	case q.ID == "":
		err = c.Prep(SQLSessionIDs).Int(after.Tenant).Int(after.Queue).Text(after.ID).Int(int64(limit)).Each(add)
	case after.ID == "":
		err = c.Prep(SQLSessionExists).Int(after.Tenant).Int(after.Queue).Text(q.ID).Each(add)
	}
	return ids, err
}

// readSessions reads the rest of these sessions.
func readSessions(c driver.Conn, list []Session) error {
	now := c.Now()
	first := make([]int64, len(list))
	var questions []driver.PipelineQuery
	for i := range list {
		s := &list[i]
		of := func(st driver.Statement) driver.Statement { return st.Int(s.Tenant).Int(s.Queue).Text(s.ID) }
		past := 0
		questions = append(questions,
			driver.PipelineQuery{SQL: SQLSessionLive, Bind: func(st driver.Statement) driver.Statement { return of(st).Int(maxSessionJobs) }, OnRow: func(r driver.Row) { s.Live = int(r.Int(0)) }},
			driver.PipelineQuery{SQL: SQLSessionFirst, Bind: func(st driver.Statement) driver.Statement { return of(st).Int(maxTurnJobs).Int(HeldUntil) }, OnRow: func(r driver.Row) { first[i] = r.Int(0) }},
			driver.PipelineQuery{SQL: SQLSessionSetAside, Bind: func(st driver.Statement) driver.Statement { return st.Int(s.Tenant).Text(s.ID).Int(maxPastJobs) }, OnRow: func(r driver.Row) {
				past++
				s.SetAsideCapped = past == maxPastJobs
				if r.Int(0) == s.Queue && r.Int(1) >= 2 { // no message: 0
					s.SetAside++
				}
			}},
			driver.PipelineQuery{SQL: SQLSessionHold, Bind: func(st driver.Statement) driver.Statement { return of(st).Int(now) }, OnRow: func(r driver.Row) { s.HeldUntil = driver.FromMillisOrNil(r, 0) }})
	}
	if err := c.RunPipeline(questions); err != nil {
		return err
	}
	var numbers []int64
	for _, seq := range first {
		if seq != 0 {
			numbers = append(numbers, seq)
		}
	}
	jobs, err := readListed(c, numbers, now)
	for j := range jobs {
		for i := range list {
			if first[i] == jobs[j].Seq {
				list[i].First = &jobs[j]
			}
		}
	}
	return err
}

// View is the session as clients see it, of a tenant and a queue by these names. first is the job
// with the turn; nil: it was not found.
func (s *Session) View(tenant, queue string, first *forebay.Job) forebay.JobSession {
	v := forebay.JobSession{SessionID: s.ID, Tenant: tenant, Queue: queue, Waiting: s.Live, More: s.Live == maxSessionJobs,
		SetAside: s.SetAside, SetAsideCapped: s.SetAsideCapped, HeldUntil: s.HeldUntil}
	if j := first; j != nil {
		v.First = &forebay.JobSessionFirst{JobID: j.ID, Task: j.Task, Status: j.Status, WaitingFor: j.WaitingFor, Attempt: j.Attempt,
			CreatedAt: j.CreatedAt, ScheduledAt: j.ScheduledAt, StartedAt: j.StartedAt}
		if j.Status == forebay.StatusRunning {
			v.Running, v.Waiting = 1, v.Waiting-1
		}
	}
	return v
}

// sessionCursor is a cursor's leading byte. The tenant, the queue and the id follow it.
const sessionCursor = 2

// Cursor is the cursor of a list that goes on after the session.
func (k *SessionKey) Cursor() string {
	if k == nil {
		return ""
	}
	b := binary.BigEndian.AppendUint64([]byte{sessionCursor}, uint64(k.Tenant))
	b = append(binary.BigEndian.AppendUint64(b, uint64(k.Queue)), k.ID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// SessionAfter is the inverse of Cursor; "" is the beginning. Its error is CodeInvalidCursor.
func SessionAfter(cursor string) (k SessionKey, err error) {
	if cursor == "" {
		return k, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && len(b) >= 17 && b[0] == sessionCursor && utf8.Valid(b[17:]) && !slices.Contains(b[17:], 0) {
		k = SessionKey{int64(binary.BigEndian.Uint64(b[1:])), int64(binary.BigEndian.Uint64(b[9:])), string(b[17:])}
		if k.Tenant > 0 && k.Queue > 0 && k.Cursor() == cursor {
			return k, nil
		}
	}
	return SessionKey{}, &forebay.Error{Code: forebay.CodeInvalidCursor, Field: "cursor", Message: "is not a cursor that a list returned"}
}
