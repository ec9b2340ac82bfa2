package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/config"
)

func (a *app) config() *cobra.Command {
	var source config.Source
	load := func() (config.Loaded, error) {
		source.Environ = a.environ
		return config.Load(source)
	}
	validate := &cobra.Command{
		Use: "validate", Aliases: []string{"check"}, Short: "Check the configuration and say everything that is wrong with it", Args: arguments(0),
		Example: "  forebay config validate --config forebay.yaml",
		RunE: func(*cobra.Command, []string) error {
			loaded, err := load()
			if err != nil {
				return err
			}
			for _, note := range loaded.Notes {
				fmt.Fprintln(a.err, "forebay: "+note)
			}
			_, err = fmt.Fprintln(a.out, "the configuration is valid")
			return err
		},
	}
	show := &cobra.Command{
		Use: "print", Short: "Print the configuration as it takes effect, without secrets", Args: arguments(0),
		Long:    "Print the configuration as it takes effect: file, environment, flags and defaults together. Secrets are masked.",
		Example: "  forebay config print --config forebay.yaml",
		RunE: func(*cobra.Command, []string) error {
			loaded, err := load()
			if err != nil {
				return err
			}
			text, err := config.Print(loaded.Options)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
	}
	for _, c := range []*cobra.Command{validate, show} {
		sourceFlags(c, &source)
		c.Flags().StringVar(&source.Listen, "listen", "", "address to answer on")
	}
	return a.group("config", "Check and print the configuration",
		`The configuration is one YAML file, then FOREBAY_… variables ("__" steps into a section, as in
FOREBAY_LIMITS__MAX_INPUT_BYTES), then flags.`, validate, show)
}

// configured makes what the server finds wrong with its options an error of the configuration.
func configured(err error) error {
	e, ok := errors.AsType[*forebay.Error](err)
	if ok && (e.Code == forebay.CodeInvalidRequest || e.Code == forebay.CodeNotSupported) && e.Field != "" {
		return &failure{exitConfiguration, err.Error()}
	}
	return err
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

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.output == outputTable {
				_, err := fmt.Fprintf(a.out, "forebay %s %s %s\n", v.Version, v.Go, v.Platform)
				return err
			}
			return a.printOne(v, nil)
		},
	}
}
