package main

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

// call is one run of a command.
type call struct {
	*app
	ctx   context.Context // ends when the user interrupts
	api   *client.Client  // nil in a command that talks to no server
	args  []string
	flags *pflag.FlagSet
}

// command completes a command with its texts and flags. The Use line declares the arguments, and
// run carries it out.
func (a *app) command(c *cobra.Command, run func(*call) error) *cobra.Command {
	c.Args = argumentsOf(c.Use).check
	c.RunE = func(c *cobra.Command, args []string) error {
		return run(&call{app: a, ctx: c.Context(), args: args, flags: c.Flags()})
	}
	return c
}

// apiCommand is a command that talks to a server.
func (a *app) apiCommand(c *cobra.Command, run func(*call) error) *cobra.Command {
	return a.command(c, func(c *call) (err error) {
		if c.api, err = a.client(); err != nil {
			return err
		}
		return run(c)
	})
}

const localAnnotation = "local"

// localCommand is a command that talks to no server, and refuses the flags that name one.
func (a *app) localCommand(c *cobra.Command, run func(*call) error) *cobra.Command {
	c.Annotations = map[string]string{localAnnotation: ""}
	return a.command(c, run)
}

// isLocal reports whether a command talks to no server. A group does not if none of its commands does.
func isLocal(c *cobra.Command) bool {
	if c.HasSubCommands() {
		return !slices.ContainsFunc(c.Commands(), func(child *cobra.Command) bool { return !isLocal(child) })
	}
	_, local := c.Annotations[localAnnotation]
	return local
}

// byName is a call of the SDK about one thing.
type byName[T any] func(*client.Client, context.Context, string) (T, error)

// ofArgument makes the call about what the first argument names.
func ofArgument[T any](ask byName[T]) func(*call) (T, error) {
	return func(c *call) (T, error) { return ask(c.api, c.ctx, c.args[0]) }
}

// showCommand asks a server for one thing and prints it. What it asks may also change the thing.
func showCommand[T any](a *app, c *cobra.Command, ask func(*call) (T, error), fields view[T]) *cobra.Command {
	return a.apiCommand(c, func(c *call) error {
		thing, err := ask(c)
		if err != nil {
			return err
		}
		return a.printOne(thing, fields(thing))
	})
}

// listCommand asks a server for all things of a kind and prints them.
func listCommand[T any](a *app, c *cobra.Command, ask func(*call) ([]T, error), columns view[T]) *cobra.Command {
	return a.apiCommand(c, func(c *call) error {
		things, err := ask(c)
		if err != nil {
			return err
		}
		return printList(a, all(things), 0, columns)
	})
}

// pages asks a server for things page by page.
type pages[T any] func(c *call, pageSize int) iter.Seq2[T, error]

// pageCommand asks a server for things of which there may be many and prints the first --limit.
func pageCommand[T any](a *app, c *cobra.Command, ask pages[T], columns view[T]) *cobra.Command {
	limit := c.Flags().Int("limit", forebay.DefaultPageSize, "at most this many; 0: all")
	return a.apiCommand(c, func(c *call) error {
		if *limit < 0 {
			return usagef("--limit must not be negative")
		}
		pageSize := forebay.MaxPageSize
		if *limit > 0 {
			pageSize = min(*limit, pageSize)
		}
		return printList(a, ask(c, pageSize), *limit, columns)
	})
}

// mapErrors has a command change its errors.
func mapErrors(c *cobra.Command, change func(error) error) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error { return change(run(c, args)) }
	return c
}

// arguments are what a command takes besides flags.
type arguments struct {
	names    []string
	needed   int  // so many of the first must be given
	repeated bool // the last one may be given again and again
}

// argumentsOf reads a Use line. NAME must be given, [NAME] may be, and NAME... may be given
// repeatedly. A flag ends the arguments.
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
		return usagef("%s is missing; see %s --help", a.names[len(args)], c.CommandPath())
	case len(args) > len(a.names) && !a.repeated:
		return usagef("unexpected argument %q; see %s --help", args[len(a.names)], c.CommandPath())
	}
	return nil
}

// at is the name of the n-th argument, from 0, or "" where the command takes no more.
func (a arguments) at(n int) string {
	switch {
	case n < len(a.names):
		return a.names[n]
	case a.repeated:
		return a.names[len(a.names)-1]
	}
	return ""
}

// samples stand for arguments in the examples of help.
var samples = map[string]string{
	"JOB_ID": "job_0123456789abcdefghjkmnpqrs", "QUEUE": "mail", "SEQUENCE_NUMBER": "4711", "TASK": "chat",
	"LOCK_TOKEN": "AAAAAAAAAAFb2V0aGluZyBlbHNl", "SESSION_TOKEN": "AAAAAAAAAAFb2V0aGluZyBlbHNl",
	"TOPIC": "orders", "SUBSCRIPTION": "large", "RULE": "big", "INSTANCE": "order-4711", "DOCUMENT": "notes",
	"WEBHOOK": "billing", "TENANT": "acme", "DEPLOYMENT": "east", "KEY_ID": "key_0123456789abcdefghjkmnpqrs",
}

// addExamples gives an example to each command that has arguments and none of its own.
func addExamples(c *cobra.Command) {
	for _, child := range c.Commands() {
		addExamples(child)
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
