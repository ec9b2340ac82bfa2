package store

import (
	"context"
	"errors"
)

// openPostgres opens the database of opts. Any number of processes may.
func openPostgres(ctx context.Context, opts Options, domains []domain) (*DB, error) {
	c, err := reachPostgres(ctx, opts.URL)
	if err != nil {
		return nil, err
	}
	err = c.refusePooled(ctx)
	if err == nil {
		err = c.present(sharedPresence)
	}
	if err == nil {
		err = c.prepareDatabase(ctx, opts.Existing)
	}
	if err == nil {
		err = refuseUnfinished(c)
	}
	if c.answers = opts.Answers; err == nil {
		err = c.announce()
	}
	if err != nil {
		c.Close()
		return nil, unusableOnServer(err)
	}
	config := c.config
	s := &DB{release: func() {}, connect: postgresReader(config), connectSearch: postgresReader(searchConfig(config)), answers: opts.Answers}
	e := newNotifier(config)
	if err := s.begin(conn{driver: c}, opts, domains, e.publish); err != nil {
		return nil, err
	}
	e.start(s.hear)
	s.release = e.close
	beside, err := connectPostgres(ctx, config)
	if err == nil {
		err = beside.present(sharedPresence)
	}
	if err == nil {
		err = s.startBeside(conn{driver: beside}, e.publish)
	}
	if err != nil {
		if beside != nil && s.beside == nil {
			beside.Close()
		}
		return nil, errors.Join(unusableOnServer(err), s.Close())
	}
	return s, nil
}
