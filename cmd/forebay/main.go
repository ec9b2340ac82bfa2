// Command forebay is the server and its command line. Each command is a thin layer over package
// client, or over package server for what runs in this process.
//
// This file lists the commands, and there is a file for each subject. Package command is their
// frame. Four files hold what several commands share: vocabulary.go (names of arguments and
// flags), flags.go, payload.go (inputs and bodies) and errors.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop. The second one has the default behaviour, which ends the
	// process.
	context.AfterFunc(ctx, stop)
	a := &app{&command.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Now: time.Now, Zone: time.Local}}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// app is the process with this command line's commands.
type app struct{ *command.App }

// run carries out one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int { return a.Run(ctx, a.root(), args) }

// root is the whole command line. Sections, and commands in them, are in the order of their use.
func (a *app) root() *cobra.Command {
	root := command.Group(&cobra.Command{
		Use: "forebay", Short: "Run language-model jobs durably", Version: buildVersion(),
		Long: `Forebay takes jobs that are too slow, too expensive or too unreliable for a request. It keeps
them on disk and runs them as fast as the model's quota allows.

Start a server, submit a job and see its result:

  forebay serve
  forebay submit summarize --file report.txt --wait`,
	})
	command.AddSection(root, "Jobs", a.submit(), a.jobs(), a.batch(), a.deadLetters(), a.quarantine(), a.tasks())
	command.AddSection(root, "Queues and messages", a.queues(), a.messages(), a.topics(), a.subscriptions(), a.rules())
	command.AddSection(root, "Orchestrations", a.orchestrations(), a.workflows())
	command.AddSection(root, "Documents", a.search(), a.documents(), a.watch())
	command.AddSection(root, "Operate", a.deployments(), a.tenants(), a.webhooks(), a.reports(), a.audit())
	command.AddSection(root, "Server and database",
		a.serve(), a.worker(), a.config(), a.keys(), a.backup(), a.restore(), a.migrate(), a.copy(), a.compact())
	command.AddSection(root, "Try and test", a.doctor(), a.sim())
	command.AddSection(root, command.OtherCommands, a.version())
	root.AddCommand(exitCodes())
	a.SetUp(root, words)
	return root
}
