package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
	"golang.org/x/sync/errgroup"
)

// CopyProgress is where a copy is.
type CopyProgress struct {
	Table     string
	Rows      int64 // of the table, so far
	Verifying bool
}

// CopyReport is what a copy has done.
type CopyReport struct {
	Tables []CopiedTable `json:"tables"`
	Rows   int64         `json:"rows"`
	Blobs  int64         `json:"blobs"` // references to payloads in the blob storage, which are not copied
}

// CopiedTable is a table that is the same in both databases.
type CopiedTable struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"`
}

// Copy copies everything in a database into an empty one, of the same or the other kind, in
// chunks, then compares both. Nobody else may use them meanwhile, which locks see to. Until the
// copy is complete the target serves nobody; after an interruption, whatever it was, Copy goes
// on where it was.
func Copy(ctx context.Context, from, to Options, progress func(CopyProgress)) (report CopyReport, err error) {
	if from.Path == to.Path && from.URL == to.URL {
		return report, forebay.Invalid("to", "is the database to copy from")
	}
	source, err := openSource(ctx, from)
	if err != nil {
		return report, ofSide("from", err)
	}
	defer source.release()
	target, err := openTarget(ctx, to)
	if err != nil {
		return report, ofSide("to", err)
	}
	defer target.release()
	tables, err := schemaTables()
	if err != nil {
		return report, err
	}
	c := &copying{source: source, target: target, tables: tables, progress: progress}
	return c.run(ctx, func() error { return nil })
}

// run does the whole copy. before runs when the target is marked: it was empty, or an
// unfinished copy of the same.
func (c *copying) run(ctx context.Context, before func() error) (report CopyReport, err error) {
	if err := c.begin(); err != nil {
		return report, err
	}
	if err := before(); err != nil {
		return report, err
	}
	for _, t := range c.tables {
		if err := c.copyTable(ctx, t); err != nil {
			return report, err
		}
	}
	for _, t := range c.tables {
		if err := c.verify(ctx, t, &report); err != nil {
			return report, err
		}
	}
	return report, c.finish()
}

// ofSide says of which database an error is.
func ofSide(side string, err error) error {
	var known *forebay.Error
	if errors.As(err, &known) && known.Field == "" {
		e := forebay.Errorf(known.Code, "%s", known.Message).Caused(err)
		e.Field = side
		return e
	}
	return err
}

// side is one of the two databases, taken by this process alone.
type side struct {
	driver.Conn
	engine  copyEngine
	release func()
}

// copyEngine is what a copy asks of a driver and is not the same SQL everywhere.
type copyEngine interface {
	driver.Driver
	HasTable(name string) (bool, error)
	// NextSeq is the first sequence number that no message was ever given.
	NextSeq() (int64, error)
	// ContinueFrom makes the database number on: messages from nextSeq, rows of tables by their
	// columns.
	ContinueFrom(nextSeq int64, numbered map[string]string) error
	// Drop drops these tables and whatever else the migrations have made.
	Drop(tables []string) error
}

// openSource takes a database that is to be copied.
func openSource(ctx context.Context, opts Options) (*side, error) {
	schema, err := ReadSchema(ctx, opts)
	if err == nil {
		err = schema.refuseUnlessCurrent()
	}
	if err != nil {
		return nil, err
	}
	var s *side
	if opts.URL != "" {
		s, err = openPostgresSide(ctx, opts.URL, false)
	} else {
		s, err = openSQLiteSource(opts.Path)
	}
	if err != nil {
		return nil, err
	}
	if err := refuseUnfinished(s.engine); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// openTarget takes a database for a copy and gives it tables, if it has none.
func openTarget(ctx context.Context, opts Options) (*side, error) {
	schema, err := ReadSchema(ctx, opts)
	if err == nil && schema.Database > 0 {
		err = schema.refuseUnlessCurrent()
	}
	if err != nil {
		return nil, err
	}
	if opts.URL != "" {
		return openPostgresSide(ctx, opts.URL, true)
	}
	return openSQLiteTarget(opts.Path)
}

// copyMark is a table that a database has while it is an unfinished copy: the position in each
// table.
const copyMark = "unfinished_copy"

// refuseUnfinished refuses to run on a database that lacks a part of what it is a copy of.
func refuseUnfinished(e copyEngine) error {
	unfinished, err := e.HasTable(copyMark)
	if err == nil && unfinished {
		err = forebay.Errorf(forebay.CodeDatabaseUnusable,
			"this database is an unfinished copy of another one, or of a backup; run the same forebay copy or restore again to complete it, "+
				"or give it up with forebay copy --abandon")
	}
	return err
}

// AbandonCopy removes an unfinished copy. What is left is an empty database.
func AbandonCopy(ctx context.Context, to Options) error { return ofSide("to", abandonCopy(ctx, to)) }

func abandonCopy(ctx context.Context, to Options) error {
	none := forebay.Errorf(forebay.CodeConflict, "there is no unfinished copy in this database")
	schema, err := ReadSchema(ctx, to)
	if err != nil {
		return err
	}
	if schema.Database == 0 {
		return none
	}
	target, err := openTarget(ctx, to)
	if err != nil {
		return err
	}
	defer target.release()
	unfinished, err := target.engine.HasTable(copyMark)
	if err != nil {
		return err
	}
	if !unfinished {
		return none
	}
	tables, err := schemaTables()
	if err != nil {
		return err
	}
	names := []string{copyMark}
	for _, t := range tables {
		names = append(names, t.name)
	}
	for name := range notCopied {
		names = append(names, name)
	}
	return target.UserError(target.transaction(func(driver.Conn) error { return target.engine.Drop(names) }))
}

// copying is a copy under way.
type copying struct {
	source, target *side
	tables         []copyTable
	progress       func(CopyProgress)
}

func (c *copying) ofSource(err error) error { return ofSide("from", c.source.UserError(err)) }
func (c *copying) ofTarget(err error) error { return ofSide("to", c.target.UserError(err)) }

// begin marks an empty target, or finds the mark of a copy of the same source.
func (c *copying) begin() error {
	origin, err := c.origin()
	if err != nil {
		return c.ofSource(err)
	}
	return c.ofTarget(c.target.transaction(func(t driver.Conn) error {
		unfinished, err := c.target.engine.HasTable(copyMark)
		if err != nil {
			return err
		}
		if !unfinished {
			return c.mark(t, origin)
		}
		var known []byte
		if _, err := t.Prep("SELECT position FROM " + copyMark + " WHERE name = ''").One(func(r driver.Row) { known = r.Blob(0) }); err != nil {
			return err
		}
		if !bytes.Equal(known, origin) {
			return forebay.Errorf(forebay.CodeConflict,
				"this database is an unfinished copy of another one, or of this one before it changed; give it up with forebay copy --abandon, then copy anew")
		}
		return nil
	}))
}

func (c *copying) mark(t driver.Conn, origin []byte) error {
	for _, table := range c.tables {
		found, err := t.Prep("SELECT 1 FROM " + table.name + " LIMIT 1").One(func(driver.Row) {})
		if err != nil {
			return err
		}
		if found {
			return forebay.Errorf(forebay.CodeConflict, "this database is not empty: it has rows of %s; name an empty or new one", table.name)
		}
	}
	if err := t.Prep("CREATE TABLE " + copyMark + " (name TEXT PRIMARY KEY, position BYTEA, copied BIGINT NOT NULL)").Exec(); err != nil {
		return err
	}
	insert := func(name string, position []byte) error {
		_, err := t.Prep("INSERT INTO " + copyMark + " (name, position, copied) VALUES (?, ?, 0)").Text(name).Blob(position).Count()
		return err
	}
	if err := insert("", origin); err != nil {
		return err
	}
	for _, table := range c.tables {
		if err := insert(table.name, nil); err != nil {
			return err
		}
	}
	return nil
}

// origin tells a source from another: by the first row of every table and the schema's version.
func (c *copying) origin() ([]byte, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%d", schema.Latest())
	for _, table := range c.tables {
		rows, err := rowsAfter(c.source.Conn, table, nil, 1)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(h, " %s %d ", table.name, len(rows))
		for _, cells := range rows {
			sum := rowSum(cells)
			h.Write(sum[:])
		}
	}
	return h.Sum(nil), nil
}

// copyTable copies what the target lacks of a table, a chunk and the note of it in one
// transaction.
func (c *copying) copyTable(ctx context.Context, table copyTable) error {
	position, done, err := c.position(table)
	if err != nil {
		return c.ofTarget(err)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, err := chunkAfter(c.source.Conn, table, position)
		if err != nil {
			return c.ofSource(fmt.Errorf("read %s: %w", table.name, err))
		}
		if len(chunk) == 0 {
			return nil
		}
		position = table.keyOf(chunk[len(chunk)-1])
		done += int64(len(chunk))
		err = c.target.transaction(func(t driver.Conn) error {
			for _, cells := range chunk {
				if err := insertRow(t, table, cells); err != nil {
					return err
				}
			}
			_, err := t.Prep("UPDATE " + copyMark + " SET position = ?, copied = ? WHERE name = ?").Blob(encodePosition(position)).Int(done).Text(table.name).Count()
			return err
		})
		if err != nil {
			return c.ofTarget(fmt.Errorf("write %s: %w", table.name, err))
		}
		c.progress(CopyProgress{Table: table.name, Rows: done})
	}
}

func (c *copying) position(table copyTable) (position []cell, done int64, err error) {
	var encoded []byte
	_, err = c.target.Prep("SELECT position, copied FROM " + copyMark + " WHERE name = ?").Text(table.name).
		One(func(r driver.Row) { encoded, done = r.Blob(0), r.Int(1) })
	if err == nil && encoded != nil {
		position, err = decodePosition(encoded)
	}
	return position, done, err
}

// verify reads a table of both databases and compares.
func (c *copying) verify(ctx context.Context, table copyTable, report *CopyReport) error {
	var group errgroup.Group
	var original, made tableSum
	group.Go(func() (err error) {
		original, err = sumTable(ctx, c.source.Conn, table, func(int64) {})
		return c.ofSource(err)
	})
	group.Go(func() (err error) {
		made, err = sumTable(ctx, c.target.Conn, table, func(rows int64) { c.progress(CopyProgress{table.name, rows, true}) })
		return c.ofTarget(err)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("verify %s: %w", table.name, err)
	}
	if original != made {
		return forebay.Errorf(forebay.CodeConflict, "the copy of %s is not the same: %d rows with checksum %s became %d with %s; "+
			"the database was changed while it was copied. Give the copy up with forebay copy --abandon, then copy anew",
			table.name, original.rows, original, made.rows, made)
	}
	report.Tables = append(report.Tables, CopiedTable{table.name, made.rows, made.String()})
	report.Rows += made.rows
	report.Blobs += made.blobs
	return nil
}

// finish makes the target a database like any other.
func (c *copying) finish() error {
	next, err := c.source.engine.NextSeq()
	if err != nil {
		return c.ofSource(err)
	}
	return c.ofTarget(c.target.transaction(func(t driver.Conn) error {
		if err := c.target.engine.ContinueFrom(next, numberedOf(c.tables)); err != nil {
			return fmt.Errorf("set the next numbers: %w", err)
		}
		return t.Prep("DROP TABLE " + copyMark).Exec()
	}))
}

// numberedOf returns, of the tables whose rows the database numbers, the columns that have the
// numbers.
func numberedOf(tables []copyTable) map[string]string {
	numbered := map[string]string{}
	for _, table := range tables {
		if table.numbered() {
			numbered[table.name] = table.names(table.key)
		}
	}
	return numbered
}

// transaction runs f in a transaction.
func (s *side) transaction(f func(driver.Conn) error) error {
	_, err := s.Begin(driver.BeginOptions{})
	if err == nil {
		err = f(s.Conn)
	}
	if err == nil {
		err = s.Commit()
	}
	if err != nil {
		return errors.Join(err, s.Rollback())
	}
	return nil
}
