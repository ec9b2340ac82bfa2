package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func (a *app) workflows() *cobra.Command {
	var source config.Source
	load := func() (server.Options, error) {
		source.Environ = a.environ
		loaded, err := config.Load(source)
		return loaded.Options, err
	}
	check := &cobra.Command{
		Use: "check FILE...", Aliases: []string{"validate"}, Short: "Check the files of workflows and say everything that is wrong with them",
		Long: `Check the files of workflows and say everything that is wrong with them, each with FILE:LINE:COLUMN. The tasks and queues that they may
name are those of the configuration.`,
		Example: "  forebay workflows check review.yaml\n  forebay workflows check --config forebay.yaml workflows/*.yaml",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("FILE is missing; see %s --help", c.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, files []string) error {
			options, err := load()
			if err != nil {
				return err
			}
			return a.checkWorkflows(options, files)
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List the workflows of the configuration", Args: arguments(0),
		Example: "  forebay workflows list --config forebay.yaml",
		RunE: func(*cobra.Command, []string) error {
			options, err := load()
			if err != nil {
				return err
			}
			declared, err := options.DeclaredWorkflows()
			if err != nil {
				return err
			}
			return printList(a, all(declared), 0, []column[server.Workflow]{
				{"WORKFLOW", func(w server.Workflow) string { return w.Name }},
				{"VERSION", func(w server.Workflow) string { return w.Version }},
				{"STEPS", func(w server.Workflow) string { return fmt.Sprint(len(w.Steps)) }},
				{"TASKS", func(w server.Workflow) string { return strings.Join(w.Tasks, ", ") }},
				{"FILE", func(w server.Workflow) string {
					if w.File == "" {
						return "built in"
					}
					return w.File
				}},
			})
		},
	}
	for _, c := range []*cobra.Command{check, list} {
		c.Flags().StringVar(&source.File, "config", "", "configuration file, YAML")
	}
	return a.group("workflows", "Check and list declared workflows",
		`A workflow is a YAML file of steps that call tasks. The configuration names the files, and the server runs each workflow as an
orchestration of its name.`, check, list)
}

// checkWorkflows checks every file and says all that is wrong.
func (a *app) checkWorkflows(options server.Options, files []string) error {
	var problems []string
	for _, file := range files {
		w, err := options.CheckWorkflow(file)
		if err != nil {
			problems = append(problems, strings.Split(err.Error(), "\n")...)
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%s: the workflow %s is valid\n", file, w.Name); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return &config.Error{Problems: problems}
	}
	return nil
}
