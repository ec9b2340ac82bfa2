package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
)

// inBubble runs a server until the test ends, in virtual time. The server carries out jobs and
// listens nowhere.
func inBubble(t *testing.T, o Options, f func(t *testing.T, s *Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o.Database = "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
		s, stop := runWorker(t, o)
		defer stop()
		f(t, s)
	})
}

// runWorker runs such a server on the options' database until stop is called.
func runWorker(t *testing.T, o Options) (s *Server, stop func()) {
	t.Helper()
	o.Role, o.Logger = RoleWorker, slog.New(slog.DiscardHandler)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// after lets that much time go by.
func after(d time.Duration) { <-time.After(d) }

func (s *Server) submitMany(t *testing.T, n int) (ids []string) {
	t.Helper()
	reqs := make([]forebay.SubmitRequest, n)
	for i := range reqs {
		reqs[i] = forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(fmt.Sprintf(`"job %d"`, i))}
	}
	for _, r := range s.jobs.SubmitMany(t.Context(), forebay.DefaultTenant, reqs) {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		ids = append(ids, r.Job.ID)
	}
	return ids
}

// broken sets whether calls of simulated deployments fail.
func (s *Server) broken(t *testing.T, is bool, names ...string) {
	t.Helper()
	rate := 0.0
	if is {
		rate = 1
	}
	for _, name := range names {
		if err := s.deployments.called.Load().simulators[name].SetFaults(modelsim.ProviderFaults{Latency: 100 * time.Millisecond, ErrorRate: rate}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *Server) deploymentsNow(t *testing.T) map[string]forebay.Deployment {
	t.Helper()
	list, err := s.deployments.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]forebay.Deployment{}
	for _, d := range list {
		byName[d.Name] = d
	}
	return byName
}

func (s *Server) await(t *testing.T, ids []string, within time.Duration) []forebay.Job {
	t.Helper()
	until := time.Now().Add(within)
	list := make([]forebay.Job, len(ids))
	for i, id := range ids {
		job, err := s.Wait(t.Context(), forebay.DefaultTenant, id, time.Until(until))
		if err != nil || job.Status != forebay.StatusSucceeded {
			t.Fatalf("job %d of %d: %v %+v", i, len(ids), err, job)
		}
		list[i] = job
	}
	return list
}

func twoSims(concurrency int) Options {
	faults := Sim{Latency: 100 * time.Millisecond}
	return Options{
		Deployments: []Deployment{{Name: "east", Provider: ProviderSim, Sim: faults}, {Name: "west", Provider: ProviderSim, Sim: faults}},
		Models:      map[string]Model{ModelChat: InOrder("east", "west"), ModelEmbedding: InOrder("east")},
		Queues:      map[string]Queue{"default": {Concurrency: concurrency}},
	}
}

// All deployments of a model are down for two minutes. Jobs wait and lose nothing, only probes are
// made, and the work continues soon after.
func TestJobsOutliveAnOutage(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		calls := func() int64 {
			d := s.deploymentsNow(t)
			return d["east"].Calls + d["west"].Calls
		}
		ids := s.submitMany(t, 2000) // 25 seconds of work
		after(5 * time.Second)
		s.broken(t, true, "east", "west")
		after(20 * time.Second)
		before := calls()
		if d := s.deploymentsNow(t); d["east"].Breaker == forebay.BreakerClosed || d["west"].Breaker == forebay.BreakerClosed {
			t.Fatalf("a breaker is closed: %+v", d)
		}
		ids = append(ids, s.submitMany(t, 10)...)
		after(100 * time.Second)
		if n := calls() - before; n < 10 || n > 60 {
			t.Errorf("%d calls in 100 seconds of an outage of two deployments; a probe each 8 to 12 seconds is due", n)
		}
		s.broken(t, false, "east", "west")
		recovered := time.Now()
		charged := 0 // for failures: those until the breakers opened, and none of a probe
		for _, job := range s.await(t, ids, 10*time.Minute) {
			charged += job.Attempt - 1
		}
		if charged < 20 || charged > 40 {
			t.Errorf("%d attempts that failed were charged", charged)
		}
		if took := time.Since(recovered); took > 90*time.Second {
			t.Errorf("the rest took %v", took)
		}
		var opened, closed int
		for _, name := range []string{"east", "west"} {
			page, err := s.deployments.Changes(t.Context(), name, 100, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Items {
				switch c.Type {
				case "breaker_opened":
					opened++
				case "breaker_closed":
					closed++
				}
			}
		}
		if opened < 2 || closed == 0 {
			t.Errorf("breakers opened %d times and closed %d times", opened, closed)
		}
	})
}

// What the first deployment does not take goes to the second, and comes back.
func TestAnotherDeploymentTakesOver(t *testing.T) {
	inBubble(t, twoSims(8), func(t *testing.T, s *Server) {
		// by counts at which deployments jobs that are submitted now succeed.
		by := func(n int) map[string]int {
			t.Helper()
			counts := map[string]int{}
			for _, job := range s.await(t, s.submitMany(t, n), 5*time.Minute) {
				attempts, err := s.jobs.Attempts(t.Context(), forebay.DefaultTenant, job.ID)
				if err != nil {
					t.Fatal(err)
				}
				counts[attempts[len(attempts)-1].Deployment]++
			}
			return counts
		}
		if n := by(100); n["east"] != 100 {
			t.Fatalf("at first they went to %v", n)
		}
		s.broken(t, true, "east")
		if n := by(100); n["east"] != 0 || n["west"] != 100 {
			t.Errorf("while east is broken they succeed at %v", n)
		}
		failed := s.deploymentsNow(t)["east"].Failed
		if n := by(300); n["west"] != 300 {
			t.Errorf("later they succeed at %v", n)
		}
		if more := s.deploymentsNow(t)["east"].Failed - failed; failed > 40 || more > 4 {
			t.Errorf("%d calls failed until the breaker was open, %d afterwards", failed, more)
		}
		s.broken(t, false, "east")
		after(15 * time.Second)
		for range 4 { // probes are made with jobs
			by(1)
			after(time.Second)
		}
		if n := by(100); n["east"] != 100 {
			t.Errorf("after it works again they go to %v", n)
		}

		// An operator's pause is the same, at once.
		if err := s.deployments.SetPaused(t.Context(), "east", true, "me"); err != nil {
			t.Fatal(err)
		}
		if n := by(100); n["west"] != 100 {
			t.Errorf("while east is paused they go to %v", n)
		}
		if err := s.deployments.SetPaused(t.Context(), "east", false, "me"); err != nil {
			t.Fatal(err)
		}
		if n := by(100); n["east"] != 100 {
			t.Errorf("resumed, they go to %v", n)
		}
	})
}
