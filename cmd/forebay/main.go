// Command forebay is the server and its command line. Files are by subject; each command is a thin
// layer over package client, or over package server for what runs in this process.
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

	"github.com/forebayhq/forebay/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop; the next one finds the default behaviour, and ends the process.
	context.AfterFunc(ctx, stop)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), now: time.Now, zone: time.Local}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// app is the process as the commands see it, and what the global flags say.
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

func (a *app) root() *cobra.Command {
	root := a.group("forebay", "Run language-model jobs durably",
		`Forebay takes jobs that are too slow, too expensive or too unreliable for a request, keeps them on
disk and runs them as fast as the model's quota allows.

Start a server, submit a job and see its result:

  forebay serve
  forebay submit summarize --file report.txt --wait`,
		a.serve(), a.worker(), a.submit(), a.jobs(), a.batch(), a.orchestrations(),
		a.setAside("dlq", "dead-letter"), a.setAside("quarantine", "quarantine"),
		a.queues(), a.messages(), a.topics(), a.subscriptions(), a.rules(), a.webhooks(), a.documents(), a.search(), a.watch(), a.tasks(), a.deployments(), a.tenants(), a.keys(), a.audit(), a.reports(), a.workflows(), a.config(), a.doctor(),
		a.migrate(), a.backup(), a.restore(), a.copy(), a.compact(), a.sim(), a.version(), exitCodes(),
	)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.checkGlobals(c) }
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "address of the server (FOREBAY_URL; default http://127.0.0.1:8080)")
	flags.StringVar(&a.key, "key", "", "API key; better in FOREBAY_API_KEY, where no other user sees it")
	flags.StringVar(&a.caCert, "ca-cert", "", "file of certificates (PEM) of an authority to trust, beside the system's (FOREBAY_CA_CERT)")
	flags.StringVarP(&a.output, "output", "o", "table", "how to print: table, json or jsonl")
	root.Version = buildVersion()
	root.SetVersionTemplate("forebay {{.Version}}\n")
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, help
		}
	}
	// Groups can be run only to say what is wrong; that is no way to use them.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	return root
}

// group is a command that only has others.
func (a *app) group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		near := c.SuggestionsFor(args[0])
		if len(near) > 0 {
			return usagef("unknown command %q; did you mean %q?", args[0], c.CommandPath()+" "+near[0])
		}
		return usagef("unknown command %q; see %s --help", args[0], c.CommandPath())
	}
	c.SuggestionsMinimumDistance = 2
	for _, one := range commands {
		// Nobody should have to know which of the two a resource has.
		switch one.Name() {
		case "get":
			one.Aliases = append(one.Aliases, "show")
		case "show":
			one.Aliases = append(one.Aliases, "get")
		}
	}
	c.AddCommand(commands...)
	return c
}

// help is cobra's command, except that a topic there is not is an error.
func help(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	switch {
	case err != nil:
		return usagef("%s", err)
	case len(rest) > 0 && topic.HasSubCommands() && topic.RunE != nil:
		return topic.RunE(topic, rest)
	case len(rest) > 0:
		return usagef("unexpected argument %q; see %s --help", rest[0], topic.CommandPath())
	}
	topic.InitDefaultHelpFlag()
	return topic.Help()
}

// arguments checks the number of arguments: the first needed are required, the other names optional.
func arguments(needed int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < needed:
			return usagef("%s is missing; see %s --help", names[len(args)], c.CommandPath())
		case len(args) > len(names):
			return usagef("unexpected argument %q; see %s --help", args[len(names)], c.CommandPath())
		}
		return nil
	}
}

// apiCommand is a command about what its arguments name.
func (a *app) apiCommand(use, short string, names []string, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	for _, name := range names {
		use += " " + name
	}
	return &cobra.Command{
		Use: use, Short: short, Args: arguments(len(names), names...),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return do(c.Context(), api, args)
		},
	}
}

// about is a command about one thing, which its argument names.
func (a *app) about(thing, use, short, example string, do func(ctx context.Context, api *client.Client, name string) error) *cobra.Command {
	c := a.apiCommand(use, short, []string{thing}, func(ctx context.Context, api *client.Client, args []string) error { return do(ctx, api, args[0]) })
	c.Example = example
	return c
}

// local are the commands that talk to no server.
var local = []string{"serve", "worker", "keys", "migrate", "copy", "compact", "backup", "restore", "config", "sim", "version", "exit-codes"}

func (a *app) checkGlobals(c *cobra.Command) error {
	a.running = true
	top := c
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	for _, flag := range []string{"url", "key", "ca-cert"} {
		if slices.Contains(local, top.Name()) && c.Flags().Changed(flag) {
			return usagef("--%s is for commands that talk to a server; %s does not", flag, c.CommandPath())
		}
	}
	switch a.output {
	case outputTable, outputJSON, outputJSONL:
		return nil
	}
	return usagef("--output must be table, json or jsonl, not %q", a.output)
}

// getenv returns a variable's value, or "".
func (a *app) getenv(name string) string {
	for _, variable := range a.environ {
		if len(variable) > len(name) && variable[:len(name)] == name && variable[len(name)] == '=' {
			return variable[len(name)+1:]
		}
	}
	return ""
}
