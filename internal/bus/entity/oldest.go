package entity

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

const (
	free = `CASE WHEN m.flow IN (1, 2) OR m.subqueue <> b.subqueue THEN 0 WHEN m.lock_token IS NULL THEN 1 WHEN m.flow < 16 AND m.visible_at <= ?2 THEN 1
  WHEN m.flow >= 16 AND (SELECT s.locked_until FROM sessions s WHERE s.no = m.flow - 16) <= ?2 THEN 1 ELSE 0 END`

	// SQLOldest reads the messages of a subqueue and says which are active and free.
	SQLOldest = `SELECT b.seq, ` + free + `, b.enqueued_at FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.subqueue = ?1 AND b.seq > ?3 ORDER BY b.seq LIMIT ?4 + 0`
	SQLFree = `SELECT b.seq, ` + free + ` FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.seq = ?3 AND b.subqueue + 0 = ?1`
)

// OldestAtOnce is how many messages one statement reads.
const OldestAtOnce = 1000

// Oldest returns up to limit active messages of a subqueue, with numbers after that one, that were
// enqueued before a time. It leaves out locked, deferred and scheduled ones, however many.
func (s Reader) Oldest(ctx context.Context, subqueue queue.Subqueue, before time.Time, after int64, limit int) (seqs []int64, err error) {
	for scanned := OldestAtOnce; scanned == OldestAtOnce; {
		var page []int64
		last := after
		err := s.Read(ctx, func(c driver.Conn) error {
			page, last, scanned = nil, after, 0 // it may be the second attempt
			return driver.UnlessStopped(c.Prep(SQLOldest).Int(int64(subqueue)).Int(c.Now()).Int(after).Int(OldestAtOnce).Each(func(r driver.Row) error {
				// Numbers are given in the order of enqueuing.
				if r.Int(2) >= before.UnixMilli() || len(seqs)+len(page) == limit {
					scanned = 0
					return driver.ErrStop
				}
				if last, scanned = r.Int(0), scanned+1; r.Int(1) != 0 {
					page = append(page, last)
				}
				return nil
			}))
		})
		if err != nil {
			return nil, err
		}
		seqs, after = append(seqs, page...), last
	}
	return seqs, nil
}

// Free returns those of the messages of a subqueue that are active and free.
func Free(c driver.Conn, subqueue queue.Subqueue, seqs []int64, now int64) (still []int64, err error) {
	asks := make([]driver.Prefetch, len(seqs))
	for i, seq := range seqs {
		asks[i] = driver.NewPrefetch(SQLFree, queue.MessageRow(seq)).Int(int64(subqueue)).Int(now).Int(seq)
	}
	if err := c.Prefetch(asks); err != nil {
		return nil, err
	}
	for _, seq := range seqs {
		_, err := c.Prep(SQLFree).Int(int64(subqueue)).Int(now).Int(seq).One(func(r driver.Row) {
			if r.Int(1) != 0 {
				still = append(still, seq)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return still, nil
}
