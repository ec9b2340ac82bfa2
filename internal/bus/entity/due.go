package entity

import "github.com/forebayhq/forebay/internal/db/driver"

// A message has a due time if it is scheduled, may expire or has had its last delivery. A locked
// message is due again when its lock ends: it does not expire before.
const (
	SQLLaterDueMessage = "SELECT due_at FROM bodies WHERE due_at > ? ORDER BY due_at LIMIT 1"
	SQLLaterDueQueue   = "SELECT due_at FROM queues WHERE due_at > ? ORDER BY due_at LIMIT 1"
	SQLLaterIdleQueue  = "SELECT delete_at FROM queues WHERE delete_at > ? ORDER BY delete_at LIMIT 1"

	SQLMessagesDue = `
SELECT b.seq, m.subqueue, m.flow, CASE WHEN m.lock_token IS NULL THEN 0 WHEN m.flow < 16 THEN m.visible_at
  ELSE coalesce((SELECT s.locked_until FROM sessions s WHERE s.no = m.flow - 16), 0) END,
  m.deliveries, b.expires_at, coalesce((SELECT q.dead_letter_expired FROM queues q WHERE q.no = m.subqueue / 4), 0), m.size,
  (SELECT q.forward_to FROM queues q WHERE q.no = m.subqueue / 4), (SELECT q.forward_dead_letters_to FROM queues q WHERE q.no = m.subqueue / 4),
  (SELECT q.version FROM queues q WHERE q.no = m.subqueue / 4 AND q.is_topic = 1), b.due_at
FROM bodies b JOIN messages m ON m.seq = b.seq WHERE b.due_at >= ? AND b.due_at <= ? ORDER BY b.due_at, b.seq LIMIT ? + 0`
)

// AskNext returns the questions for when something but messages is due next after a time; 0:
// never. Whoever processes what is due by then notes when that is due again.
func AskNext(after int64, next *int64) (questions []driver.PipelineQuery) {
	for _, sql := range []string{SQLLaterForget, SQLLaterDueQueue, SQLLaterIdleQueue, SQLForgetsMore} {
		questions = append(questions, askEarliest(sql, after, next))
	}
	return questions
}

// AskNextMessage is AskNext for messages.
func AskNextMessage(after int64, next *int64) driver.PipelineQuery {
	return askEarliest(SQLLaterDueMessage, after, next)
}

func askEarliest(sql string, after int64, next *int64) driver.PipelineQuery {
	return driver.PipelineQuery{SQL: sql, Bind: func(st driver.Statement) driver.Statement { return st.Int(after) }, OnRow: func(r driver.Row) {
		if at := r.Int(0); *next == 0 || at < *next {
			*next = at
		}
	}}
}
