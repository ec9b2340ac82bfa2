package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/command"
)

// visit calls do for each command.
func visit(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, child := range c.Commands() {
		visit(child, do)
	}
}

// emptyServer has nothing of anything.
func emptyServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/runtime/") && !strings.HasSuffix(r.URL.Path, "/i"):
			w.Write([]byte(`[]`))
		default:
			w.Write([]byte(`{"items":[],"historyEvents":[]}`))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Names that commands and flags once had go on to work.
func TestFormerNames(t *testing.T) {
	url := emptyServer(t)
	for _, c := range []struct{ former, path string }{
		{"jobs get j", "jobs show"}, {"queues get q", "queues show"}, {"documents get d", "documents show"},
		{"orchestrations get i", "orchestrations show"}, {"orchestration list", "orchestrations list"},
		{"dlq peek j", "dlq show"}, {"quarantine peek j", "quarantine show"}, {"rules add t s r", "rules create"},
		{"config print", "config show"}, {"config check", "config validate"}, {"workflows check f", "workflows validate"},
		{"tenants get t", "tenants show"}, {"messages get q 1", "messages show"},
	} {
		found, _, err := root(&command.App{}).Find(strings.Fields(c.former))
		if err != nil || found.CommandPath() != "forebay "+c.path {
			t.Errorf("%s is %s (%v), want %s", c.former, found.CommandPath(), err, c.path)
		}
	}
	for _, args := range []string{
		"orchestrations list --created-after 24h --created-before 1h", "queues create q --delete-when-idle 10m",
		"subscriptions create t s --session", "webhooks redeliver w --number 1,2",
	} {
		if got := (commandLine{url: url}).run(t.Context(), strings.Fields(args)...); got.code != command.ExitOK {
			t.Errorf("%s: exit code %d, %s", args, got.code, got.err)
		}
	}
}

// A flag has one type and one default everywhere. Some flags also have one help text everywhere.
func TestFlagsAreTheSameEverywhere(t *testing.T) {
	differs := map[string][]string{
		"after":  {"jobs watch"},
		"config": {"sim"},
		"from":   {"messages peek"},
		"limit":  {"documents list", "search"},
		"listen": {"sim"},
		"max":    {"messages receive"},
		"queue":  {"submit", "jobs list", "jobs sessions", "batch run", "events", "dlq groups", "quarantine groups"},
		"tenant": {"keys create"},
		"wait":   {"messages receive", "messages accept-session"},
	}
	sameHelp := []string{
		"blob", "config", "concurrency", "daily-tokens", "daily-usd", "database", "dead-letter-expired", "dry-run", "events",
		"forward-dead-letters-to", "forward-to", "job", "limit", "listen", "lock", "max", "max-deliveries", "monthly-tokens",
		"monthly-usd", "prefix", "secret", "sql",
	}
	type seen struct{ path, kind, initial, help string }
	first := map[string]seen{}
	visit(root(&command.App{}), func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "forebay ")
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || slices.Contains(differs[f.Name], path) {
				return
			}
			this := seen{path, f.Value.Type(), f.DefValue, f.Usage}
			before, known := first[f.Name]
			switch {
			case !known:
				first[f.Name] = this
			case this.kind != before.kind || this.initial != before.initial:
				t.Errorf("--%s is %+v and %+v", f.Name, before, this)
			case slices.Contains(sameHelp, f.Name) && this.help != before.help:
				t.Errorf("--%s is %q of %s and %q of %s", f.Name, before.help, before.path, this.help, path)
			}
		})
	})
}

// A list of nothing has its titles: each kind of thing can be printed without a value.
func TestEmptyListsHaveTitles(t *testing.T) {
	url := emptyServer(t)
	for _, args := range []string{
		"audit list", "deployments changes d", "deployments list", "dlq list", "documents list", "jobs attempts j", "jobs list",
		"messages peek q", "messages receive q", "messages sessions q", "orchestrations attempts i", "orchestrations history i",
		"orchestrations list", "quarantine list", "queues list", "rules list t s", "search q", "subscriptions list t", "tasks",
		"sign-ins list", "tasks list", "tenants list", "topics list", "webhooks dead-letters w", "webhooks list", "webhooks tries w",
	} {
		got := commandLine{url: url}.run(t.Context(), strings.Fields(args)...)
		if got.code != command.ExitOK || strings.Count(got.out, "\n") != 1 || got.out != strings.ToUpper(got.out) {
			t.Errorf("%s: exit code %d, %q, %s", args, got.code, got.out, got.err)
		}
	}
}

// Each command has a section, so that none is lost below the others.
func TestCommandsHaveSections(t *testing.T) {
	for _, c := range root(&command.App{}).Commands() {
		if c.GroupID == "" && c.Runnable() {
			t.Errorf("%s has no section", c.Name())
		}
	}
}
