package command

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// Call is one run of a command.
type Call struct {
	*App
	Ctx   context.Context // ends when the user interrupts the command
	API   *client.Client  // nil unless APICommand made the command
	Args  []string
	Flags *pflag.FlagSet
}

// Command completes a command that has its texts and flags. run carries the command out. The Use
// line declares the arguments.
func (a *App) Command(c *cobra.Command, run func(*Call) error) *cobra.Command {
	c.Args = argumentsOf(c.Use).check
	c.RunE = func(c *cobra.Command, args []string) error {
		return run(&Call{App: a, Ctx: c.Context(), Args: args, Flags: c.Flags()})
	}
	return c
}

// APICommand completes a command that talks to a server.
func (a *App) APICommand(c *cobra.Command, run func(*Call) error) *cobra.Command {
	return a.Command(c, func(c *Call) (err error) {
		if c.API, err = a.Client(); err != nil {
			return err
		}
		return run(c)
	})
}

// localAnnotation marks the commands that LocalCommand made.
const localAnnotation = "local"

// LocalCommand completes a command that talks to no server. It refuses the flags that name one.
func (a *App) LocalCommand(c *cobra.Command, run func(*Call) error) *cobra.Command {
	c.Annotations = map[string]string{localAnnotation: ""}
	return a.Command(c, run)
}

// isLocal reports whether a command talks to no server. A group is local if all its commands are.
func isLocal(c *cobra.Command) bool {
	if c.HasSubCommands() {
		return !slices.ContainsFunc(c.Commands(), func(child *cobra.Command) bool { return !isLocal(child) })
	}
	_, local := c.Annotations[localAnnotation]
	return local
}

// ByName is a method of the SDK about one thing, such as (*client.Client).Document.
type ByName[T any] func(*client.Client, context.Context, string) (T, error)

// OfArgument calls a method of the SDK with the first argument.
func OfArgument[T any](ask ByName[T]) func(*Call) (T, error) {
	return func(c *Call) (T, error) { return ask(c.API, c.Ctx, c.Args[0]) }
}

// OfServer calls a method of the SDK that takes no argument, such as (*client.Client).Topics.
func OfServer[T any](ask func(*client.Client, context.Context) (T, error)) func(*Call) (T, error) {
	return func(c *Call) (T, error) { return ask(c.API, c.Ctx) }
}

// Await calls a method of the SDK that waits for a thing, such as (*client.Client).WaitDocument.
// Meanwhile the server may restart.
func Await[T any](c *Call, wait ByName[T], name string) (thing T, err error) {
	api, err := c.Patient()
	if err != nil {
		return thing, err
	}
	return wait(api, c.Ctx, name)
}

// Show completes a command that asks a server for one thing and prints it. ask may also change the
// thing.
func Show[T any](a *App, c *cobra.Command, ask func(*Call) (T, error), fields View[T]) *cobra.Command {
	return a.APICommand(c, func(c *Call) error {
		thing, err := ask(c)
		if err != nil {
			return err
		}
		return a.PrintOne(thing, fields(thing))
	})
}

// List completes a command that asks a server for all things of a kind and prints them.
func List[T any](a *App, c *cobra.Command, ask func(*Call) ([]T, error), columns View[T]) *cobra.Command {
	return a.APICommand(c, func(c *Call) error {
		things, err := ask(c)
		if err != nil {
			return err
		}
		return PrintList(a, things, columns)
	})
}

// Pages asks a server for things page by page.
type Pages[T any] func(c *Call, pageSize int) iter.Seq2[T, error]

// Page completes a command about things of which there may be many. It adds --limit and prints
// that many of them.
func Page[T any](a *App, c *cobra.Command, ask Pages[T], columns View[T]) *cobra.Command {
	limit := c.Flags().Int("limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return a.APICommand(c, func(c *Call) error {
		if *limit < 0 {
			return Usagef("--limit must not be negative")
		}
		pageSize := forebay.MaxPageSize
		if *limit > 0 {
			pageSize = min(*limit, pageSize)
		}
		return printItems(a, ask(c, pageSize), *limit, columns)
	})
}

// MapErrors passes the errors of a command through change. The command must be complete.
func MapErrors(c *cobra.Command, change func(error) error) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error { return change(run(c, args)) }
	return c
}

// arguments are what a command takes besides flags.
type arguments struct {
	names    []string
	needed   int  // the first so many must be given
	repeated bool // the last one may be given several times
}

// argumentsOf reads a Use line. NAME must be given, [NAME] may be given, and NAME... may be given
// several times. A flag ends the arguments.
func argumentsOf(use string) (a arguments) {
	optional := false
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "--") {
			break
		}
		optional = optional || strings.HasPrefix(word, "[")
		name, repeated := strings.CutSuffix(strings.Trim(word, "[]"), "...")
		a.names, a.repeated = append(a.names, name), repeated
		if !optional {
			a.needed = len(a.names)
		}
	}
	return a
}

// check is the command's check of the number of arguments.
func (a arguments) check(c *cobra.Command, args []string) error {
	switch {
	case len(args) < a.needed:
		return Usagef("%s is missing; see %s --help", a.names[len(args)], c.CommandPath())
	case len(args) > len(a.names) && !a.repeated:
		return Usagef("unexpected argument %q; see %s --help", args[len(a.names)], c.CommandPath())
	}
	return nil
}

// at returns the name of the n-th argument, from 0. It is "" if the command takes fewer.
func (a arguments) at(n int) string {
	switch {
	case n < len(a.names):
		return a.names[n]
	case a.repeated:
		return a.names[len(a.names)-1]
	}
	return ""
}

// addExamples gives an example to each command that has arguments and none of its own.
func addExamples(c *cobra.Command, samples map[string]string) {
	for _, child := range c.Commands() {
		addExamples(child, samples)
	}
	arguments := argumentsOf(c.Use)
	if c.Example != "" || arguments.needed == 0 {
		return
	}
	c.Example = "  " + c.CommandPath()
	for _, name := range arguments.names[:arguments.needed] {
		c.Example += " " + samples[name]
	}
}
