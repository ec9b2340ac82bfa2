package store

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	sqlLockPostgres = "SELECT pg_advisory_xact_lock(1180844409)" // applicationID: one transaction at a time
	sqlStart        = sqlNow + ", pg_backend_pid(), coalesce((SELECT value FROM counters WHERE name = '" + topicsCounter + "'), 0), EXISTS (SELECT 1 FROM queues WHERE paused <> 0 UNION ALL SELECT 1 FROM tenants WHERE paused <> 0), EXISTS (SELECT 1 FROM tenants WHERE concurrency IS NOT NULL)"
	sqlNumbers      = "SELECT nextval('seqs') FROM generate_series(1, ?)"
	sqlReleaseAll   = "DELETE FROM messages m USING unnest(CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(seq, token) WHERE m.seq = ANY (ARRAY[x.seq]) AND m.token = x.token RETURNING m.seq, x.token"
	sqlTokens       = "SELECT m.seq, coalesce(m.token, 0) FROM unnest(CAST(? AS bigint[])) AS x(seq), LATERAL (SELECT seq, token FROM messages WHERE seq = ANY (ARRAY[x.seq])) AS m"
)

const sqlMadeBeforeShared = `
SELECT i.body_hash, j.id, j.created_at, x.no
FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) WITH ORDINALITY AS x(tenant, key, no),
  LATERAL (SELECT body_hash, seq FROM idempotency WHERE tenant = ANY (ARRAY[x.tenant]) AND key = x.key) AS i
  LEFT JOIN jobs j ON j.seq = i.seq`

// begin asks everything in one round trip. A connection that was lost while nobody used it shows now: nothing
// has happened then, and another is made.
func (c *postgresConn) begin(n needs) (s start, err error) {
	if c.pg != nil && !c.pg.IsClosed() {
		// A copy must not go on without the lock that keeps others away, which is its connection's.
		if s, err = c.beginHere(n); !errors.Is(err, errDisconnected) || errors.Is(err, os.ErrDeadlineExceeded) || !c.shared {
			return s, err
		}
	}
	if err := c.connect(context.Background()); err != nil {
		return s, err
	}
	return c.beginHere(n)
}

// beginHere begins on a connection that there is.
func (c *postgresConn) beginHere(n needs) (s start, err error) {
	s.tokens, c.wrote = make(map[int64]int64, len(n.locks)), false
	var backend int64
	questions := []question{{sql: "BEGIN"}}
	if !n.apart {
		questions = append(questions, question{sql: sqlLockPostgres})
	}
	for _, l := range n.looks {
		questions = append(questions, l.questions()...)
	}
	// The time after the looks, so that whatever they found is ready by then.
	questions = append(questions, question{sql: sqlStart, answer: func(r row) {
		topics := r.int(2)
		backend, s.now, s.topics, s.somePaused, s.someCapped = r.int(1), r.int(0), &topics, r.int(3) != 0, r.int(4) != 0
	}})
	if len(n.states) > 0 {
		s.deployments = map[string]*deployment{}
		questions = append(questions, n.identities.statesOf(n.states, s.deployments))
	}
	if n.numbers > 0 {
		questions = append(questions, question{sqlNumbers, func(st statement) statement { return st.int(int64(n.numbers)) },
			func(r row) { s.seqs = append(s.seqs, r.int(0)) }})
	}
	if len(n.locks) > 0 {
		for _, seq := range n.locks {
			s.tokens[seq] = 0
		}
		questions = append(questions, question{sqlTokens, func(st statement) statement { return st.text(arrayOf(n.locks)) },
			func(r row) { s.tokens[r.int(0)] = r.int(1) }})
	}
	if len(n.keys) > 0 {
		s.made = make(map[idempotencyKey]madeBefore, len(n.keys))
		tenants, keys := make([]int64, len(n.keys)), make([]string, len(n.keys))
		for i, k := range n.keys {
			tenants[i], keys[i] = k.tenant, k.key
		}
		questions = append(questions, question{sqlMadeBeforeShared, func(st statement) statement { return st.text(arrayOf(tenants)).text(arrayOfTexts(keys)) },
			func(r row) { s.made[n.keys[r.int(3)-1]] = readMadeBefore(r) }})
	}
	if len(n.ends) > 0 {
		s.released = make(map[Lock]bool, len(n.ends))
		seqs, tokens := make([]int64, len(n.ends)), make([]int64, len(n.ends))
		for i, l := range n.ends {
			seqs[i], tokens[i], s.released[l] = l.Seq, l.Token, false
		}
		questions = append(questions, question{sqlReleaseAll, func(st statement) statement { return st.text(arrayOf(seqs)).text(arrayOf(tokens)) },
			func(r row) { s.released[Lock{Seq: r.int(0), Token: r.int(1)}] = true }})
	}
	if len(n.answers) > 0 {
		s.answered = make(map[activityLock]int64, len(n.answers))
		questions = append(questions, endActivities(n.answers, s.answered))
	}
	c.patience()
	before := time.Now()
	if err := c.ask(questions); err != nil {
		return s, err
	}
	c.open = true
	if backend != c.backend {
		return s, errPooled
	}
	c.patience() // anew: the lock may have taken most of it
	// The wait for the lock is no part of the way: only a quick answer tells the clocks' difference. A
	// slow one bounds it.
	if time.Since(before) < 50*time.Millisecond {
		c.noteClock(s.now, before)
	} else {
		c.ahead.Store(min(max(c.ahead.Load(), s.now-time.Now().UnixMilli()), s.now-before.UnixMilli()))
	}
	return s, nil
}
