// Package orchestrate measures durable orchestrations, beside durabletask-go.
package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
)

// The orchestrators. "fan" calls so many activities that do nothing. "single" calls one that
// notes when it began. "flaky" calls ten that fail twice each and are retried after half a
// second.
const (
	fanInstances, fanActivities = 100, 100
	flakyActivities             = 10
	flakyDelay                  = 500 * time.Millisecond
	singlePace                  = 20 // instances a second
)

// orchestrator runs instances.
type orchestrator interface {
	start(ctx context.Context, name, id string, input any) error
	wait(ctx context.Context, id string) error
	stop() error
}

// began notes when the activities of single instances began, and when the last activity of each
// instance ended. The yardstick polls for ended instances only now and then, and its polling is
// not to be measured.
type began struct {
	at    sync.Map // number of an instance → time.Time
	ended sync.Map // id of an instance → chan struct{}
}

func (g *began) note(i int) { g.at.Store(i, time.Now()) }

func (g *began) end(id string) chan struct{} {
	c, _ := g.ended.LoadOrStore(id, make(chan struct{}))
	return c.(chan struct{})
}

func (g *began) wait(ctx context.Context, id string) error {
	select {
	case <-g.end(id):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Orchestrations measures durable orchestrations.
func Orchestrations(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Orchestrations",
		Text: fmt.Sprintf(`In process. Fan-out: %d instances of %d activities that do nothing, and one that says so at the end, all started at once; eight at a time: the next when one is done, so that
little waits in the tables. Single: instances of one activity, from 32 callers that each wait for theirs. Start to activity: instances of one activity, %d a second, from before the start until the activity begins. Flaky: %d activities side by side, each of which fails
twice and is tried again after %v. Idle: processor time of the process over 5 s afterwards. The yardstick is dapr/durabletask-go v0.14.0 with its own SQLite backend, which
is at its best with a write-ahead log and no fsync at all, as it is here: as it comes, each of its operations waits for the disk, and it does some 40 to 100 activities a second. Forebay is durable.`,
			fanInstances, fanActivities, singlePace, flakyActivities, flakyDelay),
		Columns: []string{"activities/s", "CPU µs/activity", "eight at a time/s", "single/s", "start to activity p50 ms", "p99 ms", "flaky s", "idle CPU ms/s"},
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	const ours, theirs = "Forebay on SQLite", "durabletask-go on SQLite, not durable"
	contenders := []measure.Contender{
		{Name: ours, Round: func(ctx context.Context) (measure.Sample, error) { return forebayOrchestrations(ctx, b, b.SQLite(), 0) }},
		{Name: "Forebay on PostgreSQL", Round: func(ctx context.Context) (measure.Sample, error) { return forebayOrchestrations(ctx, b, pg, 0) }},
		{Name: "… with a second process", Round: func(ctx context.Context) (measure.Sample, error) { return forebayOrchestrations(ctx, b, pg, 1) }},
	}
	if b.Peers {
		contenders = append(contenders, measure.Contender{Name: theirs, Round: func(ctx context.Context) (measure.Sample, error) { return stockOrchestrations(ctx, b, notDurable) }})
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	t.Expect("activities/s on SQLite, as a multiple of the yardstick's", t.Median(ours, "activities/s")/t.Median(theirs, "activities/s"), "≥", 4)
	t.Expect("… as a multiple of what the yardstick reaches eight at a time", t.Median(ours, "activities/s")/t.Median(theirs, "eight at a time/s"), "≥", 4)
	t.Expect("processor time of the yardstick for an activity, as a multiple of Forebay's", t.Median(theirs, "CPU µs/activity")/t.Median(ours, "CPU µs/activity"), "≥", 4)
	t.Expect("start to activity on SQLite, p99 in ms", t.Median(ours, "p99 ms"), "<", 10)
	t.Expect("flaky activities on SQLite, s", t.Median(ours, "flaky s"), "<", 1.5)
	t.Expect("idle processor time on SQLite, ms/s", t.Median(ours, "idle CPU ms/s"), "<", 2)
	return t, nil
}

// measureOrchestrations is a round.
func measureOrchestrations(ctx context.Context, b *measure.Bench, o orchestrator, g *began) (s measure.Sample, err error) {
	defer func() { err = errors.Join(err, o.stop()) }()
	s = measure.Sample{}
	instances := b.Size(fanInstances, fanInstances/2)
	cpu, begun := measure.CPUTime(), time.Now()
	if err := runAll(ctx, o, "fan", "fan", instances, instances, fanActivities); err != nil {
		return nil, err
	}
	n := float64(instances * fanActivities)
	s["activities/s"], s["CPU µs/activity"] = n/time.Since(begun).Seconds(), float64((measure.CPUTime()-cpu).Microseconds())/n
	begun = time.Now()
	if err := runAll(ctx, o, "fan", "eight", instances, 8, fanActivities); err != nil {
		return nil, err
	}
	s["eight at a time/s"] = n / time.Since(begun).Seconds()
	singles := b.Size(1000, 300)
	begun = time.Now()
	if err := runAll(ctx, o, "single", "single", singles, 32, -1); err != nil {
		return nil, err
	}
	s["single/s"] = float64(singles) / time.Since(begun).Seconds()
	if err := measureStarts(ctx, b, o, g, s); err != nil {
		return nil, err
	}
	begun = time.Now()
	if err := runAll(ctx, o, "flaky", "flaky", 1, 1, 0); err != nil {
		return nil, err
	}
	s["flaky s"] = time.Since(begun).Seconds()
	const span = 5 * time.Second
	cpu = measure.CPUTime()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s["idle CPU ms/s"] = float64((measure.CPUTime() - cpu).Milliseconds()) / span.Seconds()
	return s, nil
}

// runAll runs so many instances, from callers that each wait for theirs.
func runAll(ctx context.Context, o orchestrator, name, prefix string, instances, callers, input int) error {
	id := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	var next atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for i := int(next.Add(1)) - 1; i < instances && err == nil; i = int(next.Add(1)) - 1 {
				in := any(input)
				if name == "single" {
					in = single{-1, id(i)}
				}
				if err = o.start(ctx, name, id(i), in); err == nil {
					err = o.wait(ctx, id(i))
				}
			}
			errs <- err
		}()
	}
	var err error
	for range callers {
		err = errors.Join(err, <-errs)
	}
	return err
}

func measureStarts(ctx context.Context, b *measure.Bench, o orchestrator, g *began, s measure.Sample) error {
	n := b.Size(100, 40)
	var waited []time.Duration
	begun := make([]time.Time, n)
	err := measure.Paced(ctx, singlePace, n, func(i int, _ time.Time) error {
		id := fmt.Sprintf("start-%d", i)
		begun[i] = time.Now()
		if err := o.start(ctx, "single", id, single{i, id}); err != nil {
			return err
		}
		return o.wait(ctx, id)
	})
	if err != nil {
		return err
	}
	for i := n / 10; i < n; i++ { // the first find nothing prepared
		if at, ok := g.at.Load(i); ok { // else it ran in another process
			waited = append(waited, at.(time.Time).Sub(begun[i]))
		}
	}
	if len(waited) == n-n/10 {
		w := measure.Waits(waited)
		s["start to activity p50 ms"], s["p99 ms"] = w["p50 ms"], w["p99 ms"]
	}
	return nil
}

// single is the input of a single instance.
type single struct {
	Number int
	ID     string
}
