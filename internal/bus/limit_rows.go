package bus

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
)

const sqlHasSession = "SELECT no FROM sessions WHERE queue = ? AND id = ?"

// CountNew returns how many of these sessions a queue does not have. It asks for all at once,
// because a statement may cost a round trip.
func (s SessionStore) CountNew(ctx context.Context, q MessageQueue, ids map[string]bool) (fresh int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		fresh = int64(len(ids))
		questions := make([]driver.PipelineQuery, 0, len(ids))
		for id := range ids {
			questions = append(questions, driver.PipelineQuery{SQL: sqlHasSession,
				Bind:  func(st driver.Statement) driver.Statement { return st.Int(q.No).Text(id) },
				OnRow: func(driver.Row) { fresh-- }})
		}
		return c.RunPipeline(questions)
	})
	return fresh, err
}

// Has reports whether a subscription has a rule of that name.
func (s RuleStore) Has(ctx context.Context, sub MessageQueue, name string) (found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlHasRule).Int(sub.No).Text(name).One(func(driver.Row) {})
		return err
	})
	return found, err
}
