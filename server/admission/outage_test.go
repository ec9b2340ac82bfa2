//go:build unix

package admission_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// faults replaces the script of all the model's deployments.
func (m *metered) faults(t *testing.T, script string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, m.url+"/_sim/faults", strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the script was answered with %d", resp.StatusCode)
	}
}

// TestOutageOfAllDeployments: while no deployment works, only probes are made and jobs are
// accepted. When the models are back, all jobs succeed within the quota.
func TestOutageOfAllDeployments(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		const (
			jobs   = 80 // more than the models take at once
			places = 8
			opens  = 10 // failures in a row
		)
		model := startStrict(t, "east", "west")
		s := servertest.Start(t, server.Options{Database: database, Deployments: model.configured(), Models: map[string]server.Model{"chat": server.InOrder("east", "west")},
			Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: places, Retry: server.Retry{First: 100 * time.Millisecond}}}})
		r := servertest.Over(t, s)
		model.faults(t, "[{outage: true}]")
		ids := make([]string, jobs)
		for i := range ids {
			req := meteredJob()
			req["max_attempts"] = 20
			job, _, err := r.Submit(t.Context(), "", req)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = job.ID
		}
		// Both breakers open; then there are only probes, which come seconds later.
		model.await(t, 2*opens)
		servertest.Eventually(t, time.Minute, func() error {
			if st := model.Stats(); st.Deployments["east"].InFlight+st.Deployments["west"].InFlight > 0 {
				return servertest.ErrNotYet
			}
			return nil
		})
		model.await(t, 2) // probes
		st := model.Stats()
		calls := st.Deployments["east"].Calls + st.Deployments["west"].Calls
		if most := int64(2*opens + 2*places + 4); calls > most {
			t.Errorf("%d calls while nothing answered; at most %d were to be expected", calls, most)
		}
		begun := time.Now()
		model.faults(t, "none")
		model.await(t, jobs/2)
		servertest.Eventually(t, time.Minute, func() error {
			for _, id := range ids {
				var job forebay.Job
				switch err := r.Get(t.Context(), "/v1/jobs/"+id, &job); {
				case err != nil:
					return err
				case job.WaitingFor != nil && *job.WaitingFor == forebay.WaitQuota:
					return nil
				}
			}
			return servertest.ErrNotYet
		})
		for _, id := range ids {
			if job, attempts := r.MustAwait(t, id); job.Status != forebay.StatusSucceeded {
				t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
			}
		}
		t.Logf("all done %v after the outage", time.Since(begun))
		for name, st := range model.Stats().Deployments {
			if len(st.Throttled) > 0 || st.HighestRolling > meteredTokens {
				t.Errorf("%s saw %+v", name, st)
			}
		}
	})
}

// TestRecoveryIsSeenByAllProcesses: a breaker that one server's probes have closed is closed to
// the other in less than a second.
func TestRecoveryIsSeenByAllProcesses(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	const (
		jobs   = 40
		places = 4
	)
	model := startMetered(t, "east")
	database := dbtest.Postgres(t)
	// Each server has another key for the same model.
	doors := []*metered{model.door("first"), model.door("second")}
	var r servertest.Remote
	for i := range doors {
		r = servertest.Over(t, servertest.Start(t, server.Options{Database: database, Deployments: doors[i].configured(), Models: map[string]server.Model{"chat": server.InOrder("east")},
			Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: places, Retry: server.Retry{First: 100 * time.Millisecond}}}}))
	}
	model.faults(t, "[{outage: true}]")
	ids := make([]string, jobs)
	for i := range ids {
		req := meteredJob()
		req["max_attempts"], req["input"].(map[string]any)["max_tokens"] = 20, 10
		job, _, err := r.Submit(t.Context(), "", req)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = job.ID
	}
	servertest.Eventually(t, time.Minute, func() error {
		if st := model.Stats().Deployments["east"]; st.Outage < 10 || st.InFlight > 0 {
			return servertest.ErrNotYet
		}
		return nil
	})
	stalled := longestStall(t)
	model.faults(t, "[{latency: 50}]") // half a second a call: one server alone would need seconds
	healed := time.Now()
	for _, id := range ids {
		if job, attempts := r.MustAwait(t, id); job.Status != forebay.StatusSucceeded {
			t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
		}
	}
	// Three probes close a breaker, so when a server first called says nothing.
	closed := closedAfter(t, r, "east", healed)
	stall := stalled()
	for i, door := range doors {
		if late := door.firstAfter(t, closed).Sub(closed); late > time.Second+stall {
			t.Errorf("server %d called only %v after the breaker was closed; this process stood still for %v", i, late, stall)
		}
	}
}

// longestStall begins to watch for how long this process stands still, and returns what tells it.
func longestStall(t *testing.T) func() time.Duration {
	var longest time.Duration
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			now := time.Now()
			last, longest = now, max(longest, now.Sub(last))
		}
	}()
	end := sync.OnceFunc(func() { close(stop); <-over })
	t.Cleanup(end)
	return func() time.Duration { end(); return longest }
}

// closedAfter is when a deployment's breaker was first closed after a time.
func closedAfter(t *testing.T, r servertest.Remote, deployment string, at time.Time) (closed time.Time) {
	t.Helper()
	var page forebay.Page[forebay.DeploymentChange]
	if err := r.Get(t.Context(), "/v1/deployments/"+deployment+"/changes", &page); err != nil {
		t.Fatal(err)
	}
	for _, c := range page.Items {
		if c.Type == "breaker_closed" && c.At.After(at) && (closed.IsZero() || c.At.Before(closed)) {
			closed = c.At
		}
	}
	if closed.IsZero() {
		t.Fatalf("the breaker was not closed: %+v", page.Items)
	}
	return closed
}

// door is the same model at the same address, with a key and calls of its own. What calls it has
// to be started afterwards.
func (m *metered) door(key string) *metered {
	d := &metered{Server: m.Server, url: m.url, key: key, arrived: make(chan struct{}, cap(m.arrived))}
	if m.doors == nil {
		m.doors = map[string]*metered{}
	}
	m.doors[key] = d
	return d
}

// firstAfter is when the first call came after a time.
func (m *metered) firstAfter(t *testing.T, at time.Time) time.Time {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.calls, at.Before)
	if i < 0 {
		t.Fatal("one server made no calls")
	}
	return m.calls[i]
}
