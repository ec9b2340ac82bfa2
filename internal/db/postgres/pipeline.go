package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// Statements of a transaction that return nothing are not sent at once: they go with the next one
// that does, or with the commit, in one round trip. Of those that wait, equal ones that stand in
// [mergeable] or are plain inserts become one statement over arrays. An error of one therefore shows
// up later, but always before the commit: the whole transaction fails then anyway.

// group is one statement that waits, with the parameters of each of its executions.
type group struct {
	s    *statement
	rows [][][]byte
}

// maxPending bounds the executions that wait.
const maxPending = 8192

var plainInsert = regexp.MustCompile(`(?s)^\s*(INSERT INTO \w+ \([^)]*\))\s+VALUES \(([^()]*)\)\s*$`)

// overArrays returns the statement that does for the rows of %s, with columns p1, p2, …, what sql does for
// one set of so many parameters; "" if there is none.
func overArrays(sql string, parameters int) string {
	if merged, ok := driver.BatchForms[sql]; ok {
		return merged
	}
	parts := plainInsert.FindStringSubmatch(sql)
	if parts == nil {
		return ""
	}
	values := strings.Split(parts[2], ",")
	n := 0
	for i, v := range values {
		if strings.TrimSpace(v) == "?" {
			n++
			values[i] = fmt.Sprintf("p%d", n)
		}
	}
	if n != parameters {
		return "" // parameters with numbers
	}
	return parts[1] + " SELECT " + strings.Join(values, ", ") + " FROM %s"
}

var arrays = map[uint32]struct {
	oid  uint32
	name string
}{
	pgtype.Int8OID: {pgtype.Int8ArrayOID, "bigint"}, pgtype.TextOID: {pgtype.TextArrayOID, "text"}, pgtype.ByteaOID: {pgtype.ByteaArrayOID, "bytea"},
}

// columns is a set of parameters.
type columns uint64

func (c columns) has(i int) bool { return c>>i&1 != 0 }

// varying are the columns in which rows differ. What is long is not compared, but for NULL.
func varying(rows [][][]byte) (differ columns) {
	const long = 64
	for i, first := range rows[0] {
		for _, row := range rows[1:] {
			if len(first) > long || (first == nil) != (row[i] == nil) || !bytes.Equal(first, row[i]) {
				differ |= 1 << i
				break
			}
		}
	}
	return differ
}

var columnNames = regexp.MustCompile(`\bp[0-9]+\b`)

// with returns a statement over arrays for rows that differ in these columns; of the others there is one
// value for all, which the server need not unpack.
func (c columns) with(template string, types []uint32) (sql string, parameters []uint32) {
	parameters = slices.Clone(types)
	var values, names []string
	for i, t := range types {
		if c.has(i) {
			parameters[i] = arrays[t].oid
			values, names = append(values, fmt.Sprintf("$%d::%s[]", i+1, arrays[t].name)), append(names, fmt.Sprintf("p%d", i+1))
		}
	}
	sql = columnNames.ReplaceAllStringFunc(template, func(name string) string {
		i, _ := strconv.Atoi(name[1:])
		if c.has(i - 1) {
			return name
		}
		return fmt.Sprintf("$%d::%s", i, arrays[types[i-1]].name)
	})
	return fmt.Sprintf(sql, fmt.Sprintf("unnest(%s) AS x(%s)", strings.Join(values, ", "), strings.Join(names, ", "))), parameters
}

var tableOf = regexp.MustCompile(`(?i)^\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)`)

// Exec lets the statement wait if it is part of a transaction, and runs it otherwise.
func (s *statement) Exec() error {
	c := s.c
	if !c.open || s.table == "" {
		_, err := s.Count()
		return err
	}
	row := c.memory.copyOf(s)
	s.Reset()
	if s.of != nil {
		s = s.of
	}
	c.pending++
	for i := len(c.groups) - 1; i >= 0; i-- {
		g := c.groups[i]
		if g.s == s && s.merges() {
			g.rows = append(g.rows, row)
			return c.flushOver(maxPending)
		}
		if g.s.table == s.table {
			break // what is done to one table keeps its order
		}
	}
	c.groups = append(c.groups, &group{s: s, rows: [][][]byte{row}})
	return c.flushOver(maxPending)
}

// pendingMemory holds what waits to be sent, and is used again once that was.
type pendingMemory struct {
	values [][]byte
	bytes  []byte
}

// copyOf copies the values that are bound: the statement may be bound anew before it is sent.
func (m *pendingMemory) copyOf(s *statement) [][]byte {
	first := len(m.values)
	for i, v := range s.values {
		if s.types[i] == pgtype.Int8OID && v != nil {
			m.bytes = append(m.bytes, v...)
			v = m.bytes[len(m.bytes)-8:]
		}
		m.values = append(m.values, v)
	}
	return m.values[first:len(m.values):len(m.values)]
}

// maxPendingMemory is how many bytes are kept for the next time.
const maxPendingMemory = 1 << 20

func (m *pendingMemory) reset() {
	clear(m.values) // which may be payloads
	m.values, m.bytes = m.values[:0], m.bytes[:0]
	if cap(m.bytes) > maxPendingMemory || cap(m.values) > maxPendingMemory/24 {
		*m = pendingMemory{}
	}
}

// Count runs the statement, after all that wait.
func (s *statement) Count() (rows int, err error) {
	if err := s.run(); err != nil {
		return 0, err
	}
	s.Reset()
	return int(s.tag.RowsAffected()), nil
}

// merges reports whether several executions can be one. The types of the parameters are known.
func (s *statement) merges() bool {
	if !s.looked {
		s.looked, s.template = true, overArrays(s.original, len(s.types))
	}
	return s.template != ""
}

// maxVariants bounds the statements that are prepared for one, by which columns differ.
const maxVariants = 32

// merged is the statement for rows that differ in these columns, and the columns for which it takes arrays.
func (s *statement) merged(differ columns) (*statement, columns) {
	const all = ^columns(0)
	if _, known := s.variants[differ]; differ == 0 || !known && len(s.variants) >= maxVariants {
		differ = all
	}
	v := s.variants[differ]
	if v == nil {
		if s.variants == nil {
			s.variants = map[columns]*statement{}
		}
		v = &statement{c: s.c, formats: s.formats}
		v.sql, v.types = differ.with(s.template, s.types)
		s.variants[differ] = v
	}
	return v, differ
}

func (c *Conn) flushOver(limit int) error {
	if c.pending < limit || c.waits() { // strands leave it to the next time that they all wait
		return nil
	}
	return c.flush(nil, nil)
}

// flush sends what waits, then last, if there is one, whose result it keeps.
func (c *Conn) flush(last *statement, values [][]byte) error {
	sendings := c.takePending(1)
	if last != nil {
		sendings = append(sendings, sending{last, values})
	}
	defer c.memory.reset()
	return c.send(sendings, func(_ int, result answer) { c.result = result })
}

// takePending returns what waits to be sent, with room for so many more.
func (c *Conn) takePending(more int) []sending {
	sendings := make([]sending, 0, len(c.groups)+more)
	for _, g := range c.groups {
		if len(g.rows) == 1 {
			sendings = append(sendings, sending{g.s, g.rows[0]})
		} else {
			merged, differ := g.s.merged(varying(g.rows))
			sendings = append(sendings, sending{merged, g.arrays(differ, &c.memory)})
		}
	}
	clear(c.groups)
	c.groups, c.pending = c.groups[:0], 0
	return sendings
}

// QueryWithNow asks the time, then the question.
func (c *Conn) QueryWithNow(at *int64, q driver.PipelineQuery) error {
	c.patience()
	return c.ask([]driver.PipelineQuery{{SQL: SQLNow, OnRow: func(r driver.Row) { *at = r.Int(0) }}, q})
}

// RunPipeline has what waits done before the questions are answered.
func (c *Conn) RunPipeline(questions []driver.PipelineQuery) error {
	if len(questions) == 0 {
		return nil
	}
	if c.waits() {
		return c.askInStrand(questions)
	}
	return c.ask(questions)
}

// ask sends what waits and all questions in one round trip.
func (c *Conn) ask(questions []driver.PipelineQuery) error {
	sendings := c.takePending(len(questions))
	first := len(sendings)
	for _, q := range questions {
		st := driver.Conn{Driver: c}.Prep(q.SQL)
		if q.Bind != nil {
			st = q.Bind(st)
		}
		if st.Err != nil {
			return st.Err
		}
		s := st.S.(*statement)
		sendings = append(sendings, sending{s, c.memory.copyOf(s)})
	}
	defer c.memory.reset()
	return c.send(sendings, func(i int, result answer) {
		if i >= first {
			sendings[i].s.each(result.rows, questions[i-first].OnRow)
		}
	})
}

// each calls f for each of these rows; nil: nobody needs them.
func (s *statement) each(rows [][][]byte, f func(driver.Row)) {
	for s.rows, s.at = rows, 0; s.at < len(s.rows) && f != nil; s.at++ {
		f(driver.Row{S: s})
	}
	s.Reset()
}

// answer is what a statement returned.
type answer struct {
	tag     pgconn.CommandTag
	rows    [][][]byte
	warning string // that came with it; "": none

	memory []byte // for values of the next rows
	spare  [][]byte
}

// add copies a row, several into one piece of memory: it is in the connection's buffer.
func (a *answer) add(values [][]byte) {
	const rows, piece = 16, 16 << 10
	size := 0
	for _, v := range values {
		size += len(v)
	}
	if a.memory == nil || cap(a.memory)-len(a.memory) < size { // what is empty is not NULL
		a.memory = make([]byte, 0, max(size, min(piece, (1+len(a.rows))*size)))
	}
	if len(a.spare) < len(values) {
		a.spare = make([][]byte, min(rows, 1+len(a.rows))*len(values))
	}
	row := a.spare[:len(values):len(values)]
	a.spare = a.spare[len(values):]
	for i, v := range values {
		if v != nil {
			a.memory = append(a.memory, v...)
			row[i] = a.memory[len(a.memory)-len(v) : len(a.memory) : len(a.memory)]
		}
	}
	a.rows = append(a.rows, row)
}

// sending is one execution of a prepared statement.
type sending struct {
	s      *statement
	values [][]byte
}

// send executes statements in one round trip and hands over what each returns. It writes the messages
// itself, for pgconn also asks of each what its columns are (PostgreSQL's manual, section 55.2.3 "Extended
// Query").
func (c *Conn) send(sendings []sending, took func(int, answer)) error {
	for _, x := range sendings {
		if err := x.s.ensure(); err != nil {
			return err
		}
	}
	c.trips++
	out, err := c.out[:0], error(nil)
	for _, x := range sendings {
		name := x.s.name
		if x.s.of != nil {
			name = x.s.of.name
		}
		bind := pgproto3.Bind{PreparedStatement: name, ParameterFormatCodes: x.s.formats, Parameters: x.values, ResultFormatCodes: binaryResults}
		if out, err = bind.Encode(out); err == nil {
			out, err = (&pgproto3.Execute{}).Encode(out)
		}
		if err != nil {
			return err
		}
	}
	if out, err = (&pgproto3.Sync{}).Encode(out); err != nil {
		return err
	}
	if c.out = out; cap(out) > maxPendingMemory {
		c.out = nil
	}
	// What is long is written while the answers are read: the server stops reading when nobody takes those.
	const short = 16 << 10
	if len(out) <= short {
		if _, err = c.Pg.Conn().Write(out); err != nil {
			return c.broken(err)
		}
		return c.receive(took)
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Pg.Conn().Write(out)
		if err != nil {
			c.Pg.Conn().Close() // which ends the reading
		}
		written <- err
	}()
	err = c.receive(took) // closes the connection unless all is written and answered, which ends the writing
	if failed := <-written; failed != nil {
		return c.broken(failed)
	}
	return err
}

// receive reads what the statements that were sent return.
func (c *Conn) receive(took func(int, answer)) (refused error) {
	var result answer
	for i := 0; ; {
		message, err := c.Pg.ReceiveMessage(context.Background())
		if err != nil {
			return c.broken(err)
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			result.add(m.Values)
		case *pgproto3.CommandComplete:
			result.tag = pgconn.NewCommandTag(string(m.CommandTag))
			result.warning, c.warning = c.warning, ""
			c.wrote = c.wrote || result.tag.RowsAffected() > 0 && !result.tag.Select()
			took(i, result)
			result = answer{}
			i++
		case *pgproto3.ErrorResponse:
			refused = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return refused
		}
	}
}

// broken closes a connection of which nobody knows what comes next on it.
func (c *Conn) broken(err error) error {
	closed, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Pg.Close(closed)
	return c.failed(err)
}

// forgetPending drops what was not sent.
func (c *Conn) forgetPending() {
	c.groups, c.pending = nil, 0
	c.memory.reset()
}

// arrays turns the rows of parameters into one array for each in which they differ, in PostgreSQL's binary
// format: the number of dimensions, whether there are NULLs, the type, the length, the lower bound, then
// each element with its length.
func (g *group) arrays(differ columns, m *pendingMemory) [][]byte {
	columns := make([][]byte, len(g.s.types))
	for i, t := range g.s.types {
		if !differ.has(i) {
			columns[i] = g.rows[0][i]
			continue
		}
		size, nulls := 20+4*len(g.rows), uint32(0)
		for _, row := range g.rows {
			size += len(row[i])
			if row[i] == nil {
				nulls = 1
			}
		}
		first, b := len(m.bytes), slices.Grow(m.bytes, size)
		for _, v := range []uint32{1, nulls, t, uint32(len(g.rows)), 1} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		for _, row := range g.rows {
			if row[i] == nil {
				b = binary.BigEndian.AppendUint32(b, ^uint32(0))
				continue
			}
			b = binary.BigEndian.AppendUint32(b, uint32(len(row[i])))
			b = append(b, row[i]...)
		}
		m.bytes, columns[i] = b, b[first:]
	}
	return columns
}
