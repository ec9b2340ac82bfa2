package db

import (
	"context"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

func openPostgresSide(ctx context.Context, address string, target bool) (*side, error) {
	c, err := postgres.ConnectURL(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &side{Conn: driver.Conn{Driver: c}, engine: c, release: func() {
		if c.Pg != nil && !c.Pg.IsClosed() {
			_ = c.ExecSimple("SELECT pg_advisory_unlock_all()") // at once: the server may take a while to see that we have gone
		}
		c.Close()
	}}
	err = c.RefusePooled(ctx)
	if err == nil {
		err = c.PresentAlone(ctx)
	}
	if err == nil && target {
		err = c.PrepareDatabase(ctx, false)
	}
	if err != nil {
		s.release()
		return nil, postgres.UnusableOnServer(err)
	}
	return s, nil
}
