package store

import (
	"context"

	"github.com/forebayhq/forebay/internal/turns"
)

const sqlPeek = messageSelect + `FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.lane = ? AND b.seq >= ? ORDER BY b.seq LIMIT ? + 0`

// Peek returns messages of the lane, whatever their state, from a sequence number on and in its
// order, and the sequence number to go on from, 0 when there is no more. It returns atLeast messages, if
// there are as many, whatever their size, and otherwise no more than maxBytes. What is left out is not read.
func (s *Store) Peek(ctx context.Context, lane Lane, from int64, limit int, maxBytes int64, atLeast int) (messages []Message, next int64, err error) {
	return s.peek(ctx, lane, from, limit, maxBytes, atLeast, func() (*turns.Turn, error) { return nil, nil })
}

// PeekMany is Peek of many bytes. On SQLite it computes for as long as it reads them, so it does that in a turn; not before it
// has its connection, for nobody else could compute while it waits for that.
func (s *Store) PeekMany(ctx context.Context, lane Lane, from int64, limit int, maxBytes int64, atLeast int) (messages []Message, next int64, err error) {
	return s.peek(ctx, lane, from, limit, maxBytes, atLeast, func() (*turns.Turn, error) {
		if s.Shared() { // the database is another process, and to wait for it takes no processor
			return nil, nil
		}
		return turns.Take(ctx)
	})
}

func (s *Store) peek(ctx context.Context, lane Lane, from int64, limit int, maxBytes int64, atLeast int, take func() (*turns.Turn, error)) (messages []Message, next int64, err error) {
	err = s.read(ctx, func(c conn) error {
		turn, err := take()
		if err != nil {
			return err
		}
		defer turn.End()
		messages, next = nil, 0 // it may be the second time
		at := c.now()
		var bytes int64
		err = c.prep(sqlPeek).int(int64(lane)).int(from).int(int64(limit) + 1).each(func(r row) error {
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
