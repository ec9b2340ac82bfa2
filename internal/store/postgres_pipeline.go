package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Statements of a transaction that return nothing are not sent at once: they go with the next one
// that does, or with the commit, in one round trip. Of those that wait, equal ones that stand in
// [mergeable] or are plain inserts become one statement over arrays. An error of one therefore shows
// up later, but always before the commit: the whole transaction fails then anyway.

// group is one statement that waits, with the parameters of each of its executions.
type group struct {
	s    *postgresStatement
	rows [][][]byte
}

// maxPending bounds the executions that wait.
const maxPending = 8192

// mergeable tells how a statement runs over arrays of its parameters, whose rows are x(p1, p2, …).
// Nothing may depend on how many rows each execution changes, or on their order.
var mergeable = map[string]string{
	sqlLock: `UPDATE messages m SET visible = p1, token = p2, locked_at = p3, deliveries = deliveries + 1, number = p4, version = p5,
  started_at = coalesce(started_at, p6), announced = p7, waiting = NULL FROM %s WHERE m.seq = p8`,
	sqlDeleteMessage: `DELETE FROM messages m USING %s WHERE m.seq = p1`,
}

var plainInsert = regexp.MustCompile(`(?s)^\s*(INSERT INTO \w+ \([^)]*\))\s+VALUES \(([^()]*)\)\s*$`)

// overArrays returns the statement that does for arrays of parameters what sql does for one set;
// "" if there is none.
func overArrays(sql string, types []uint32) string {
	if merged, ok := mergeable[sql]; ok {
		return fmt.Sprintf(merged, unnest(types))
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
	if n != len(types) {
		return "" // parameters with numbers
	}
	return parts[1] + " SELECT " + strings.Join(values, ", ") + " FROM " + unnest(types)
}

var arrays = map[uint32]struct {
	oid  uint32
	name string
}{
	pgtype.Int8OID: {pgtype.Int8ArrayOID, "bigint[]"}, pgtype.TextOID: {pgtype.TextArrayOID, "text[]"}, pgtype.ByteaOID: {pgtype.ByteaArrayOID, "bytea[]"},
}

// unnest is the rows of arrays of these types.
func unnest(types []uint32) string {
	var parameters, names strings.Builder
	for i, t := range types {
		if i > 0 {
			parameters.WriteString(", ")
			names.WriteString(", ")
		}
		fmt.Fprintf(&parameters, "$%d::%s", i+1, arrays[t].name)
		fmt.Fprintf(&names, "p%d", i+1)
	}
	return fmt.Sprintf("unnest(%s) AS x(%s)", &parameters, &names)
}

var tableOf = regexp.MustCompile(`(?i)^\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)`)

// exec lets the statement wait if it is part of a transaction, and runs it otherwise.
func (s *postgresStatement) exec() error {
	c := s.c
	if !c.open || s.table == "" {
		_, err := s.count()
		return err
	}
	row := make([][]byte, len(s.values))
	numbers := make([]byte, 0, 8*len(s.values))
	for i, v := range s.values {
		if s.types[i] == pgtype.Int8OID && v != nil { // bound anew next time
			numbers = append(numbers, v...)
			v = numbers[len(numbers)-8:]
		}
		row[i] = v
	}
	s.reset()
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

// count runs the statement, after all that wait.
func (s *postgresStatement) count() (rows int, err error) {
	if err := s.run(); err != nil {
		return 0, err
	}
	s.reset()
	return int(s.c.result.CommandTag.RowsAffected()), nil
}

// merges reports whether several executions can be one. The types of the parameters are known.
func (s *postgresStatement) merges() bool {
	if !s.looked {
		s.looked = true
		if sql := overArrays(s.original, s.types); sql != "" {
			s.merged = &postgresStatement{c: s.c, sql: sql, formats: s.formats}
			for _, t := range s.types {
				s.merged.types = append(s.merged.types, arrays[t].oid)
			}
		}
	}
	return s.merged != nil
}

func (c *postgresConn) flushOver(limit int) error {
	if c.pending < limit {
		return nil
	}
	return c.flush(nil, nil)
}

// flush sends what waits, then last, if there is one, whose result it keeps.
func (c *postgresConn) flush(last *postgresStatement, values [][]byte) error {
	groups := c.groups
	c.groups, c.pending = nil, 0
	for _, g := range groups {
		s := g.s
		if len(g.rows) > 1 {
			s = g.s.merged
		}
		if err := s.ensure(); err != nil {
			return err
		}
	}
	if last != nil {
		if err := last.ensure(); err != nil {
			return err
		}
	}
	p := c.pg.StartPipeline(context.Background())
	for _, g := range groups {
		if len(g.rows) == 1 {
			p.SendQueryPrepared(g.s.name, g.rows[0], g.s.formats, binaryResults)
		} else {
			p.SendQueryPrepared(g.s.merged.name, g.arrays(), g.s.formats, binaryResults)
		}
	}
	if last != nil {
		p.SendQueryPrepared(last.name, values, last.formats, binaryResults)
	}
	err := p.Sync()
	for err == nil {
		var results any
		if results, err = p.GetResults(); err != nil {
			break
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			break // the end of the pipeline
		}
		result := reader.Read()
		if err = result.Err; err != nil {
			break
		}
		c.result = result
	}
	if closing := p.Close(); err == nil {
		err = closing
	}
	return c.failed(err)
}

// arrays turns the rows of parameters into one array a parameter, in PostgreSQL's binary format: the
// number of dimensions, whether there are NULLs, the type, the length, the lower bound, then each
// element with its length.
func (g *group) arrays() [][]byte {
	columns := make([][]byte, len(g.s.types))
	for i, t := range g.s.types {
		size, nulls := 20+4*len(g.rows), uint32(0)
		for _, row := range g.rows {
			size += len(row[i])
			if row[i] == nil {
				nulls = 1
			}
		}
		b := make([]byte, 0, size)
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
		columns[i] = b
	}
	return columns
}
