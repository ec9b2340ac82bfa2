package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a *app) backup() *cobra.Command {
	var source config.Source
	var blobs string
	var check bool
	c := &cobra.Command{
		Use:   "backup FOLDER",
		Short: "Write everything that is kept into a new folder, while the server works",
		Long: `Write the database and the payloads of the blob storage into a new folder, as they were at one moment,
then read them back and compare. Servers go on to work meanwhile. The database may be SQLite or PostgreSQL; in the
folder it is a SQLite file. The configuration is not part of it.

The folder holds prompts, results and the secrets of webhooks. Only its owner can read it; keep it so.`,
		Example: `  forebay backup --config forebay.yaml /backups/2026-11-23
  forebay backup --database sqlite:forebay.db /backups/2026-11-23
  forebay backup --check /backups/2026-11-23`,
		Args: arguments(1, "FOLDER"),
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return a.withBackup(c.Context(), "checked", server.Options{}, func(ctx context.Context, _ server.Options, progress func(server.BackupProgress)) (server.Backup, error) {
					return server.CheckBackup(ctx, args[0], progress)
				})
			}
			o, err := a.storageOptions(source, blobs)
			if err != nil {
				return err
			}
			return a.withBackup(c.Context(), "saved", o, func(ctx context.Context, o server.Options, progress func(server.BackupProgress)) (server.Backup, error) {
				return server.MakeBackup(ctx, o, args[0], progress)
			})
		},
	}
	storageFlags(c, &source, &blobs)
	c.Flags().BoolVar(&check, "check", false, "compare an existing backup with its checksums, and write nothing")
	return c
}

func (a *app) restore() *cobra.Command {
	var source config.Source
	var blobs string
	c := &cobra.Command{
		Use:   "restore FOLDER",
		Short: "Bring a backup back into an empty database",
		Long: `Bring a backup back into an empty database, SQLite or PostgreSQL, and its payloads into the blob storage.
Every payload is compared with its checksum, and the database with the backup. Until all is there no server starts on
the database. Interrupted, run the same command again: it goes on where it was.

What happened after the backup is not known to it. Jobs that were waiting then run again, webhooks are sent again, and
keys that were revoked since are valid again: revoke them before you start a server.`,
		Example: `  forebay restore --database sqlite:new.db /backups/2026-11-23
  forebay restore --database postgres://forebay@db.example.com/forebay --blob s3://payloads /backups/2026-11-23`,
		Args: arguments(1, "FOLDER"),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.storageOptions(source, blobs)
			if err != nil {
				return err
			}
			return a.withBackup(c.Context(), "restored", o, func(ctx context.Context, o server.Options, progress func(server.BackupProgress)) (server.Backup, error) {
				return server.RestoreBackup(ctx, o, args[0], progress)
			})
		},
	}
	storageFlags(c, &source, &blobs)
	return c
}

func storageFlags(c *cobra.Command, source *config.Source, blobs *string) {
	c.Flags().StringVar(&source.Database, "database", "", "the database, sqlite:PATH or postgres://… (default: as configured, else sqlite:forebay.db)")
	c.Flags().StringVar(blobs, "blob", "", "the blob storage (default: as configured, else a folder beside the database)")
	c.Flags().StringVar(&source.File, "config", "", "configuration file that names both")
}

// storageOptions are the configured options with another blob storage, if one is named.
func (a *app) storageOptions(source config.Source, blobs string) (server.Options, error) {
	source.Environ = a.environ
	loaded, err := config.Load(source)
	if err != nil {
		return server.Options{}, err
	}
	o := loaded.Options
	o.Version = buildVersion()
	if blobs != "" {
		o.Blob = blobs
	}
	return o, nil
}

// withBackup does something with a backup, shows on a terminal where it is, and prints what the backup holds.
func (a *app) withBackup(ctx context.Context, done string, o server.Options,
	do func(context.Context, server.Options, func(server.BackupProgress)) (server.Backup, error),
) error {
	line, finish := a.progressLine()
	m, err := do(ctx, o, func(p server.BackupProgress) { line(fmt.Sprintf("%s: %d", p.What, p.Done)) })
	finish()
	switch {
	case err != nil && ctx.Err() != nil && done == "saved":
		return &failure{exitInterrupted, "interrupted; nothing is left of the backup"}
	case err != nil && ctx.Err() != nil && done == "restored":
		return &failure{exitInterrupted, "interrupted; run the same command again to go on"}
	case err != nil:
		return err
	}
	return a.printOne(m, [][2]string{
		{done, fmt.Sprintf("%d rows of %d tables, %d payloads of %d bytes", m.Rows, len(m.Tables), m.Payloads, m.PayloadBytes)},
		{"as of", m.TakenAt.In(a.zone).Format(time.RFC3339)},
		{"verified", "row counts and checksums are the same"},
	})
}
