package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"zombiezen.com/go/sqlite"
)

// Conn is a connection to a SQLite file. One process at a time delivers from a file, and its
// clock is the database's.
type Conn struct {
	*sqlite.Conn
	statements map[*sqlite.Stmt]*statement // made once for each prepared statement
	File       *File                       // that this process has taken; nil: it has not
	volatile   bool                        // commits do not wait for the disk
}

// NewConn is a connection of the driver over an open one.
func NewConn(raw *sqlite.Conn) *Conn {
	return &Conn{Conn: raw, statements: map[*sqlite.Stmt]*statement{}}
}

type statement struct {
	*sqlite.Stmt
	conn *sqlite.Conn
}

func (c *Conn) Prepare(sql string) (driver.Prepared, error) {
	prepared, err := c.Conn.Prepare(sql)
	if err != nil {
		return nil, err
	}
	s, ok := c.statements[prepared]
	if !ok {
		s = &statement{prepared, c.Conn}
		c.statements[prepared] = s
	}
	return s, nil
}

func (c *Conn) Begin(b driver.BeginOptions) (now int64, err error) {
	if err := c.File.known(); err != nil {
		return 0, err
	}
	if err := c.setVolatile(b.Volatile); err != nil {
		return 0, err
	}
	now = c.Now()
	if err := c.Run("BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	return now, c.RunPipeline(b.Pipeline)
}

// setVolatile chooses whether commits wait for the disk. With NORMAL they do not, in WAL mode. The
// next commit that does also brings those before it to the disk, for they share the WAL.
func (c *Conn) setVolatile(volatile bool) error {
	if c.volatile == volatile {
		return nil
	}
	pragma := "PRAGMA synchronous = FULL"
	if volatile {
		pragma = "PRAGMA synchronous = NORMAL"
	}
	// SQLite carries this out as it is prepared, so a statement that is kept would do nothing.
	s, _, err := c.PrepareTransient(pragma)
	if err != nil {
		return err
	}
	c.volatile = volatile
	return s.Finalize()
}

// Prefetch and the functions that drop have nothing to do: nothing is asked ahead.
func (c *Conn) Prefetch([]driver.Prefetch) error { return nil }
func (c *Conn) PrefetchSoon([]driver.Prefetch)   {}
func (c *Conn) Prefetched(driver.Prefetch) bool  { return false }
func (c *Conn) DropPrefetched(driver.RowName)    {}
func (c *Conn) DropAllPrefetched()               {}

// Commit fails also when the file that was written is not the database any more.
func (c *Conn) Commit() error {
	if err := c.Run("COMMIT"); err != nil {
		return err
	}
	return c.File.Check()
}

// EnsureDurable has nothing to do: what one can read is on disk, or its commit was volatile and
// nobody relies on it.
func (c *Conn) EnsureDurable() error { return nil }

func (c *Conn) Rollback() error {
	if c.AutocommitEnabled() {
		return nil
	}
	return c.Run("ROLLBACK")
}

func (c *Conn) Run(sql string) error { return driver.Conn{Driver: c}.Prep(sql).Exec() }

func (c *Conn) QueryWithNow(at *int64, q driver.PipelineQuery) error {
	*at = c.Now()
	return q.Run(driver.Conn{Driver: c})
}

// Interleave makes the calls one after the other.
func (c *Conn) Interleave(n int, do func(i int) error) error {
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// Alone runs f.
func (c *Conn) Alone(f func() error) error { return f() }

func (c *Conn) RunPipeline(questions []driver.PipelineQuery) error {
	for _, q := range questions {
		if q.Skip != nil && q.Skip() {
			continue
		}
		if err := q.Run(driver.Conn{Driver: c}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) Arrays() bool { return false }

func (c *Conn) Now() int64 { return time.Now().UnixMilli() }

func (c *Conn) TranslateError(err error) error {
	if lost := c.File.Check(); lost != nil && err != nil {
		return lost
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		return forebay.Errorf(forebay.CodeStorageFull, "the disk is full; nothing was stored").Caused(err)
	case sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return forebay.Errorf(forebay.CodeUnavailable, "the database cannot be written to right now; nothing was stored").Caused(err)
	}
	return err
}

func (s *statement) BindInt(i int, v int64)    { s.BindInt64(i, v) }
func (s *statement) BindText(i int, v string)  { s.Stmt.BindText(i, v) }
func (s *statement) BindNull(int, driver.Kind) {} // as it is already

func (s *statement) BindBytes(i int, v []byte) {
	if len(v) == 0 {
		s.BindZeroBlob(i, 0)
	} else {
		s.Stmt.BindBytes(i, v)
	}
}

func (s *statement) Step() (bool, error) { return s.Stmt.Step() }
func (s *statement) Exec() error {
	for {
		if more, err := s.Step(); err != nil || !more {
			if err != nil {
				s.Reset()
			}
			return err
		}
	}
}

func (s *statement) Count() (rows int, err error) {
	err = s.Exec()
	return s.conn.Changes(), err
}

func (s *statement) Reset()              { s.Stmt.Reset() }
func (s *statement) IntAt(i int) int64   { return s.ColumnInt64(i) }
func (s *statement) TextAt(i int) string { return s.ColumnText(i) }
func (s *statement) NullAt(i int) bool   { return s.ColumnIsNull(i) }

func (s *statement) BytesAt(i int) []byte {
	if s.ColumnIsNull(i) {
		return nil
	}
	b := make([]byte, s.ColumnLen(i))
	s.ColumnBytes(i, b)
	return b
}

// RealPath is the one path of a file, whichever link leads to it: the lock stands beside it.
func RealPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", driver.Unusable("the database's folder does not exist, or cannot be read", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// OpenWriter opens the one connection that writes, with the durable settings enforced.
func OpenWriter(path string, serve bool) (*Conn, error) {
	raw, err := open(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, driver.Unusable("the database file cannot be opened", err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := NewConn(raw)
	if err := c.prepareDatabase(path, serve); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) prepareDatabase(path string, serve bool) error {
	// The page size must be set first, then what lets a file shrink, then the journal mode. The
	// first two only take effect on a new file.
	version, err := c.checkOurs()
	if err != nil {
		return UnusableUnlessKnown(err)
	}
	pragmas := []string{"PRAGMA page_size = 8192"}
	if version == 0 {
		pragmas = append(pragmas, SQLShrinks)
	}
	for _, pragma := range append(pragmas,
		"PRAGMA journal_mode = WAL",
		"PRAGMA synchronous = FULL",
		"PRAGMA fullfsync = ON", // on macOS, where fsync alone does not reach the disk
		"PRAGMA checkpoint_fullfsync = ON",
		"PRAGMA wal_autocheckpoint = 8192", // pages: 64 MB
		"PRAGMA journal_size_limit = 134217728",
		"PRAGMA cache_size = -65536",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA mmap_size = 0",
	) {
		if err := c.Run(pragma); err != nil {
			return UnusableUnlessKnown(err)
		}
	}
	if version < schema.Latest() {
		if version > 0 && !serve && InUse(path) {
			return forebay.Errorf(forebay.CodeDatabaseUnusable, "an older Forebay is running on this database; stop it first")
		}
		if err := c.Migrate(); err != nil {
			return UnusableUnlessKnown(err)
		}
	}
	// SQLite opens a file that it may not write to for reading, and says so at the first write.
	if err := c.Run("DELETE FROM probes WHERE no < 0"); err != nil {
		return UnusableUnlessKnown(err)
	}
	return c.checkDurable()
}

// checkDurable refuses to run on settings under which an acknowledged write could be lost.
func (c *Conn) checkDurable() error {
	synchronous, err := c.pragma("synchronous")
	if err != nil {
		return err
	}
	var mode string
	if _, err := (driver.Conn{Driver: c}).Prep("PRAGMA journal_mode").One(func(r driver.Row) { mode = r.Text(0) }); err != nil {
		return err
	}
	if synchronous < 2 || mode != "wal" {
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database is not durable (journal_mode=%s, synchronous=%d; needs wal and 2): its file system may not support WAL", mode, synchronous)
	}
	return nil
}

// UnusableUnlessKnown is the error for a caller when a file cannot be used.
func UnusableUnlessKnown(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return driver.Unusable("the file is not a database, or is damaged", err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		return driver.Unusable("the database file, or its folder, is read-only", err)
	case sqlite.ResultFull:
		return driver.Unusable("the disk is full", err)
	case sqlite.ResultCantOpen, sqlite.ResultIOErr:
		return driver.Unusable("the database file cannot be read or written", err)
	case sqlite.ResultBusy:
		return driver.Unusable("the database is locked by another program", err)
	}
	return fmt.Errorf("open database: %w", err)
}

// OpenReader opens a connection for reading. What reads must be short: an open read keeps the WAL
// from shrinking.
func OpenReader(path string, file *File) (driver.Conn, error) {
	raw, err := open(path, sqlite.OpenReadWrite)
	if err != nil {
		return driver.Conn{}, (&Conn{File: file}).TranslateError(err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := NewConn(raw)
	c.File = file
	for _, pragma := range []string{"PRAGMA query_only = ON", "PRAGMA cache_size = -8192"} {
		if err := c.Run(pragma); err != nil {
			return driver.Conn{}, errors.Join(c.TranslateError(err), raw.Close())
		}
	}
	return driver.Conn{Driver: c}, nil
}

// SQLShrinks has SQLite keep for each page which other page refers to it, so that pages can be
// moved. It only takes effect on a file that has no tables, or with VACUUM.
const SQLShrinks = "PRAGMA auto_vacuum = INCREMENTAL"
