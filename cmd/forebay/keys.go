package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/config"
)

func (a *app) keys() *cobra.Command {
	var source config.Source
	c := a.group("keys", "Make, list and revoke API keys",
		`API keys are kept in the database, as hashes. These commands work on the database itself, before a
server runs and beside a running one. From the first key on, a server answers only requests that
carry one.`, a.keysCreate(&source), a.keysList(&source), a.keysSetBudget(&source), a.keysRevoke(&source))
	c.PersistentFlags().StringVar(&source.Database, "database", "", "the database, sqlite:PATH or postgres://… (default: as configured, else sqlite:forebay.db)")
	c.PersistentFlags().StringVar(&source.File, "config", "", "configuration file that names the database")
	return c
}

// withKeys runs do on the configured database's keys. Only create may make a database.
func (a *app) withKeys(ctx context.Context, source *config.Source, create bool, do func(keyService) error) (err error) {
	source.Environ = a.environ
	loaded, err := config.Load(*source)
	if err != nil {
		return err
	}
	database := loaded.Options.WithDefaults().Database
	path, isFile := strings.CutPrefix(database, "sqlite:")
	_, missing := os.Stat(strings.TrimPrefix(path, "//"))
	isNew := isFile && path != "" && errors.Is(missing, fs.ErrNotExist)
	if isNew && !create {
		return &failure{exitStorage, fmt.Sprintf("there is no database %s; name it by --database or --config", path)}
	}
	if isNew && a.getenv("FOREBAY_URL") != "" && source.Database == "" && source.File == "" && a.getenv("FOREBAY_DATABASE") == "" {
		return usagef("FOREBAY_URL names a server, but keys are made in its database: name that by --database or --config")
	}
	keys, done, err := openService(ctx, database)
	if err != nil {
		return err
	}
	if isNew {
		fmt.Fprintf(a.err, "Made a new database, %s; the server must use the same.\n", path)
	}
	defer func() { err = errors.Join(err, done()) }()
	return do(keys)
}

func (a *app) keysCreate(source *config.Source) *cobra.Command {
	var tenant, expires string
	var names []string
	var budget budgetFlags
	c := &cobra.Command{
		Use:   "create",
		Short: "Make an API key and print it, once",
		Example: `  forebay keys create --tenant acme --scopes submit,read --expires 90d
  forebay keys create --tenant acme --daily-usd 5 --monthly-usd 100
  forebay keys create --scopes admin -o json`,
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := a.parseTime("expires", expires, false)
			if err != nil {
				return err
			}
			scopes := make([]forebay.Scope, len(names))
			for i, name := range names {
				scopes[i] = forebay.Scope(name)
			}
			limits, err := budget.read(c.Flags())
			if err != nil {
				return err
			}
			return a.withKeys(c.Context(), source, true, func(keys keyService) error {
				key, err := keys.Create(c.Context(), tenant, scopes, at, limits)
				if err != nil {
					return err
				}
				if a.output == outputTable {
					fmt.Fprintln(a.err, "This is the only time the key is shown; the database keeps a hash.")
				}
				return a.printOne(key, [][2]string{
					{"key", key.Key},
					{"id", key.ID},
					{"tenant", key.Tenant},
					{"scopes", joined(key.Scopes)},
					{"expires", a.whenPtr(key.ExpiresAt)},
					{"budget", keyBudget(key)},
				})
			})
		},
	}
	budget.register(c.Flags())
	c.Flags().StringVar(&tenant, "tenant", forebay.DefaultTenant, "the tenant whose jobs the key is for")
	c.Flags().StringSliceVar(&names, "scopes", []string{string(forebay.ScopeSubmit), string(forebay.ScopeRead)}, "what the key allows: "+joined(forebay.Scopes))
	c.Flags().StringVar(&expires, "expires", "", "when it ends: after 90d or 12h, or at a time (default: never)")
	return c
}

func (a *app) keysList(source *config.Source) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List API keys, oldest first", Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withKeys(c.Context(), source, false, func(keys keyService) error {
				list, err := keys.List(c.Context())
				if err != nil {
					return err
				}
				return printList(a, all(list), 0, []column[forebay.APIKey]{
					{"ID", func(k forebay.APIKey) string { return k.ID }},
					{"TENANT", func(k forebay.APIKey) string { return k.Tenant }},
					{"SCOPES", func(k forebay.APIKey) string { return joined(k.Scopes) }},
					{"STATE", a.keyState},
					{"CREATED", func(k forebay.APIKey) string { return a.age(k.CreatedAt) }},
					{"EXPIRES", func(k forebay.APIKey) string { return a.agePtr(k.ExpiresAt) }},
					{"BUDGET", keyBudget},
				})
			})
		},
	}
}

func (a *app) keyState(k forebay.APIKey) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !k.ExpiresAt.After(a.now()):
		return "expired"
	}
	return "valid"
}

func (a *app) keysRevoke(source *config.Source) *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY_ID", Short: "Make an API key useless", Args: arguments(1, "KEY_ID"),
		Long: "Make an API key useless. A running server refuses it within a second.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withKeys(c.Context(), source, false, func(keys keyService) error {
				key, err := keys.Revoke(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printOne(key, [][2]string{{"revoked", key.ID}, {"tenant", key.Tenant}})
			})
		},
	}
}

func (a *app) keysSetBudget(source *config.Source) *cobra.Command {
	var budget budgetFlags
	c := &cobra.Command{
		Use: "set-budget KEY_ID", Short: "Set what jobs submitted with a key may use", Args: arguments(1, "KEY_ID"),
		Long: `Set what jobs submitted with a key may use in a calendar day and a calendar month of UTC. It replaces
the budget before: a limit that is not given is none. It counts jobs submitted from then on.`,
		Example: "  forebay keys set-budget key_01h… --daily-usd 5 --monthly-tokens 10000000",
		RunE: func(c *cobra.Command, args []string) error {
			limits, err := budget.replace(c.Flags())
			if err != nil {
				return err
			}
			return a.withKeys(c.Context(), source, false, func(keys keyService) error {
				key, err := keys.SetBudget(c.Context(), args[0], limits)
				if err != nil {
					return err
				}
				return a.printOne(key, [][2]string{{"id", key.ID}, {"tenant", key.Tenant}, {"budget", keyBudget(key)}})
			})
		},
	}
	budget.registerReplacing(c.Flags())
	return c
}
