package postgres

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// statement is a statement that the server has prepared, or will when its parameters' types
// are known.
type statement struct {
	c        *Conn
	of       *statement    // whose copy this is, for a strand; nil: none's
	original string        // as it is written
	sql      string        // as PostgreSQL takes it
	table    string        // that it changes, if it only does that
	reach    []driver.Rows // that it uses; nil: any of its table
	keyed    bool          // by things that its executions name
	opaque   bool          // it may use any table
	plain    bool          // it only adds rows, several for a thing if need be
	name     string        // "": not prepared yet
	looked   bool
	template string // of those over arrays of the parameters; "": there are none
	variants map[columns]*statement
	types    []uint32
	values   [][]byte
	numbers  [][8]byte // where integers are encoded
	formats  []int16
	ran      bool
	rows     [][][]byte
	tag      pgconn.CommandTag
	at       int
}

var binaryResults = []int16{1}

func (c *Conn) Prepare(sql string) (driver.Prepared, error) {
	if c.Pg == nil || c.Pg.IsClosed() {
		return nil, driver.ErrDisconnected
	}
	s, ok := c.statements[sql]
	if !ok {
		translated, parameters := translate(sql)
		s = &statement{c: c, original: sql, sql: translated, types: make([]uint32, parameters), values: make([][]byte, parameters),
			numbers: make([][8]byte, parameters), formats: make([]int16, parameters)}
		for i := range s.formats {
			s.formats[i] = 1
		}
		if table := tableOf.FindStringSubmatch(sql); table != nil && !strings.Contains(sql, " RETURNING ") {
			s.table = table[1]
			s.reach, s.opaque = reachOf(sql, s.table)
			s.keyed = slices.ContainsFunc(s.reach, func(r driver.Rows) bool { return r.By > 0 })
		}
		c.statements[sql] = s
	}
	if c.running != nil {
		s = c.running.clone(s)
	}
	s.Reset()
	return s, nil
}

func (s *statement) BindInt(i int, v int64) {
	binary.BigEndian.PutUint64(s.numbers[i-1][:], uint64(v))
	s.types[i-1], s.values[i-1] = pgtype.Int8OID, s.numbers[i-1][:]
}

func (s *statement) BindText(i int, v string) {
	s.types[i-1], s.values[i-1] = pgtype.TextOID, bytesOf(CleanText(v))
}

// bytesOf returns the bytes of a text without a copy. Nobody may change them: values are only
// sent.
func bytesOf(text string) []byte {
	if text == "" {
		return []byte{} // not NULL
	}
	return unsafe.Slice(unsafe.StringData(text), len(text))
}

// CleanText replaces what a text in PostgreSQL cannot hold: NUL, and bytes that are not UTF-8.
func CleanText(v string) string {
	if strings.IndexByte(v, 0) >= 0 {
		v = strings.ReplaceAll(v, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(v, "\uFFFD")
}

func (s *statement) BindBytes(i int, v []byte) {
	s.types[i-1], s.values[i-1] = pgtype.ByteaOID, v
}

func (s *statement) BindNull(i int, k driver.Kind) {
	s.types[i-1] = [...]uint32{driver.KindInt: pgtype.Int8OID, driver.KindText: pgtype.TextOID, driver.KindBytes: pgtype.ByteaOID}[k]
	s.values[i-1] = nil
}

func (s *statement) Step() (bool, error) {
	if !s.ran {
		if err := s.run(); err != nil {
			return false, err
		}
	}
	s.at++
	if s.at < len(s.rows) {
		return true, nil
	}
	s.Reset()
	return false, nil
}

// run executes the statement and keeps all rows: another may run before they are read.
func (s *statement) run() error {
	c := s.c
	if a := c.fetched.take(s); a != nil {
		s.ran, s.rows, s.at = true, a.rows, -1
		s.tag = pgconn.NewCommandTag("AHEAD " + strconv.Itoa(len(a.rows)))
		return nil
	}
	if c.waits() {
		return s.runInStrand()
	}
	if !c.open {
		c.patience()
	}
	if len(c.pending.groups) > 0 || len(c.ahead) > 0 {
		if err := c.flush(s, s.values); err != nil {
			return err
		}
	} else {
		if err := c.send([]sending{{s, s.values}}, func(_ int, result answer) { c.result = result }); err != nil {
			return err
		}
	}
	s.ran, s.rows, s.tag, s.at = true, c.result.rows, c.result.tag, -1
	return nil
}

// shared is the statement that the server has prepared, or will: of a copy that which it is of.
func (s *statement) shared() *statement {
	if s.of != nil {
		return s.of
	}
	return s
}

func (s *statement) Reset() {
	s.ran, s.rows, s.at = false, nil, -1
	for i := range s.values {
		s.values[i] = nil
	}
}

func (s *statement) IntAt(i int) int64 {
	switch v := s.rows[s.at][i]; len(v) {
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 1: // a boolean
		return int64(v[0])
	}
	return 0
}

func (s *statement) TextAt(i int) string { return string(s.rows[s.at][i]) }
func (s *statement) NullAt(i int) bool   { return s.rows[s.at][i] == nil }

func (s *statement) BytesAt(i int) []byte { return s.rows[s.at][i] }

// Exec lets the statement wait if it is part of a transaction, and runs it otherwise.
func (s *statement) Exec() error {
	c := s.c
	if !c.open || s.table == "" {
		_, err := s.Count()
		return err
	}
	row := c.pending.memory.copyOf(s)
	s.Reset()
	c.pending.wait(s.shared(), row)
	return c.flushOver(maxPending)
}

// Count runs the statement, after all that wait.
func (s *statement) Count() (rows int, err error) {
	if err := s.run(); err != nil {
		return 0, err
	}
	s.Reset()
	return int(s.tag.RowsAffected()), nil
}

// each calls f for each of these rows; nil: nobody needs them.
func (s *statement) each(rows [][][]byte, f func(driver.Row)) {
	for s.rows, s.at = rows, 0; s.at < len(s.rows) && f != nil; s.at++ {
		f(driver.Row{S: s})
	}
	s.Reset()
}
