package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// completionTime is how long a shell may wait for names.
const completionTime = 2 * time.Second

var (
	// argumentLists are the commands that list what an argument may be, in their first column.
	// They take the arguments before it.
	argumentLists = map[string]string{
		"DEPLOYMENT": "deployments list", "DOCUMENT": "documents list", "INSTANCE": "orchestrations list",
		"JOB_ID": "jobs list", "QUEUE": "queues list", "RULE": "rules list",
		"SUBSCRIPTION": "subscriptions list", "TASK": "tasks list", "TENANT": "tenants list",
		"TOPIC": "topics list", "WEBHOOK": "webhooks list",
	}
	// flagArguments are flags that take what an argument takes.
	flagArguments = map[string]string{"job": "JOB_ID", "queue": "QUEUE", "task": "TASK", "tenant": "TENANT"}
	// flagChoices are flags that take one of a few words.
	flagChoices = map[string][]string{
		"mode":    texts([]forebay.SearchMode{forebay.SearchHybrid, forebay.SearchVector, forebay.SearchKeyword}),
		"role":    {server.RoleAll, server.RoleAPI, server.RoleWorker, server.RoleRetryWorker},
		"scopes":  texts(forebay.Scopes),
		"kind":    texts(modelsim.Kinds),
		"headers": texts(modelsim.HeaderKinds),
	}
	// fileFlags are flags that take a file's name, which a shell completes by itself.
	fileFlags = []string{"ca-cert", "config", "faults", "file", "log", "output", "set-body-file", "set-input-file"}
)

// addCompletions has a shell complete the arguments and flags of a command and of those below it.
func (a *app) addCompletions(c *cobra.Command) {
	for _, child := range c.Commands() {
		a.addCompletions(child)
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch name := argumentsOf(c.Use).at(len(args)); name {
		case "FILE", "FILE.jsonl":
			return nil, cobra.ShellCompDirectiveDefault
		case "DIR", "FOLDER":
			return nil, cobra.ShellCompDirectiveFilterDirs
		default:
			return a.listNames(c.Root(), name, args), cobra.ShellCompDirectiveNoFileComp
		}
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(fileFlags, f.Name) || f.NoOptDefVal != "" {
			return
		}
		completeFlag(c, f.Name, func() []string {
			if v, ok := f.Value.(*value); ok && v.choices != nil {
				return v.choices
			}
			if choices, ok := flagChoices[f.Name]; ok {
				return choices
			}
			return a.listNames(c.Root(), flagArguments[f.Name], nil)
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

// listNames returns what an argument may be. Where nothing answers there is nothing to offer. A process
// that completes a command line does nothing else, so the list may take over its output.
func (a *app) listNames(root *cobra.Command, argument string, args []string) (names []string) {
	line, known := argumentLists[argument]
	list, _, err := root.Find(strings.Fields(line))
	if !known || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	list.SetContext(ctx)
	var out bytes.Buffer
	a.out, a.output = &out, outputTable
	if err := list.RunE(list, args); err != nil {
		return nil
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, row := range rows[1:] { // without the titles
		names = append(names, strings.Fields(row)[0])
	}
	return names
}
