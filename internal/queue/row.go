package queue

import "github.com/forebayhq/forebay/internal/db/driver"

// MessageRow names the row of a message, of a job's as of a plain one.
func MessageRow(seq int64) driver.RowName { return driver.RowName{Of: "messages", No: seq} }

// SQLDeleteMessage takes the number of a message.
var SQLDeleteMessage = driver.BatchForm("DELETE FROM messages WHERE seq = ?", "DELETE FROM messages m USING %s WHERE m.seq = ANY (ARRAY[p1])")
