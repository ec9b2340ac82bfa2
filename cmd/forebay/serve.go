package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a *app) serve() *cobra.Command {
	var source config.Source
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: HTTP and workers",
		Long: `Run the server. Without any configuration it keeps its database in ./forebay.db, answers on
127.0.0.1:8080 to this machine only, and works with a simulated model.

On SIGINT or SIGTERM it takes no more work, lets calls in flight finish for up to shutdown_timeout,
returns the rest to their queues and exits; a second signal ends it at once. No job is lost either way.`,
		Example: `  forebay serve
  forebay serve --listen :8080 --database sqlite:/var/lib/forebay/forebay.db
  forebay serve --config forebay.yaml
  forebay serve --database postgres://forebay@db.example.com/forebay --role api
  OPENAI_API_KEY=sk-… forebay serve`,
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error { return a.runServer(c.Context(), source) },
	}
	sourceFlags(c, &source)
	c.Flags().StringVar(&source.Listen, "listen", "", "address to answer on (default 127.0.0.1:8080)")
	c.Flags().StringVar(&source.Role, "role", "", "what this process does: all, api, worker or retry-worker (default all)")
	return c
}

func (a *app) worker() *cobra.Command {
	var source config.Source
	retriesOnly := false
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run workers without HTTP",
		Long: `Run what serve runs, without answering HTTP: the jobs already in the database are carried out.
It is short for serve --role worker, or with --retries-only for serve --role retry-worker.`,
		Example: "  forebay worker --config forebay.yaml\n  forebay worker --config forebay.yaml --retries-only",
		Args:    arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			source.Role = server.RoleWorker
			if retriesOnly {
				source.Role = server.RoleRetryWorker
			}
			return a.runServer(c.Context(), source)
		},
	}
	sourceFlags(c, &source)
	c.Flags().BoolVar(&retriesOnly, "retries-only", false, "carry out only what waits in the retry lanes, beside other workers")
	return c
}

func sourceFlags(c *cobra.Command, source *config.Source) {
	c.Flags().StringVar(&source.File, "config", "", "configuration file, YAML")
	c.Flags().StringVar(&source.Database, "database", "", "the database, sqlite:PATH or postgres://… (default sqlite:forebay.db)")
}

func (a *app) runServer(ctx context.Context, source config.Source) error {
	source.Environ = a.environ
	loaded, err := config.Load(source)
	if err != nil {
		return err
	}
	o := loaded.Options
	o.Version = buildVersion()
	o.Logger = server.NewLogger(a.err, o.Log)
	for _, note := range loaded.Notes {
		o.Logger.Info(note) //nolint:sloglint // one of a few fixed sentences
	}
	if simulated(o) {
		o.Logger.Warn("all deployments are simulated: no real model is called")
	}
	server.TuneRuntime(o)
	s, err := server.New(o)
	if err != nil {
		return configured(err)
	}
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func simulated(o server.Options) bool {
	return !slices.ContainsFunc(o.WithDefaults().Deployments, func(d server.Deployment) bool { return d.Provider != server.ProviderSim })
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
