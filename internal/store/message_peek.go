package store

import "context"

const sqlPeek = messageSelect + `FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.lane = ? AND b.seq >= ? ORDER BY b.seq LIMIT ? + 0`

// Peek returns messages of the lane, whatever their state, from a sequence number on and in its
// order, and the sequence number to go on from, 0 when there is no more. It returns atLeast messages, if
// there are as many, whatever their size, and otherwise no more than maxBytes. What is left out is not read.
func (s *Store) Peek(ctx context.Context, lane Lane, from int64, limit int, maxBytes int64, atLeast int) (messages []Message, next int64, err error) {
	err = s.read(ctx, func(c conn) error {
		at := c.now()
		var bytes int64
		err := c.prep(sqlPeek).int(int64(lane)).int(from).int(int64(limit) + 1).each(func(r row) error {
			bytes += r.int(columnSize)
			if len(messages) == limit || bytes > maxBytes && len(messages) >= atLeast {
				next = r.int(columnSeq)
				return errStop
			}
			messages = append(messages, readMessage(r, at))
			return nil
		})
		return unlessStopped(err)
	})
	return messages, next, err
}
