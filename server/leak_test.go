package server_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Not parallel: goroutines of other tests are no leaks.
func TestStopLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply { return modelsim.Reply{Hang: c.Marker == "hangs"} })
	to := startCollector(t)
	s, err := server.New(server.Options{
		Metrics: server.Metrics{Listen: "127.0.0.1:0"}, Telemetry: server.Telemetry{OTLPEndpoint: to.http.URL},
		Database: "sqlite:" + filepath.Join(t.TempDir(), "forebay.db"), Listen: "127.0.0.1:0", Log: server.Log{Level: "error"},
		Deployments: []server.Deployment{simulatedDeployment(model)}, ShutdownTimeout: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := servertest.Over(t, s)
	if job, _ := r.MustAwait(t, r.Send(t, "ends").ID); job.Status != forebay.StatusSucceeded {
		t.Errorf("the job is %s", job.Status)
	}
	scrapeOf(t, s)
	hanging := r.Send(t, "hangs")
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	// A long poll and an event stream are open while the server stops.
	polled, followed := make(chan error, 1), make(chan error, 1)
	go func() {
		var job forebay.Job
		polled <- r.Get(context.WithoutCancel(ctx), "/v1/jobs/"+hanging.ID+"?wait=60s", &job)
	}()
	go func() {
		_, err := r.Events(context.WithoutCancel(ctx), hanging.ID)
		followed <- err
	}()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-polled // answered or refused: it came before the stop or after
	<-followed
	http.DefaultClient.CloseIdleConnections()
	model.Close()
	to.http.Close()
	servertest.Eventually(t, time.Minute, func() error { return goleak.Find(before) })
}
