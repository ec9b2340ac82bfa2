package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// places is how many processes on one schema can have a place.
const places = 1024

// placeCheck is how often the connection of a place is looked at.
const placeCheck = 5 * time.Second

const sqlPlace = "SELECT pg_try_advisory_lock(1180844411, hashtext(current_setting('search_path') || ' ' || ?))"

// TakePlace takes the lowest number that no other process on the schema has. It is kept by a lock
// of a connection, which is made anew when it breaks, until release is called. Another process may
// take the number while there is no connection.
func TakePlace(ctx context.Context, target *Target) (n int, release func(), err error) {
	c, err := Connect(ctx, target)
	if err != nil {
		return 0, nil, UnusableOnServer(err)
	}
	for n = range places {
		free, err := c.takePlace(n)
		if err != nil {
			c.Close()
			return 0, nil, UnusableOnServer(err)
		}
		if free {
			kept, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.keepPlace(kept, target, n)
			}()
			return n, func() { cancel(); <-ended }, nil
		}
	}
	c.Close()
	return 0, nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "%d processes use this database already", places)
}

func (c *Conn) takePlace(n int) (free bool, err error) {
	_, err = driver.Conn{Driver: c}.Prep(sqlPlace).Text(strconv.Itoa(n)).One(func(r driver.Row) { free = r.Int(0) != 0 })
	return free, err
}

// keepPlace keeps a place until ctx ends.
func (c *Conn) keepPlace(ctx context.Context, target *Target, n int) {
	tick := time.NewTicker(placeCheck)
	defer tick.Stop()
	defer func() { c.Close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := (driver.Conn{Driver: c}).Prep("SELECT 1").One(func(driver.Row) {}); err == nil {
			continue
		}
		c.Close()
		if again, err := Connect(ctx, target); err == nil {
			c = again
			_, _ = c.takePlace(n) // if another process has it, that is so until one of them ends
		}
	}
}
