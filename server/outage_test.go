//go:build unix

package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
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

// TestOutageOfAllDeployments: while nothing can be called only probes are; jobs are taken in and wait, and
// when the models are back all of them succeed, within the quota.
func TestOutageOfAllDeployments(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, database string) {
		const (
			jobs   = 60
			places = 8
			opens  = 10 // failures in a row
		)
		model := startMetered(t, "east", "west")
		s := start(t, server.Options{Database: database, Deployments: model.configured(), Models: map[string][]string{"chat": {"east", "west"}},
			Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: places, Retry: server.Retry{First: 100 * time.Millisecond}}}})
		r := over(t, s)
		model.faults(t, "[{outage: true}]")
		ids := make([]string, jobs)
		for i := range ids {
			req := meteredJob()
			req["max_attempts"] = 20
			job, _, err := r.submit(t.Context(), "", req)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = job.ID
		}
		// Both breakers open; then there are only probes, which come seconds later.
		model.await(t, 2*opens)
		eventually(t, 5*time.Second, func() error {
			if st := model.Stats(); st.Deployments["east"].InFlight+st.Deployments["west"].InFlight > 0 {
				return errNotYet
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
		for _, id := range ids {
			if job, attempts := r.mustAwait(t, id); job.Status != forebay.StatusSucceeded {
				t.Errorf("%s after attempts %v", job.Status, outcomes(attempts))
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
