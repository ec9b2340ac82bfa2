package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/sqlite"
	zombiezen "zombiezen.com/go/sqlite"
)

// Snapshot is a database as it was at one moment, for reading, while servers go on to work on
// it. What it holds is kept for it: a WAL cannot be reused meanwhile, and PostgreSQL cannot
// vacuum what is younger.
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
	path, err := sqlite.RealPath(from.Path)
	if err != nil {
		return nil, err
	}
	raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadOnly)
	if err != nil {
		return nil, driver.Unusable("the database file cannot be opened", err)
	}
	raw.SetBusyTimeout(10 * time.Second)
	c := sqlite.NewConn(raw)
	err = c.Run("BEGIN")
	if err == nil {
		_, err = c.HasTable(copyMark) // the snapshot begins with the first look
	}
	if err != nil {
		raw.Close()
		return nil, sqlite.UnusableUnlessKnown(err)
	}
	return &side{Conn: driver.Conn{Driver: c}, engine: c, release: func() {
		_ = c.Rollback()
		c.Close()
	}}, nil
}

func openPostgresSnapshot(ctx context.Context, from Options) (*side, error) {
	c, err := postgres.ConnectURL(ctx, from.URL)
	if err != nil {
		return nil, err
	}
	err = c.RefusePooled(ctx)
	if err == nil {
		err = c.Present(postgres.SharedPresence)
	}
	if err == nil {
		// Between two chunks the target's disk may take its time, or a payload.
		err = c.ExecSimple("SET idle_in_transaction_session_timeout = 0")
	}
	if err == nil {
		c.Shared = false // a new connection would have another snapshot
		err = c.ExecSimple("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	}
	if err != nil {
		c.Close()
		return nil, postgres.UnusableOnServer(err)
	}
	return &side{Conn: driver.Conn{Driver: c}, engine: c, release: func() {
		_ = c.Rollback()
		c.Close()
	}}, nil
}

// Close lets the snapshot go.
func (s *Snapshot) Close() { s.release() }

// Payloads visits the key of every payload in the blob storage that the snapshot refers to,
// some of them several times.
func (s *Snapshot) Payloads(ctx context.Context, visit func(key string) error) error {
	for _, t := range s.tables {
		for i, column := range t.columns {
			if !column.isBlob {
				continue
			}
			if err := s.payloadsOf(ctx, t, i, visit); err != nil {
				return s.UserError(err)
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
		st := s.Prep("SELECT " + t.names(columns) + t.after(position))
		for _, c := range position {
			st = bindCell(st, c)
		}
		var keys []string
		rows := 0
		err := st.Int(page).Each(func(r driver.Row) error {
			if rows++; !r.IsNull(0) {
				keys = append(keys, r.Text(0))
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

// CopyTo copies the snapshot into an empty database, which nobody else uses, and compares both.
// before runs when the target is known to be empty. Until CopyTo is done no server runs on the
// target; after an interruption it goes on where it was.
func (s *Snapshot) CopyTo(ctx context.Context, to Options, before func() error, progress func(CopyProgress)) (CopyReport, error) {
	target, err := openTarget(ctx, to)
	if err != nil {
		return CopyReport{}, ofSide("to", err)
	}
	defer target.release()
	c := &copying{source: s.side, target: target, tables: s.tables, progress: progress}
	return c.run(ctx, before)
}

// OneFile makes a SQLite database a single file. Nobody may have it open. It then needs no WAL,
// and can be read where nothing can be written.
func OneFile(path string) error {
	raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
	if err != nil {
		return driver.Unusable("the database file cannot be opened", err)
	}
	c := sqlite.NewConn(raw)
	err = c.Run("PRAGMA journal_mode = DELETE")
	if err = errors.Join(err, c.Close()); err != nil {
		return sqlite.UnusableUnlessKnown(err)
	}
	for _, end := range []string{sqlite.WalSuffix, sqlite.ShmSuffix, sqlite.LockSuffix} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return driver.Unusable("a file beside the database cannot be removed", err)
		}
	}
	return nil
}

// CheckFile reads a whole SQLite file and refuses one that is damaged.
func CheckFile(ctx context.Context, path string) error {
	raw, err := zombiezen.OpenConn(path, zombiezen.OpenReadOnly)
	if err != nil {
		return driver.Unusable("the database file cannot be opened", err)
	}
	defer raw.Close()
	raw.SetInterrupt(ctx.Done())
	var found []string
	err = driver.Conn{Driver: sqlite.NewConn(raw)}.Prep("PRAGMA integrity_check(3)").Each(func(r driver.Row) error {
		found = append(found, r.Text(0))
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return sqlite.UnusableUnlessKnown(err)
	}
	if len(found) != 1 || found[0] != "ok" {
		return driver.Unusable("the database file is damaged", errors.New(strings.Join(found, "; ")))
	}
	return nil
}

// RefuseBackup says why this program cannot restore a backup of that schema; nil: it can, once
// it is brought up to date.
func RefuseBackup(version int64) error {
	if version <= 0 {
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "the backup holds no Forebay database")
	}
	return schema.RefuseUnknown("the backup", version)
}
