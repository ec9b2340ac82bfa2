//go:build unix

package server_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// until repeats a question until its answer is the wanted one.
func until[T any](t *testing.T, what string, ask func(context.Context) (T, error), wanted func(T) bool) (last T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		if last, err = ask(ctx); err == nil && wanted(last) {
			return last
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %+v, %v", what, last, err)
		}
	}
}

// An API process sees what a worker does: its events as they happen, its calls, and itself. After
// the worker was killed its calls are still there, until their locks end.
func TestWhatOtherProcessesDo(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply { return modelsim.Reply{Hang: c.Marker == "hangs"} })
	t.Cleanup(model.Close)
	o := servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: filepath.Join(t.TempDir(), "blobs"), Endpoint: model.URL()}
	start := func(role string) *servertest.Process {
		o.Role = role
		p := servertest.Launch(t, o)
		p.MustListen(t)
		return p
	}
	front := servertest.Remote{URL: start(server.RoleAPI).MustListen(t)}
	worker := start(server.RoleWorker)
	api, err := client.New(client.Options{BaseURL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	list := until(t, "two processes", api.Processes, func(list []forebay.Process) bool { return len(list) == 2 })
	ids := map[string]string{}
	for _, p := range list {
		if ids[p.Role] = p.ID; p.State != forebay.ProcessRunning || p.PID == 0 || p.Host == "" {
			t.Errorf("a process is %+v", p)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	items := make(chan forebay.FeedItem, 100)
	go func() {
		defer close(items)
		for item, err := range api.Follow(ctx, forebay.FeedFilter{Types: []forebay.EventType{forebay.EventStarted, forebay.EventSucceeded}}) {
			if err != nil {
				return
			}
			select {
			case items <- item:
			case <-ctx.Done():
				return
			}
		}
	}()
	// The worker hears of the listener soon after it has begun to listen.
	heard := func(kind forebay.EventType) bool {
		wait := time.NewTimer(300 * time.Millisecond)
		defer wait.Stop()
		for {
			select {
			case item := <-items:
				if item.Job != nil && item.Job.Type == kind {
					return true
				}
			case <-wait.C:
				return false
			}
		}
	}
	for n := 0; ; n++ {
		if n == 100 {
			t.Fatal("the events of the worker do not come")
		}
		job := front.Send(t, "quick")
		if done, _ := front.MustAwait(t, job.ID); done.Status != forebay.StatusSucceeded {
			t.Fatalf("a job is %s", done.Status)
		}
		if heard(forebay.EventSucceeded) {
			break
		}
	}

	job := front.Send(t, "hangs")
	calls := until(t, "one call", func(ctx context.Context) (forebay.RunningCalls, error) {
		return api.Calls(ctx, forebay.CallFilter{Task: job.Task})
	}, func(c forebay.RunningCalls) bool { return c.Total == 1 })
	if c := calls.Items[0]; c.JobID != job.ID || c.Process != ids[server.RoleWorker] || c.Deployment == "" || c.Synchronous {
		t.Errorf("the call is %+v; processes are %v", c, ids)
	}
	if got, err := api.Get(t.Context(), job.ID); err != nil || got.RunningAttempt == nil || got.RunningAttempt.Deployment != calls.Items[0].Deployment {
		t.Errorf("the job is %+v, %v", got, err)
	}
	worker.Kill()
	if again, err := api.Calls(t.Context(), forebay.CallFilter{}); err != nil || again.Total != 1 || again.Items[0].Process != ids[server.RoleWorker] {
		t.Errorf("after the worker was killed: %+v, %v", again, err)
	}
	second := start(server.RoleWorker)
	until(t, "three processes", api.Processes, func(list []forebay.Process) bool { return len(list) == 3 })
	second.Stop(t)
	until(t, "two after one has stopped", api.Processes, func(list []forebay.Process) bool { return len(list) == 2 })
}

// A server whose port is taken is not listed with those that run.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	database := dbtest.Postgres(t)
	first := servertest.Start(t, server.Options{Database: database})
	address := first.Addr(t.Context()).String()
	second, err := server.New(server.Options{Database: database, Listen: address, Blob: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Errorf("error %v", err)
	}
	api, err := client.New(client.Options{BaseURL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := api.Processes(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("processes %+v, %v", list, err)
	}
}
