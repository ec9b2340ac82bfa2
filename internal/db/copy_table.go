package db

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	zombiezen "zombiezen.com/go/sqlite"
)

// copyTable is a table as the migrations make it, on every kind of database.
type copyTable struct {
	name    string
	columns []copyColumn
	key     []int // of columns: the primary key
}

type copyColumn struct {
	name   string
	kind   driver.Kind
	isBlob bool // refers to a payload in the blob storage
}

// notCopied are the tables that hold nothing. The index of words is made anew, by what is copied.
var notCopied = map[string]bool{"probes": true}

// schemaTables returns the tables to copy. It makes them in memory and looks, so that whatever a
// migration adds is copied too.
func schemaTables() (tables []copyTable, err error) {
	raw, err := zombiezen.OpenConn(":memory:", zombiezen.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	c := sqlite.NewConn(raw)
	if err := c.Migrate(); err != nil {
		return nil, err
	}
	kinds := map[string]driver.Kind{"INTEGER": driver.KindInt, "TEXT": driver.KindText, "BLOB": driver.KindBytes}
	keys := map[int64]int{}
	err = driver.Conn{Driver: c}.Prep(`SELECT t.name, c.name, c.type, c.pk, c.cid FROM sqlite_schema t JOIN pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT GLOB '` + schema.WordsTable + `*' ORDER BY t.name, c.cid`).Each(func(r driver.Row) error {
		name := r.Text(0)
		if notCopied[name] {
			return nil
		}
		if r.Int(4) == 0 {
			tables = append(tables, copyTable{name: name})
			clear(keys)
		}
		t := &tables[len(tables)-1]
		k, ok := kinds[r.Text(2)]
		if !ok {
			return fmt.Errorf("column %s of %s has the type %s", r.Text(1), name, r.Text(2))
		}
		if pk := r.Int(3); pk > 0 {
			keys[pk] = len(t.columns)
			t.key = t.key[:0]
			for i := range int64(len(keys)) {
				t.key = append(t.key, keys[i+1])
			}
		}
		t.columns = append(t.columns, copyColumn{r.Text(1), k, k == driver.KindText && strings.HasSuffix(r.Text(1), "_blob")})
		return nil
	})
	return tables, err
}

// numbered reports whether the database numbers the rows by itself.
func (t copyTable) numbered() bool {
	return len(t.key) == 1 && t.columns[t.key[0]].kind == driver.KindInt
}

func (t copyTable) names(columns []int) string {
	var names []string
	for _, i := range columns {
		names = append(names, t.columns[i].name)
	}
	return strings.Join(names, ", ")
}

func (t copyTable) all() []int {
	columns := make([]int, len(t.columns))
	for i := range columns {
		columns[i] = i
	}
	return columns
}

func (t copyTable) keyOf(cells []cell) []cell {
	key := make([]cell, len(t.key))
	for i, column := range t.key {
		key[i] = cells[column]
	}
	return key
}

// after is the part of a query that reads on from a position, nil: the beginning.
func (t copyTable) after(position []cell) string {
	where := ""
	if position != nil {
		where = " WHERE (" + t.names(t.key) + ") > (" + questionMarks(len(t.key)) + ")"
	}
	return " FROM " + t.name + where + " ORDER BY " + t.names(t.key) + " LIMIT ? + 0"
}

func questionMarks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// cell is a value: NULL, a number, or a text or bytes.
type cell struct {
	Kind  driver.Kind `json:"k"`
	Null  bool        `json:"n,omitempty"`
	Int   int64       `json:"i,omitempty"`
	Bytes []byte      `json:"b,omitempty"`
}

func encodePosition(position []cell) []byte {
	encoded, err := json.Marshal(position)
	if err != nil {
		panic(err) // numbers and bytes
	}
	return encoded
}

func decodePosition(encoded []byte) (position []cell, err error) {
	return position, json.Unmarshal(encoded, &position)
}

func bindCell(st driver.Statement, c cell) driver.Statement {
	switch {
	case c.Null:
		return st.Null(c.Kind)
	case c.Kind == driver.KindInt:
		return st.Int(c.Int)
	case c.Kind == driver.KindText:
		return st.Text(string(c.Bytes))
	}
	if c.Bytes == nil {
		return st.Blob([]byte{})
	}
	return st.Blob(c.Bytes)
}

func cellAt(r driver.Row, i int, k driver.Kind) cell {
	switch {
	case r.IsNull(i):
		return cell{Kind: k, Null: true}
	case k == driver.KindInt:
		return cell{Kind: k, Int: r.Int(i)}
	case k == driver.KindText:
		return cell{Kind: k, Bytes: []byte(r.Text(i))}
	}
	return cell{Kind: k, Bytes: r.Blob(i)}
}

func insertRow(c driver.Conn, t copyTable, cells []cell) error {
	st := c.Prep("INSERT INTO " + t.name + " (" + t.names(t.all()) + ") VALUES (" + questionMarks(len(cells)) + ")")
	for _, cell := range cells {
		st = bindCell(st, cell)
	}
	return st.Exec()
}

// rows returns up to limit rows after a position.
func rowsAfter(c driver.Conn, t copyTable, position []cell, limit int) (rows [][]cell, err error) {
	st := c.Prep("SELECT " + t.names(t.all()) + t.after(position))
	for _, cell := range position {
		st = bindCell(st, cell)
	}
	err = st.Int(int64(limit)).Each(func(r driver.Row) error {
		cells := make([]cell, len(t.columns))
		for i, column := range t.columns {
			cells[i] = cellAt(r, i, column.kind)
		}
		rows = append(rows, cells)
		return nil
	})
	return rows, err
}

// Bounds of a chunk. One row may be larger: a message of 100 MiB.
const (
	maxChunkRows  = 1000
	maxChunkBytes = 4 << 20
)

// chunk returns the next rows after a position: none at the end.
func chunkAfter(c driver.Conn, t copyTable, position []cell) ([][]cell, error) {
	var sizes []string
	for _, column := range t.columns {
		if column.kind != driver.KindInt {
			sizes = append(sizes, "coalesce(octet_length("+column.name+"), 0)")
		}
	}
	limit := maxChunkRows
	if len(sizes) > 0 {
		st := c.Prep("SELECT CAST(" + strings.Join(sizes, " + ") + " AS BIGINT)" + t.after(position))
		for _, cell := range position {
			st = bindCell(st, cell)
		}
		rows, size := 0, int64(0)
		err := st.Int(maxChunkRows).Each(func(r driver.Row) error {
			if size += r.Int(0); rows > 0 && size > maxChunkBytes {
				return driver.ErrStop
			}
			rows++
			return nil
		})
		if err := driver.UnlessStopped(err); err != nil || rows == 0 {
			return nil, err
		}
		limit = rows
	}
	return rowsAfter(c, t, position, limit)
}

// tableSum is a checksum of rows that does not depend on their order. A text that PostgreSQL
// had to change a little may sort elsewhere.
type tableSum struct {
	rows, blobs int64
	sum         [2]uint64
}

func (s tableSum) String() string { return fmt.Sprintf("%016x%016x", s.sum[0], s.sum[1]) }

func sumTable(ctx context.Context, c driver.Conn, t copyTable, progress func(rows int64)) (s tableSum, err error) {
	var position []cell
	for {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		chunk, err := chunkAfter(c, t, position)
		if err != nil || len(chunk) == 0 {
			return s, err
		}
		for _, cells := range chunk {
			sum := rowSum(cells)
			for i := range s.sum {
				s.sum[i] += binary.BigEndian.Uint64(sum[8*i:])
			}
			for i, column := range t.columns {
				if column.isBlob && !cells[i].Null {
					s.blobs++
				}
			}
		}
		s.rows += int64(len(chunk))
		position = t.keyOf(chunk[len(chunk)-1])
		progress(s.rows)
	}
}

// rowSum is the hash of a row, of its texts as every kind of database can hold them.
func rowSum(cells []cell) (sum [sha256.Size]byte) {
	h := sha256.New()
	var head [9]byte
	for _, c := range cells {
		value := c.Bytes
		if c.Kind == driver.KindText {
			value = []byte(postgres.CleanText(string(value)))
		}
		head[0] = byte(c.Kind) << 1
		number := uint64(len(value))
		switch {
		case c.Null:
			head[0] |= 1
		case c.Kind == driver.KindInt:
			number = uint64(c.Int)
		}
		binary.BigEndian.PutUint64(head[1:], number)
		h.Write(head[:])
		h.Write(value)
	}
	h.Sum(sum[:0])
	return sum
}
