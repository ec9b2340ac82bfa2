package command

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
)

func init() {
	cobra.EnableCommandSorting = false // help lists commands in the order of their use
}

// Group completes a command that only holds other commands.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args, c.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
	c.RunE = runGroup
	// The plural names a resource. The singular works too.
	if singular, plural := strings.CutSuffix(c.Name(), "s"); plural {
		c.Aliases = append(c.Aliases, singular)
	}
	return WithCommands(c, commands...)
}

// WithCommands adds subcommands to c. "get" is an alias of "show" everywhere.
func WithCommands(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	for _, child := range commands {
		if child.Name() == "show" {
			child.Aliases = append(child.Aliases, "get")
		}
	}
	c.AddCommand(commands...)
	return c
}

// runGroup runs a group itself: without arguments it prints help, else the command is unknown.
func runGroup(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() {
			names = append(append(names, child.Name()), child.Aliases...)
		}
	}
	if near := nearest(args[0], names); near != "" {
		return Usagef("unknown command %q; did you mean %q?", args[0], c.CommandPath()+" "+near)
	}
	return Usagef("unknown command %q; see %s --help", args[0], c.CommandPath())
}

// nearest returns the name that was probably meant, or "".
func nearest(typed string, names []string) string {
	// Only for cobra's comparison of names.
	c := &cobra.Command{SuggestionsMinimumDistance: min(2, len(typed)/2)}
	for _, name := range names {
		c.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	near := c.SuggestionsFor(typed)
	if len(near) == 0 {
		return ""
	}
	// A long name may merely begin like what was typed.
	return slices.MinFunc(near, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
}

// OtherCommands is the last section of the command line's help.
const OtherCommands = "Other commands"

// AddSection adds commands to a group, under a heading of the group's help.
func AddSection(group *cobra.Command, title string, commands ...*cobra.Command) {
	group.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	WithCommands(group, commands...)
}

// addHelp adjusts cobra's help to this command line.
func addHelp(root *cobra.Command) {
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetHelpCommandGroupID(OtherCommands)
	root.SetCompletionCommandGroupID(OtherCommands)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, help
		}
	}
	root.SetUsageTemplate(strings.NewReplacer(
		// A group can be run only to say what is wrong. Its usage does not show that.
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}",
		"FlagUsages", "FlagUsagesWrapped 100",
	).Replace(root.UsageTemplate()))
}

// help replaces cobra's help command, which does not fail for an unknown command.
func help(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	switch {
	case err != nil:
		return Usagef("%s", err)
	case len(rest) > 0 && topic.HasSubCommands() && topic.RunE != nil:
		return runGroup(topic, rest)
	case len(rest) > 0:
		return Usagef("unexpected argument %q; see %s --help", rest[0], topic.CommandPath())
	}
	topic.InitDefaultHelpFlag()
	return topic.Help()
}

// flagProblem says what is wrong with the value of a flag. The message puts the flag's name before
// it.
type flagProblem string

func (p flagProblem) Error() string { return string(p) }

// flagError replaces the wording of pflag's errors.
func flagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(c, unknown)
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name := invalid.GetFlag().Name
	if problem, ok := errors.AsType[flagProblem](err); ok {
		return Usagef("--%s %s", name, problem)
	}
	if refused, ok := errors.AsType[*forebay.Error](err); ok {
		return refused
	}
	takes := map[string]string{
		"int": "a whole number", "int64": "a whole number", "float64": "a number", "bool": "true or false",
		"duration": "a duration such as 90s or 24h",
	}
	if what, known := takes[invalid.GetFlag().Value.Type()]; known {
		return Usagef("--%s takes %s, not %.40q", name, what, invalid.GetValue())
	}
	return err
}

// unknownFlag adds which flag was probably meant.
func unknownFlag(c *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	if unicode.IsDigit([]rune(name)[0]) {
		return Usagef("unexpected %q: no negative number is taken here", "-"+unknown.GetSpecifiedShortnames())
	}
	var names []string
	if unknown.GetSpecifiedShortnames() == "" {
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	if near := nearest(name, names); near != "" {
		return Usagef("%s; did you mean --%s?", unknown, near)
	}
	return Usagef("%s; see %s --help", unknown, c.CommandPath())
}
