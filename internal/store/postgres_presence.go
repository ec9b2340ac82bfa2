package store

import (
	"context"
	"errors"
	"time"

	"github.com/forebayhq/forebay"
)

// presence is an advisory lock, of a schema, that everybody holds who uses it: shared by the processes
// that run on it, exclusive to a copy. It ends with the connection.
type presence string

const (
	sharedPresence    presence = "SELECT pg_try_advisory_lock_shared(1180844409, hashtext(current_setting('search_path')))"
	exclusivePresence presence = "SELECT pg_try_advisory_lock(1180844409, hashtext(current_setting('search_path')))"
)

// present takes the lock, again with each new connection if it is shared.
func (c *postgresConn) present(p presence) error {
	free := false
	if _, err := (conn{driver: c}).prep(string(p)).one(func(r row) { free = r.int(0) != 0 }); err != nil {
		return err
	}
	if free {
		c.shared = p == sharedPresence
		return nil
	}
	if p == sharedPresence {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "this database is being copied right now, or copied to; wait until that is done")
	}
	return forebay.Errorf(forebay.CodeDatabaseUnusable, "%s", takenFromCopy)
}

// presenceWait is how long a copy waits for a process that was there to be gone, as its server sees it.
const presenceWait = 5 * time.Second

func (c *postgresConn) presentAlone(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		err := c.present(exclusivePresence)
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

// announce takes the lock, again with each new connection.
func (c *postgresConn) announce() error {
	if c.answers == "" {
		return nil
	}
	_, err := conn{driver: c}.prep(sqlAnswer).text(c.answers).one(func(row) {})
	return err
}

const sqlAnswer = "SELECT pg_advisory_lock_shared(1180844410, hashtext(current_setting('search_path') || ' ' || ?))"
