package server

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/stores"
)

type (
	// Schema compares the tables of a database with those that this program needs.
	Schema = db.Schema
	// CopyProgress is the progress of a copy.
	CopyProgress = db.CopyProgress
	// CopyReport is the result of a copy.
	CopyReport = db.CopyReport
)

// ReadSchema reads the schema of a database without changing anything. Servers may run on it.
func ReadSchema(ctx context.Context, database string) (Schema, error) {
	where, err := databaseOf(database)
	if err != nil {
		return Schema{}, err
	}
	return db.ReadSchema(ctx, where)
}

// Migrate updates the tables of a database, as a server does at its start. It creates a database
// that does not exist. It returns the schema from before.
func Migrate(ctx context.Context, database string) (before Schema, err error) {
	where, err := databaseOf(database)
	if err != nil {
		return before, err
	}
	if before, err = db.ReadSchema(ctx, where); err != nil {
		return before, err
	}
	st, err := stores.Open(ctx, where)
	if err != nil {
		return before, err
	}
	return before, st.DB.Close()
}

// Copy copies a database into an empty one, of the same or the other kind, and compares both. No
// server may run on either. After an interruption, the next call continues. No server runs on the
// target until the copy is complete. Payloads in the blob storage are not copied.
func Copy(ctx context.Context, from, to string, progress func(CopyProgress)) (CopyReport, error) {
	source, err := sideOf("from", from)
	if err != nil {
		return CopyReport{}, err
	}
	target, err := sideOf("to", to)
	if err != nil {
		return CopyReport{}, err
	}
	return db.Copy(ctx, source, target, progress)
}

// AbandonCopy removes an unfinished copy.
func AbandonCopy(ctx context.Context, to string) error {
	target, err := sideOf("to", to)
	if err != nil {
		return err
	}
	return db.AbandonCopy(ctx, target)
}

// Compacted is the result of a compaction.
type Compacted = db.Compacted

// Compact returns the space of deleted rows in a SQLite file to the disk. No server may run on it.
func Compact(ctx context.Context, database string) (Compacted, error) {
	where, err := databaseOf(database)
	if err != nil {
		return Compacted{}, err
	}
	return db.Compact(ctx, where)
}

func sideOf(side, database string) (db.Options, error) {
	where, err := databaseOf(database)
	var refused *forebay.Error
	if errors.As(err, &refused) {
		return where, forebay.Invalid(side, "%s", refused.Message)
	}
	return where, err
}
