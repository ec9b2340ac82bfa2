//go:build unix

package admission_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// metered is a model endpoint with a real quota, and what it was sent when.
type metered struct {
	*modelsim.Server
	url     string
	key     string              // that is sent to it
	doors   map[string]*metered // others at this address, by their keys
	arrived chan struct{}       // a place is taken for each call

	mu    sync.Mutex
	calls []time.Time
}

const (
	meteredTokens = 60_000 // a minute
	meteredCost   = 500    // tokens of each job
	// The pace of calls is 1.25 times the limit, and they may be five seconds ahead of it.
	meteredRate  = 1.25 * meteredTokens / 60 / meteredCost // a second
	meteredBurst = 12                                      // jobs
	meteredSlack = 4 * time.Second
	// A strict model is a bucket that holds this many seconds of its limit. Calls at the pace fill it
	// to 7.5 seconds' worth in ten seconds, and to 11.5 if the first are late by the slack. If more
	// than strictHolds jobs come at once, some are refused.
	strictSeconds = 14
	strictHolds   = strictSeconds * meteredTokens / 60 / meteredCost
)

func startMetered(t *testing.T, names ...string) *metered {
	t.Helper()
	return startModel(t, func(*modelsim.Deployment) {}, names...)
}

// startStrict is startMetered for a model that enforces its quota within seconds, and tells
// nothing of it but with a refusal.
func startStrict(t *testing.T, names ...string) *metered {
	t.Helper()
	return startModel(t, func(d *modelsim.Deployment) {
		d.Kind, d.Burst, d.Headers = modelsim.KindBucket, modelsim.Duration(strictSeconds*time.Second), modelsim.HeadersRetryAfter
	}, names...)
}

func startModel(t *testing.T, change func(*modelsim.Deployment), names ...string) *metered {
	t.Helper()
	var o modelsim.ServerOptions
	for _, name := range names {
		d := modelsim.DefaultDeployment()
		d.Name, d.TokensPerMinute, d.Phase, d.FirstToken, d.TokensPerSecond = name, meteredTokens, 0, modelsim.Duration(10*time.Millisecond), 0
		change(&d)
		o.Deployments = append(o.Deployments, d)
	}
	s, err := modelsim.NewServer(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := &metered{Server: s, arrived: make(chan struct{}, 10_000)}
	m.open(t)
	return m
}

// open gives the model an address.
func (m *metered) open(t *testing.T) {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := m
		if door := m.doors[r.Header.Get("Api-Key")]; door != nil {
			at = door
		}
		at.mu.Lock()
		at.calls = append(at.calls, time.Now())
		at.mu.Unlock()
		at.arrived <- struct{}{}
		m.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	m.url, m.key = h.URL, "any"
}

// configured are the endpoint's deployments as a user describes them.
func (m *metered) configured() (list []server.Deployment) {
	for name := range m.Stats().Deployments {
		list = append(list, server.Deployment{Name: name, Provider: server.ProviderAzure, Endpoint: m.url, Deployment: name, APIKey: forebay.Secret(m.key),
			TokensPerMinute: meteredTokens, RequestsPerMinute: meteredTokens / 1000 * 6})
	}
	return list
}

// await waits for so many more calls.
func (m *metered) await(t *testing.T, calls int) {
	t.Helper()
	for range calls {
		select {
		case <-m.arrived:
		case <-time.After(30 * time.Second):
			t.Fatalf("a call did not come; the model saw %+v", m.Stats())
		}
	}
}

// checkPace makes sure that in no span of time more calls came than one ledger for everybody lets
// go. Calls are under way for different times, on a busy machine for seconds, so the span may seem
// shorter than it was by meteredSlack. That allows ten calls more, so a run shows something only
// if it has many more than the burst.
func (m *metered) checkPace(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.calls {
		for j := i; j < len(m.calls); j++ {
			span := m.calls[j].Sub(m.calls[i]) + meteredSlack
			if most := meteredBurst + 1 + int(math.Ceil(span.Seconds()*meteredRate)); j-i+1 > most {
				t.Fatalf("%d calls within %v; the pace allows %d", j-i+1, m.calls[j].Sub(m.calls[i]), most)
			}
		}
	}
}

// meteredJob is a chat that is charged meteredCost.
func meteredJob() map[string]any {
	return map[string]any{"task": "chat", "input": map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": strings.Repeat("tide", 80)}}, "max_tokens": meteredCost - 80 - 3}}
}

// TestJobsWaitForTheQuota: more jobs than the quota allows wait without a lock and go as the quota
// allows. None is refused, none loses an attempt and none comes late.
func TestJobsWaitForTheQuota(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		const jobs = strictHolds + 9
		model := startStrict(t, "east")
		s := servertest.Start(t, server.Options{Database: database, Deployments: model.configured(), Models: map[string]server.Model{"chat": server.InOrder("east")}})
		r := servertest.Over(t, s)
		begun := time.Now()
		ids := servertest.SubmitMany(t, r, jobs, meteredJob())
		model.await(t, meteredBurst)
		var q forebay.QueueInfo
		err := r.Get(t.Context(), "/v1/queues/default", &q)
		// The longer the answer took, the fewer are left to wait.
		gone := meteredBurst + 1 + int(math.Ceil((time.Since(begun)+time.Second).Seconds()*meteredRate))
		if err != nil || q.Active < int64(jobs-gone) {
			t.Errorf("fewer than %d wait unlocked: %+v, %v", jobs-gone, q, err)
		}
		waitsForQuota(t, r, ids[jobs-1])
		for _, id := range ids {
			job, attempts := r.MustAwait(t, id)
			if job.Status != forebay.StatusSucceeded || job.Attempt != 1 || len(attempts) != 1 {
				t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
			}
		}
		took := time.Since(begun)
		pace := time.Duration(float64(jobs-meteredBurst) / meteredRate * float64(time.Second))
		if took < pace/2 || took > pace+20*time.Second {
			t.Errorf("took %v; the pace alone takes %v", took, pace)
		}
		model.checkPace(t)
		if st := model.Stats().Deployments["east"]; st.Calls != jobs || st.Answered != jobs || len(st.Throttled) > 0 {
			t.Errorf("the model saw %+v", st)
		}
	})
}

// waitsForQuota makes sure that a job is not called yet, and that clients are told why. On a
// machine that stands still for a moment it may be the workers that are scarce just then.
func waitsForQuota(t *testing.T, r servertest.Remote, id string) {
	t.Helper()
	servertest.Eventually(t, 10*time.Second, func() error {
		var job forebay.Job
		err := r.Get(t.Context(), "/v1/jobs/"+id, &job)
		if err == nil && (job.Status != forebay.StatusQueued || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitQuota || job.ExpectedStartAt == nil) {
			err = fmt.Errorf("%+v; want one that waits for the quota", job)
		}
		return err
	})
}

// TestHeldJobsHoldUpNobodyElse: jobs that call nothing, or another deployment, overtake those that
// wait for their deployment. Minutes' worth of jobs wait here, and each of the others has half a
// minute.
func TestHeldJobsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		const held = 600 // more than one look reads
		model := startMetered(t, "east", "west")
		o := server.Options{Database: database, Deployments: model.configured(),
			Models:    map[string]server.Model{"chat": server.InOrder("east"), "other": server.InOrder("west")},
			Tasks:     map[string]server.TaskOption{"ask-other": {Extends: "chat", Model: "other"}},
			Functions: []forebay.Task{{Name: "count", Run: servertest.Functions["count"]}}}
		r := servertest.Over(t, servertest.Start(t, o))
		servertest.SubmitMany(t, r, held, meteredJob())
		model.await(t, meteredBurst)
		for range 3 {
			for _, task := range []string{"count", "ask-other"} {
				req := meteredJob()
				req["task"] = task
				job, _, err := r.Submit(t.Context(), "", req)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Get(t.Context(), "/v1/jobs/"+job.ID+"?wait=30s", &job); err != nil || job.Status != forebay.StatusSucceeded {
					t.Fatalf("a job of %s is %s: %v", task, job.Status, err)
				}
			}
		}
		if st := model.Stats().Deployments["east"]; len(st.Throttled) > 0 || st.Calls > held/2 {
			t.Errorf("the model saw %+v", st)
		}
	})
}

// TestOneLedgerForAllProcesses: two processes on one database share one quota. When one is killed,
// nothing is lost and the other continues within the same quota.
func TestOneLedgerForAllProcesses(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	const jobs = strictHolds + 14 // two ledgers would let go too much as well
	model := startStrict(t, "east")
	o := servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: filepath.Join(t.TempDir(), "blobs"), Deployments: model.configured()}
	o.Queue = server.Queue{Concurrency: 8, LockDuration: time.Second}
	first, second := servertest.Launch(t, o), servertest.Launch(t, o)
	doomed, front := servertest.Remote{URL: first.MustListen(t)}, servertest.Remote{URL: second.MustListen(t)}
	ids := make([]string, jobs)
	for i := range ids {
		r := []servertest.Remote{doomed, front}[i%2]
		job, _, err := r.Submit(t.Context(), "", meteredJob())
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = job.ID
	}
	model.await(t, meteredBurst)
	waitsForQuota(t, front, ids[jobs-1])
	model.await(t, jobs/2) // so many that two ledgers' pace would be seen
	first.Kill()
	lost := 0
	for _, id := range ids {
		job, attempts := front.MustAwait(t, id)
		if job.Status != forebay.StatusSucceeded {
			t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
		}
		lost += len(attempts) - 1
	}
	model.checkPace(t)
	st := model.Stats().Deployments["east"]
	if refused := st.Throttled[modelsim.Tokens] + st.Throttled[modelsim.Requests]; refused > 0 || st.Calls > int64(jobs+lost) || st.HighestRolling > meteredTokens {
		t.Errorf("with %d attempts lost the model saw %+v", lost, st)
	}
	if lost > o.Queue.Concurrency {
		t.Errorf("%d attempts were lost with one process of %d places", lost, o.Queue.Concurrency)
	}
}
