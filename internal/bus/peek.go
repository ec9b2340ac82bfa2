package bus

import (
	"cmp"
	"context"
	"slices"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/turns"
)

const (
	sqlPeek       = messageSelect + `FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.subqueue = ? AND b.seq >= ? ORDER BY b.seq LIMIT ? + 0`
	sqlPeekReason = messageSelect + `FROM bodies b JOIN messages m ON m.seq = b.seq
WHERE b.subqueue = ?1 AND b.seq >= ?2 AND b.seq < ?4 AND b.dead_letter_reason = ?5 ORDER BY b.seq LIMIT ?3 + 0`
	sqlNextPeek = `SELECT seq FROM bodies WHERE subqueue = ? AND seq >= ? ORDER BY seq LIMIT 1 OFFSET ? + 0`
)

// sqlOfSession finds what a session has of one kind.
const sqlOfSession = `SELECT m.seq, m.size FROM messages m
WHERE m.subqueue = ? AND m.flow = (SELECT s.no + 16 FROM sessions s WHERE s.queue = ? AND s.id = ?) AND m.visible_at = ? AND m.seq >= ?
ORDER BY m.visible_at, m.seq LIMIT ? + 0`

// PeekQuery selects messages of a subqueue.
type PeekQuery struct {
	Subqueue queue.Subqueue
	From     int64  // the first sequence number
	Reason   string // only dead letters with this reason; "": all messages
	Session  string // only what this session has, not what is scheduled; "": all messages
	Limit    int
	MaxBytes int64 // of all messages together; the first AtLeast may exceed it
	AtLeast  int
}

// Peek returns messages in any state, in the order of their sequence numbers. The result next is
// the number to continue with, 0 at the end; cut says that MaxBytes ended the page. Messages that
// are left out are not read. With a reason a page may be empty although more follow.
func (s *Store) Peek(ctx context.Context, q PeekQuery) (messages []Message, next int64, cut bool, err error) {
	return s.peek(ctx, q, func() (*turns.Turn, error) { return nil, nil })
}

// PeekMany is Peek for many bytes. On SQLite, reading them takes the processor, so it takes a
// turn. It does so only once it has a connection: nobody else could compute while it waits for
// that.
func (s *Store) PeekMany(ctx context.Context, q PeekQuery) (messages []Message, next int64, cut bool, err error) {
	return s.peek(ctx, q, func() (*turns.Turn, error) {
		if s.Shared() { // waiting for another process takes no processor
			return nil, nil
		}
		return turns.Take(ctx)
	})
}

func (s *Store) peek(ctx context.Context, q PeekQuery, take func() (*turns.Turn, error)) (messages []Message, next int64, cut bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		turn, err := take()
		if err != nil {
			return err
		}
		defer turn.End()
		messages, next, cut = nil, 0, false // it may be the second attempt
		at := c.Now()
		found := c.Prep(sqlPeek).Int(int64(q.Subqueue)).Int(q.From).Int(int64(q.Limit) + 1)
		if q.Session != "" {
			messages, next, cut, err = peekSession(c, q, at)
			return err
		}
		if q.Reason != "" {
			end := int64(db.Never)
			if _, err := c.Prep(sqlNextPeek).Int(int64(q.Subqueue)).Int(q.From).Int(entity.OldestAtOnce).One(func(r driver.Row) { end, next = r.Int(0), r.Int(0) }); err != nil {
				return err
			}
			found = c.Prep(sqlPeekReason).Int(int64(q.Subqueue)).Int(q.From).Int(int64(q.Limit) + 1).Int(end).Text(q.Reason)
		}
		var bytes int64
		err = found.Each(func(r driver.Row) error {
			bytes += r.Int(columnSize)
			if len(messages) == q.Limit || bytes > q.MaxBytes && len(messages) >= q.AtLeast {
				next, cut = r.Int(columnSeq), len(messages) < q.Limit
				return driver.ErrStop
			}
			messages = append(messages, readMessage(r, at))
			return nil
		})
		return driver.UnlessStopped(err)
	})
	return messages, next, cut, err
}

// peekSession is Peek for what a session has: messages that are free or held, active or deferred.
func peekSession(c driver.Conn, q PeekQuery, at int64) (messages []Message, next int64, cut bool, err error) {
	var found []sized
	var questions []driver.PipelineQuery
	for _, subqueue := range []queue.Subqueue{q.Subqueue, q.Subqueue.Deferred()} {
		for _, visible := range []int64{sessionFree, sessionHeld} {
			questions = append(questions, driver.PipelineQuery{SQL: sqlOfSession, Bind: func(st driver.Statement) driver.Statement {
				return st.Int(int64(subqueue)).Int(q.Subqueue.Queue()).Text(q.Session).Int(visible).Int(q.From).Int(int64(q.Limit) + 1)
			}, OnRow: func(r driver.Row) { found = append(found, sized{r.Int(0), r.Int(1)}) }})
		}
	}
	if err := c.RunPipeline(questions); err != nil {
		return nil, 0, false, err
	}
	slices.SortFunc(found, func(a, b sized) int { return cmp.Compare(a.seq, b.seq) })
	questions = nil
	var bytes int64
	for i, m := range found {
		bytes += m.size
		if i == q.Limit || bytes > q.MaxBytes && i >= q.AtLeast {
			next, cut = m.seq, i < q.Limit
			break
		}
		questions = append(questions, driver.PipelineQuery{SQL: sqlWholeMessage, Bind: func(st driver.Statement) driver.Statement { return st.Int(m.seq) },
			OnRow: func(r driver.Row) { messages = append(messages, readMessage(r, at)) }})
	}
	return messages, next, cut, c.RunPipeline(questions)
}
