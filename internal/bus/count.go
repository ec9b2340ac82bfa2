package bus

import (
	"context"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// MessageCounts counts the messages of a queue by state.
type MessageCounts = entity.Counts

// CountLimit is the highest count of messages of one state in one queue or topic.
const CountLimit = 10_000

// CountLimitOf is the limit where so many queues or topics are listed together.
func CountLimitOf(listed int) int64 {
	return min(CountLimit, max(100, 4*CountLimit/int64(max(1, listed))))
}

// MessageCounts counts a queue's messages, up to limit of each kind.
func (s *Store) MessageCounts(ctx context.Context, q MessageQueue, limit int64) (counts MessageCounts, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		counts, err = entity.Count(c, q.No, limit)
		return err
	})
	return counts, err
}
