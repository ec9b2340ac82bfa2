package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func serve(a *command.App) *cobra.Command {
	var source config.Source
	c := serverCommand(a, &cobra.Command{
		Use:   "serve",
		Short: "Run the server: HTTP and workers",
		Long: `Run the server. Without any configuration it keeps its database in ./forebay.db, answers on
127.0.0.1:8080 to this machine only, and works with a simulated model.

On SIGINT or SIGTERM it takes no more work and lets calls in flight finish for up to
shutdown_timeout. It returns the rest to their queues and exits. A second signal ends it at once.
No job is lost either way.

On SIGHUP it reads its configuration again and takes in deployments, models, tasks, tenants, the
limits of tenants and the certificate. It refuses a configuration with a mistake and goes on as
it was. The log names other changes: they need a restart.`,
		Example: `  forebay serve
  forebay serve --listen :8080 --database sqlite:/var/lib/forebay/forebay.db
  forebay serve --config forebay.yaml
  forebay serve --database postgres://forebay@db.example.com/forebay --role api
  OPENAI_API_KEY=sk-… forebay serve`,
	}, &source)
	listenFlag(c.Flags(), &source)
	c.Flags().StringVar(&source.Role, "role", "", "what this process does: all, api, worker or retry-worker (default all)")
	return c
}

func worker(a *command.App) *cobra.Command {
	source := config.Source{Role: server.RoleWorker}
	c := serverCommand(a, &cobra.Command{
		Use:   "worker",
		Short: "Run workers without HTTP",
		Long: `Run what serve runs, without answering HTTP: the jobs already in the database are carried out. It
is short for serve --role worker. With --retries-only it is short for serve --role retry-worker.`,
		Example: "  forebay worker --config forebay.yaml\n  forebay worker --config forebay.yaml --retries-only",
	}, &source)
	c.Flags().BoolFunc("retries-only", "carry out only what waits in the retry lanes, beside other workers", func(text string) error {
		only, err := strconv.ParseBool(text)
		if source.Role = server.RoleWorker; only {
			source.Role = server.RoleRetryWorker
		}
		return err
	})
	return c
}

func serverCommand(a *command.App, c *cobra.Command, source *config.Source) *cobra.Command {
	sourceFlags(c.Flags(), source)
	return configCommand(a, c, source, func(c *command.Call, loaded config.Loaded) error { return runServer(c, *source, loaded) })
}

func runServer(c *command.Call, source config.Source, loaded config.Loaded) error {
	o := loaded.Options
	o.Logger = server.NewLogger(c.Err, o.Log)
	for _, note := range loaded.Notes {
		o.Logger.Info(note) //nolint:sloglint // one of a few fixed sentences
	}
	if simulated(o) {
		o.Logger.Warn("all deployments are simulated: no real model is called")
	}
	server.TuneRuntime(o)
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	s, err := server.New(o)
	if err != nil {
		return configured(err)
	}
	ctx, stop := context.WithCancel(c.Ctx)
	var reloading sync.WaitGroup
	reloading.Go(func() {
		for {
			select {
			case <-hangUps:
				reload(ctx, s, source, o.Logger)
			case <-ctx.Done():
				return
			}
		}
	})
	err = s.Run(ctx)
	stop()
	reloading.Wait()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// reload reads the configuration again and passes it to the server. If the server refuses it,
// reload logs that and the server keeps its configuration.
func reload(ctx context.Context, s *server.Server, source config.Source, log *slog.Logger) {
	loaded, err := config.Load(source)
	var restart []string
	if err == nil {
		restart, err = s.Reload(ctx, loaded.Options)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.ErrorContext(ctx, "the new configuration is refused; the server keeps the old one",
			slog.String("problems", strings.ReplaceAll(configured(err).Error(), "\n", "; ")))
	case len(restart) > 0:
		log.WarnContext(ctx, "the new configuration is in force; some changes need a restart",
			slog.Any("restart", restart))
	default:
		log.InfoContext(ctx, "the new configuration is in force")
	}
}

func simulated(o server.Options) bool {
	return !slices.ContainsFunc(o.Deployments, func(d server.Deployment) bool { return d.Provider != server.ProviderSim })
}
