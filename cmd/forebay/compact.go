package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a *app) compact() *cobra.Command {
	var source config.Source
	c := &cobra.Command{
		Use:   "compact",
		Short: "Give the disk back what deleted rows have left in a SQLite file",
		Long: `Write a SQLite file anew without the space that deleted rows have left, more thoroughly than a server does
while it runs. A file of an earlier version then also shrinks while it is served. Stop the server first. It needs
as much free disk as the rows take. Interrupted, the file is as it was.`,
		Example: "  forebay compact --database sqlite:forebay.db",
		Args:    arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			source.Environ = a.environ
			loaded, err := config.Load(source)
			if err != nil {
				return err
			}
			done, err := server.Compact(c.Context(), loaded.Options.WithDefaults().Database)
			if err != nil {
				return err
			}
			return a.printOne(done, [][2]string{
				{"before", fmt.Sprintf("%d bytes", done.Before)},
				{"after", fmt.Sprintf("%d bytes", done.After)},
			})
		},
	}
	c.Flags().StringVar(&source.Database, "database", "", "the database, sqlite:PATH (default: as configured, else sqlite:forebay.db)")
	c.Flags().StringVar(&source.File, "config", "", "configuration file that names the database")
	return c
}
