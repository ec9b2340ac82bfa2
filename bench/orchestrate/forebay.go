package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/server"
)

// durableFunctions are the orchestrators and activities of a Forebay.
func durableFunctions(g *began) []server.DurableFunction {
	nothing := server.NewActivity("nothing", func(context.Context, int) (int, error) { return 0, nil })
	note := server.NewActivity("note", func(_ context.Context, in single) (int, error) {
		g.note(in.Number)
		close(g.end(in.ID))
		return 0, nil
	})
	failing := server.NewActivity("failing", func(ctx context.Context, _ int) (int, error) {
		if server.ActivityCallOf(ctx).Attempt < 3 {
			return 0, errors.New("not yet")
		}
		return 0, nil
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 3, First: flakyDelay, Coefficient: 1})
	end := server.NewActivity("end", func(_ context.Context, id string) (int, error) {
		close(g.end(id))
		return 0, nil
	})
	all := func(o *server.Orchestration, a server.Activity[int, int], n int) (int, error) {
		futures := make([]server.Future[int], n)
		for i := range futures {
			futures[i] = a.Start(o, i)
		}
		if _, err := server.AwaitAll(futures); err != nil {
			return 0, err
		}
		return end.Call(o, o.ID())
	}
	return []server.DurableFunction{
		nothing, note, failing, end,
		server.NewOrchestrator("fan", func(o *server.Orchestration, n int) (int, error) { return all(o, nothing, n) }),
		server.NewOrchestrator("single", func(o *server.Orchestration, in single) (int, error) { return note.Call(o, in) }),
		server.NewOrchestrator("flaky", func(o *server.Orchestration, _ int) (int, error) { return all(o, failing, flakyActivities) }),
	}
}

// forebayOrchestrator is a server in this process.
type forebayOrchestrator struct {
	*embedded.Server
	*began
	others []*serving.Child
}

func forebayOrchestrations(ctx context.Context, b *measure.Bench, on measure.Engine, others int) (measure.Sample, error) {
	var g began
	e, err := embedded.StartAs(ctx, b, on, func(o *server.Options) { o.Durable = durableFunctions(&g) })
	if err != nil {
		return nil, err
	}
	o := forebayOrchestrator{Server: e, began: &g}
	for range others {
		c, err := serving.StartChild(ctx, serving.ChildSpec{Role: "orchestrations", Database: e.Place.Database, Blobs: filepath.Join(e.Place.Dir, "blobs")})
		if err != nil {
			return nil, errors.Join(err, o.stop())
		}
		o.others = append(o.others, c)
	}
	s, err := measureOrchestrations(ctx, b, o, &g)
	if others > 0 && err == nil {
		for _, column := range []string{"CPU µs/activity", "idle CPU ms/s"} { // of this process alone
			delete(s, column)
		}
	}
	return s, err
}

func (o forebayOrchestrator) start(ctx context.Context, name, id string, input any) error {
	_, err := o.StartOrchestration(ctx, forebay.DefaultTenant, name, id, input)
	return err
}

func (o forebayOrchestrator) wait(ctx context.Context, id string) error {
	if len(o.others) == 0 {
		return o.began.wait(ctx, id)
	}
	instance, err := o.WaitOrchestration(ctx, forebay.DefaultTenant, id, time.Minute)
	if err == nil && instance.Status != forebay.OrchestrationCompleted {
		err = fmt.Errorf("instance %s is %s", id, instance.Status)
	}
	return err
}

func (o forebayOrchestrator) stop() error {
	var err error
	for _, c := range o.others {
		err = errors.Join(err, c.Stop())
	}
	return errors.Join(err, o.Server.Stop())
}

// Serve is a process beside another.
func Serve(ctx context.Context, spec serving.ChildSpec) error {
	s, err := server.New(server.Options{Database: spec.Database, Blob: spec.Blobs, Role: server.RoleWorker, Log: server.Log{Level: "error"},
		ShutdownTimeout: time.Second, Durable: durableFunctions(&began{})})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Run(ctx)
}
