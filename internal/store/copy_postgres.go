package store

import (
	"context"
)

func openPostgresSide(ctx context.Context, address string, target bool) (*side, error) {
	c, err := reachPostgres(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &side{conn: conn{driver: c}, engine: c, release: func() {
		if c.pg != nil && !c.pg.IsClosed() {
			_ = c.simple("SELECT pg_advisory_unlock_all()") // at once: the server may take a while to see that we have gone
		}
		c.Close()
	}}
	err = c.refusePooled(ctx)
	if err == nil {
		err = c.presentAlone(ctx)
	}
	if err == nil && target {
		err = c.prepareDatabase(ctx, false)
	}
	if err != nil {
		s.release()
		return nil, unusableOnServer(err)
	}
	return s, nil
}
