package bus

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// CountNew returns how many of these sessions a queue does not have.
func (s SessionStore) CountNew(ctx context.Context, q MessageQueue, ids map[string]bool) (fresh int64, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		fresh = int64(len(ids))
		for id := range ids {
			found, err := c.Prep("SELECT no FROM sessions WHERE queue = ? AND id = ?").Int(q.No).Text(id).One(func(driver.Row) {})
			if err != nil {
				return err
			}
			if found {
				fresh--
			}
		}
		return nil
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
