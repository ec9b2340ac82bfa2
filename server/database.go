package server

import (
	"context"
	"errors"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/stores"
)

type (
	// Schema compares a database's tables with those that this program needs.
	Schema = db.Schema
	// CopyProgress is where a copy is.
	CopyProgress = db.CopyProgress
	// CopyReport is what a copy has done.
	CopyReport = db.CopyReport
)

// ReadSchema looks at a database without making or changing anything, also while servers run on it.
func ReadSchema(ctx context.Context, database string) (Schema, error) {
	where, err := databaseOf(database)
	if err != nil {
		return Schema{}, err
	}
	return db.ReadSchema(ctx, where)
}

// Migrate brings a database's tables up to date, as a server does when it starts, making the database
// if it does not exist. It returns what was there before.
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
// server may run on either. After an interruption it goes on where it was; until it is complete no
// server runs on the target. Payloads in the blob storage are not part of a database.
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

// Compacted is what a compaction has done.
type Compacted = db.Compacted

// Compact gives the disk back what deleted rows have left in a SQLite file. No server may run on it.
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
