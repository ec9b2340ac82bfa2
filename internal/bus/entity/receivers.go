package entity

import "github.com/forebayhq/forebay/internal/db/driver"

// SQLStatus finds the status of an entity that was not dropped. Statements that find what a
// receiver gets compare both themselves: they end with "NOT EXISTS …status >= 2…".
const SQLStatus = "SELECT status FROM queues WHERE no = ? AND kind <> 'deleting'"

// AskRefusal asks why nobody may receive from the entity with that number: ErrNoQueue,
// ErrReceiveDisabled, or nil.
func AskRefusal(no int64, why *error) driver.PipelineQuery {
	*why = ErrNoQueue
	return driver.PipelineQuery{SQL: SQLStatus, Bind: func(st driver.Statement) driver.Statement { return st.Int(no) },
		OnRow: func(r driver.Row) { *why = RefusalOf(r.Int(0)) }}
}

// dropped is the status that statements show of an entity that was dropped.
const dropped = 4

// RefusalOf is what [AskRefusal] answers for the number of a status.
func RefusalOf(status int64) error {
	switch {
	case status == dropped:
		return ErrNoQueue
	case status >= ReceiveDisabled:
		return ErrReceiveDisabled
	}
	return nil
}

// CheckReceives refuses what only receivers of the entity with that number may do. The error is
// that of [AskRefusal].
func CheckReceives(c driver.Conn, no int64) error {
	q, found, err := Numbered(c, no)
	switch {
	case err != nil:
		return err
	case !found:
		return ErrNoQueue
	case !q.Status.Receives():
		return ErrReceiveDisabled
	}
	return nil
}
