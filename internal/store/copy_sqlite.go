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

func (c *sqliteConn) refuseUnfinishedCopy() error { return refuseUnfinished(c) }

func (c *sqliteConn) hasTable(name string) (found bool, err error) {
	return conn{driver: c}.prep("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").text(name).one(func(row) {})
}

func (c *sqliteConn) nextSeq() (next int64, err error) {
	_, err = conn{driver: c}.prep(sqlNextSeq).one(func(r row) { next = r.int(0) })
	return next, err
}

// continueFrom has to count only messages; rows are numbered after the last one there is.
func (c *sqliteConn) continueFrom(nextSeq int64, _ []copyTable) error {
	return conn{driver: c}.prep(sqlCount).text("seq").int(nextSeq).exec()
}

func (c *sqliteConn) drop(tables []string) error {
	for _, name := range append(tables, wordsTable) {
		if err := c.run("DROP TABLE " + name); err != nil {
			return err
		}
	}
	if err := c.run("PRAGMA user_version = 0"); err != nil {
		return err
	}
	return c.run("PRAGMA application_id = 0")
}
