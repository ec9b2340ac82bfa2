package main

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

func workflows(a *command.App) *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "workflows", Short: "Check and list declared workflows",
		Long: `A workflow is a YAML file of steps that call tasks. The configuration names the files. The server
runs each workflow as an orchestration of its name.`,
	},
		workflowCommand(a, &cobra.Command{
			Use: "list", Short: "List the workflows of the configuration", Example: "  forebay workflows list --config forebay.yaml",
		}, func(c *command.Call, loaded config.Loaded) error {
			declared, err := loaded.Options.DeclaredWorkflows()
			if err != nil {
				return err
			}
			return command.PrintList(c.App, declared, func(w server.Workflow) []command.Field {
				return []command.Field{
					{"WORKFLOW", w.Name}, {"VERSION", w.Version}, {"STEPS", strconv.Itoa(len(w.Steps))},
					{"TASKS", strings.Join(w.Tasks, ", ")}, {"FILE", cmp.Or(w.File, "built in")},
				}
			})
		}),
		workflowCommand(a, &cobra.Command{
			Use: "validate FILE...", Aliases: []string{"check"},
			Short: "Check the files of workflows and say everything that is wrong with them",
			Long: `Check the files of workflows and say everything that is wrong with them, each with
FILE:LINE:COLUMN. The tasks and queues that they may name are those of the configuration.`,
			Example: `  forebay workflows validate review.yaml
  forebay workflows validate --config forebay.yaml workflows/*.yaml`,
		}, func(c *command.Call, loaded config.Loaded) error { return checkWorkflows(c, loaded.Options, c.Args) }),
	)
}

func workflowCommand(a *command.App, c *cobra.Command, run func(*command.Call, config.Loaded) error) *cobra.Command {
	source := &config.Source{}
	configFlag(c.Flags(), source)
	return configCommand(a, c, source, run)
}

// checkWorkflows checks every file and reports all problems.
func checkWorkflows(c *command.Call, options server.Options, files []string) error {
	var problems []string
	for _, file := range files {
		w, err := options.CheckWorkflow(file)
		if err != nil {
			problems = append(problems, strings.Split(err.Error(), "\n")...)
			continue
		}
		if err := command.WriteLine(c.Out, []byte(file+": the workflow "+w.Name+" is valid")); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return command.ExitError(command.ExitConfiguration, problems...)
	}
	return nil
}
