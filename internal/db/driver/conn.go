package driver

import (
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
)

// Driver is a connection to one kind of database. All SQL is written once, in the subset that both
// understand: columns are bigint, text or bytes, and parameters are ? or ?1, ?2, ….
type Driver interface {
	Statements
	Transactions
	Prefetches
	Pipelines
	Interleaving
	// Now is the database's time, about. Nothing may depend on its being exact.
	Now() int64
	// TranslateError turns an error of the database into one that says what a caller can do.
	// Others are returned as they are.
	TranslateError(err error) error
	Close() error
}

// Statements prepares statements.
type Statements interface {
	Prepare(sql string) (Prepared, error)
	// Arrays reports whether parameters may be arrays, so that one statement does for many rows.
	Arrays() bool
}

// Transactions begins and ends transactions. A connection has one at a time.
type Transactions interface {
	// Begin starts a transaction and returns the database's time. Until it ends, no other process
	// is in one, unless both are concurrent. So what an operation reads stays true until it writes.
	Begin(BeginOptions) (now int64, err error)
	// EnsureDurable is called before a commit. What the transaction has only read is then as
	// durable as what it writes.
	EnsureDurable() error
	Commit() error
	// Rollback ends the transaction under way, if there is one.
	Rollback() error
}

// Prefetches fetches answers ahead, and drops those that were fetched so ([BeginOptions]).
type Prefetches interface {
	// Prefetch fetches answers within the transaction, for a driver to which each statement costs
	// a round trip. It fetches all of them, and those of other calls of Interleave, in one trip.
	// A statement with the same text and parameters then gets its answer, once. What was fetched
	// before, and may still be true, is not asked again. Other drivers do nothing.
	Prefetch([]Prefetch) error
	// PrefetchSoon has the answers fetched with whatever the transaction asks next. It takes no round
	// trip of its own, and there is no answer if nothing else is asked. What a statement changes
	// before that is in the answers.
	PrefetchSoon([]Prefetch)
	// Prefetched reports whether the answer is there.
	Prefetched(Prefetch) bool
	// DropPrefetched drops the answers that depend on this row, for it may have changed.
	DropPrefetched(RowName)
	DropAllPrefetched()
}

// Pipelines runs several statements, in their order. A driver to which each statement costs a
// round trip sends them in one.
type Pipelines interface {
	RunPipeline(questions []PipelineQuery) error
	// QueryWithNow reads the database's time, and then runs the statement.
	QueryWithNow(at *int64, q PipelineQuery) error
}

// Interleaving runs calls whose statements share round trips.
type Interleaving interface {
	// Interleave calls do for 0 to n-1. While a call waits for an answer, the driver may run others.
	// The answers of all that wait come in one round trip. So a call must not read and then change
	// what another call changes, in the database or in memory. The first error ends all calls. Those
	// that wait see an error too.
	Interleave(n int, do func(i int) error) error
	// Alone runs f while no other call of Interleave runs: for what they share in memory.
	Alone(f func() error) error
}

// BeginOptions are for the beginning of a transaction.
type BeginOptions struct {
	Concurrent bool            // it only adds rows, so others may run at the same time
	Volatile   bool            // its commit need not wait for the disk; no later commit is on disk before it
	Pipeline   []PipelineQuery // run in the same round trip, before the time is read
	// Prefetch is what operations will read, for a driver to which each statement costs a round
	// trip. In the transaction, a statement with the same text and parameters gets this answer, once.
	Prefetch []Prefetch
}

// Prefetch is a statement whose answer is fetched as the transaction begins.
type Prefetch struct {
	SQL  string
	Args [MaxArguments]Argument
	N    int     // of the arguments
	Row  RowName // on which its answer depends
	// Shared says that the operation only reads the row: the answer is for all that ask the same.
	Shared bool
	// Write says that the statement changes the row. The operation has to run it all the same, and
	// then learns what it changed.
	Write bool
}

// MaxArguments is how many parameters a query has at most.
const MaxArguments = 4

// Argument is a parameter: an integer or a text.
type Argument struct {
	Kind   Kind
	Number int64
	Text   string
}

// RowName names a row, or what else operations may change: a kind of things, and which of them.
type RowName struct {
	Of string
	No int64
	ID string
}

// NewPrefetch is a query to be fetched as the transaction begins, whose answer depends on that
// row.
func NewPrefetch(sql string, row RowName) Prefetch { return Prefetch{SQL: sql, Row: row} }

func (q Prefetch) Int(v int64) Prefetch {
	q.Args[q.N] = Argument{Kind: KindInt, Number: v}
	q.N++
	return q
}

func (q Prefetch) Text(v string) Prefetch {
	q.Args[q.N] = Argument{Kind: KindText, Text: v}
	q.N++
	return q
}

// Changing is the query if its statement changes the row: see [Prefetch.Write].
func (q Prefetch) Changing() Prefetch {
	q.Write = true
	return q
}

// Prepared is a statement of a driver.
type Prepared interface {
	Parameters
	Columns
	// Step moves to the next row, if there is one.
	Step() (row bool, err error)
	// Exec runs the statement for its effect alone. A driver may run it later, but before anything
	// can see that.
	Exec() error
	// Count runs the statement and returns how many rows it changed.
	Count() (rows int, err error)
	Reset()
}

// Parameters are bound before a statement runs. They count from 1 and are NULL until then.
type Parameters interface {
	BindInt(i int, v int64)
	BindText(i int, v string)
	BindBytes(i int, v []byte)
	BindNull(i int, k Kind)
}

// Columns are the values of the current row. They count from 0 and are copies.
type Columns interface {
	IntAt(i int) int64
	TextAt(i int) string
	BytesAt(i int) []byte
	NullAt(i int) bool
}

// Kind is the type of a parameter.
type Kind int

const (
	KindInt Kind = iota
	KindText
	KindBytes
)

// Conn is one connection.
type Conn struct {
	Driver
	Limit  func() error // asked between rows: why to stop; nil: never
	GotRow *bool        // set once a row came; nil: nobody asks
}

// Statement is a prepared statement whose parameters are bound in order.
type Statement struct {
	S     Prepared
	n     int
	Err   error
	limit func() error
	// gotRow is that of the connection.
	gotRow *bool
}

// Prep returns the statement for sql, reset and with nothing bound.
func (c Conn) Prep(sql string) Statement {
	s, err := c.Prepare(sql)
	if err != nil {
		return Statement{Err: fmt.Errorf("prepare %q: %w", FirstWords(sql), err)}
	}
	return Statement{S: s, limit: c.Limit, gotRow: c.GotRow}
}

// Ask is Prep for a query with its arguments, whether it was fetched ahead or not.
func (c Conn) Ask(q Prefetch) Statement {
	st := c.Prep(q.SQL)
	for _, a := range q.Args[:q.N] {
		if a.Kind == KindText {
			st = st.Text(a.Text)
		} else {
			st = st.Int(a.Number)
		}
	}
	return st
}

func (st Statement) Int(v int64) Statement {
	st.n++
	if st.Err == nil {
		st.S.BindInt(st.n, v)
	}
	return st
}

func (st Statement) Text(v string) Statement {
	st.n++
	if st.Err == nil {
		st.S.BindText(st.n, v)
	}
	return st
}

// TextOrNull binds NULL for "".
func (st Statement) TextOrNull(v string) Statement {
	if v == "" {
		return st.Null(KindText)
	}
	return st.Text(v)
}

// Blob binds NULL for nil, and the bytes, possibly none, otherwise.
func (st Statement) Blob(v []byte) Statement {
	if v == nil {
		return st.Null(KindBytes)
	}
	st.n++
	if st.Err == nil {
		st.S.BindBytes(st.n, v)
	}
	return st
}

// IntOrNull binds NULL for 0.
func (st Statement) IntOrNull(v int64) Statement {
	if v == 0 {
		return st.Null(KindInt)
	}
	return st.Int(v)
}

func (st Statement) Null(k Kind) Statement {
	st.n++
	if st.Err == nil {
		st.S.BindNull(st.n, k)
	}
	return st
}

// Exec runs a statement that returns no rows.
func (st Statement) Exec() error {
	if st.Err != nil {
		return st.Err
	}
	return st.S.Exec()
}

// Count runs a statement that returns no rows and tells how many it changed.
func (st Statement) Count() (rows int, err error) {
	if st.Err != nil {
		return 0, st.Err
	}
	return st.S.Count()
}

// Fenced runs a settlement's statement, which names the lock's token: that it changes nothing
// means that the lock is lost.
func (st Statement) Fenced() error {
	rows, err := st.Count()
	if err == nil && rows == 0 {
		err = forebay.ErrLockLost
	}
	return err
}

// Each calls f for each row. f may run other statements, but not this one.
func (st Statement) Each(f func(Row) error) error {
	if st.Err != nil {
		return st.Err
	}
	rows, row := 0, Row{st.S}
	for {
		more, err := st.S.Step()
		if err != nil {
			st.S.Reset()
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
				st.S.Reset()
				return err
			}
		}
		if f == nil {
			continue
		}
		if err := f(row); err != nil {
			st.S.Reset()
			return err
		}
	}
}

var ErrStop = errors.New("stop")

// One calls f for the first row and reports whether there was one.
func (st Statement) One(f func(Row)) (bool, error) {
	found := false
	err := st.Each(func(r Row) error {
		found = true
		f(r)
		return ErrStop
	})
	if errors.Is(err, ErrStop) {
		err = nil
	}
	return found, err
}

// Row is the current row of a statement. Its values are copies; NULL is 0 and "".
type Row struct{ S Columns }

func (r Row) Int(i int) int64   { return r.S.IntAt(i) }
func (r Row) Text(i int) string { return r.S.TextAt(i) }
func (r Row) IsNull(i int) bool { return r.S.NullAt(i) }

// Blob returns nil for NULL.
func (r Row) Blob(i int) []byte { return r.S.BytesAt(i) }

// FirstWords is the beginning of a statement, for messages.
func FirstWords(sql string) string {
	if len(sql) > 40 {
		return sql[:40]
	}
	return sql
}

// UserError turns an error of the database into one that says what a caller can do; the inner
// error is kept for the log.
func (c Conn) UserError(err error) error {
	if err == nil {
		return nil
	}
	var known *forebay.Error
	if errors.As(err, &known) {
		return err
	}
	return c.TranslateError(err)
}

// Finish commits a transaction or, if it has failed, rolls it back.
func Finish(d Driver, err error) error {
	if err == nil {
		err = d.Commit()
	}
	if err != nil {
		err = errors.Join(err, d.Rollback())
	}
	return err
}

// Earliest returns the first of the times that these statements find; 0: they find none.
func (c Conn) Earliest(statements ...string) (first int64, err error) {
	questions := make([]PipelineQuery, len(statements))
	for i, sql := range statements {
		questions[i] = PipelineQuery{SQL: sql, OnRow: func(r Row) {
			if at := r.Int(0); at > 0 && (first == 0 || at < first) {
				first = at
			}
		}}
	}
	err = c.RunPipeline(questions)
	return first, err
}
