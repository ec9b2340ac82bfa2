package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

// databaseCommands are the commands that work on the database itself.
type databaseCommands struct{ *command.App }

func (a databaseCommands) migrate() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "migrate", Short: "Show and apply changes of the database's tables",
		Long: `The database's tables change with versions of Forebay. A server brings them up to date when it
starts. These commands do so, or look, without one.`,
	}, a.migrateStatus(), a.migrateUp())
}

func (a databaseCommands) migrateUp() *cobra.Command {
	type migrated struct {
		Before  int64    `json:"before"`
		Now     int64    `json:"now"`
		Applied []string `json:"applied"`
	}
	return a.command(&cobra.Command{
		Use: "up", Short: "Bring the database's tables up to date",
		Long: `Apply the migrations that the database lacks, in one transaction. If there is no database, make
it. A server does the same when it starts.`,
		Example: "  forebay migrate up --database postgres://forebay@db.example.com/forebay",
	}, func(c *command.Call, database string) error {
		before, err := server.Migrate(c.Ctx, database)
		if err != nil {
			return err
		}
		state := "applied"
		if len(before.Pending) == 0 {
			state = "up to date"
		}
		now := before.Program
		return c.PrintOne(migrated{before.Database, now, before.Pending}, migrationFields(now, now, state, before.Pending))
	})
}

func (a databaseCommands) migrateStatus() *cobra.Command {
	return a.command(&cobra.Command{
		Use: "status", Short: "Show which migrations the database lacks",
		Long: `Show the version of the database's tables, that of this program, and the migrations between them.
Nothing is made or changed. The exit code is 7 when this program cannot bring it up to date.`,
		Example: "  forebay migrate status --config forebay.yaml",
	}, func(c *command.Call, database string) error {
		schema, err := server.ReadSchema(c.Ctx, database)
		if err != nil {
			return err
		}
		state := "up to date"
		switch {
		case len(schema.Pending) > 0:
			state = "pending"
		case schema.Database > schema.Program:
			state = "newer than this program"
		case schema.Database != schema.Program:
			state = "from before the first release; this program cannot use it"
		}
		if err := c.PrintOne(schema, migrationFields(schema.Database, schema.Program, state, schema.Pending)); err != nil {
			return err
		}
		if schema.Database != schema.Program && len(schema.Pending) == 0 {
			return command.ExitError(command.ExitStorage)
		}
		return nil
	})
}

// command completes a command about the configured database.
func (a databaseCommands) command(c *cobra.Command, run func(c *command.Call, database string) error) *cobra.Command {
	source := &config.Source{}
	sourceFlags(c.Flags(), source)
	return configCommand(a.App, c, source, func(c *command.Call, loaded config.Loaded) error { return run(c, loaded.Options.Database) })
}

func migrationFields(database, program int64, state string, migrations []string) []command.Field {
	return []command.Field{
		{"database", fmt.Sprintf("schema %d", database)},
		{"this program", fmt.Sprintf("schema %d", program)},
		{"state", state},
		{"migrations", strings.Join(migrations, ", ")},
	}
}

func (a databaseCommands) compact() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "compact",
		Short: "Give the disk back what deleted rows have left in a SQLite file",
		Long: `Write a SQLite file anew without the space that deleted rows have left, more thoroughly than a
server does while it runs. A file of an earlier version then also shrinks while it is served.
Stop the server first. The command needs as much free disk as the rows take. Interrupted, it
leaves the file as it was.`,
		Example: "  forebay compact --database sqlite:forebay.db",
	}, func(c *command.Call, database string) error {
		done, err := server.Compact(c.Ctx, database)
		if err != nil {
			return err
		}
		return c.PrintOne(done, []command.Field{
			{"before", fmt.Sprintf("%d bytes", done.Before)},
			{"after", fmt.Sprintf("%d bytes", done.After)},
		})
	})
}

func (a databaseCommands) copy() *cobra.Command {
	var from, to string
	var abandon bool
	c := a.LocalCommand(&cobra.Command{
		Use:   "copy",
		Short: "Copy everything in a database into another one",
		Long: `Copy everything in a database into an empty one, then read both and compare them. It copies from
SQLite to PostgreSQL, back, or between two of a kind. Stop every server on both first. The source
is only read.

Interrupted, run the same command again: it goes on where it was. Until the copy is complete no
server starts on the target. --abandon removes an unfinished copy. Payloads in the blob storage
are not copied: servers on the target need the same "blob" in their configuration as those on the
source had.

A password is better in PGPASSWORD or ~/.pgpass than in a URL, where other users of the machine
see it.`,
		Example: `  forebay copy --from sqlite:forebay.db --to postgres://forebay@db.example.com/forebay
  forebay copy --to postgres://forebay@db.example.com/forebay --abandon`,
	}, func(c *command.Call) error {
		switch {
		case to == "":
			return command.Usagef("--to is missing: the database to copy into, sqlite:PATH or postgres://…")
		case abandon && from != "":
			return command.Usagef("--abandon needs only --to")
		case abandon:
			return server.AbandonCopy(c.Ctx, to)
		case from == "":
			return command.Usagef("--from is missing: the database to copy, sqlite:PATH or postgres://…")
		}
		return copyDatabase(c, from, to)
	})
	c.Flags().StringVar(&from, "from", "", "the database to copy, sqlite:PATH or postgres://…")
	c.Flags().StringVar(&to, "to", "", "the empty database to copy into, sqlite:PATH or postgres://…")
	c.Flags().BoolVar(&abandon, "abandon", false, "remove an unfinished copy")
	return c
}

// goOn is the advice after an interruption.
const goOn = "run the same command again to go on"

func copyDatabase(c *command.Call, from, to string) error {
	line, finish := c.ProgressLine()
	report, err := server.Copy(c.Ctx, from, to, func(p server.CopyProgress) {
		what := "copying"
		if p.Verifying {
			what = "comparing"
		}
		line(fmt.Sprintf("%s %s: %d rows", what, p.Table, p.Rows))
	})
	finish()
	switch {
	case err != nil && c.Ctx.Err() == nil && c.ExitCode(c.Ctx, err) == command.ExitUnavailable:
		return c.Advise(c.Ctx, err, "the same command goes on where it was")
	case err != nil:
		return command.Interrupted(c.Ctx, err, goOn)
	}
	if report.Blobs > 0 {
		fmt.Fprintf(c.Err, "%d payloads are in the blob storage, which is not copied: "+
			"configure the same \"blob\" for the new database.\n", report.Blobs)
	}
	return c.PrintOne(report, []command.Field{
		{"copied", fmt.Sprintf("%d rows of %d tables", report.Rows, len(report.Tables))},
		{"verified", "row counts and checksums are the same"},
	})
}
