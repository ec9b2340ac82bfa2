package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/modelsim"
)

const defaultSimListen = "127.0.0.1:8090"

// simFlags holds the flags of sim.
type simFlags struct {
	file       string
	options    modelsim.ServerOptions
	deployment modelsim.Deployment
	faults     string
}

// serverFlags are the flags that are allowed together with --config. The last three are global.
var serverFlags = []string{"config", "listen", "api-key", "seed", "log", "url", "key", "output"}

func sim(a *command.App) *cobra.Command {
	d := modelsim.DefaultDeployment()
	f := &simFlags{deployment: d}
	c := &cobra.Command{
		Use:   "sim",
		Short: "Run a model endpoint to test against",
		Long: `Run a server that answers as OpenAI, Azure OpenAI and Anthropic do. It has quotas, headers,
delays and faults like theirs, and counts what it saw. No model runs behind it. Its text means
nothing, except for structured output and with --content work. Point staging environments and
benchmarks at it.

  OpenAI      http://127.0.0.1:8090/v1
  Azure       http://127.0.0.1:8090 (any deployment, any API version)
  Anthropic   http://127.0.0.1:8090

GET /_sim/stats says what it saw, POST /_sim/reset begins anew, PUT /_sim/faults changes the
script. With --config it runs several deployments; see docs/sim.md for the file.`,
		Example: `  forebay sim
  forebay sim --kind openai --tokens-per-minute 30000 --first-token 800ms
  forebay sim --faults reference --faults-scale 0.05 --log calls.jsonl
  forebay sim --config sim.yaml`,
	}
	flags := c.Flags()
	flags.StringVar(&f.file, "config", "", "YAML file of deployments")
	flags.StringVar(&f.options.Listen, "listen", "", "address to answer on (default "+defaultSimListen+")")
	flags.StringVar((*string)(&f.options.APIKey), "api-key", "", "key that calls must have; without one any goes")
	flags.Uint64Var(&f.options.Seed, "seed", 0, "for everything random")
	flags.StringVar(&f.options.Log, "log", "", "file to append a line of JSON to for each call")
	flags.StringVar((*string)(&f.deployment.Kind), "kind", string(d.Kind), "count as "+command.Joined(modelsim.Kinds))
	flags.IntVar(&f.deployment.TokensPerMinute, "tokens-per-minute", d.TokensPerMinute, "the quota; 0 is none")
	flags.IntVar(&f.deployment.RequestsPerMinute, "requests-per-minute", d.RequestsPerMinute, "the quota; 0 is none, -1 is 6 for each 1,000 tokens per minute")
	durationFlag(flags, &f.deployment.RequestSlice, "request-slice", "over which requests are counted (default 10s for azure-openai, else 1m)")
	durationFlag(flags, &f.deployment.TokenSlice, "token-slice", "over which tokens are counted, by the kinds with windows (default 1m)")
	durationFlag(flags, &f.deployment.Burst, "burst", "what a bucket holds, as time (default 10s for bucket, else 1m)")
	durationFlag(flags, &f.deployment.Phase, "phase", "when after the start the first window ends (default: by the seed)")
	flags.StringVar((*string)(&f.deployment.Headers), "headers", string(d.Headers), "what answers say of it: "+command.Joined(modelsim.HeaderKinds))
	flags.Float64Var(&f.deployment.EstimateFactor, "estimate-factor", d.EstimateFactor, "what prompts are charged, by their tokens in the usage")
	flags.Float64Var(&f.deployment.ForeignShare, "foreign-share", 0, "share of the tokens per minute that another client asks for")
	flags.Float64Var(&f.deployment.SpentShare, "spent-share", 0, "share of the quota that was used before the start")
	durationFlag(flags, &f.deployment.RoundTrip, "round-trip", "delay of the network")
	durationFlag(flags, &f.deployment.FirstToken, "first-token", "until an answer begins")
	flags.Float64Var(&f.deployment.TokensPerSecond, "tokens-per-second", d.TokensPerSecond, "of each answer; 0 is all at once")
	flags.IntVar(&f.deployment.OutputTokens, "output-tokens", d.OutputTokens, "the median length of answers")
	flags.StringVar((*string)(&f.deployment.Content), "content", string(d.Content), "what answers hold: text, or the work of the simulated model")
	flags.StringVar(&f.faults, "faults", "none", "script of faults: "+strings.Join(modelsim.ScriptNames(), ", ")+", or a YAML file")
	flags.Float64Var(&f.deployment.FaultsScale, "faults-scale", d.FaultsScale, "factor for the times of the script")
	return a.LocalCommand(c, func(c *command.Call) error {
		o, err := f.resolve(flags)
		if err != nil {
			return err
		}
		return runSim(c, o)
	})
}

// durationFlag adds a flag for a duration whose default is in to. A negative default means that
// the help text explains it.
func durationFlag(flags *pflag.FlagSet, to *modelsim.Duration, name, help string) {
	flags.DurationVar((*time.Duration)(to), name, time.Duration(*to), help)
	if *to < 0 {
		flags.Lookup(name).DefValue = "0s"
	}
}

// resolve makes the options from the file or the flags.
func (f *simFlags) resolve(flags *pflag.FlagSet) (modelsim.ServerOptions, error) {
	resolve := f.fromFlags
	if f.file != "" {
		resolve = f.fromFile
	}
	o, err := resolve(flags)
	if o.Listen == "" {
		o.Listen = defaultSimListen
	}
	return o, err
}

func (f *simFlags) fromFlags(flags *pflag.FlagSet) (modelsim.ServerOptions, error) {
	o, d := f.options, f.deployment
	o.AnyModel = true
	var err error
	if d.Faults, err = readScript(f.faults); err != nil {
		return o, err
	}
	o.Deployments = []modelsim.Deployment{d}
	if err := o.Validate(); err != nil {
		return o, command.Usagef("%s", flagNamed(err))
	}
	return o, nil
}

// fromFile reads the file. Flags about the server take precedence.
func (f *simFlags) fromFile(flags *pflag.FlagSet) (modelsim.ServerOptions, error) {
	var stray string
	flags.Visit(func(flag *pflag.Flag) {
		if stray == "" && !slices.Contains(serverFlags, flag.Name) {
			stray = flag.Name
		}
	})
	if stray != "" {
		return modelsim.ServerOptions{}, command.Usagef("--%s and --config exclude each other: say it in the file", stray)
	}
	o, err := readSimFile(f.file, modelsim.ReadServerOptions)
	if err != nil {
		return o, err
	}
	if flags.Changed("listen") {
		o.Listen = f.options.Listen
	}
	if flags.Changed("api-key") {
		o.APIKey = f.options.APIKey
	}
	if flags.Changed("seed") {
		o.Seed = f.options.Seed
	}
	if flags.Changed("log") {
		o.Log = f.options.Log
	}
	if err := o.Validate(); err != nil {
		return o, command.ExitError(command.ExitConfiguration, f.file+": "+err.Error())
	}
	return o, nil
}

// flagNamed turns the option that an error is about into the flag that sets it.
func flagNamed(err error) string {
	field, rest, found := strings.Cut(err.Error(), ": ")
	if _, name, ok := strings.Cut(field, "deployments[0]."); ok && found {
		return "--" + strings.ReplaceAll(name, "_", "-") + " " + rest
	}
	return err.Error()
}

// readScript returns the script of that name, or the one in the file of that name.
func readScript(name string) (modelsim.Script, error) {
	script, err := modelsim.NamedScript(name)
	if err == nil {
		return script, nil
	}
	if !strings.ContainsAny(name, "./") {
		return nil, command.Usagef("--faults: there is no script %q; there are %s, or give a YAML file",
			name, strings.Join(modelsim.ScriptNames(), ", "))
	}
	return readSimFile(name, modelsim.ReadScript)
}

// maxSimFile limits how much of a file is read. Parsers have lower limits and report files that
// exceed them.
const maxSimFile = 2 << 20

func readSimFile[T any](name string, read func([]byte) (T, error)) (T, error) {
	var none T
	file, err := os.Open(name)
	if err != nil {
		return none, command.ExitError(command.ExitConfiguration, err.Error())
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSimFile))
	if err != nil {
		return none, command.ExitError(command.ExitConfiguration, err.Error())
	}
	v, err := read(data)
	if err != nil {
		return none, command.ExitError(command.ExitConfiguration, name+": "+err.Error())
	}
	return v, nil
}

func runSim(c *command.Call, o modelsim.ServerOptions) (err error) {
	var log io.Writer
	if o.Log != "" {
		file, err := os.OpenFile(o.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return command.ExitError(command.ExitConfiguration, err.Error())
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		log = file
	}
	s, err := modelsim.NewServer(o, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if refused := (*net.OpError)(nil); errors.As(err, &refused) {
		return command.ExitError(command.ExitUnavailable, fmt.Sprintf("cannot listen on %s: %s", o.Listen, cmp.Or(errors.Unwrap(refused.Err), refused.Err)))
	} else if err != nil {
		return command.ExitError(command.ExitUnavailable, err.Error())
	}
	url := "http://" + listener.Addr().String()
	started := struct {
		URL         string   `json:"url"`
		Deployments []string `json:"deployments"`
	}{url, nil}
	rows := []command.Field{{"URL", url}}
	for _, d := range o.Deployments {
		started.Deployments = append(started.Deployments, d.Name)
		rows = append(rows, command.Field{"DEPLOYMENT", fmt.Sprintf("%s (%s, %s)", d.Name, d.Kind, perMinute(d.TokensPerMinute))})
	}
	if err := c.PrintOne(started, rows); err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := s.Run(c.Ctx, listener); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return nil
}

func perMinute(tokens int) string {
	if tokens == 0 {
		return "no token limit"
	}
	return fmt.Sprintf("%d tokens per minute", tokens)
}
