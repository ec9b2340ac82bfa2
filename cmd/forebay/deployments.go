package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// deploymentCommands are the commands about deployments.
type deploymentCommands struct{ *command.App }

func (a deploymentCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{Use: "deployments", Short: "See what calls go to, pause and resume it, forget what was learned"},
		command.List(a.App, &cobra.Command{Use: "list", Short: "List the deployments of models, and HTTP functions"},
			command.OfServer((*client.Client).Deployments), a.columns),
		a.verb("show", "Show a deployment: quota, use, pauses, breaker", (*client.Client).Deployment),
		a.verb("pause", "Let no further call go to a deployment; calls in flight finish",
			(*client.Client).PauseDeployment),
		a.verb("resume", "Let calls go again to a paused deployment, or try one with an open breaker",
			(*client.Client).ResumeDeployment),
		a.verb("forget", "Forget what was learned: limit, breaker, pauses that the provider asked for",
			(*client.Client).ForgetDeployment),
		a.changes(), a.sim())
}

func (a deploymentCommands) verb(verb, short string, ask command.ByName[forebay.Deployment]) *cobra.Command {
	return command.Show(a.App, &cobra.Command{Use: verb + " DEPLOYMENT", Short: short}, command.OfArgument(ask), a.fields)
}

func (a deploymentCommands) columns(d forebay.Deployment) []command.Field {
	return []command.Field{
		{"DEPLOYMENT", d.Name}, {"PROVIDER", d.Provider}, {"MODELS", strings.Join(d.Models, ", ")},
		{"STATE", a.state(d)}, {"TPM USED", usedOf(d.Used.Tokens, d.Limit.Tokens)},
		{"RPM USED", usedOf(d.Used.Requests, d.Limit.Requests)},
		{"IN FLIGHT", usedOf(d.InFlight, int64(d.Concurrency))},
		{"LEARNED SINCE", a.WhenPtr(d.LearnedSince)},
		{"PRICE IN/OUT", priceOf(d.Price)},
	}
}

func (a deploymentCommands) fields(d forebay.Deployment) []command.Field {
	return []command.Field{
		{"deployment", d.Name},
		{"kind", d.Kind},
		{"provider", d.Provider},
		{"models", strings.Join(d.Models, ", ")},
		{"state", a.state(d)},
		{"tokens a minute", quotaLine(d.Used.Tokens, d.Limit.Tokens, d.Quota.Tokens)},
		{"output tokens a minute", quotaLine(d.Used.OutputTokens, d.Limit.OutputTokens, d.Quota.OutputTokens)},
		{"requests a minute", quotaLine(d.Used.Requests, d.Limit.Requests, d.Quota.Requests)},
		{"pace", fmt.Sprintf("%d%% of the limit", d.PacePercent)},
		{"in flight", usedOf(d.InFlight, int64(d.Concurrency))},
		{"calls", fmt.Sprintf("%d, throttled %d, failed %d", d.Calls, d.Throttled, d.Failed)},
		{"prompt tokens", fmt.Sprintf("%.2f times the estimate, ± %.0f%%", d.PromptFactor, 100*d.PromptSpread)},
		{"output if not named", unnamedOutput(d.UnnamedOutputTokens)},
		{"learned since", a.WhenPtr(d.LearnedSince)},
		{"price in/out", priceOf(d.Price)},
	}
}

func priceOf(p forebay.Price) string {
	text := fmt.Sprintf("$%g/$%g", p.Input, p.Output)
	if p.CachedInput > 0 {
		text += fmt.Sprintf(", cached $%g", p.CachedInput)
	}
	if p.CacheWrite > 0 {
		text += fmt.Sprintf(", cache writes $%g", p.CacheWrite)
	}
	return text
}

func unnamedOutput(tokens int64) string {
	if tokens == 0 {
		return "every call names it"
	}
	return fmt.Sprintf("%d tokens reserved", tokens)
}

// deploymentState says what prevents calls to the deployment, if anything does.
func (a deploymentCommands) state(d forebay.Deployment) string {
	until := func(what string, at *time.Time) string {
		return what + command.IfSet(at, func(t time.Time) string { return " until " + a.When(t) })
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

// usedOf writes a number and its limit, if there is one.
func usedOf(used, limit int64) string {
	if limit == 0 {
		return command.Count(used)
	}
	return command.Count(used) + "/" + command.Count(limit)
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

func (a deploymentCommands) changes() *cobra.Command {
	return command.Page(a.App, &cobra.Command{
		Use: "changes DEPLOYMENT", Short: "List what happened to a deployment, newest first",
		Long: `List what happened to a deployment, newest first: to its breaker, to its learned limit, and
pauses that its provider asked for.`,
	}, func(c *command.Call, _ int) iter.Seq2[forebay.DeploymentChange, error] {
		return c.API.DeploymentChanges(c.Ctx, c.Args[0])
	}, func(d forebay.DeploymentChange) []command.Field {
		return []command.Field{
			{"AT", a.When(d.At)}, {"CHANGE", d.Type}, {"REASON", d.Reason},
			{"UNTIL", a.WhenPtr(d.Until)},
			{"TPM", command.IfTrue(d.TokensPerMinute != 0, fmt.Sprint(d.TokensPerMinute))},
		}
	})
}

func (a deploymentCommands) sim() *cobra.Command {
	return a.APICommand(&cobra.Command{
		Use:   "sim DEPLOYMENT [FAULTS]",
		Short: "Show or set how difficult a simulated deployment is",
		Long: `Show how difficult a simulated deployment is, or replace it by a JSON object. It holds from the
next call on, until the server stops, or until a reload changes what is configured of it.`,
		Example: `  forebay deployments sim simulated
  forebay deployments sim simulated '{"throttle_rate":0.2,"latency":"300ms"}'
  forebay deployments sim simulated '{}'`,
	}, func(c *command.Call) error {
		if len(c.Args) == 2 {
			if err := jsoncheck.Check("faults", []byte(c.Args[1])); err != nil {
				return err
			}
			if err := c.API.SetSimFaults(c.Ctx, c.Args[0], json.RawMessage(c.Args[1])); err != nil {
				return err
			}
		}
		faults, err := c.API.SimFaults(c.Ctx, c.Args[0])
		if err != nil {
			return err
		}
		return c.PrintJSON(faults)
	})
}
