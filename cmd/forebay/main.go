// Command forebay is the server and its command line. Each command is a thin layer over package
// client, or over package server for what runs in this process.
//
// This file lists the commands, and there is a file for each subject. Their common parts are:
// command.go for the shape of a command, flags.go and input.go for what it takes,
// output.go for what it prints, exit.go for how it ends.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop. The second one finds the default behaviour, which ends the
	// process.
	context.AfterFunc(ctx, stop)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), now: time.Now, zone: time.Local}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// app is the process as the commands see it, with the values of the global flags.
type app struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	environ []string
	now     func() time.Time
	zone    *time.Location

	url    string
	key    string
	output string
	caCert string

	running bool // the command line was understood
}

// run carries out one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	c, err := root.ExecuteContextC(ctx)
	return a.report(ctx, named(c, err))
}

// root is the whole command line. Sections, and commands in them, stand in the order of their use.
func (a *app) root() *cobra.Command {
	root := group(&cobra.Command{
		Use: "forebay", Short: "Run language-model jobs durably",
		Long: `Forebay takes jobs that are too slow, too expensive or too unreliable for a request. It keeps
them on disk and runs them as fast as the model's quota allows.

Start a server, submit a job and see its result:

  forebay serve
  forebay submit summarize --file report.txt --wait`,
	})
	addSections(root,
		section{"Jobs", []*cobra.Command{a.submit(), a.jobs(), a.batch(), a.deadLetters(), a.quarantine(), a.tasks()}},
		section{"Queues and messages", []*cobra.Command{a.queues(), a.messages(), a.topics(), a.subscriptions(), a.rules()}},
		section{"Orchestrations", []*cobra.Command{a.orchestrations(), a.workflows()}},
		section{"Documents", []*cobra.Command{a.search(), a.documents(), a.watch()}},
		section{"Operate", []*cobra.Command{a.deployments(), a.tenants(), a.webhooks(), a.reports(), a.audit()}},
		section{"Server and database", []*cobra.Command{
			a.serve(), a.worker(), a.config(), a.keys(), a.backup(), a.restore(), a.migrate(), a.copy(), a.compact(),
		}},
		section{"Try and test", []*cobra.Command{a.doctor(), a.sim()}},
		section{otherCommands, []*cobra.Command{a.version()}},
	)
	root.AddCommand(exitCodes())
	a.globalFlags(root)
	addHelp(root)
	addExamples(root)
	a.addCompletions(root)
	completeFlag(root, "output", func() []string { return outputs })
	return root
}

// globalFlags adds the flags of all commands.
func (a *app) globalFlags(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(currentName)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.checkGlobals(c) }
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "address of the server (FOREBAY_URL; default http://127.0.0.1:8080)")
	flags.StringVar(&a.key, "key", "", "API key; FOREBAY_API_KEY hides it from other users")
	flags.StringVar(&a.caCert, "ca-cert", "", "PEM file of a further authority to trust (FOREBAY_CA_CERT)")
	flags.StringVarP(&a.output, "output", "o", outputTable, "how to print: "+strings.Join(outputs, ", "))
}

func (a *app) checkGlobals(c *cobra.Command) error {
	a.running = true
	if isLocal(c) {
		for _, flag := range []string{"url", "key", "ca-cert"} {
			if c.Flags().Changed(flag) {
				return usagef("--%s is for commands that talk to a server; %s does not", flag, c.CommandPath())
			}
		}
	}
	if !slices.Contains(outputs, a.output) {
		return usagef("--output must be table, json or jsonl, not %q", a.output)
	}
	return nil
}

// getenv returns a variable's value, or "".
func (a *app) getenv(name string) string {
	for _, variable := range a.environ {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
