package store

import "context"

// MessageCounts is what stands in a queue of messages.
type MessageCounts struct {
	Active, Scheduled, Locked, Deferred, DeadLetter int64
	OldestActive                                    int64 // since when; 0: none is active
}

const sqlMessageCounts = `
SELECT m.lane % 4, count(*),
  count(*) FILTER (WHERE m.rank <> 1 AND m.until <= ?2),
  count(*) FILTER (WHERE m.rank = 1),
  count(*) FILTER (WHERE m.until > ?2 AND m.rank <> 1),
  min(CASE WHEN m.rank <> 1 AND m.until <= ?2 THEN m.since END)
FROM (SELECT m.lane, m.rank, CASE WHEN m.token IS NULL THEN 0 WHEN m.rank < 16 THEN m.visible
    ELSE coalesce((SELECT s.locked_until FROM sessions s WHERE s.no = m.rank - 16), 0) END AS until,
    CASE WHEN m.rank < 16 THEN m.visible ELSE (SELECT b.enqueued_at FROM bodies b WHERE b.seq = m.seq) END AS since
  FROM messages m WHERE m.lane BETWEEN ?1 AND ?1 + 3) m
GROUP BY m.lane % 4`

// MessageCounts counts a queue's messages.
func (s *Store) MessageCounts(ctx context.Context, q MessageQueue) (counts MessageCounts, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(sqlMessageCounts).int(q.No * laneKinds).int(c.now()).each(func(r row) error {
			switch lane := LaneOf(0, LaneKind(r.int(0))); lane {
			case LaneOf(0, LaneMain):
				counts.Active, counts.Scheduled, counts.Locked, counts.OldestActive = r.int(2), r.int(3), counts.Locked+r.int(4), r.int(5)
			case LaneOf(0, LaneMain).deferred():
				counts.Deferred = r.int(1) - r.int(4)
				counts.Locked += r.int(4)
			default:
				counts.DeadLetter += r.int(1)
			}
			return nil
		})
		return err
	})
	return counts, err
}
