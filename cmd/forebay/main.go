// Command forebay is the server and its command line. Each command is a thin layer over package
// client, or over package server for what runs in this process.
//
// This file lists the commands, and there is a file for each subject. The commands about one kind
// of thing are methods of one type, such as jobCommands. Package command is their frame. Four
// files hold what several commands share: vocabulary.go (names of arguments and flags), flags.go,
// payload.go (inputs and bodies) and errors.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/command/live"
	"github.com/forebayhq/forebay/internal/command/openai"
	"github.com/forebayhq/forebay/internal/command/reports"
	"github.com/forebayhq/forebay/internal/command/servicebus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop. The second one has the default behaviour, which ends the
	// process.
	context.AfterFunc(ctx, stop)
	a := &command.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Now: time.Now, Zone: time.Local}
	os.Exit(a.Run(ctx, root(a), os.Args[1:]))
}

// root is the whole command line. Sections, and commands in them, are in the order of their use.
func root(a *command.App) *cobra.Command {
	root := command.Group(&cobra.Command{
		Use: "forebay", Short: "Run language-model jobs durably", Version: buildVersion(),
		Long: `Forebay takes jobs that are too slow, too expensive or too unreliable for a request. It keeps
them on disk and runs them as fast as the model's quota allows.

Start a server, submit a job and see its result:

  forebay serve
  forebay submit summarize --file report.txt --wait`,
	})
	command.AddSection(root, "Jobs",
		submit(a), jobCommands{a}.group(), batch(a), openai.Responses(a), deadLetters(a), quarantine(a), tasks(a))
	command.AddSection(root, "Queues and messages", queueCommands{a}.group(), messageCommands{a}.group(),
		topicCommands{a}.group(), subscriptionCommands{a}.group(), ruleCommands{a}.group(), servicebus.Commands(a))
	command.AddSection(root, "Orchestrations", orchestrationCommands{a}.group(), workflows(a))
	command.AddSection(root, "Documents", search(a), documentCommands{a}.group(), watch(a))
	command.AddSection(root, "What happens now", live.Commands(a)...)
	command.AddSection(root, "Operate", deploymentCommands{a}.group(), tenantCommands{a}.group(), signInCommands{a}.group(),
		webhookCommands{a}.group(), reports.Commands(a), auditCommands{a}.group())
	database := databaseCommands{a}
	command.AddSection(root, "Server and database", serve(a), worker(a), configGroup(a), keyCommands{a}.group(),
		database.backup(), database.restore(), database.migrate(), database.copy(), database.compact())
	command.AddSection(root, "Try and test", doctorCommand(a), sim(a))
	command.AddSection(root, command.OtherCommands, versionCommand(a))
	root.AddCommand(exitCodes())
	a.SetUp(root, words)
	return root
}
