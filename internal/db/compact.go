package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// Compacted is what a compaction has done.
type Compacted struct {
	Before int64 `json:"before_bytes"` // the size of the file
	After  int64 `json:"after_bytes"`
}

// Compact writes a SQLite file anew without the space that deleted rows have left, as one that
// shrinks while a server runs. No server may run on it meanwhile. It needs as much free disk as
// the file has rows. Interrupted, the file is as it was.
func Compact(ctx context.Context, opts Options) (done Compacted, err error) {
	if opts.URL != "" {
		return done, forebay.Errorf(forebay.CodeNotSupported, "PostgreSQL uses the space of deleted rows again by itself; to give it to the disk, run VACUUM FULL or pg_repack there")
	}
	path, err := sqlite.RealPath(opts.Path)
	if err != nil {
		return done, err
	}
	before, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return done, forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no database file of that name")
	} else if err != nil {
		return done, driver.Unusable("the database file cannot be opened", err)
	}
	file, err := sqlite.TakeFile(path, "a Forebay server is running on this database; stop it first", false, opts.warn())
	if err != nil {
		return done, err
	}
	defer file.Release()
	c, err := sqlite.OpenWriter(path, true)
	if err != nil {
		return done, err
	}
	if err := refuseUnfinished(c); err != nil {
		return done, errors.Join(err, c.Close())
	}
	c.SetInterrupt(ctx.Done())
	for _, sql := range []string{sqlite.SQLShrinks, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err = c.Run(sql); err != nil {
			break
		}
	}
	if err = errors.Join(c.TranslateError(err), c.Close()); ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return done, err
	}
	after, err := os.Stat(path)
	if err != nil {
		return done, driver.Unusable("the database file "+filepath.Base(path)+" cannot be looked at", err)
	}
	return Compacted{Before: before.Size(), After: after.Size()}, nil
}
