package entity

import "github.com/forebayhq/forebay/internal/db/driver"

// ForgetEvery rounds up the time at which message ids are forgotten, so that many go at once.
const ForgetEvery = 10_000 // milliseconds

// ForgetTime returns when an id is forgotten whose window ends at that time.
func ForgetTime(at int64) int64 { return (at/ForgetEvery + 1) * ForgetEvery }

const (
	// ForgetBatch is how many message ids one transaction forgets.
	ForgetBatch    = 1000
	SQLLaterForget = "SELECT (forget_at / 10000 + 1) * 10000 FROM message_ids WHERE forget_at > ? ORDER BY forget_at LIMIT 1"
	// SQLForgetsMore is about what a batch leaves of those that are to be forgotten.
	SQLForgetsMore = "SELECT forget_at FROM message_ids WHERE forget_at <= ? ORDER BY forget_at LIMIT 1 OFFSET 1000"
)

// ForgetMessageIDs deletes ids whose window has passed.
func ForgetMessageIDs(c driver.Conn, now int64) error {
	return c.Prep(`DELETE FROM message_ids WHERE (queue, id) IN
(SELECT queue, id FROM message_ids WHERE forget_at <= ? ORDER BY forget_at LIMIT ? + 0)`).Int(now).Int(ForgetBatch).Exec()
}
