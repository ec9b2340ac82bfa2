package store

import (
	"context"
	"errors"
	"net/url"
	"os"

	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
)

// Schema compares a database's tables with those that this program needs.
type Schema struct {
	Database int64    `json:"database"` // version; 0: there is no Forebay database there yet
	Program  int64    `json:"program"`
	Pending  []string `json:"pending"` // scripts that the database lacks, in order
}

// ReadSchema looks at a database without making or changing anything, also while others use it.
func ReadSchema(ctx context.Context, opts Options) (Schema, error) {
	s := Schema{Program: schemaVersion(), Pending: []string{}}
	var err error
	if opts.URL != "" {
		s.Database, err = postgresVersion(ctx, opts.URL)
	} else {
		s.Database, err = sqliteVersion(opts.Path)
	}
	for _, name := range scriptsFrom(s.Database) {
		s.Pending = append(s.Pending, scriptName(name))
	}
	return s, err
}

func postgresVersion(ctx context.Context, address string) (int64, error) {
	c, err := reachPostgres(ctx, address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	version, err := c.version()
	if err != nil {
		return 0, unusableOnServer(err)
	}
	return version, nil
}

func sqliteVersion(name string) (int64, error) {
	name, err := realPath(name)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	raw, err := sqlite.OpenConn(untouched(name), sqlite.OpenReadOnly, sqlite.OpenURI)
	if err != nil {
		return 0, unusable("the database file cannot be opened", err)
	}
	defer raw.Close()
	version, err := newSQLiteConn(raw).version()
	if err != nil {
		return 0, unusableUnlessKnown(err)
	}
	return version, nil
}

// untouched is the URI of a file that is opened without a trace. Only a file with a WAL, which is in
// use or was left by a crash, needs the other files that SQLite makes beside it; they are there then.
func untouched(name string) string {
	uri := url.URL{Scheme: "file", Path: name}
	if wal, err := os.Stat(name + "-wal"); err != nil || wal.Size() == 0 {
		uri.RawQuery = "immutable=1"
	}
	return uri.String()
}

// refuseUnlessCurrent refuses a schema that is not this program's.
func (s Schema) refuseUnlessCurrent() error {
	switch {
	case s.Database == 0:
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no Forebay database there yet")
	case s.Database >= oldestSchema && s.Database < s.Program:
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database has an older schema (%d; this Forebay's is %d); bring it up to date with forebay migrate up", s.Database, s.Program)
	}
	return refuseUnknown(s.Database)
}
