package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) queues() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List queues with what stands in them", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			queues, err := allQueues(c.Context(), api)
			if err != nil {
				return err
			}
			return printList(a, all(queues), 0, anyQueueColumns)
		},
	}
	return a.group("queues", "Look at queues, pause and resume them; make queues of plain messages", "", list,
		a.queueCommand("get", "Show a queue", a.queueGet),
		a.queueCreate(),
		a.queueCommand("delete", "Delete a queue of plain messages, with all its messages", func(ctx context.Context, api *client.Client, name string) error {
			return api.DeleteMessageQueue(ctx, name)
		}),
		a.queueCommand("pause", "Let no further job of a queue start; calls in flight finish", func(ctx context.Context, api *client.Client, name string) error {
			if err := api.PauseQueue(ctx, name); err != nil {
				return err
			}
			return a.queueGet(ctx, api, name)
		}),
		a.queueCommand("resume", "Let a paused queue go on", func(ctx context.Context, api *client.Client, name string) error {
			if err := api.ResumeQueue(ctx, name); err != nil {
				return err
			}
			return a.queueGet(ctx, api, name)
		}),
	)
}

func (a *app) queueCommand(verb, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return a.about("QUEUE", verb, short, "  forebay queues "+verb+" default", func(ctx context.Context, api *client.Client, name string) error {
		return ofQueue(do(ctx, api, name))
	})
}

func (a *app) queueGet(ctx context.Context, api *client.Client, name string) error {
	jobs, messages, err := api.FindQueue(ctx, name)
	if err != nil {
		return err
	}
	if messages != nil {
		return a.printMessageQueue(*messages)
	}
	q := *jobs
	return a.printOne(q, [][2]string{
		{"queue", q.Name},
		{"state", queueState(q)},
		{"active", counted(q.Active, q.CountsCapped)},
		{"locked", counted(q.Locked, q.CountsCapped)},
		{"scheduled", counted(q.Scheduled, q.CountsCapped)},
		{"retrying", counted(q.Retrying, q.CountsCapped)},
		{"dead-letter", counted(q.DeadLetter, q.CountsCapped)},
		{"quarantine", counted(q.Quarantine, q.CountsCapped)},
		{"oldest", seconds(q.OldestAgeSeconds)},
		{"concurrency", fmt.Sprintf("%d, retries %d", q.Concurrency, q.RetryConcurrency)},
		{"lock", fmt.Sprintf("%gs", q.LockSeconds)},
		{"max deliveries", strconv.Itoa(q.MaxDeliveryCount)},
	})
}

func queueState(q forebay.QueueInfo) string {
	if q.Paused {
		return "paused"
	}
	return "running"
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// counted is a count that may have stopped at its limit: "10000+".
func counted(n int64, capped bool) string {
	if capped && n > 0 {
		return count(n) + "+"
	}
	return count(n)
}

func (a *app) tasks() *cobra.Command {
	c := &cobra.Command{
		Use: "tasks", Short: "List the tasks jobs may ask for", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			tasks, err := api.Tasks(c.Context())
			if err != nil {
				return err
			}
			return printList(a, all(tasks), 0, []column[client.Task]{
				{"TASK", func(t client.Task) string { return t.Name }},
				{"QUEUE", func(t client.Task) string { return t.Queue }},
				{"DESCRIPTION", func(t client.Task) string { return shorten(t.Description, 100) }},
			})
		},
	}
	show := a.apiCommand("show", "Show what a task takes and returns", []string{"TASK"}, func(ctx context.Context, api *client.Client, args []string) error {
		task, err := api.Task(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printOne(task, [][2]string{
			{"task", task.Name}, {"description", task.Description}, {"queue", task.Queue},
			{"example", string(task.Example)}, {"input", indented(task.InputSchema)}, {"output", indented(task.OutputSchema)},
		})
	})
	show.Example = "  forebay tasks show chat"
	c.AddCommand(show)
	return c
}

// indented is a JSON text for people; what is none stays as it is.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}
