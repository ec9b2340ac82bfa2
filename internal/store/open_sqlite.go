package store

import (
	"context"
	"errors"
	"os"

	"github.com/forebayhq/forebay"
)

// openSQLite opens the file of opts and takes it for this process, if it is to serve.
func openSQLite(opts Options, domains []domain) (s *DB, err error) {
	path, err := realPath(opts.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); opts.Existing && errors.Is(err, os.ErrNotExist) {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no database file of that name")
	}
	warn := opts.warn()
	var file *sqliteFile
	release := func() {}
	if opts.Serve {
		file, err = takeFile(path, "another Forebay server is using this database; SQLite serves one process at a time", !opts.Existing, warn)
		if err != nil {
			return nil, err
		}
		release = file.release
	} else if err := makePrivate(path); err != nil {
		return nil, unusable("the database file cannot be opened", err)
	}
	s = &DB{connect: func(context.Context) (conn, error) { return openReader(path, file) }, alone: opts.Serve, release: release, file: file}
	c, err := openWriter(path, opts.Serve)
	if err == nil {
		if err = refuseUnfinished(c); err == nil && file != nil {
			tighten(path, warn)
			err = file.opened()
		}
		if err != nil {
			c.Close()
		}
	}
	if err != nil {
		s.release()
		return nil, err
	}
	c.file = file
	if err := s.begin(conn{driver: c}, opts, domains, nil); err != nil || !opts.Serve {
		return s, err
	}
	if err := s.startShrinking(warn); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
