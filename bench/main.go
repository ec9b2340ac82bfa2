// Bench measures Forebay beside yardsticks in one run: River on SQLite and on PostgreSQL, bare
// HTTP calls, the disk and an idle process. Contenders take turns, round by round, so that other
// load on the machine affects all of them. The report has the median of the rounds, the lowest
// and the highest.
//
// It prints Markdown and writes the same to results/latest.md. It needs Linux, because it reads
// processor time, memory and system calls from /proc.
//
// The benchmarks stand in packages by subject: jobs, limits, openai, messages, servicebus,
// orchestrate and documents. They share measure, which has the report and the databases; embedded,
// a server in this process; and serving, servers in processes of their own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forebayhq/forebay/bench/documents"
	"github.com/forebayhq/forebay/bench/jobs"
	"github.com/forebayhq/forebay/bench/limits"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/messages"
	"github.com/forebayhq/forebay/bench/openai"
	"github.com/forebayhq/forebay/bench/orchestrate"
	"github.com/forebayhq/forebay/bench/servicebus"
	"github.com/forebayhq/forebay/bench/serving"
)

// experiment is one question, answered by one table.
type experiment struct {
	name string
	run  func(context.Context, *measure.Bench) (measure.Table, error)
}

var experiments = []experiment{
	{"life", jobs.Life},
	{"http", jobs.OverHTTP},
	{"passthrough", openai.Passthrough},
	{"callers", limits.Callers},
	{"hang", jobs.HangingModels},
	{"idle", jobs.Idle},
	{"memory", jobs.Memory},
	{"latency", jobs.Latency},
	{"backlog", jobs.Backlog},
	{"postgres", jobs.LifeOnPostgres},
	{"pgbacklog", jobs.BacklogOnPostgres},
	{"snapshot", jobs.Snapshot},
	{"processes", jobs.Processes},
	{"sessions", messages.Sessions},
	{"topics", messages.Topics},
	{"quota", limits.Quotas},
	{"windows", limits.Windows},
	{"outage", limits.Outage},
	{"poison", limits.Poison},
	{"fairness", limits.Fairness},
	{"admission", limits.Admission},
	{"orchestrations", orchestrate.Orchestrations},
	{"documents", documents.Pipelines},
	{"search", documents.Searches},
	{"pages", jobs.Pages},
	{"tabs", jobs.Tabs},
	{"batches", openai.Batches},
	{"servicebus", servicebus.ServiceBus},
}

// experimentTimeout ends an experiment that got stuck.
const experimentTimeout = 20 * time.Minute

func main() {
	if spec := os.Getenv(serving.ChildVariable); spec != "" {
		exitOn(runChild(spec))
		return
	}
	exitOn(run())
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var b measure.Bench
	only := flag.String("only", "", "experiments to run, separated by commas: "+strings.Join(names(), ", "))
	results := flag.String("results", "results", "folder for latest.md, and for databases while they are measured")
	flag.StringVar(&b.CPUProfile, "cpuprofile", "", "write a CPU profile of this process to FILE, and of the last server process to FILE.server")
	flag.StringVar(&measure.OnlyContenders, "contenders", "", "measure only contenders with this text in their name, as to profile one")
	memProfile := flag.String("memprofile", "", "write a profile of this process's allocations to the file")
	flag.IntVar(&b.Rounds, "rounds", 0, "rounds of each experiment; 0: 5, or 2 with -quick")
	flag.IntVar(&b.Waiting, "waiting", 0, "in backlog and pgbacklog, how many jobs wait; 0: several amounts, one after the other")
	flag.BoolVar(&b.Quick, "quick", false, "measure less, in a quarter of the time")
	flag.StringVar(&b.LiteLLM, "litellm", "", "the program litellm of PyPI's package litellm[proxy], to measure that proxy too")
	flag.StringVar(&b.RabbitMQ, "rabbitmq", "/usr/lib/rabbitmq/bin/rabbitmq-server", "the program rabbitmq-server, to measure RabbitMQ too; the default is where Debian's package has it")
	flag.BoolVar(&b.Peers, "peers", true, "measure the yardsticks too; without them a profile shows Forebay alone")
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	switch {
	case b.Rounds < 0 || b.Rounds > 100:
		return fmt.Errorf("%d rounds: it goes from 1 to 100", b.Rounds)
	case b.Waiting < 0 || b.Waiting > 10_000_000:
		return fmt.Errorf("%d waiting jobs: it goes from 0 to 10,000,000", b.Waiting)
	case b.Rounds == 0:
		b.Rounds = b.Size(5, 2)
	}
	if err := os.MkdirAll(*results, 0o755); err != nil {
		return err
	}
	if b.Dir, err = os.MkdirTemp(*results, "data-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.Dir)
	defer func() { err = errors.Join(err, b.Close()) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if b.CPUProfile != "" {
		stop, err := measure.Profile(b.CPUProfile)
		if err != nil {
			return err
		}
		defer stop()
	}
	if *memProfile != "" {
		runtime.MemProfileRate = 16 << 10
		defer func() { err = errors.Join(err, writeAllocations(*memProfile)) }()
	}

	report, failed := measure.DescribeMachine(&b), []error{}
	fmt.Print(report)
	for _, e := range chosen {
		fmt.Fprintf(os.Stderr, "%s …\n", e.name)
		begun := time.Now()
		t, err := limited(ctx, e, &b)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		section := t.Markdown(time.Since(begun))
		fmt.Print(section)
		report += section
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*results, "latest.md"), []byte(report), 0o644)
}

func limited(ctx context.Context, e experiment, b *measure.Bench) (measure.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, experimentTimeout)
	defer cancel()
	return e.run(ctx, b)
}

func names() []string {
	var list []string
	for _, e := range experiments {
		list = append(list, e.name)
	}
	return list
}

func choose(only string) ([]experiment, error) {
	if only == "" {
		return experiments, nil
	}
	var chosen []experiment
	for name := range strings.SplitSeq(only, ",") {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("there is no experiment %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, experiments[i])
	}
	return chosen, nil
}

func writeAllocations(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
