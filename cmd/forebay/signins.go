package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// signInCommands are the commands about sessions of the dashboard.
type signInCommands struct{ *command.App }

func (a signInCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "sign-ins", Short: "See who has signed in to the dashboard, and end sessions",
		Long: `An API key or a person at an OpenID Connect provider begins a session of the dashboard. A session
of a key ends with its key.`,
	}, a.list(), a.end())
}

func (a signInCommands) list() *cobra.Command {
	var owner string
	c := command.List(a.App, &cobra.Command{Use: "list", Short: "List the sessions that count now, those that end last first"},
		func(c *command.Call) ([]forebay.SignIn, error) {
			list, more, err := c.API.SignIns(c.Ctx, owner)
			if more {
				_, err = fmt.Fprintf(a.Err, "There are more: these are the first %d.\n", len(list))
			}
			return list, err
		},
		func(s forebay.SignIn) []command.Field {
			return []command.Field{
				{"ID", s.ID}, {"OWNER", s.Owner}, {"TENANT", s.Tenant}, {"SCOPES", command.Joined(s.Scopes)},
				{"BEGAN", a.Age(s.CreatedAt)}, {"USED", a.Age(s.UsedAt)}, {"ENDS", a.Age(s.ExpiresAt)},
			}
		})
	c.Flags().StringVar(&owner, "owner", "", "only those of this key, by its id, or of this person, such as person:ada@example.com")
	return c
}

func (a signInCommands) end() *cobra.Command {
	var owner string
	c := a.APICommand(&cobra.Command{
		Use: "end [SIGN_IN_ID]", Short: "End one session, or all of a key or a person",
		Long: `End one session, or all of a key or a person. Its pages ask to sign in again. Who may still sign in
can do so: revoke the key, or take the person's role away at the provider.`,
		Example: `  forebay sign-ins end signin_0123456789abcdef0123456789abcdef
  forebay sign-ins end --owner person:ada@example.com`,
	}, func(c *command.Call) error {
		if err := command.ExactlyOne("name a session, or whose with --owner", "--owner goes with no session", len(c.Args) == 1, owner != ""); err != nil {
			return err
		}
		if owner == "" {
			return c.API.EndSignIn(c.Ctx, c.Args[0])
		}
		ended, err := c.API.EndSignIns(c.Ctx, owner)
		if err != nil {
			return err
		}
		return c.PrintOne(forebay.EndedSignIns{Ended: ended}, []command.Field{{"ended", fmt.Sprint(ended)}})
	})
	c.Flags().StringVar(&owner, "owner", "", "end all of this key, by its id, or of this person, such as person:ada@example.com")
	return c
}
