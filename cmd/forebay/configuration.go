package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/config"
)

func configGroup(a *command.App) *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "config", Short: "Check and print the configuration",
		Long: `The configuration is one YAML file, then FOREBAY_… variables, then flags. In the name of a
variable "__" steps into a section, as in FOREBAY_LIMITS__MAX_INPUT_BYTES.`,
	},
		configFileCommand(a, &cobra.Command{
			Use: "show", Aliases: []string{"print"}, Short: "Print the configuration as it takes effect, without secrets",
			Long: `Print the configuration as it takes effect: file, environment, flags and defaults together.
Secrets are masked.`,
			Example: "  forebay config show --config forebay.yaml",
		}, &config.Source{}, func(c *command.Call, loaded config.Loaded) error {
			text, err := config.Print(loaded.Options)
			if err != nil {
				return err
			}
			_, err = c.Out.Write(text)
			return err
		}),
		configFileCommand(a, &cobra.Command{
			Use: "validate", Aliases: []string{"check"}, Short: "Check the configuration and say everything that is wrong with it",
			Example: "  forebay config validate --config forebay.yaml",
		}, &config.Source{Files: true}, func(c *command.Call, loaded config.Loaded) error {
			for _, note := range loaded.Notes {
				fmt.Fprintln(c.Err, "forebay: "+note)
			}
			_, err := fmt.Fprintln(c.Out, "the configuration is valid")
			return err
		}),
	)
}

func configFileCommand(a *command.App, c *cobra.Command, source *config.Source, run func(*command.Call, config.Loaded) error) *cobra.Command {
	sourceFlags(c.Flags(), source)
	listenFlag(c.Flags(), source)
	return configCommand(a, c, source, run)
}

// version is set by release builds: -ldflags "-X main.version=v1.2.3".
var version string

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func versionCommand(a *command.App) *cobra.Command {
	return a.LocalCommand(&cobra.Command{Use: "version", Short: "Print the version"}, func(c *command.Call) error {
		v := struct {
			Version  string `json:"version"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return c.PrintLine(v, "forebay %s %s %s", v.Version, v.Go, v.Platform)
	})
}

// sourceFlags adds the flags that name the configuration and the database.
func sourceFlags(flags *pflag.FlagSet, source *config.Source) {
	configFlag(flags, source)
	flags.StringVar(&source.Database, "database", "", "sqlite:PATH or postgres://… (default: configured or sqlite:forebay.db)")
}

func configFlag(flags *pflag.FlagSet, source *config.Source) {
	flags.StringVar(&source.File, "config", "", "configuration file, YAML")
}

func listenFlag(flags *pflag.FlagSet, source *config.Source) {
	flags.StringVar(&source.Listen, "listen", "", "address to answer on (default: configured or 127.0.0.1:8080)")
}

// configCommand is a command that reads the server's configuration. The flags of the command have
// put their values into source.
func configCommand(a *command.App, c *cobra.Command, source *config.Source, run func(*command.Call, config.Loaded) error) *cobra.Command {
	return a.LocalCommand(c, func(c *command.Call) error {
		loaded, err := loadConfig(a, source)
		if err != nil {
			return err
		}
		return run(c, loaded)
	})
}

// loadConfig reads the configuration. It also sets source.Environ, so that the caller can load
// source again.
func loadConfig(a *command.App, source *config.Source) (config.Loaded, error) {
	source.Environ = a.Environ
	loaded, err := config.Load(*source)
	loaded.Options.Version = buildVersion()
	return loaded, misconfigured(err)
}
