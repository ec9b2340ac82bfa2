package db

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// openPostgres opens the database of opts. Any number of processes may.
func openPostgres(ctx context.Context, opts Options, domains []Domain) (*DB, error) {
	c, err := postgres.ConnectURL(ctx, opts.URL)
	if err != nil {
		return nil, err
	}
	err = c.RefusePooled(ctx)
	if err == nil {
		err = c.Present(postgres.SharedPresence)
	}
	if err == nil {
		err = c.PrepareDatabase(ctx, opts.Existing)
	}
	if err == nil {
		err = refuseUnfinished(c)
	}
	if c.Answers = opts.ServerKind; err == nil {
		err = c.Announce()
	}
	if err != nil {
		c.Close()
		return nil, postgres.UnusableOnServer(err)
	}
	target := c.Target
	s := &DB{release: func() {}, connect: postgres.NewReader(target), connectSearch: postgres.NewReader(target.ForSearches()), serverKind: opts.ServerKind}
	s.takePlace = func(ctx context.Context) (int, func(), error) { return postgres.TakePlace(ctx, target) }
	e := newNotifier(target)
	s.signals = &e.signals
	if err := s.begin(driver.Conn{Driver: c}, opts, domains, e.publish); err != nil {
		return nil, err
	}
	e.start(s.Notified)
	s.release = e.close
	beside, err := postgres.Connect(ctx, target)
	if err == nil {
		err = beside.Present(postgres.SharedPresence)
	}
	if err == nil {
		err = s.startBeside(driver.Conn{Driver: beside}, e.publish)
	}
	if err != nil {
		if beside != nil && s.Inserter == nil {
			beside.Close()
		}
		return nil, errors.Join(postgres.UnusableOnServer(err), s.Close())
	}
	return s, nil
}

// OldestHolder returns who on the PostgreSQL server keeps the oldest rows that are gone.
func (s *DB) OldestHolder(ctx context.Context) (h postgres.Holder, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		h, found, err = postgres.OldestHolder(c)
		return err
	})
	return h, found, err
}
