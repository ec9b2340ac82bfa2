package store

import (
	"time"

	"zombiezen.com/go/sqlite"
)

// openSQLiteSource takes a file for reading: no server has it, and others that write to it wait.
func openSQLiteSource(path string) (*side, error) {
	return openSQLiteSide(path, func(path string) (*sqliteConn, error) {
		raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err != nil {
			return nil, unusable("the database file cannot be opened", err)
		}
		raw.SetBusyTimeout(10 * time.Second)
		c := newSQLiteConn(raw)
		_, err = c.begin(beginning{})
		if err == nil {
			err = c.run("PRAGMA query_only = ON")
		}
		if err != nil {
			raw.Close()
			return nil, unusableUnlessKnown(err)
		}
		return c, nil
	})
}

// openSQLiteTarget takes a file for a copy, making it if there is none.
func openSQLiteTarget(path string) (*side, error) {
	return openSQLiteSide(path, func(path string) (*sqliteConn, error) { return openWriter(path, true) })
}

// openSQLiteSide opens a file that nobody else has.
func openSQLiteSide(path string, open func(path string) (*sqliteConn, error)) (*side, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, err
	}
	file, err := takeFile(path, takenFromCopy, true, func(string) {})
	if err != nil {
		return nil, err
	}
	release := file.release
	c, err := open(path)
	if err != nil {
		release()
		return nil, err
	}
	tighten(path, func(string) {})
	return &side{conn: conn{driver: c}, engine: c, release: func() {
		_ = c.rollback()
		c.Close()
		release()
	}}, nil
}
