package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgtype"
)

// Statements of a transaction that return nothing are not sent at once. They go in one round
// trip with the next one that does, or with the commit. Of those that wait, equal ones that
// have a [driver.BatchForm] or are plain inserts become one statement over arrays. An error of one
// therefore shows up later, but always before the commit: the whole transaction fails then
// anyway.
//
// An execution joins the latest group of its statement, and so comes before the groups after that
// one. It may do so if it commutes with all that is in them: see [group.commutes].

// group is one statement that waits, with the parameters of each of its executions.
type group struct {
	s    *statement
	rows [][][]byte
	keys []keys // of the things that its executions name, for each of the statement's rows
}

// keys are the things that executions name, by hash. Two that have the same hash are taken for
// one, which only keeps them in order.
type keys map[uint64]struct{}

func (k keys) has(hash uint64) bool { _, ok := k[hash]; return ok }

var keySeed = maphash.MakeSeed()

// keysOf appends the things that an execution of the statement names.
func (s *statement) keysOf(to []uint64, row [][]byte) []uint64 {
	for _, r := range s.reach {
		hash := uint64(0)
		if r.By > 0 {
			hash = maphash.Bytes(keySeed, row[r.By-1])
		}
		to = append(to, hash)
	}
	return to
}

// add adds an execution, which names these things.
func (g *group) add(row [][]byte, named []uint64) {
	if g.rows = append(g.rows, row); !g.s.keyed {
		return
	}
	if g.keys == nil {
		g.keys = make([]keys, len(named))
		for i := range g.keys {
			g.keys[i] = keys{}
		}
	}
	for i, hash := range named {
		g.keys[i][hash] = struct{}{}
	}
}

// takes reports whether an execution that names these things can be done together with the others.
// One statement changes a row once only.
func (g *group) takes(named []uint64) bool {
	for i, r := range g.s.reach {
		if !g.s.plain && !r.Many && r.By > 0 && g.keys[i].has(named[i]) {
			return false
		}
	}
	return true
}

// commutes reports whether an execution of s that names these things may come before all of the
// group. What the two have declared decides ([driver.Only]). A statement that has declared nothing
// uses any rows of its table, and if it has a subselect, of any table.
func (g *group) commutes(s *statement, named []uint64) bool {
	if s.opaque || g.s.opaque {
		return false
	}
	for i, mine := range s.reach {
		for k, its := range g.s.reach {
			if mine.Table == its.Table && (mine.Of != its.Of || mine.By == 0 || its.By == 0 || g.keys[k].has(named[i])) {
				return false
			}
		}
	}
	return true
}

// wait adds an execution to those that wait.
func (p *pending) wait(s *statement, row [][]byte) {
	p.count++
	p.named = s.keysOf(p.named[:0], row)
	if s.merges() {
		for i := len(p.groups) - 1; i >= 0; i-- {
			g := p.groups[i]
			if g.s == s && g.takes(p.named) {
				g.add(row, p.named)
				return
			}
			if !g.commutes(s, p.named) {
				break
			}
		}
	}
	g := &group{s: s}
	g.add(row, p.named)
	p.groups = append(p.groups, g)
}

// pending are the statements of a transaction that wait to be sent.
type pending struct {
	groups []*group
	count  int // executions of these
	memory pendingMemory
	named  []uint64 // by the latest of them
}

// forget drops what was not sent.
func (p *pending) forget() {
	p.groups, p.count = nil, 0
	p.memory.reset()
}

// take returns what waits to be sent, with room for so many more.
func (p *pending) take(more int) []sending {
	sendings := make([]sending, 0, len(p.groups)+more)
	for _, g := range p.groups {
		if len(g.rows) == 1 {
			sendings = append(sendings, sending{g.s, g.rows[0]})
		} else {
			merged, differ := g.s.merged(varying(g.rows))
			sendings = append(sendings, sending{merged, g.arrays(differ, &p.memory)})
		}
	}
	clear(p.groups)
	p.groups, p.count = p.groups[:0], 0
	return sendings
}

// maxPending bounds the executions that wait.
const maxPending = 8192

var plainInsert = regexp.MustCompile(`(?s)^\s*(INSERT INTO \w+ \([^)]*\))\s+VALUES \(([^()]*)\)\s*$`)

// overArrays returns a statement that does for many sets of parameters what sql does for one.
// In it %s stands for the rows of parameters, with columns p1, p2, …. It returns "" if there is
// none.
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

// with returns a statement over arrays for rows that differ in these columns. The others have
// one value for all rows, which the server need not unpack.
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

// subselect finds what names other tables than the one that a statement changes.
var subselect = regexp.MustCompile(`(?is)\b(SELECT|JOIN|USING)\b|^\s*UPDATE\b.*\bFROM\b`)

// reachOf are the rows that a statement uses, or that nobody knows them.
func reachOf(sql, table string) (reach []driver.Rows, opaque bool) {
	if declared := driver.Reach[sql]; declared != nil {
		return declared, !slices.ContainsFunc(declared, func(r driver.Rows) bool { return r.Table == table })
	}
	return []driver.Rows{{Table: table}}, subselect.MatchString(sql)
}

var tableOf = regexp.MustCompile(`(?i)^\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)`)

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

// merges reports whether several executions can be one. The types of the parameters are known.
func (s *statement) merges() bool {
	if !s.looked {
		s.looked, s.template = true, overArrays(s.original, len(s.types))
		_, form := driver.BatchForms[s.original]
		s.plain = !form
	}
	return s.template != ""
}

// maxVariants bounds the statements that are prepared for one, by which columns differ.
const maxVariants = 32

// merged is the statement for rows that differ in these columns, and the columns for which it
// takes arrays.
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

// arrays turns the rows of parameters into one array for each column in which they differ. The
// format is PostgreSQL's binary one: the number of dimensions, whether there are NULLs, the
// type, the length, the lower bound. Each element follows, after its length.
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
