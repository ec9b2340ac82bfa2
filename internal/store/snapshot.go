package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/forebayhq/forebay"
)

// Snapshot is a database as it was at one moment, for reading, while servers go on to work on it. What it holds is kept
// for it: a WAL cannot be reused meanwhile, and PostgreSQL cannot vacuum what is younger.
type Snapshot struct {
	*side
	tables []copyTable
}

// OpenSnapshot takes a snapshot of a database whose schema is this program's.
func OpenSnapshot(ctx context.Context, from Options) (*Snapshot, error) {
	schema, err := ReadSchema(ctx, from)
	if err == nil {
		err = schema.refuseUnlessCurrent()
	}
	if err != nil {
		return nil, err
	}
	tables, err := schemaTables()
	if err != nil {
		return nil, err
	}
	open := openSQLiteSnapshot
	if from.URL != "" {
		open = openPostgresSnapshot
	}
	s, err := open(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := refuseUnfinished(s.engine); err != nil {
		s.release()
		return nil, err
	}
	return &Snapshot{s, tables}, nil
}

func openSQLiteSnapshot(_ context.Context, from Options) (*side, error) {
	path, err := realPath(from.Path)
	if err != nil {
		return nil, err
	}
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, unusable("the database file cannot be opened", err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := newSQLiteConn(raw)
	err = c.run("BEGIN")
	if err == nil {
		_, err = c.hasTable(copyMark) // the snapshot begins with the first look
	}
	if err != nil {
		raw.Close()
		return nil, unusableUnlessKnown(err)
	}
	return &side{conn: conn{driver: c}, engine: c, release: func() {
		_ = c.rollback()
		c.Close()
	}}, nil
}

func openPostgresSnapshot(ctx context.Context, from Options) (*side, error) {
	c, err := reachPostgres(ctx, from.URL)
	if err != nil {
		return nil, err
	}
	err = c.refusePooled(ctx)
	if err == nil {
		err = c.present(sharedPresence)
	}
	if err == nil {
		// Between two chunks the target's disk may take its time, or a payload.
		err = c.simple("SET idle_in_transaction_session_timeout = 0")
	}
	if err == nil {
		c.shared = false // a new connection would have another snapshot
		err = c.simple("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	}
	if err != nil {
		c.Close()
		return nil, unusableOnServer(err)
	}
	return &side{conn: conn{driver: c}, engine: c, release: func() {
		_ = c.rollback()
		c.Close()
	}}, nil
}

// Close lets the snapshot go.
func (s *Snapshot) Close() { s.release() }

// Payloads visits the key of every payload in the blob storage that the snapshot refers to, some of them several times.
func (s *Snapshot) Payloads(ctx context.Context, visit func(key string) error) error {
	for _, t := range s.tables {
		for i, column := range t.columns {
			if !column.isBlob {
				continue
			}
			if err := s.payloadsOf(ctx, t, i, visit); err != nil {
				return s.domainError(err)
			}
		}
	}
	return nil
}

// payloadsOf reads the keys of one column, some thousand rows at a time.
func (s *Snapshot) payloadsOf(ctx context.Context, t copyTable, column int, visit func(key string) error) error {
	const page = 5000
	columns := append([]int{column}, t.key...)
	var position []cell
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		st := s.prep("SELECT " + t.names(columns) + t.after(position))
		for _, c := range position {
			st = bindCell(st, c)
		}
		var keys []string
		rows := 0
		err := st.int(page).each(func(r row) error {
			if rows++; !r.isNull(0) {
				keys = append(keys, r.text(0))
			}
			position = position[:0:0]
			for i, k := range t.key {
				position = append(position, cellAt(r, i+1, t.columns[k].kind))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", t.name, err)
		}
		for _, key := range keys {
			if err := visit(key); err != nil {
				return err
			}
		}
		if rows < page {
			return nil
		}
	}
}

// CopyTo copies the snapshot into an empty database, which nobody else uses, and compares both. before runs when the
// target is known to be empty. Until CopyTo is done no server runs on the target; after an interruption it goes on
// where it was.
func (s *Snapshot) CopyTo(ctx context.Context, to Options, before func() error, progress func(CopyProgress)) (CopyReport, error) {
	target, err := openTarget(ctx, to)
	if err != nil {
		return CopyReport{}, ofSide("to", err)
	}
	defer target.release()
	c := &copying{source: s.side, target: target, tables: s.tables, progress: progress}
	return c.run(ctx, before)
}

// OneFile makes a SQLite database that nobody has open a single file: it needs no WAL beside it, and can be read where
// nothing can be written.
func OneFile(path string) error {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return unusable("the database file cannot be opened", err)
	}
	c := newSQLiteConn(raw)
	err = c.run("PRAGMA journal_mode = DELETE")
	if err = errors.Join(err, c.Close()); err != nil {
		return unusableUnlessKnown(err)
	}
	for _, end := range []string{walSuffix, shmSuffix, lockSuffix} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return unusable("a file beside the database cannot be removed", err)
		}
	}
	return nil
}

// CheckFile reads a whole SQLite file and refuses one that is damaged.
func CheckFile(ctx context.Context, path string) error {
	raw, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return unusable("the database file cannot be opened", err)
	}
	defer raw.Close()
	raw.SetInterrupt(ctx.Done())
	var found []string
	err = conn{driver: newSQLiteConn(raw)}.prep("PRAGMA integrity_check(3)").each(func(r row) error {
		found = append(found, r.text(0))
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return unusableUnlessKnown(err)
	}
	if len(found) != 1 || found[0] != "ok" {
		return unusable("the database file is damaged", errors.New(strings.Join(found, "; ")))
	}
	return nil
}

// RefuseSchema says why this program cannot read a database of that schema; nil: it can, once it is brought up to date.
func RefuseSchema(version int64) error {
	if version <= 0 {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no Forebay database there")
	}
	return refuseUnknown(version)
}
