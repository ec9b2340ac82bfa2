package db

import (
	"context"
	"os"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// A SQLite file shrinks while it is served. Deleted rows leave free pages. Once those are a
// good part of the file, the writer's transactions give them back, a few at a time. Some are
// kept, for new rows will need them. The file itself is cut by the checkpoint that follows.

const (
	shrinkFrom  = 64 << 20 // bytes: less free space is left alone
	shrinkShare = 4        // the free space must be more than one in so many bytes of the file
	shrinkKeep  = 8        // and is given back until it is one in so many

	// shrinkLook is how long after the start the free space is looked at, and again after it was
	// given back. Each look that finds nothing to do doubles the time to the next, up to
	// shrinkLookMost.
	shrinkLook     = 5 * time.Minute
	shrinkLookMost = 80 * time.Minute
	// shrinkRest is how long the writer is left to others after each step, or longer: shrinkRests
	// times as long as the step took. So no more than 5 MB are given back in a second, in a tenth
	// of the writer's time.
	shrinkRest  = 100 * time.Millisecond
	shrinkRests = 9
	// shrinkWAL is how large the WAL may be, in bytes, for a step to be taken. It is larger only
	// while somebody still reads an old state. Then every step makes the files larger.
	shrinkWAL = 192 << 20
)

const (
	// sqlShrinkStep moves the last pages to free ones before them: 64 pages are half a megabyte.
	sqlShrinkStep = "PRAGMA incremental_vacuum(64)"
	sqlCheckpoint = "PRAGMA wal_checkpoint(PASSIVE)"

	incrementally = 2 // what auto_vacuum is of a file that shrinks
)

// Space is what a SQLite file takes, and what of that holds nothing.
type Space struct {
	Bytes     int64 // of the database, as of its latest transaction
	FreeBytes int64 // of these, in pages without rows
	Shrinks   bool  // a server gives free space back to the disk
}

// excess reports whether so much is free that it should be given back.
func (s Space) excess() bool { return s.FreeBytes > shrinkFrom && s.FreeBytes > s.Bytes/shrinkShare }

// spare reports whether more is free than is kept.
func (s Space) spare() bool { return s.FreeBytes > max(shrinkFrom/2, s.Bytes/shrinkKeep) }

// Space tells how much of a SQLite file is free. Of PostgreSQL, which looks after its space
// itself, it tells nothing.
func (s *DB) Space(ctx context.Context) (space Space, isSQLite bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		if _, isSQLite = c.Driver.(*sqlite.Conn); !isSQLite {
			return nil
		}
		space, err = spaceOf(c)
		return err
	})
	return space, isSQLite, err
}

func spaceOf(c driver.Conn) (Space, error) {
	var size, pages, free, mode int64
	for name, value := range map[string]*int64{"page_size": &size, "page_count": &pages, "freelist_count": &free, "auto_vacuum": &mode} {
		if _, err := c.Prep("PRAGMA " + name).One(func(r driver.Row) { *value = r.Int(0) }); err != nil {
			return Space{}, err
		}
	}
	return Space{Bytes: pages * size, FreeBytes: min(free, pages) * size, Shrinks: mode == incrementally}, nil
}

// startShrinking begins to give free space back until the store ends. A file of an earlier version
// cannot shrink, which is told once.
func (s *DB) startShrinking(warn func(string)) error {
	space, _, err := s.Space(s.health.ctx)
	if err != nil {
		return err
	}
	if !space.Shrinks {
		warn("the database file is of an earlier version and does not shrink while a server runs; " +
			"stop the server and run forebay compact once to change that")
		return nil
	}
	s.health.probes.Go(func() { s.keepShrinking(warn) })
	return nil
}

func (s *DB) keepShrinking(warn func(string)) {
	wait := shrinkLook
	look := time.NewTimer(wait)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			steps, err := s.shrink(s.health.ctx)
			if wait = min(2*wait, shrinkLookMost); steps > 0 {
				wait = shrinkLook
			}
			look.Reset(wait)
			if err != nil && s.health.ctx.Err() == nil {
				warn("free space of the database could not be given back to the disk; it is tried again later: " + forCaller(err).Error())
			}
		case <-s.health.ctx.Done():
			return
		}
	}
}

// shrink gives free space back if there is much of it, and returns in how many steps.
func (s *DB) shrink(ctx context.Context) (steps int, err error) {
	space, _, err := s.Space(ctx)
	if err != nil {
		return 0, err
	}
	for more := space.excess(); more; {
		if wal, err := os.Stat(s.file.Path + sqlite.WalSuffix); err != nil || wal.Size() > shrinkWAL {
			return steps, err
		}
		began := time.Now()
		if more, err = s.shrinkStep(ctx); err != nil {
			return steps, err
		}
		if !more {
			break
		}
		steps++
		select {
		case <-time.After(max(shrinkRest, shrinkRests*time.Since(began))):
		case <-ctx.Done():
			return steps, ctx.Err()
		}
	}
	return steps, s.cutFile(ctx)
}

// shrinkStep gives some pages back and reports whether there may be more.
func (s *DB) shrinkStep(ctx context.Context) (more bool, err error) {
	return Transact(ctx, s.Writer, Op{Stage: StageChange}, func(t *Tx) (bool, error) {
		space, err := spaceOf(t.Conn)
		if err != nil || !space.spare() {
			return false, err
		}
		return true, t.Prep(sqlShrinkStep).Exec()
	})
}

// cutFile cuts what was given back off the file, by a checkpoint, unless one has done so. It waits
// for nobody: while somebody still reads what is to be cut off, it is left to the next look.
func (s *DB) cutFile(ctx context.Context) error {
	return s.Read(ctx, func(c driver.Conn) error {
		space, err := spaceOf(c)
		if err != nil {
			return err
		}
		if file, err := os.Stat(s.file.Path); err != nil || file.Size() <= space.Bytes {
			return err
		}
		return c.Prep(sqlCheckpoint).Each(nil)
	})
}
