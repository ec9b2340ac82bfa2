package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a databaseCommands) backup() *cobra.Command {
	var s storage
	var check bool
	c := a.LocalCommand(&cobra.Command{
		Use:   "backup FOLDER",
		Short: "Write everything that is kept into a new folder, while the server works",
		Long: `Write the database and the payloads of the blob storage into a new folder, as they were at one
moment. Then read them back and compare. Servers go on to work meanwhile. The database may be
SQLite or PostgreSQL; in the folder it is a SQLite file. The configuration is not part of it.

The folder holds prompts, results and the secrets of webhooks. Only its owner can read it; keep
it so.`,
		Example: `  forebay backup --config forebay.yaml /backups/2026-11-23
  forebay backup --database sqlite:forebay.db /backups/2026-11-23
  forebay backup --check /backups/2026-11-23`,
	}, func(c *command.Call) error {
		if check {
			return withBackup(c, "checked", "", func(progress backupProgress) (server.Backup, error) {
				return server.CheckBackup(c.Ctx, c.Args[0], progress)
			})
		}
		o, err := s.options(c.App)
		if err != nil {
			return err
		}
		return withBackup(c, "saved", "nothing is left of the backup", func(progress backupProgress) (server.Backup, error) {
			return server.MakeBackup(c.Ctx, o, c.Args[0], progress)
		})
	})
	s.add(c.Flags())
	c.Flags().BoolVar(&check, "check", false, "compare an existing backup with its checksums, and write nothing")
	return c
}

func (a databaseCommands) restore() *cobra.Command {
	var s storage
	c := a.LocalCommand(&cobra.Command{
		Use:   "restore FOLDER",
		Short: "Bring a backup back into an empty database",
		Long: `Bring a backup back into an empty database, SQLite or PostgreSQL, and its payloads into the blob
storage. Every payload is compared with its checksum, and the database with the backup. Until all
is there no server starts on the database. Interrupted, run the same command again: it goes on
where it was.

The backup knows nothing of what happened after it. Jobs that were waiting then run again, and
webhooks are sent again. Keys that were revoked since are valid again: revoke them before you
start a server.`,
		Example: `  forebay restore --database sqlite:new.db /backups/2026-11-23
  forebay restore --database postgres://db.example.com/f --blob s3://payloads /backups/2026-11-23`,
	}, func(c *command.Call) error {
		o, err := s.options(c.App)
		if err != nil {
			return err
		}
		return withBackup(c, "restored", goOn, func(progress backupProgress) (server.Backup, error) {
			return server.RestoreBackup(c.Ctx, o, c.Args[0], progress)
		})
	})
	s.add(c.Flags())
	return c
}

// storage is the database and the blob storage that a command works on.
type storage struct {
	source config.Source
	blobs  string
}

func (s *storage) add(flags *pflag.FlagSet) {
	sourceFlags(flags, &s.source)
	flags.StringVar(&s.blobs, "blob", "", "the blob storage (default: configured or a folder beside the database)")
}

// options are the configured options with another blob storage, if the command line names one.
func (s *storage) options(a *command.App) (server.Options, error) {
	loaded, err := loadConfig(a, &s.source)
	if s.blobs != "" {
		loaded.Options.Blob = s.blobs
	}
	return loaded.Options, err
}

type backupProgress = func(server.BackupProgress)

// withBackup does something with a backup, shows progress on a terminal and prints what the backup
// holds. advice is for an interrupted user; it may be "".
func withBackup(c *command.Call, done, advice string, do func(backupProgress) (server.Backup, error)) error {
	line, finish := c.ProgressLine()
	m, err := do(func(p server.BackupProgress) { line(fmt.Sprintf("%s: %d", p.What, p.Done)) })
	finish()
	if err != nil {
		if advice == "" {
			return err
		}
		return command.Interrupted(c.Ctx, err, advice)
	}
	return c.PrintOne(m, []command.Field{
		{done, fmt.Sprintf("%d rows of %d tables, %d payloads of %d bytes", m.Rows, len(m.Tables), m.Payloads, m.PayloadBytes)},
		{"as of", m.TakenAt.In(c.Zone).Format(time.RFC3339)},
		{"verified", "row counts and checksums are the same"},
	})
}
