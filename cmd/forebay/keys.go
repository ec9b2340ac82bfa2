package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/server"
)

// keyCommands are the commands about API keys.
type keyCommands struct{ *command.App }

func (a keyCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "keys", Short: "Make, list and revoke API keys",
		Long: `API keys are kept in the database, as hashes. These commands work on the database itself, before
a server runs and beside a running one. From the first key on, a server answers only requests
that carry one.

A key with the scope send, listen or manage is for clients of Azure Service Bus too: its id is
their SharedAccessKeyName, and the key is their SharedAccessKey.`,
	}, a.list(), a.create(), a.setBudget(), a.revoke())
}

// command completes a command that works on the API keys in the configured database. creates says
// that it may create the database.
func (a keyCommands) command(c *cobra.Command, creates bool, run func(*command.Call, *server.Keys, server.Options) error) *cobra.Command {
	source := &config.Source{}
	sourceFlags(c.Flags(), source)
	return configCommand(a.App, c, source, func(c *command.Call, loaded config.Loaded) (err error) {
		keys, err := openKeys(c, source, loaded.Options.Database, creates)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, keys.Close()) }()
		return run(c, keys, loaded.Options)
	})
}

// showCommand completes a command that asks for one key, or changes it, and prints it.
func (a keyCommands) showCommand(
	c *cobra.Command, ask func(*command.Call, *server.Keys) (forebay.APIKey, error), fields command.View[forebay.APIKey],
) *cobra.Command {
	return a.command(c, false, func(c *command.Call, keys *server.Keys, _ server.Options) error {
		key, err := ask(c, keys)
		if err != nil {
			return err
		}
		return c.PrintOne(key, fields(key))
	})
}

func openKeys(c *command.Call, source *config.Source, database string, creates bool) (*server.Keys, error) {
	path, isFile := strings.CutPrefix(database, "sqlite:")
	_, missing := os.Stat(strings.TrimPrefix(path, "//"))
	isNew := isFile && path != "" && errors.Is(missing, fs.ErrNotExist)
	if isNew && !creates {
		return nil, command.ExitError(command.ExitStorage, fmt.Sprintf("there is no database %s; name it by --database or --config", path))
	}
	if isNew && c.Getenv("FOREBAY_URL") != "" && source.Database == "" && source.File == "" && c.Getenv("FOREBAY_DATABASE") == "" {
		return nil, command.Usagef("FOREBAY_URL names a server, but keys are made in its database: name that by --database or --config")
	}
	keys, err := server.OpenKeys(c.Ctx, database)
	if err == nil && isNew {
		fmt.Fprintf(c.Err, "Made a new database, %s; the server must use the same.\n", path)
	}
	return keys, err
}

func (a keyCommands) list() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List API keys, oldest first"}
	return a.command(list, false, func(c *command.Call, keys *server.Keys, _ server.Options) error {
		list, err := keys.List(c.Ctx)
		if err != nil {
			return err
		}
		return command.PrintList(c.App, list, func(k forebay.APIKey) []command.Field {
			return []command.Field{
				{"ID", k.ID}, {"TENANT", k.Tenant}, {"SCOPES", command.Joined(k.Scopes)}, {"ENTITIES", command.Joined(k.Entities)},
				{"STATE", a.state(k)}, {"CREATED", a.Age(k.CreatedAt)},
				{"LAST USED", a.AgePtr(k.LastUsedAt)}, {"EXPIRES", a.AgePtr(k.ExpiresAt)}, {"BUDGET", command.IfSet(k.Budget, budgetText)},
			}
		})
	})
}

func (a keyCommands) state(k forebay.APIKey) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !k.ExpiresAt.After(a.Now()):
		return "expired"
	}
	return "valid"
}

// madeKey is a key that was just made.
type madeKey struct {
	forebay.APIKey
	ConnectionString string `json:"connection_string,omitempty"` // for clients of Service Bus
}

func (a keyCommands) create() *cobra.Command {
	var tenant string
	var names, entities []string
	var expires *time.Time
	var budget forebay.Budget
	c := a.command(&cobra.Command{
		Use:   "create",
		Short: "Make an API key and print it, once",
		Example: `  forebay keys create --tenant acme --scopes submit,read --expires 90d
  forebay keys create --tenant acme --daily-usd 5 --monthly-usd 100
  forebay keys create --tenant acme --scopes send,listen --entities orders,news/subscriptions/all
  forebay keys create --scopes admin -o json`,
	}, true, func(c *command.Call, keys *server.Keys, o server.Options) error {
		scopes := make([]forebay.Scope, len(names))
		for i, name := range names {
			scopes[i] = forebay.Scope(name)
		}
		key, err := keys.Create(c.Ctx, tenant, scopes, expires, budget, entities...)
		if err != nil {
			return err
		}
		c.Note("This is the only time the key is shown; the database keeps a hash.")
		if key.SignsTokens {
			c.Note("Of this key it keeps also what checks the tokens that clients of Service Bus sign.")
		}
		made := madeKey{key, o.ServiceBus.ConnectionString(key)}
		return c.PrintOne(made, []command.Field{
			{"key", key.Key},
			{"id", key.ID},
			{"tenant", key.Tenant},
			{"scopes", command.Joined(key.Scopes)},
			{"entities", command.Joined(key.Entities)},
			{"expires", a.WhenPtr(key.ExpiresAt)},
			{"budget", command.IfSet(key.Budget, budgetText)},
			{"service bus", made.ConnectionString},
		})
	})
	flags := c.Flags()
	flags.StringVar(&tenant, "tenant", forebay.DefaultTenant, "the tenant whose jobs the key is for")
	flags.StringSliceVar(&names, "scopes", command.Texts([]forebay.Scope{forebay.ScopeSubmit, forebay.ScopeRead}),
		"what the key allows: "+command.Joined(forebay.Scopes))
	flags.StringSliceVar(&entities, "entities", nil,
		"queues, topics and TOPIC/subscriptions/NAME that a key with send, listen or manage is bound to (default: all)")
	a.TimeFlag(flags, &expires, "expires", "when it ends: after 90d or 12h, or at a time (default: never)")
	budgetFlags(flags, &budget)
	return c
}

func (a keyCommands) setBudget() *cobra.Command {
	c := &cobra.Command{
		Use: "set-budget KEY_ID", Short: "Set what jobs submitted with a key may use",
		Long: `Set what jobs submitted with a key may use in a calendar day and a calendar month of UTC. It
replaces the budget before: a limit that is not given is none. It counts jobs submitted from then
on.`,
		Example: "  forebay keys set-budget key_01h… --daily-usd 5 --monthly-tokens 10000000",
	}
	budget := newBudget(c)
	return command.Conditional(a.showCommand(c, func(c *command.Call, keys *server.Keys) (forebay.APIKey, error) {
		return keys.SetBudget(c.Ctx, c.Args[0], *budget)
	}, func(k forebay.APIKey) []command.Field {
		return []command.Field{{"id", k.ID}, {"tenant", k.Tenant}, {"budget", command.IfSet(k.Budget, budgetText)}}
	}), false)
}

func (a keyCommands) revoke() *cobra.Command {
	return a.showCommand(&cobra.Command{
		Use: "revoke KEY_ID", Short: "Make an API key useless",
		Long: "Make an API key useless. A running server refuses it within a second.",
	}, func(c *command.Call, keys *server.Keys) (forebay.APIKey, error) { return keys.Revoke(c.Ctx, c.Args[0]) },
		func(k forebay.APIKey) []command.Field {
			return []command.Field{{"revoked", k.ID}, {"tenant", k.Tenant}}
		})
}
