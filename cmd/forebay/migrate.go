package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a *app) migrate() *cobra.Command {
	var source config.Source
	up := &cobra.Command{
		Use: "up", Short: "Bring the database's tables up to date", Args: arguments(0),
		Long: `Apply the migrations that the database lacks, in one transaction, making the database if there is none.
A server does the same when it starts.`,
		Example: "  forebay migrate up --database postgres://forebay@db.example.com/forebay",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withDatabase(c.Context(), source, func(ctx context.Context, database string) error {
				before, err := server.Migrate(ctx, database)
				if err != nil {
					return err
				}
				state := "applied"
				if len(before.Pending) == 0 {
					state = "up to date"
				}
				return a.printOne(struct {
					Before  int64    `json:"before"`
					Now     int64    `json:"now"`
					Applied []string `json:"applied"`
				}{before.Database, before.Program, before.Pending}, migrationRows(before.Program, before.Program, state, before.Pending))
			})
		},
	}
	status := &cobra.Command{
		Use: "status", Short: "Show which migrations the database lacks", Args: arguments(0),
		Long: `Show the version of the database's tables, that of this program, and the migrations between them, without
making or changing anything. The exit code is 7 when this program cannot bring it up to date.`,
		Example: "  forebay migrate status --config forebay.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withDatabase(c.Context(), source, func(ctx context.Context, database string) error {
				schema, err := server.ReadSchema(ctx, database)
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
				if err := a.printOne(schema, migrationRows(schema.Database, schema.Program, state, schema.Pending)); err != nil {
					return err
				}
				if schema.Database != schema.Program && len(schema.Pending) == 0 {
					return &failure{code: exitStorage}
				}
				return nil
			})
		},
	}
	c := a.group("migrate", "Show and apply changes of the database's tables",
		`The database's tables change with versions of Forebay. A server brings them up to date when it starts;
these commands do so, or look, without one.`, up, status)
	c.PersistentFlags().StringVar(&source.Database, "database", "", "the database, sqlite:PATH or postgres://… (default: as configured, else sqlite:forebay.db)")
	c.PersistentFlags().StringVar(&source.File, "config", "", "configuration file that names the database")
	return c
}

func migrationRows(database, program int64, state string, migrations []string) [][2]string {
	return [][2]string{
		{"database", fmt.Sprintf("schema %d", database)},
		{"this program", fmt.Sprintf("schema %d", program)},
		{"state", state},
		{"migrations", strings.Join(migrations, ", ")},
	}
}

// withDatabase runs do with the configured database.
func (a *app) withDatabase(ctx context.Context, source config.Source, do func(context.Context, string) error) error {
	source.Environ = a.environ
	loaded, err := config.Load(source)
	if err != nil {
		return err
	}
	return do(ctx, loaded.Options.WithDefaults().Database)
}
