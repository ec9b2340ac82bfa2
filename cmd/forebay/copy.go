package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/server"
)

func (a *app) copy() *cobra.Command {
	var from, to string
	var abandon bool
	c := &cobra.Command{
		Use:   "copy",
		Short: "Copy everything in a database into another one",
		Long: `Copy everything in a database into an empty one, from SQLite to PostgreSQL, back, or between two of a
kind, then read both and compare them. Stop every server on both first; the source is only read.

Interrupted, run the same command again: it goes on where it was. Until it is complete no server
starts on the target; --abandon removes an unfinished copy. Payloads in the blob storage are not
copied: servers on the target need the same "blob" in their configuration as those on the source had.

A password is better in PGPASSWORD or ~/.pgpass than in a URL, where other users of the machine see it.`,
		Example: `  forebay copy --from sqlite:forebay.db --to postgres://forebay@db.example.com/forebay
  forebay copy --to postgres://forebay@db.example.com/forebay --abandon`,
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case to == "":
				return usagef("--to is missing: the database to copy into, sqlite:PATH or postgres://…")
			case abandon && from != "":
				return usagef("--abandon needs only --to")
			case abandon:
				return server.AbandonCopy(c.Context(), to)
			case from == "":
				return usagef("--from is missing: the database to copy, sqlite:PATH or postgres://…")
			}
			return a.copyDatabase(c.Context(), from, to)
		},
	}
	c.Flags().StringVar(&from, "from", "", "the database to copy, sqlite:PATH or postgres://…")
	c.Flags().StringVar(&to, "to", "", "the empty database to copy into, sqlite:PATH or postgres://…")
	c.Flags().BoolVar(&abandon, "abandon", false, "remove an unfinished copy")
	return c
}

func (a *app) copyDatabase(ctx context.Context, from, to string) error {
	progress, finish := a.copyProgress()
	report, err := server.Copy(ctx, from, to, progress)
	finish()
	if ctx.Err() != nil && err != nil {
		return &failure{exitInterrupted, "interrupted; run the same command again to go on"}
	}
	if err != nil && a.exitCode(ctx, err) == exitUnavailable {
		return a.advise(ctx, err, "the same command goes on where it was")
	}
	if err != nil {
		return err
	}
	if report.Blobs > 0 {
		fmt.Fprintf(a.err, "%d payloads are in the blob storage, which is not copied: configure the same \"blob\" for the new database.\n", report.Blobs)
	}
	return a.printOne(report, [][2]string{
		{"copied", fmt.Sprintf("%d rows of %d tables", report.Rows, len(report.Tables))},
		{"verified", "row counts and checksums are the same"},
	})
}

// copyProgress tells where a copy is.
func (a *app) copyProgress() (report func(server.CopyProgress), finish func()) {
	line, finish := a.progressLine()
	return func(p server.CopyProgress) {
		what := "copying"
		if p.Verifying {
			what = "comparing"
		}
		line(fmt.Sprintf("%s %s: %d rows", what, p.Table, p.Rows))
	}, finish
}

// progressLine is one line on terminals that is written over again and again, and nothing elsewhere.
func (a *app) progressLine() (show func(string), finish func()) {
	if !isTerminal(a.err) {
		return func(string) {}, func() {}
	}
	var last time.Time
	return func(text string) {
			if time.Since(last) < 100*time.Millisecond {
				return
			}
			last = time.Now()
			fmt.Fprintf(a.err, "\r%-60s", text)
		}, func() {
			fmt.Fprint(a.err, "\r", strings.Repeat(" ", 60), "\r")
		}
}
