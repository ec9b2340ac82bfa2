package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// presence is an advisory lock on a schema, which everybody holds who uses it. Processes that
// run on the schema share it. A copy has it alone. It ends with the connection.
type presence string

const (
	SharedPresence    presence = "SELECT pg_try_advisory_lock_shared(1180844409, hashtext(current_setting('search_path')))"
	exclusivePresence presence = "SELECT pg_try_advisory_lock(1180844409, hashtext(current_setting('search_path')))"
)

// Present takes the lock, again with each new connection if it is shared.
func (c *Conn) Present(p presence) error {
	free := false
	if _, err := (driver.Conn{Driver: c}).Prep(string(p)).One(func(r driver.Row) { free = r.Int(0) != 0 }); err != nil {
		return err
	}
	if free {
		c.Shared = p == SharedPresence
		return nil
	}
	if p == SharedPresence {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "this database is being copied right now, or copied to; wait until that is done")
	}
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", driver.TakenFromCopy)
}

// presenceWait is how long a copy waits for a process that was there to be gone, as its server
// sees it.
const presenceWait = 5 * time.Second

func (c *Conn) PresentAlone(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		err := c.Present(exclusivePresence)
		var refused *forebay.Error
		if err == nil || !errors.As(err, &refused) || time.Since(start) > presenceWait {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Announce takes the lock, again with each new connection.
func (c *Conn) Announce() error {
	if c.Answers == "" {
		return nil
	}
	_, err := driver.Conn{Driver: c}.Prep(sqlAnswer).Text(c.Answers).One(func(driver.Row) {})
	return err
}

const sqlAnswer = "SELECT pg_advisory_lock_shared(1180844410, hashtext(current_setting('search_path') || ' ' || ?))"
