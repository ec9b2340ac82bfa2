package db

import (
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	zombiezen "zombiezen.com/go/sqlite"
)

// openSQLiteSource takes a file for reading: no server has it, and others that write to it wait.
func openSQLiteSource(path string) (*side, error) {
	return openSQLiteSide(path, func(path string) (*sqlite.Conn, error) {
		raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
		if err != nil {
			return nil, driver.Unusable("the database file cannot be opened", err)
		}
		raw.SetBusyTimeout(10 * time.Second)
		c := sqlite.NewConn(raw)
		_, err = c.Begin(driver.BeginOptions{})
		if err == nil {
			err = c.Run("PRAGMA query_only = ON")
		}
		if err != nil {
			raw.Close()
			return nil, sqlite.UnusableUnlessKnown(err)
		}
		return c, nil
	})
}

// openSQLiteTarget takes a file for a copy, making it if there is none.
func openSQLiteTarget(path string) (*side, error) {
	return openSQLiteSide(path, func(path string) (*sqlite.Conn, error) { return sqlite.OpenWriter(path, true) })
}

// openSQLiteSide opens a file that nobody else has.
func openSQLiteSide(path string, open func(path string) (*sqlite.Conn, error)) (*side, error) {
	path, err := sqlite.RealPath(path)
	if err != nil {
		return nil, err
	}
	file, err := sqlite.TakeFile(path, driver.TakenFromCopy, true, func(string) {})
	if err != nil {
		return nil, err
	}
	release := file.Release
	c, err := open(path)
	if err != nil {
		release()
		return nil, err
	}
	sqlite.Tighten(path, func(string) {})
	return &side{Conn: driver.Conn{Driver: c}, engine: c, release: func() {
		_ = c.Rollback()
		c.Close()
		release()
	}}, nil
}
