package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
	return &cobra.Command{
		Use: verb + " QUEUE", Short: short, Example: "  forebay queues " + verb + " default", Args: arguments(1, "QUEUE"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return ofQueue(do(c.Context(), api, args[0]))
		},
	}
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
		{"active", count(q.Active)},
		{"locked", count(q.Locked)},
		{"scheduled", count(q.Scheduled)},
		{"retrying", count(q.Retrying)},
		{"dead-letter", count(q.DeadLetter)},
		{"quarantine", count(q.Quarantine)},
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

func (a *app) tasks() *cobra.Command {
	return &cobra.Command{
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
}

func (a *app) deployments() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List model deployments", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			deployments, err := api.Deployments(c.Context())
			if err != nil {
				return err
			}
			return printList(a, all(deployments), 0, []column[client.Deployment]{
				{"DEPLOYMENT", func(d client.Deployment) string { return d.Name }},
				{"PROVIDER", func(d client.Deployment) string { return d.Provider }},
				{"MODELS", func(d client.Deployment) string { return strings.Join(d.Models, ", ") }},
				{"TPM", func(d client.Deployment) string { return orNone(d.TokensPerMinute) }},
				{"RPM", func(d client.Deployment) string { return orNone(d.RequestsPerMinute) }},
				{"PRICE IN/OUT", func(d client.Deployment) string { return fmt.Sprintf("$%g/$%g", d.Price.Input, d.Price.Output) }},
			})
		},
	}
	sim := &cobra.Command{
		Use:   "sim DEPLOYMENT [FAULTS]",
		Short: "Show or set how difficult a simulated deployment is",
		Long:  "Show how difficult a simulated deployment is, or replace it by a JSON object. It holds from the next call on, until the server stops.",
		Example: `  forebay deployments sim simulated
  forebay deployments sim simulated '{"throttle_rate":0.2,"latency":"300ms"}'
  forebay deployments sim simulated '{}'`,
		Args: arguments(1, "DEPLOYMENT", "FAULTS"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if err := forebay.CheckJSON("faults", []byte(args[1])); err != nil {
					return err
				}
				if err := api.SetSimFaults(c.Context(), args[0], json.RawMessage(args[1])); err != nil {
					return err
				}
			}
			faults, err := api.SimFaults(c.Context(), args[0])
			if err != nil {
				return err
			}
			indent := "  "
			if a.output == outputJSONL {
				indent = ""
			}
			return writeJSON(a.out, faults, indent)
		},
	}
	return a.group("deployments", "Look at model deployments", "", list, sim)
}

func orNone(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
