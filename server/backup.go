package server

import (
	"context"

	"github.com/forebayhq/forebay/internal/backup"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
)

type (
	// Backup tells what a backup holds.
	Backup = backup.Manifest
	// BackupProgress is where a backup or a restore is.
	BackupProgress = backup.Progress
)

// MakeBackup writes the database and the payloads that it refers to into a new folder, as they are at one moment, and
// reads them back. Servers may go on to work. Of the options it reads Database, Blob and Version.
func MakeBackup(ctx context.Context, o Options, folder string, progress func(BackupProgress)) (Backup, error) {
	database, blobs, err := o.storage(ctx)
	if err != nil {
		return Backup{}, err
	}
	defer blobs.Close()
	return backup.Make(ctx, backup.Source{Database: database, Payloads: blobs, Program: o.Version}, folder, progress)
}

// RestoreBackup brings a backup back into an empty database and a blob storage, those of the options. No server may run
// on them. Interrupted, it goes on where it was when it is called again.
func RestoreBackup(ctx context.Context, o Options, folder string, progress func(BackupProgress)) (Backup, error) {
	database, blobs, err := o.storage(ctx)
	if err != nil {
		return Backup{}, err
	}
	defer blobs.Close()
	return backup.Restore(ctx, folder, database, blobs, progress)
}

// CheckBackup reads a whole backup and compares it with its checksums.
func CheckBackup(ctx context.Context, folder string, progress func(BackupProgress)) (Backup, error) {
	return backup.Check(ctx, folder, progress)
}

// storage opens what the options keep things in.
func (o Options) storage(ctx context.Context) (db.Options, *blob.Store, error) {
	o = o.WithDefaults()
	database, err := databaseOf(o.Database)
	if err != nil {
		return database, nil, err
	}
	blobs, err := blob.Open(ctx, blobURL(o.Blob, database))
	return database, blobs, err
}
