package db

import (
	"context"
	"errors"
	"os"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// openSQLite opens the file of opts and takes it for this process, if it is to serve.
func openSQLite(opts Options, domains []Domain) (s *DB, err error) {
	path, err := sqlite.RealPath(opts.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); opts.Existing && errors.Is(err, os.ErrNotExist) {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no database file of that name")
	}
	warn := opts.warn()
	var file *sqlite.File
	release := func() {}
	if opts.Serve {
		file, err = sqlite.TakeFile(path, "another Forebay server is using this database; SQLite serves one process at a time", !opts.Existing, warn)
		if err != nil {
			return nil, err
		}
		release = file.Release
	} else if err := sqlite.MakePrivate(path); err != nil {
		return nil, driver.Unusable("the database file cannot be opened", err)
	}
	s = &DB{connect: func(context.Context) (driver.Conn, error) { return sqlite.OpenReader(path, file) }, alone: opts.Serve, release: release, file: file}
	c, err := sqlite.OpenWriter(path, opts.Serve)
	if err == nil {
		if err = refuseUnfinished(c); err == nil && file != nil {
			sqlite.Tighten(path, warn)
			err = file.Opened()
		}
		if err != nil {
			c.Close()
		}
	}
	if err != nil {
		s.release()
		return nil, err
	}
	c.File = file
	if err := s.begin(driver.Conn{Driver: c}, opts, domains, nil); err != nil || !opts.Serve {
		return s, err
	}
	if err := s.startShrinking(warn); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
