// Bench measures Forebay beside yardsticks in one run: River on SQLite and on PostgreSQL, bare
// HTTP calls, the disk and an idle process. Contenders take turns, round by round, so that other
// load on the machine affects all of them. The report has the median of the rounds, the lowest
// and the highest.
//
// It prints Markdown and writes the same to results/latest.md. It needs Linux, because it reads
// processor time, memory and system calls from /proc.
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
)

// experiment is one question, answered by one table.
type experiment struct {
	name string
	run  func(context.Context, *bench) (table, error)
}

var experiments = []experiment{
	{"life", life},
	{"http", overHTTP},
	{"passthrough", passthrough},
	{"callers", callers},
	{"hang", hangingModels},
	{"idle", idle},
	{"memory", memory},
	{"latency", latency},
	{"backlog", backlog},
	{"postgres", lifeOnPostgres},
	{"pgbacklog", backlogOnPostgres},
	{"snapshot", snapshot},
	{"processes", processes},
	{"sessions", sessions},
	{"topics", topics},
	{"quota", quotas},
	{"windows", windows},
	{"outage", outage},
	{"poison", poison},
	{"fairness", fairness},
	{"admission", admission},
	{"orchestrations", orchestrations},
	{"documents", pipelines},
	{"search", searches},
	{"pages", pages},
	{"tabs", tabs},
	{"batches", batches},
	{"servicebus", serviceBus},
}

// experimentTimeout ends an experiment that got stuck.
const experimentTimeout = 20 * time.Minute

// bench is how to measure.
type bench struct {
	dir    string // for databases; removed at the end
	rounds int
	quick  bool
	peers  bool // measure the yardsticks too

	waiting int // jobs, where rates beside others are measured; 0: several amounts

	cpuProfile string // file; "": none
	liteLLM    string // program; "": it is not measured
	rabbitMQ   string // program; where it is not there, it is not measured

	pg *postgresEngine // nil until it is needed
}

// size is how much to do: less when it must be quick.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

func main() {
	if spec := os.Getenv(childVariable); spec != "" {
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
	var b bench
	only := flag.String("only", "", "experiments to run, separated by commas: "+strings.Join(names(), ", "))
	results := flag.String("results", "results", "folder for latest.md, and for databases while they are measured")
	flag.StringVar(&b.cpuProfile, "cpuprofile", "", "write a CPU profile of this process to FILE, and of the last server process to FILE.server")
	flag.StringVar(&onlyContenders, "contenders", "", "measure only contenders with this text in their name, as to profile one")
	memProfile := flag.String("memprofile", "", "write a profile of this process's allocations to the file")
	flag.IntVar(&b.rounds, "rounds", 0, "rounds of each experiment; 0: 5, or 2 with -quick")
	flag.IntVar(&b.waiting, "waiting", 0, "in backlog and pgbacklog, how many jobs wait; 0: several amounts, one after the other")
	flag.BoolVar(&b.quick, "quick", false, "measure less, in a quarter of the time")
	flag.StringVar(&b.liteLLM, "litellm", "", "the program litellm of PyPI's package litellm[proxy], to measure that proxy too")
	flag.StringVar(&b.rabbitMQ, "rabbitmq", "/usr/lib/rabbitmq/bin/rabbitmq-server", "the program rabbitmq-server, to measure RabbitMQ too; the default is where Debian's package has it")
	flag.BoolVar(&b.peers, "peers", true, "measure the yardsticks too; without them a profile shows Forebay alone")
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	switch {
	case b.rounds < 0 || b.rounds > 100:
		return fmt.Errorf("%d rounds: it goes from 1 to 100", b.rounds)
	case b.waiting < 0 || b.waiting > 10_000_000:
		return fmt.Errorf("%d waiting jobs: it goes from 0 to 10,000,000", b.waiting)
	case b.rounds == 0:
		b.rounds = b.size(5, 2)
	}
	if err := os.MkdirAll(*results, 0o755); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(*results, "data-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer func() { err = errors.Join(err, b.close()) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if b.cpuProfile != "" {
		stop, err := profile(b.cpuProfile)
		if err != nil {
			return err
		}
		defer stop()
	}
	if *memProfile != "" {
		runtime.MemProfileRate = 16 << 10
		defer func() { err = errors.Join(err, writeAllocations(*memProfile)) }()
	}

	report, failed := describeMachine(&b), []error{}
	fmt.Print(report)
	for _, e := range chosen {
		fmt.Fprintf(os.Stderr, "%s …\n", e.name)
		begun := time.Now()
		t, err := limited(ctx, e, &b)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		section := t.markdown(time.Since(begun))
		fmt.Print(section)
		report += section
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*results, "latest.md"), []byte(report), 0o644)
}

func limited(ctx context.Context, e experiment, b *bench) (table, error) {
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

// profile writes a CPU profile of this process to the file, until stop is called.
func profile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

func writeAllocations(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
