package store

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
)

// conn is one SQLite connection. It prepares each statement once and binds without boxing.
type conn struct {
	*sqlite.Conn
	limit func() error // asked between rows: why to stop; nil: never
}

// statement is a prepared statement whose parameters are bound in order.
type statement struct {
	s     *sqlite.Stmt
	n     int
	err   error
	limit func() error
}

// prep returns the statement for sql, reset and with nothing bound.
func (c conn) prep(sql string) statement {
	s, err := c.Prepare(sql)
	if err != nil {
		return statement{err: fmt.Errorf("prepare %q: %w", firstWords(sql), err)}
	}
	return statement{s: s, limit: c.limit}
}

func (st statement) int(v int64) statement {
	st.n++
	if st.err == nil {
		st.s.BindInt64(st.n, v)
	}
	return st
}

func (st statement) text(v string) statement {
	st.n++
	if st.err == nil {
		st.s.BindText(st.n, v)
	}
	return st
}

// textOrNull binds NULL for "".
func (st statement) textOrNull(v string) statement {
	if v == "" {
		st.n++
		return st
	}
	return st.text(v)
}

// blob binds NULL for nil, and the bytes, possibly none, otherwise.
func (st statement) blob(v []byte) statement {
	st.n++
	if st.err == nil && v != nil {
		if len(v) == 0 {
			st.s.BindZeroBlob(st.n, 0)
		} else {
			st.s.BindBytes(st.n, v)
		}
	}
	return st
}

// intOrNull binds NULL for 0.
func (st statement) intOrNull(v int64) statement {
	if v == 0 {
		st.n++
		return st
	}
	return st.int(v)
}

// exec runs a statement that returns no rows.
func (st statement) exec() error { return st.each(nil) }

// each calls f for each row. f may run other statements, but not this one.
func (st statement) each(f func(row) error) error {
	if st.err != nil {
		return st.err
	}
	rows := 0
	for {
		more, err := st.s.Step()
		if err != nil {
			st.s.Reset()
			return err
		}
		if !more {
			return nil
		}
		rows++
		if st.limit != nil && rows%64 == 0 {
			if err := st.limit(); err != nil {
				st.s.Reset()
				return err
			}
		}
		if f == nil {
			continue
		}
		if err := f(row{st.s}); err != nil {
			st.s.Reset()
			return err
		}
	}
}

var errStop = errors.New("stop")

// one calls f for the first row and reports whether there was one.
func (st statement) one(f func(row)) (bool, error) {
	found := false
	err := st.each(func(r row) error {
		found = true
		f(r)
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return found, err
}

// row is the current row of a statement. Its values are copies.
type row struct{ s *sqlite.Stmt }

func (r row) int(i int) int64   { return r.s.ColumnInt64(i) }
func (r row) text(i int) string { return r.s.ColumnText(i) }
func (r row) isNull(i int) bool { return r.s.ColumnIsNull(i) }

// blob returns nil for NULL.
func (r row) blob(i int) []byte {
	if r.s.ColumnIsNull(i) {
		return nil
	}
	b := make([]byte, r.s.ColumnLen(i))
	r.s.ColumnBytes(i, b)
	return b
}

func firstWords(sql string) string {
	if len(sql) > 40 {
		return sql[:40]
	}
	return sql
}

// domainError turns an error of SQLite into one that says what a caller can do; the inner error is
// kept for the log.
func domainError(err error) error {
	if err == nil {
		return nil
	}
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	switch code := sqlite.ErrCode(err).ToPrimary(); code {
	case sqlite.ResultFull:
		return forebay.Errorf(forebay.CodeStorageFull, "the disk is full; nothing was stored").Caused(err)
	case sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultReadOnly, sqlite.ResultCantOpen:
		return forebay.Errorf(forebay.CodeUnavailable, "the database cannot be written to right now; nothing was stored").Caused(err)
	}
	return err
}
