package store

import (
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
)

// driver is a connection to one kind of database. All SQL is written once, in the subset that both
// understand: columns are bigint, text or bytes, and parameters are ? or ?1, ?2, ….
type driver interface {
	prepare(sql string) (prepared, error)
	// begin starts a transaction and tells the database's time. Until it ends no other process is in
	// one, unless both are apart: what a transition reads stays true until it has written.
	begin(beginning) (now int64, err error)
	// forget drops what was asked ahead and depends on this row, for it may have changed.
	forget(rowName)
	// forgetAll drops whatever was asked ahead.
	forgetAll()
	commit() error
	assure() error   // before commit: what the transaction only read is to last as what it writes does
	rollback() error // of the transaction under way, if there is one
	now() int64      // the database's time, about: for what nothing depends on
	// askNow reads the database's time, and then what the question asks.
	askNow(at *int64, q question) error
	// askAll asks several questions, in their order; where each would take a round trip, in one.
	askAll(questions []question) error
	// arrays reports whether parameters may be arrays, so that one statement does for many rows.
	arrays() bool
	// explain turns an error of the database into one that says what a caller can do; others are
	// returned as they are.
	explain(err error) error
	Close() error
}

// beginning is what a transaction begins with.
type beginning struct {
	apart     bool       // it need not be alone: it only adds rows
	questions []question // asked before the time is
	// ahead is what operations will ask, for a driver to which that is expensive one by one. In the
	// transaction a statement with the same text and parameters is answered from here, once.
	ahead []query
}

// query is a statement with its parameters.
type query struct {
	sql  string
	args [maxArguments]argument
	n    int     // of the arguments
	row  rowName // on which its answer depends
	// write says that it changes the row. Then it has to be asked in the transaction, and only there is what it
	// says known to others.
	write bool
}

// maxArguments is how many parameters a query has at most.
const maxArguments = 4

// argument is a parameter: an integer or a text.
type argument struct {
	kind   kind
	number int64
	text   string
}

// rowName names a row, or what else operations may change: a kind of things, and which of them.
type rowName struct {
	of string
	no int64
	id string
}

func ask(sql string, row rowName) query { return query{sql: sql, row: row} }

func (q query) int(v int64) query {
	q.args[q.n] = argument{kind: kindInt, number: v}
	q.n++
	return q
}

func (q query) text(v string) query {
	q.args[q.n] = argument{kind: kindText, text: v}
	q.n++
	return q
}

// prepared is a statement of a driver. Parameters count from 1 and are NULL until they are bound,
// columns from 0. A row's values are copies.
type prepared interface {
	bindInt(i int, v int64)
	bindText(i int, v string)
	bindBytes(i int, v []byte)
	bindNull(i int, k kind)
	step() (row bool, err error)
	exec() error                  // for its effect alone, which may come later, but before anything can see it
	count() (rows int, err error) // for its effect, on so many rows
	reset()
	intAt(i int) int64
	textAt(i int) string
	bytesAt(i int) []byte
	nullAt(i int) bool
}

// kind is the type of a parameter.
type kind int

const (
	kindInt kind = iota
	kindText
	kindBytes
)

// conn is one connection.
type conn struct {
	driver
	limit  func() error // asked between rows: why to stop; nil: never
	gotRow *bool        // set once a row came; nil: nobody asks
}

// statement is a prepared statement whose parameters are bound in order.
type statement struct {
	s     prepared
	n     int
	err   error
	limit func() error
	// gotRow is that of the connection.
	gotRow *bool
}

// prep returns the statement for sql, reset and with nothing bound.
func (c conn) prep(sql string) statement {
	s, err := c.prepare(sql)
	if err != nil {
		return statement{err: fmt.Errorf("prepare %q: %w", firstWords(sql), err)}
	}
	return statement{s: s, limit: c.limit, gotRow: c.gotRow}
}

func (st statement) int(v int64) statement {
	st.n++
	if st.err == nil {
		st.s.bindInt(st.n, v)
	}
	return st
}

func (st statement) text(v string) statement {
	st.n++
	if st.err == nil {
		st.s.bindText(st.n, v)
	}
	return st
}

// textOrNull binds NULL for "".
func (st statement) textOrNull(v string) statement {
	if v == "" {
		return st.null(kindText)
	}
	return st.text(v)
}

// blob binds NULL for nil, and the bytes, possibly none, otherwise.
func (st statement) blob(v []byte) statement {
	if v == nil {
		return st.null(kindBytes)
	}
	st.n++
	if st.err == nil {
		st.s.bindBytes(st.n, v)
	}
	return st
}

// intOrNull binds NULL for 0.
func (st statement) intOrNull(v int64) statement {
	if v == 0 {
		return st.null(kindInt)
	}
	return st.int(v)
}

func (st statement) null(k kind) statement {
	st.n++
	if st.err == nil {
		st.s.bindNull(st.n, k)
	}
	return st
}

// exec runs a statement that returns no rows.
func (st statement) exec() error {
	if st.err != nil {
		return st.err
	}
	return st.s.exec()
}

// count runs a statement that returns no rows and tells how many it changed.
func (st statement) count() (rows int, err error) {
	if st.err != nil {
		return 0, st.err
	}
	return st.s.count()
}

// fenced runs a settlement's statement, which names the lock's token: that it changes nothing means
// that the lock is lost.
func (st statement) fenced() error {
	rows, err := st.count()
	if err == nil && rows == 0 {
		err = forebay.ErrLockLost
	}
	return err
}

// each calls f for each row. f may run other statements, but not this one.
func (st statement) each(f func(row) error) error {
	if st.err != nil {
		return st.err
	}
	rows := 0
	for {
		more, err := st.s.step()
		if err != nil {
			st.s.reset()
			return err
		}
		if !more {
			return nil
		}
		if rows++; st.gotRow != nil {
			*st.gotRow = true
		}
		if st.limit != nil && rows%64 == 0 {
			if err := st.limit(); err != nil {
				st.s.reset()
				return err
			}
		}
		if f == nil {
			continue
		}
		if err := f(row{st.s}); err != nil {
			st.s.reset()
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

// row is the current row of a statement. Its values are copies; NULL is 0 and "".
type row struct{ s prepared }

func (r row) int(i int) int64   { return r.s.intAt(i) }
func (r row) text(i int) string { return r.s.textAt(i) }
func (r row) isNull(i int) bool { return r.s.nullAt(i) }

// blob returns nil for NULL.
func (r row) blob(i int) []byte { return r.s.bytesAt(i) }

func firstWords(sql string) string {
	if len(sql) > 40 {
		return sql[:40]
	}
	return sql
}

// domainError turns an error of the database into one that says what a caller can do; the inner
// error is kept for the log.
func (c conn) domainError(err error) error {
	if err == nil {
		return nil
	}
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	return c.explain(err)
}

// finish commits a transaction or, if it has failed, rolls it back.
func finish(d driver, err error) error {
	if err == nil {
		err = d.commit()
	}
	if err != nil {
		err = errors.Join(err, d.rollback())
	}
	return err
}

// earliest returns the first of the times that these statements find; 0: they find none.
func (c conn) earliest(statements ...string) (first int64, err error) {
	for _, sql := range statements {
		_, err := c.prep(sql).one(func(r row) {
			if at := r.int(0); at > 0 && (first == 0 || at < first) {
				first = at
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return first, nil
}
