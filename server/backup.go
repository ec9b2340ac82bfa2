package server

import (
	"context"

	"github.com/forebayhq/forebay/internal/backup"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
)

type (
	// Backup describes the content of a backup.
	Backup = backup.Manifest
	// BackupProgress is the progress of a backup or a restore.
	BackupProgress = backup.Progress
)

// MakeBackup writes the database and its payloads, as of one moment, into a new folder. Then it
// reads them back. Servers may run meanwhile. It uses the options Database, Blob and Version.
func MakeBackup(ctx context.Context, o Options, folder string, progress func(BackupProgress)) (Backup, error) {
	database, blobs, err := o.storage(ctx)
	if err != nil {
		return Backup{}, err
	}
	defer blobs.Close()
	return backup.Make(ctx, backup.Source{Database: database, Payloads: blobs, Program: o.Version}, folder, progress)
}

// RestoreBackup copies a backup into the empty database and the blob storage of the options. No
// server may run on them. After an interruption, the next call continues.
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

// storage opens the database options and the blob storage.
func (o Options) storage(ctx context.Context) (db.Options, *blob.Store, error) {
	o = o.WithDefaults()
	database, err := databaseOf(o.Database)
	if err != nil {
		return database, nil, err
	}
	blobs, err := blob.Open(ctx, blobURL(o.Blob, database))
	return database, blobs, err
}
