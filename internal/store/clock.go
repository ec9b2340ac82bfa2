package store

import "context"

// A clock that was ahead and is right again has left times behind that are too late: jobs that were to run at once wait
// until the clock gets there, and locks of the dead last that much longer. Once the writer sees the clock go back, or a
// process starts and finds the latest job made in the future, all messages are looked through, a stretch at a time.
// What was scheduled keeps its time.

// steppedBack is by how many milliseconds a clock must go back to be noticed. Less is waited out.
const steppedBack = 5 * 60 * 1000

// clockStretch is how many messages one transaction looks through.
const clockStretch = 5000

const (
	sqlMadeAhead = `
SELECT 1 FROM (SELECT created_at AS at FROM jobs ORDER BY seq DESC LIMIT 1) j WHERE j.at > ?1
UNION ALL SELECT 1 FROM (SELECT enqueued_at AS at FROM bodies ORDER BY seq DESC LIMIT 1) b WHERE b.at > ?1`

	sqlClockStretch = "SELECT coalesce(max(seq), 0) FROM (SELECT seq FROM messages WHERE seq > ? ORDER BY seq LIMIT ? + 0) x"

	// What was ready when it was stored. Messages of rank 0 are plain ones that are not scheduled.
	sqlReadyAhead = `
UPDATE messages SET visible = ?1 WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND token IS NULL AND lane % 4 = 0 AND (
  EXISTS (SELECT 1 FROM jobs j WHERE j.seq = messages.seq AND j.created_at > ?1 AND j.scheduled_at IS NULL AND messages.visible <= j.created_at)
  OR rank = 0 AND EXISTS (SELECT 1 FROM bodies b WHERE b.seq = messages.seq AND b.enqueued_at > ?1 AND messages.visible <= b.enqueued_at))`

	// What waits for its next attempt.
	sqlRetryAhead = `
UPDATE messages SET visible = ?1 + coalesce((SELECT max(a.retry_delay) FROM attempts a WHERE a.seq = messages.seq AND a.finished_at > ?1), 0)
WHERE seq > ?2 AND seq <= ?3 AND visible > ?1 AND visible < ?4 AND token IS NULL AND lane % 4 < 2 AND waiting IS NULL
  AND EXISTS (SELECT 1 FROM attempts a WHERE a.seq = messages.seq AND a.finished_at > ?1)`

	sqlLockAhead = `
UPDATE messages SET visible = ?1 + visible - locked_at, locked_at = ?1
WHERE seq > ?2 AND seq <= ?3 AND token IS NOT NULL AND locked_at > ?1 AND visible > locked_at`
)

// noticeClock takes in the database's time at the beginning of a transaction and tells when it went back.
func (w *writer) noticeClock(at int64) {
	if w.latest-at >= steppedBack && w.clockBack != nil {
		select {
		case w.clockBack <- struct{}{}:
		default: // told already
		}
	}
	w.latest = at
}

// keepClock mends what a clock that went back has left, until the store ends.
func (s *Store) keepClock(back <-chan struct{}, warn func(string)) {
	for {
		select {
		case <-back:
			warn("the database's clock has gone back; what was stored meanwhile as ready, and locks, are brought to the time it shows now")
			if _, err := s.mendClock(s.health.ctx); err != nil && s.health.ctx.Err() == nil {
				warn("what a clock that was ahead has left could not be mended; it is at the next start")
			}
		case <-s.health.ctx.Done():
			return
		}
	}
}

// madeAhead reports whether the latest job or message was made in the future. Another process may have
// made one since this transaction began, so a little ahead is no sign of a clock that went back.
func (s *Store) madeAhead(ctx context.Context) (ahead bool, err error) {
	return transact(ctx, s, stageChange, func(t *tx) (bool, error) { return t.prep(sqlMadeAhead).int(t.now + steppedBack).one(func(row) {}) })
}

// mendClock brings all messages to the clock and returns how many were ahead of it.
func (s *Store) mendClock(ctx context.Context) (mended int, err error) {
	for after := int64(0); ; {
		last, err := transact(ctx, s, stageChange, func(t *tx) (int64, error) {
			var last int64
			if _, err := t.prep(sqlClockStretch).int(after).int(clockStretch).one(func(r row) { last = r.int(0) }); err != nil || last == 0 {
				return 0, err
			}
			changed, err := t.mendStretch(after, last)
			if changed > 0 {
				mended += changed
				t.news.queues = true // which has other processes look again
				t.after = append(t.after, func() { t.w.lookAgain(true, true) })
			}
			return last, err
		})
		if err != nil || last == 0 {
			return mended, err
		}
		after = last
	}
}

func (t *tx) mendStretch(after, last int64) (changed int, err error) {
	stretch := func(sql string) statement { return t.prep(sql).int(t.now).int(after).int(last) }
	ready, err := stretch(sqlReadyAhead).count()
	if err != nil {
		return 0, err
	}
	retries, err := stretch(sqlRetryAhead).int(heldUntil).count()
	if err != nil {
		return 0, err
	}
	locks, err := stretch(sqlLockAhead).count()
	return ready + retries + locks, err
}
