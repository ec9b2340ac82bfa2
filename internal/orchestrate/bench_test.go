package orchestrate

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// BenchmarkNamesThatNobodyTakes is an empty transaction beside claims that wait, in a database
// with so many names of orchestrators of which no process has the code.
func BenchmarkNamesThatNobodyTakes(b *testing.B) {
	for _, names := range []int{0, 100_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			s := fixture.Serving(b, db.Options{Path: filepath.Join(b.TempDir(), "forebay.db")})
			acme := tenantOf(b, s, "acme")
			_, err := db.TransactIn(b.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
				for i := range names {
					if _, err := t.workItems().queueOf(acme, workqueues.Orchestrations, fmt.Sprint(i)); err != nil {
						return struct{}{}, err
					}
				}
				return struct{}{}, nil
			})
			mustDo(b, err)
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				New(Options{Store: s.Orchestrations}).Run(ctx)
			}()
			for b.Loop() {
				mustDo(b, s.Orchestrations.Reconsider(b.Context()))
			}
			stop()
			<-done
		})
	}
}

// BenchmarkFanOut runs 100 instances of 100 activities that do nothing.
func BenchmarkFanOut(b *testing.B) {
	const instances, activities = 100, 100
	r := NewRegistry()
	add(b, r, "nothing", func(context.Context, any) (any, error) { return nil, nil })
	err := r.AddOrchestrator("fan", "", func(ctx *task.WorkflowContext) (any, error) {
		tasks := make([]task.Task, activities)
		for i := range tasks {
			tasks[i] = activity(ctx, "nothing", i, forebay.RetryPolicy{})
		}
		for _, t := range tasks {
			if err := t.Await(nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := openStores(b.Context(), db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.DB.Close()
	service := New(Options{Store: s.Orchestrations, Registry: r})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		service.Run(ctx)
	}()
	b.ReportAllocs()
	begun := time.Now()
	b.ResetTimer()
	for n := range b.N {
		for i := range instances {
			if _, err := service.Start(ctx, tenant, StartRequest{Name: "fan", ID: fmt.Sprintf("%d-%d", n, i)}); err != nil {
				b.Fatal(err)
			}
		}
		for i := range instances {
			if o, err := service.Wait(ctx, tenant, fmt.Sprintf("%d-%d", n, i), time.Minute); err != nil || o.Status != forebay.OrchestrationCompleted {
				b.Fatalf("%+v: %v", o, err)
			}
		}
	}
	b.ReportMetric(float64(b.N*instances*activities)/time.Since(begun).Seconds(), "activities/s")
	stop()
	<-done
}
