package main

import (
	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
	"github.com/forebayhq/forebay/internal/doctor"
)

func doctorCommand(a *command.App) *cobra.Command {
	var source config.Source
	callEach := false
	c := a.Command(&cobra.Command{
		Use:   "doctor",
		Short: "Check whether a server could run here",
		Long: `Check whether a server could run here: its configuration, database, disk, ports, blob storage,
model deployments and clock. Each check is a line. With --call each deployment is called once,
with a few tokens. Without it each is only asked for its models, which costs nothing: a key that
is wrong is found, a model or a deployment that is not there is not. Where a server runs already,
its clock is compared, and your API key is tried.

The exit code is that of the worst check:
  0  all are well
  8  the configuration or a key is wrong
  7  the database or the storage cannot be used
  6  a port is taken, or a deployment does not answer
  1  anything else is wrong`,
		Example: "  forebay doctor --config forebay.yaml\n  forebay doctor --config forebay.yaml --call",
	}, func(c *command.Call) error {
		d := &doctor.Doctor{App: a, Call: callEach}
		d.Examine(c.Ctx, func() (config.Loaded, error) { return loadConfig(a, &source) })
		return d.Finish()
	})
	sourceFlags(c.Flags(), &source)
	listenFlag(c.Flags(), &source)
	c.Flags().BoolVar(&callEach, "call", false, "call each deployment once, which may cost a fraction of a cent")
	return c
}
