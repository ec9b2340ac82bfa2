package store

import "github.com/forebayhq/forebay"

// Where processes share a database a claim is a round trip to the server, so all claims that wait for
// a lane are served from one look at all its ranks.

const sqlReadyShared = `
SELECT m.seq, m.token, m.locked_at, m.deliveries, m.generation, m.attempt, m.number, m.version, m.deadline,
  m.started_at, m.visible, m.last_error, m.size,
  j.id, j.tenant, j.task, j.max_attempts, j.max_cost, j.created_at, j.correlation_id, j.traceparent,
  j.metadata, j.input, j.input_blob, m.announced, j.session_id
FROM (SELECT first.* FROM generate_series(0, ?) AS r(rank),
    LATERAL (SELECT * FROM messages WHERE lane = ? AND rank = r.rank AND visible <= ? ORDER BY visible, seq LIMIT ?) AS first
    WHERE NOT EXISTS (SELECT 1 FROM queues WHERE no = ? AND paused <> 0)
    ORDER BY first.rank, first.visible, first.seq LIMIT ?) AS m
  JOIN jobs j ON j.seq = m.seq
ORDER BY m.rank, m.visible, m.seq`

// maxLook bounds what one look reads, inputs included.
const maxLook = 256

// look is what was ready in a lane when this transaction looked, and was not taken yet.
type look struct {
	lane  int64
	found []candidate
	more  bool // than the look found
}

// first looks for as much as the claims want together.
func (l *look) first(t *tx, claims []*claim) error {
	wanted := 0
	for _, c := range claims {
		wanted += c.Max
	}
	return l.again(t, wanted)
}

func (l *look) again(t *tx, wanted int) error {
	limit := int64(min(wanted, maxLook))
	l.found = l.found[:0]
	err := t.prep(sqlReadyShared).int(forebay.MaxPriority).int(l.lane).int(t.now).int(limit).int(l.lane / laneKinds).int(limit).each(func(r row) error {
		l.found = append(l.found, readCandidate(r, Lane(l.lane)))
		return nil
	})
	l.more = int64(len(l.found)) == limit
	return err
}

// The earliest of a lane, by one look into the index for each rank.
const sqlEarliestShared = `
SELECT coalesce(min(first.visible), 0) FROM generate_series(0, ?) AS r(rank),
  LATERAL (SELECT visible FROM messages WHERE lane = ? AND rank = r.rank ORDER BY visible LIMIT 1) AS first`

// updateSharedDue is updateDue for a lane in which nothing more was found.
func (w *writer) updateSharedDue(t *tx, lane int64) error {
	var earliest int64
	if _, err := t.prep(sqlEarliestShared).int(forebay.MaxPriority).int(lane).one(func(r row) { earliest = r.int(0) }); err != nil {
		return err
	}
	delete(w.dueAt, lane)
	if earliest > 0 {
		w.dueAt[lane] = earliest
	}
	return nil
}

// serveFrom takes ready messages for one claim.
func (w *writer) serveFrom(t *tx, l *look, c *claim) error {
	var bytes int64
	for len(c.deliveries) < c.Max {
		if len(l.found) == 0 {
			if !l.more {
				return nil
			}
			if err := l.again(t, c.Max); err != nil {
				return err
			}
			continue
		}
		m := &l.found[0]
		if bytes+m.InputSize > c.MaxBytes && bytes > 0 {
			return nil
		}
		bytes += m.InputSize
		if err := t.take(m, c); err != nil {
			return err
		}
		l.found = l.found[1:]
	}
	return nil
}
