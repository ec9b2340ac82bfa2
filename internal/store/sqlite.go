package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
)

// sqliteConn is a connection to a SQLite file. One process at a time delivers from a file, and its
// clock is the database's.
type sqliteConn struct {
	*sqlite.Conn
	statements map[*sqlite.Stmt]*sqliteStatement // made once: each job takes ten
	file       *sqliteFile                       // that this process has taken; nil: it has not
}

func newSQLiteConn(raw *sqlite.Conn) *sqliteConn {
	return &sqliteConn{Conn: raw, statements: map[*sqlite.Stmt]*sqliteStatement{}}
}

type sqliteStatement struct {
	*sqlite.Stmt
	conn *sqlite.Conn
}

func (c *sqliteConn) prepare(sql string) (prepared, error) {
	prepared, err := c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	s, ok := c.statements[prepared]
	if !ok {
		s = &sqliteStatement{prepared, c.Conn}
		c.statements[prepared] = s
	}
	return s, nil
}

func (c *sqliteConn) begin(b beginning) (now int64, err error) {
	if err := c.file.known(); err != nil {
		return 0, err
	}
	now = c.now()
	if err := c.run("BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	return now, c.askAll(b.questions)
}

// forget has nothing to do: nothing is asked ahead.
func (c *sqliteConn) forget(rowName) {}
func (c *sqliteConn) forgetAll()     {}

// commit fails also when the file that was written is not the database any more.
func (c *sqliteConn) commit() error {
	if err := c.run("COMMIT"); err != nil {
		return err
	}
	return c.file.check()
}

// assure has nothing to do: what one can read is on disk.
func (c *sqliteConn) assure() error { return nil }

func (c *sqliteConn) rollback() error {
	if c.AutocommitEnabled() {
		return nil
	}
	return c.run("ROLLBACK")
}

func (c *sqliteConn) run(sql string) error { return conn{driver: c}.prep(sql).exec() }

func (c *sqliteConn) askNow(at *int64, q question) error {
	*at = c.now()
	return q.askOf(conn{driver: c})
}

func (c *sqliteConn) askAll(questions []question) error {
	for _, q := range questions {
		if err := q.askOf(conn{driver: c}); err != nil {
			return err
		}
	}
	return nil
}

func (c *sqliteConn) arrays() bool { return false }

func (c *sqliteConn) now() int64 { return time.Now().UnixMilli() }

func (c *sqliteConn) explain(err error) error {
	if lost := c.file.check(); lost != nil && err != nil {
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

func (s *sqliteStatement) bindInt(i int, v int64)   { s.BindInt64(i, v) }
func (s *sqliteStatement) bindText(i int, v string) { s.BindText(i, v) }
func (s *sqliteStatement) bindNull(int, kind)       {} // as it is already

func (s *sqliteStatement) bindBytes(i int, v []byte) {
	if len(v) == 0 {
		s.BindZeroBlob(i, 0)
	} else {
		s.BindBytes(i, v)
	}
}

func (s *sqliteStatement) step() (bool, error) { return s.Step() }
func (s *sqliteStatement) exec() error {
	for {
		if more, err := s.Step(); err != nil || !more {
			if err != nil {
				s.Reset()
			}
			return err
		}
	}
}

func (s *sqliteStatement) count() (rows int, err error) {
	err = s.exec()
	return s.conn.Changes(), err
}

func (s *sqliteStatement) reset()              { s.Reset() }
func (s *sqliteStatement) intAt(i int) int64   { return s.ColumnInt64(i) }
func (s *sqliteStatement) textAt(i int) string { return s.ColumnText(i) }
func (s *sqliteStatement) nullAt(i int) bool   { return s.ColumnIsNull(i) }

func (s *sqliteStatement) bytesAt(i int) []byte {
	if s.ColumnIsNull(i) {
		return nil
	}
	b := make([]byte, s.ColumnLen(i))
	s.ColumnBytes(i, b)
	return b
}

// realPath is the one path of a file, whichever link leads to it: the lock stands beside it.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", unusable("the database's folder does not exist, or cannot be read", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// openWriter opens the one connection that writes, with the durable settings enforced.
func openWriter(path string, serve bool) (*sqliteConn, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		return nil, unusable("the database file cannot be opened", err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := newSQLiteConn(raw)
	if err := c.prepareDatabase(path, serve); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func (c *sqliteConn) prepareDatabase(path string, serve bool) error {
	// The page size must be set first, then what lets a file shrink, then the journal mode. The first two only take effect
	// on a new file.
	version, err := c.checkOurs()
	if err != nil {
		return unusableUnlessKnown(err)
	}
	pragmas := []string{"PRAGMA page_size = 8192"}
	if version == 0 {
		pragmas = append(pragmas, sqlShrinks)
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
		if err := c.run(pragma); err != nil {
			return unusableUnlessKnown(err)
		}
	}
	if version < schemaVersion() {
		if version > 0 && !serve && InUse(path) {
			return forebay.Errorf(forebay.CodeDatabaseUnusable, "an older Forebay is running on this database; stop it first")
		}
		if err := c.migrate(); err != nil {
			return unusableUnlessKnown(err)
		}
	}
	// SQLite opens a file that it may not write to for reading, and says so at the first write.
	if err := c.run("DELETE FROM probes WHERE no < 0"); err != nil {
		return unusableUnlessKnown(err)
	}
	return c.checkDurable()
}

// checkDurable refuses to run on settings under which an acknowledged write could be lost.
func (c *sqliteConn) checkDurable() error {
	synchronous, err := c.pragma("synchronous")
	if err != nil {
		return err
	}
	var mode string
	if _, err := (conn{driver: c}).prep("PRAGMA journal_mode").one(func(r row) { mode = r.text(0) }); err != nil {
		return err
	}
	if synchronous < 2 || mode != "wal" {
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database is not durable (journal_mode=%s, synchronous=%d; needs wal and 2): its file system may not support WAL", mode, synchronous)
	}
	return nil
}

func unusableUnlessKnown(err error) error {
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return unusable("the file is not a database, or is damaged", err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		return unusable("the database file, or its folder, is read-only", err)
	case sqlite.ResultFull:
		return unusable("the disk is full", err)
	case sqlite.ResultCantOpen, sqlite.ResultIOErr:
		return unusable("the database file cannot be read or written", err)
	case sqlite.ResultBusy:
		return unusable("the database is locked by another program", err)
	}
	return fmt.Errorf("open database: %w", err)
}

// openReader opens a connection for reading. What reads must be short: an open read keeps the WAL
// from shrinking.
func openReader(path string, file *sqliteFile) (conn, error) {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return conn{}, (&sqliteConn{file: file}).explain(err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := newSQLiteConn(raw)
	c.file = file
	for _, pragma := range []string{"PRAGMA query_only = ON", "PRAGMA cache_size = -8192"} {
		if err := c.run(pragma); err != nil {
			return conn{}, errors.Join(c.explain(err), raw.Close())
		}
	}
	return conn{driver: c}, nil
}

// sqlShrinks has SQLite keep for each page which other page refers to it, so that pages can be
// moved. It only takes effect on a file that has no tables, or with VACUUM.
const sqlShrinks = "PRAGMA auto_vacuum = INCREMENTAL"
