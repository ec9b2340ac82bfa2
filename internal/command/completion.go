package command

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completionTime is how long a shell may wait for names.
const completionTime = 2 * time.Second

// addCompletions has a shell complete the arguments and flags of a command and of those below it.
func (a *App) addCompletions(c *cobra.Command, names Vocabulary) {
	for _, child := range c.Commands() {
		a.addCompletions(child, names)
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch name := argumentsOf(c.Use).at(len(args)); name {
		case "FILE", "FILE.jsonl":
			return nil, cobra.ShellCompDirectiveDefault
		case "DIR", "FOLDER":
			return nil, cobra.ShellCompDirectiveFilterDirs
		default:
			return a.listNames(c.Root(), names.Lists[name], args), cobra.ShellCompDirectiveNoFileComp
		}
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(names.FileFlags, f.Name) || f.NoOptDefVal != "" {
			return
		}
		completeFlag(c, f.Name, func() []string {
			if v, ok := f.Value.(*value); ok && v.choices != nil {
				return v.choices
			}
			if choices, ok := names.FlagChoices[f.Name]; ok {
				return choices
			}
			return a.listNames(c.Root(), names.Lists[names.FlagArguments[f.Name]], nil)
		})
	})
}

func completeFlag(c *cobra.Command, name string, values func() []string) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

// listNames runs a command that lists things and returns their names. It returns none if there is
// no such command or no server answers. A process that completes a command line does nothing else,
// so the list may take over its output.
func (a *App) listNames(root *cobra.Command, line string, args []string) (names []string) {
	list, _, err := root.Find(strings.Fields(line))
	if line == "" || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	list.SetContext(ctx)
	var out bytes.Buffer
	a.Out, a.Output = &out, OutputTable
	if err := list.RunE(list, args); err != nil {
		return nil
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, row := range rows[1:] { // without the titles
		names = append(names, strings.Fields(row)[0])
	}
	return names
}
