// Package command is the frame of a command line: what its commands share. It knows no command.
//
// An [App] is one process with its streams, its environment and the values of the global flags. A
// command is a [cobra.Command] that [App.Command], [App.APICommand] or [App.LocalCommand]
// completes with the function that runs it. [Show], [List] and [Page] complete a command that asks
// the server for something and prints it. [Group] and [AddSection] arrange commands. [App.SetUp]
// completes the whole command line, and [App.Run] carries it out.
//
// The Use line of a command declares its arguments, such as "show JOB_ID" or "list [QUEUE]". The
// package checks their number, and makes examples and shell completion from their names.
//
// An error ends a command with an exit code, see [ExitError]. Errors of the SDK have theirs by
// [ExitCodeOf].
package command

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// App is the process as the commands see it, with the values of the global flags.
type App struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string
	Now     func() time.Time
	Zone    *time.Location // of the times that tables show

	Output string // the value of --output: OutputTable, OutputJSON or OutputJSONL

	url    string
	key    string
	tenant string
	caCert string

	running bool // the command line was understood
}

// Run carries out one command line and returns the exit code. SetUp must have completed the root.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	c, err := root.ExecuteContextC(ctx)
	return a.report(ctx, named(c, err))
}

// Vocabulary says what the arguments and flags of a command line stand for. Arguments have the
// names of Use lines, such as JOB_ID.
type Vocabulary struct {
	// Samples are the values of arguments in the examples of help.
	Samples map[string]string
	// Lists are the commands that print the possible values of an argument in their first column.
	// They take the arguments before it.
	Lists map[string]string
	// FormerFlags maps former names of flags to today's names.
	FormerFlags map[string]string
	// FlagArguments maps flags to arguments that take the same values.
	FlagArguments map[string]string
	// FlagChoices are the values of flags that take one of a few words.
	FlagChoices map[string][]string
	// FileFlags are flags that take the name of a file. A shell completes it by itself.
	FileFlags []string
}

// SetUp completes a root that has all its commands. It adds the global flags, help, examples
// and shell completion.
func (a *App) SetUp(root *cobra.Command, names Vocabulary) {
	a.globalFlags(root, names.FormerFlags)
	addHelp(root)
	addExamples(root, names.Samples)
	a.addCompletions(root, names)
	completeFlag(root, "output", func() []string { return outputs })
}

// globalFlags adds the flags of all commands. Former names of flags still work.
func (a *App) globalFlags(root *cobra.Command, former map[string]string) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(former[name], name))
	})
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.checkGlobals(c) }
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "address of the server (FOREBAY_URL; default http://127.0.0.1:8080)")
	flags.StringVar(&a.key, "key", "", "API key; FOREBAY_API_KEY hides it from other users")
	flags.StringVar(&a.tenant, "for-tenant", "", "act in this tenant, with an admin key, or read in it, with a view key")
	flags.StringVar(&a.caCert, "ca-cert", "", "PEM file of a further authority to trust (FOREBAY_CA_CERT)")
	flags.StringVarP(&a.Output, "output", "o", OutputTable, "how to print: "+strings.Join(outputs, ", "))
}

func (a *App) checkGlobals(c *cobra.Command) error {
	a.running = true
	if isLocal(c) {
		for _, flag := range []string{"url", "key", "for-tenant", "ca-cert"} {
			if c.Flags().Changed(flag) {
				return Usagef("--%s is for commands that talk to a server; %s does not", flag, c.CommandPath())
			}
		}
	}
	if !slices.Contains(outputs, a.Output) {
		return Usagef("--output must be table, json or jsonl, not %q", a.Output)
	}
	return nil
}

// Getenv returns the value of a variable in Environ, or "".
func (a *App) Getenv(name string) string {
	for _, variable := range a.Environ {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
