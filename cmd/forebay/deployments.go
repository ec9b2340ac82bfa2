package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

func (a *app) deployments() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the deployments of models, and HTTP functions", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			deployments, err := api.Deployments(c.Context())
			if err != nil {
				return err
			}
			return printList(a, all(deployments), 0, []column[forebay.Deployment]{
				{"DEPLOYMENT", func(d forebay.Deployment) string { return d.Name }},
				{"PROVIDER", func(d forebay.Deployment) string { return d.Provider }},
				{"MODELS", func(d forebay.Deployment) string { return strings.Join(d.Models, ", ") }},
				{"STATE", a.deploymentState},
				{"TPM USED", func(d forebay.Deployment) string { return usedOf(d.Used.Tokens, d.Limit.Tokens) }},
				{"RPM USED", func(d forebay.Deployment) string { return usedOf(d.Used.Requests, d.Limit.Requests) }},
				{"IN FLIGHT", func(d forebay.Deployment) string { return usedOf(d.InFlight, int64(d.Concurrency)) }},
				{"LEARNED SINCE", func(d forebay.Deployment) string { return a.whenPtr(d.LearnedSince) }},
				{"PRICE IN/OUT", func(d forebay.Deployment) string { return fmt.Sprintf("$%g/$%g", d.Price.Input, d.Price.Output) }},
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
				if err := jsoncheck.Check("faults", []byte(args[1])); err != nil {
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
	changes := &cobra.Command{
		Use: "changes DEPLOYMENT", Short: "List what happened to a deployment, newest first",
		Long:    "List what happened to a deployment, newest first: its breaker, its learned limit, pauses that its provider asked for.",
		Example: "  forebay deployments changes east", Args: arguments(1, "DEPLOYMENT"),
	}
	limit := changes.Flags().Int("limit", 50, "at most so many; 0: all")
	changes.RunE = func(c *cobra.Command, args []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		api, err := a.client()
		if err != nil {
			return err
		}
		return printList(a, api.DeploymentChanges(c.Context(), args[0]), *limit, []column[forebay.DeploymentChange]{
			{"AT", func(d forebay.DeploymentChange) string { return a.when(d.At) }},
			{"CHANGE", func(d forebay.DeploymentChange) string { return d.Type }},
			{"REASON", func(d forebay.DeploymentChange) string { return d.Reason }},
			{"UNTIL", func(d forebay.DeploymentChange) string { return a.whenPtr(d.Until) }},
			{"TPM", func(d forebay.DeploymentChange) string { return orNone(int(d.TokensPerMinute)) }},
		})
	}
	verb := func(verb, short string, do func(context.Context, *client.Client, string) (forebay.Deployment, error)) *cobra.Command {
		return &cobra.Command{
			Use: verb + " DEPLOYMENT", Short: short, Example: "  forebay deployments " + verb + " east", Args: arguments(1, "DEPLOYMENT"),
			RunE: func(c *cobra.Command, args []string) error {
				api, err := a.client()
				if err != nil {
					return err
				}
				d, err := do(c.Context(), api, args[0])
				if err != nil {
					return err
				}
				return a.printDeployment(d)
			},
		}
	}
	return a.group("deployments", "Look at what calls go to, pause and resume it, forget what was learned", "", list,
		verb("show", "Show a deployment: quota, use, pauses, breaker", func(ctx context.Context, api *client.Client, name string) (forebay.Deployment, error) {
			return api.Deployment(ctx, name)
		}),
		verb("pause", "Let no further call go to a deployment; calls in flight finish", func(ctx context.Context, api *client.Client, name string) (forebay.Deployment, error) {
			return api.PauseDeployment(ctx, name)
		}),
		verb("resume", "Let calls go again to a deployment that was paused, or try one that turned calls away", func(ctx context.Context, api *client.Client, name string) (forebay.Deployment, error) {
			return api.ResumeDeployment(ctx, name)
		}),
		verb("forget", "Begin anew to learn of a deployment: its limit, its breaker, pauses that its provider asked for", func(ctx context.Context, api *client.Client, name string) (forebay.Deployment, error) {
			return api.ForgetDeployment(ctx, name)
		}),
		changes, sim)
}

func (a *app) printDeployment(d forebay.Deployment) error {
	return a.printOne(d, [][2]string{
		{"deployment", d.Name},
		{"kind", d.Kind},
		{"provider", d.Provider},
		{"models", strings.Join(d.Models, ", ")},
		{"state", a.deploymentState(d)},
		{"tokens a minute", quotaLine(d.Used.Tokens, d.Limit.Tokens, d.Quota.Tokens)},
		{"output tokens a minute", quotaLine(d.Used.OutputTokens, d.Limit.OutputTokens, d.Quota.OutputTokens)},
		{"requests a minute", quotaLine(d.Used.Requests, d.Limit.Requests, d.Quota.Requests)},
		{"pace", fmt.Sprintf("%d%% of the limit", d.PacePercent)},
		{"in flight", usedOf(d.InFlight, int64(d.Concurrency))},
		{"calls", fmt.Sprintf("%d, throttled %d, failed %d", d.Calls, d.Throttled, d.Failed)},
		{"prompt tokens", fmt.Sprintf("%.2f times the estimate, ± %.0f%%", d.PromptFactor, 100*d.PromptSpread)},
		{"output if not named", unnamedOutput(d.UnnamedOutputTokens)},
		{"learned since", a.whenPtr(d.LearnedSince)},
		{"price in/out", fmt.Sprintf("$%g/$%g", d.Price.Input, d.Price.Output)},
	})
}

func unnamedOutput(tokens int64) string {
	if tokens == 0 {
		return "every call names it"
	}
	return fmt.Sprintf("%d tokens reserved", tokens)
}

// deploymentState is the one thing that keeps calls away, if anything does.
func (a *app) deploymentState(d forebay.Deployment) string {
	until := func(what string, at *time.Time) string {
		if at == nil {
			return what
		}
		return what + " until " + a.whenPtr(at)
	}
	switch {
	case d.Paused:
		return "paused"
	case d.Breaker != forebay.BreakerClosed:
		state := "breaker " + string(d.Breaker)
		if d.BreakerReason != "" {
			state += " (" + d.BreakerReason + ")"
		}
		return until(state, d.BreakerUntil)
	case d.PausedUntil != nil:
		return until("throttled", d.PausedUntil)
	}
	return "available"
}

// usedOf is a use and the limit that holds it, if one does.
func usedOf(used, limit int64) string {
	if limit == 0 {
		return count(used)
	}
	return count(used) + "/" + count(limit)
}

func quotaLine(used, limit, quota int64) string {
	switch {
	case used == 0 && limit == 0:
		return ""
	case limit == 0:
		return fmt.Sprintf("%d used; no limit is known", used)
	case limit < quota:
		return fmt.Sprintf("%d used of %d, as learned; the quota is %d", used, limit, quota)
	}
	return fmt.Sprintf("%d used of %d", used, limit)
}

func orNone(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
