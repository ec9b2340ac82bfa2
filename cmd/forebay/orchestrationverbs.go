package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) orchestrationsRaise() *cobra.Command {
	var payload payloadFlags
	c := &cobra.Command{
		Use: "raise INSTANCE EVENT", Short: "Send an instance an event", Args: arguments(2, "INSTANCE", "EVENT"),
		Long:    "Send an instance an event. One that it does not wait for yet is kept until it does.",
		Example: "  forebay orchestrations raise order-4711 approved --input true",
		RunE: func(c *cobra.Command, args []string) error {
			data, err := payload.read(a, c)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := api.RaiseEvent(c.Context(), args[0], args[1], data); err != nil || a.output != outputTable {
				return ofInstance(err)
			}
			_, err = fmt.Fprintf(a.out, "%s was sent %s\n", clean(args[0]), clean(args[1]))
			return err
		},
	}
	payload.add(c, "what the event brings")
	return c
}

// ofInstance makes an instance that is over, and still there, a conflict.
func ofInstance(err error) error {
	if err != nil && forebay.CodeOf(err) == forebay.CodeGone {
		return &failure{exitConflict, err.Error()}
	}
	return err
}

// instanceVerb is a command that asks for something that is done soon after.
func (a *app) instanceVerb(verb, short, done string, do func(*client.Client, context.Context, string, string) error) *cobra.Command {
	var reason string
	c := a.about("INSTANCE", verb, short, "  forebay orchestrations "+verb+` order-4711 --reason "as the customer wishes"`, func(ctx context.Context, api *client.Client, id string) error {
		if err := do(api, ctx, id, reason); err != nil || a.output != outputTable {
			return ofInstance(err)
		}
		_, err := fmt.Fprintf(a.out, "%s will be %s\n", clean(id), done)
		return err
	})
	c.Flags().StringVar(&reason, "reason", "", "why; it is kept in the history")
	return c
}

func (a *app) orchestrationsRestart() *cobra.Command {
	var sameID, wait bool
	c := a.about("INSTANCE", "restart", "Start an instance anew, with its input", "  forebay orchestrations restart order-4711 --same-id", func(ctx context.Context, api *client.Client, id string) error {
		started, err := api.RestartOrchestration(ctx, id, !sameID)
		if err != nil {
			return err
		}
		return a.printStarted(ctx, api, started, wait)
	})
	c.Long = "Start an instance anew, with its input, and print the id: a new one, unless --same-id is given."
	c.Flags().BoolVar(&sameID, "same-id", false, "under its own id: it has to be over, and its history is deleted")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instance is over and print its output")
	return c
}

// overStatuses are those of instances that can be purged.
var overStatuses = []forebay.OrchestrationStatus{forebay.OrchestrationCompleted, forebay.OrchestrationFailed, forebay.OrchestrationTerminated, forebay.OrchestrationCanceled}

func (a *app) orchestrationsPurge() *cobra.Command {
	var f instanceFlags
	everything := false
	c := &cobra.Command{
		Use: "purge [INSTANCE]", Short: "Delete instances that are over, with their histories", Args: arguments(0, "INSTANCE"),
		Long: "Delete instances that are over, with their histories: one, or those that flags select. The server deletes old ones by\n" +
			"itself: see retention in its configuration.",
		Example: `  forebay orchestrations purge order-4711
  forebay orchestrations purge --created-before 30d --status completed
  forebay orchestrations purge --all`,
		RunE: func(c *cobra.Command, args []string) error {
			selected := false
			for _, name := range []string{"status", "prefix", "created-after", "created-before"} {
				selected = selected || c.Flags().Changed(name)
			}
			switch {
			case len(args) == 1 && (selected || everything):
				return usagef("an instance and a selection exclude each other")
			case everything && selected:
				return usagef("--all and a selection exclude each other")
			case len(args) == 0 && !selected && !everything:
				return usagef("name an instance, select some by flags, or say --all")
			}
			filter, err := f.get(a, overStatuses)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			n := 1
			if len(args) == 1 {
				err = api.PurgeOrchestration(c.Context(), args[0])
			} else {
				n, err = api.PurgeOrchestrations(c.Context(), filter)
			}
			if err != nil {
				return err
			}
			return a.printOne(map[string]int{"instancesDeleted": n}, [][2]string{{"purged", strconv.Itoa(n)}})
		},
	}
	f.add(c, overStatuses)
	c.Flags().BoolVar(&everything, "all", false, "all that are over")
	return c
}

// findFold finds a value in upper or lower case.
func findFold[S ~string](values []S, s string) (S, bool) {
	for _, v := range values {
		if strings.EqualFold(string(v), s) {
			return v, true
		}
	}
	return "", false
}
