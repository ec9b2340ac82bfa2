package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

func tasks(a *command.App) *cobra.Command {
	list := func(use string) *cobra.Command {
		return command.List(a, &cobra.Command{Use: use, Short: "List the tasks that jobs may ask for"},
			command.OfServer((*client.Client).Tasks),
			func(t client.Task) []command.Field {
				return []command.Field{{"TASK", t.Name}, {"QUEUE", t.Queue}, {"DESCRIPTION", command.Shorten(t.Description, 100)}}
			})
	}
	tasks := list("tasks") // "tasks" alone lists, too
	tasks.Aliases = []string{"task"}
	show := a.APICommand(&cobra.Command{Use: "show TASK", Short: "Show what a task takes and returns"}, func(c *command.Call) error {
		t, err := c.API.Task(c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		err = a.PrintOne(t, []command.Field{{"task", t.Name}, {"description", t.Description}, {"queue", t.Queue}, {"example", string(t.Example)}})
		if err != nil || a.Output != command.OutputTable {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "\nTakes:\n%s\n\nReturns:\n%s\n", indented(t.InputSchema), indented(t.OutputSchema))
		return err
	})
	return command.WithCommands(tasks, list("list"), show)
}

// indented indents a JSON text. It returns other texts as they are.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}
