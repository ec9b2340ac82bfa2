package main

import (
	"errors"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
)

func init() {
	cobra.EnableCommandSorting = false // help lists commands in the order of their use
}

// group is a command that only has others.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args, c.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
	c.RunE = runGroup
	// The plural names a resource. Its singular is understood, too.
	if singular, plural := strings.CutSuffix(c.Name(), "s"); plural {
		c.Aliases = append(c.Aliases, singular)
	}
	return withCommands(c, commands...)
}

// withCommands adds commands below one. "get" is another name of "show" everywhere.
func withCommands(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	for _, child := range commands {
		if child.Name() == "show" {
			child.Aliases = append(child.Aliases, "get")
		}
	}
	c.AddCommand(commands...)
	return c
}

// runGroup is what a group does by itself: it helps, and says that there is no such command in it.
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
		return usagef("unknown command %q; did you mean %q?", args[0], c.CommandPath()+" "+near)
	}
	return usagef("unknown command %q; see %s --help", args[0], c.CommandPath())
}

// nearest is the name that was probably meant, or "".
func nearest(typed string, names []string) string {
	c := &cobra.Command{SuggestionsMinimumDistance: min(2, len(typed)/2)} // it knows how to compare names
	for _, name := range names {
		c.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	if near := c.SuggestionsFor(typed); len(near) > 0 {
		return near[0]
	}
	return ""
}

// otherCommands is the last section of the command line's help.
const otherCommands = "Other commands"

// section is a group's commands under one heading of its help.
type section struct {
	title    string
	commands []*cobra.Command
}

func addSections(group *cobra.Command, sections ...section) {
	for _, s := range sections {
		group.AddGroup(&cobra.Group{ID: s.title, Title: s.title + ":"})
		for _, c := range s.commands {
			c.GroupID = s.title
			withCommands(group, c)
		}
	}
}

// addHelp adjusts cobra's help to this command line.
func addHelp(root *cobra.Command) {
	root.Version = buildVersion()
	root.SetVersionTemplate("forebay {{.Version}}\n")
	root.SetHelpCommandGroupID(otherCommands)
	root.SetCompletionCommandGroupID(otherCommands)
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

// help is cobra's command. Other than cobra's it fails for a command that does not exist.
func help(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	switch {
	case err != nil:
		return usagef("%s", err)
	case len(rest) > 0 && topic.HasSubCommands() && topic.RunE != nil:
		return runGroup(topic, rest)
	case len(rest) > 0:
		return usagef("unexpected argument %q; see %s --help", rest[0], topic.CommandPath())
	}
	topic.InitDefaultHelpFlag()
	return topic.Help()
}

// flagProblem is what is wrong with a flag's value, said after the flag's name.
type flagProblem string

func (p flagProblem) Error() string { return string(p) }

// flagError says what is wrong with a flag in the words of this command line.
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
		return usagef("--%s %s", name, problem)
	}
	if refused, ok := errors.AsType[*forebay.Error](err); ok {
		return refused
	}
	takes := map[string]string{
		"int": "a whole number", "int64": "a whole number", "float64": "a number", "bool": "true or false",
		"duration": "a duration such as 90s or 24h",
	}
	if what, known := takes[invalid.GetFlag().Value.Type()]; known {
		return usagef("--%s takes %s, not %.40q", name, what, invalid.GetValue())
	}
	return err
}

// unknownFlag says which flag was probably meant.
func unknownFlag(c *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	if unicode.IsDigit([]rune(name)[0]) {
		return usagef("unexpected %q: no negative number is taken here", "-"+unknown.GetSpecifiedShortnames())
	}
	var names []string
	if unknown.GetSpecifiedShortnames() == "" {
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	}
	if near := nearest(name, names); near != "" {
		return usagef("%s; did you mean --%s?", unknown, near)
	}
	return unknown
}
