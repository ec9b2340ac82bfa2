//go:build unix

package admission_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// turnedAway is a script of an endpoint that turns all calls away.
func turnedAway(status int, code string) func(modelsim.Call) modelsim.Reply {
	return func(modelsim.Call) modelsim.Reply {
		return modelsim.Reply{Status: status, Code: code, Message: "no"}
	}
}

// deniedPlaces is how many calls there may be at once.
const deniedPlaces = 4

// routed is a server whose model is served by these endpoints, in order of their names.
func routed(database string, endpoints map[string]*modelsim.TestServer) server.Options {
	o := server.Options{Database: database, Queues: map[string]server.Queue{forebay.DefaultQueue: {Concurrency: deniedPlaces}},
		Topics: map[string]server.Topic{forebay.TopicOperations: {Subscriptions: map[string]server.Subscription{"all": {}}}}}
	var route []string
	for _, name := range []string{"east", "west"} {
		if e := endpoints[name]; e != nil {
			o.Deployments = append(o.Deployments, server.Deployment{Name: name, Provider: server.ProviderOpenAI, Endpoint: e.URL(), Model: "test"})
			route = append(route, name)
		}
	}
	o.Models = map[string]server.Model{"chat": server.InOrder(route...)}
	return o
}

// awaitDenied waits until a deployment is known to turn every call away.
func awaitDenied(t *testing.T, r servertest.Remote, name, why string) {
	t.Helper()
	servertest.Eventually(t, time.Minute, func() error {
		var d forebay.Deployment
		if err := r.Get(t.Context(), "/v1/deployments/"+name, &d); err != nil {
			return err
		}
		if d.Breaker == forebay.BreakerClosed || d.BreakerReason != why || d.Available() {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
}

// TestRouteOutlivesARevokedKey: the first deployment of a route refuses every call. All jobs go to
// the second one and lose no attempt. The first is hardly called, and operators are told. It is
// used again when they say so.
func TestRouteOutlivesARevokedKey(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		east, west := modelsim.StartTest(turnedAway(http.StatusUnauthorized, "invalid_api_key")), modelsim.StartTest(nil)
		t.Cleanup(east.Close)
		t.Cleanup(west.Close)
		r := servertest.Over(t, servertest.Start(t, routed(database, map[string]*modelsim.TestServer{"east": east, "west": west})))
		succeed := func(n int) {
			t.Helper()
			for _, id := range servertest.SubmitMany(t, r, n, servertest.Chat("hello")) {
				job, attempts := r.MustAwait(t, id)
				if job.Status != forebay.StatusSucceeded || job.Attempt != 1 {
					t.Errorf("%s after %d attempts that were charged, of %+v", job.Status, job.Attempt, attempts)
				}
				for _, a := range attempts {
					if a.Deployment == "east" && a.Outcome != forebay.OutcomeSucceeded &&
						(a.Outcome != forebay.OutcomeRetried || a.ErrorCode == nil || *a.ErrorCode != "unauthorized") {
						t.Errorf("an attempt was recorded as %+v", a)
					}
				}
			}
		}
		succeed(40)
		first := east.Stats().Calls
		if first == 0 || first > 3*deniedPlaces {
			t.Errorf("%d calls were made with a key that is no good", first)
		}
		awaitDenied(t, r, "east", "unauthorized")
		succeed(20)
		if more := east.Stats().Calls - first; more > 1 {
			t.Errorf("%d more calls afterwards; one at most may have been a probe", more)
		}

		east.Decide(nil)
		if _, err := r.Do(t.Context(), http.MethodPost, "/v1/deployments/east/resume", nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		succeed(1) // the probe
		var d forebay.Deployment
		if err := r.Get(t.Context(), "/v1/deployments/east", &d); err != nil || d.Breaker != forebay.BreakerClosed || d.BreakerReason != "" {
			t.Errorf("after a call that succeeded: %+v, %v", d, err)
		}
		before := west.Stats().Calls
		succeed(10)
		if n := west.Stats().Calls - before; n != 0 {
			t.Errorf("%d calls passed over the first deployment after it was resumed", n)
		}

		var told struct{ Messages []forebay.Message }
		if _, err := r.Do(t.Context(), http.MethodPost, "/v1/topics/operations/subscriptions/all/messages/receive", nil, map[string]any{"max_messages": 10}, &told); err != nil {
			t.Fatal(err)
		}
		opened := false
		for _, m := range told.Messages {
			var change forebay.DeploymentChange
			if m.Body == nil || json.Unmarshal([]byte(*m.Body), &change) != nil {
				t.Fatalf("%+v", m)
			}
			opened = opened || change.Deployment == "east" && change.Type == "breaker_opened" && change.Reason == "unauthorized" && change.Until != nil &&
				m.Properties["reason"] == "unauthorized"
		}
		if !opened {
			t.Errorf("subscribers were told %+v", told.Messages)
		}
	})
}

// TestJobsWaitForCredit: without another deployment, jobs wait and none is lost. A start of the
// server, which may have another key, makes one call try at once.
func TestJobsWaitForCredit(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		if database == "" {
			database = "sqlite:" + dbtest.SQLite(t)
		}
		const jobs = 30
		model := modelsim.StartTest(turnedAway(http.StatusTooManyRequests, "insufficient_quota"))
		t.Cleanup(model.Close)
		o := routed(database, map[string]*modelsim.TestServer{"east": model})
		var ids []string
		t.Run("no credit", func(t *testing.T) {
			r := servertest.Over(t, servertest.Start(t, o))
			ids = servertest.SubmitMany(t, r, jobs, servertest.Chat("hello"))
			awaitDenied(t, r, "east", "insufficient_quota")
			servertest.Eventually(t, time.Minute, func() error {
				all, err := r.List(t.Context())
				if err != nil {
					return err
				}
				for _, job := range all {
					if job.Status != forebay.StatusQueued || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBreaker || job.Attempt != 0 {
						return fmt.Errorf("%+v", job)
					}
				}
				return nil
			})
			if n := model.Stats().Calls; n > 3*deniedPlaces {
				t.Errorf("%d calls of an account without credit", n)
			}
		})
		model.Decide(nil)
		t.Run("credit", func(t *testing.T) {
			r := servertest.Over(t, servertest.Start(t, o))
			for _, id := range ids {
				if job, attempts := r.MustAwait(t, id); job.Status != forebay.StatusSucceeded || job.Attempt != 1 {
					t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
				}
			}
		})
	})
}

// TestTurnedAwayByEveryProvider: the simulated endpoint turns calls away in the words of three
// providers, each for another reason. Operators are told which, jobs wait without losing an
// attempt, and when it takes calls again all of them succeed.
func TestTurnedAwayByEveryProvider(t *testing.T) {
	t.Parallel()
	reasons := map[string]modelsim.Denial{"openai": modelsim.Unauthorized, "azure": modelsim.InsufficientQuota, "anthropic": modelsim.NotFound}
	servertest.OnServers(t, func(t *testing.T, database string) {
		const jobs = 2 * deniedPlaces // of each
		model := startModel(t, func(d *modelsim.Deployment) {
			d.TokensPerMinute, d.RequestsPerMinute = 0, 0
			d.Faults = modelsim.Script{{Denied: reasons[d.Name]}}
		}, slices.Collect(maps.Keys(reasons))...)
		o := routed(database, nil)
		o.Deployments = []server.Deployment{
			{Name: "openai", Provider: server.ProviderOpenAI, Endpoint: model.url + "/v1", Model: "openai", APIKey: "any"},
			{Name: "azure", Provider: server.ProviderAzure, Endpoint: model.url, Deployment: "azure", APIKey: "any"},
			{Name: "anthropic", Provider: server.ProviderAnthropic, Endpoint: model.url, Model: "anthropic", APIKey: "any"},
		}
		o.Models, o.Tasks = map[string]server.Model{}, map[string]server.TaskOption{}
		for name := range reasons {
			o.Models[name], o.Tasks["ask-"+name] = server.InOrder(name), server.TaskOption{Extends: "chat", Model: name}
		}
		r := servertest.Over(t, servertest.Start(t, o))
		var ids []string
		for name := range reasons {
			ids = append(ids, servertest.SubmitMany(t, r, jobs, map[string]any{"task": "ask-" + name, "input": "hello"})...)
		}
		for name, why := range reasons {
			awaitDenied(t, r, name, string(why))
		}
		servertest.Eventually(t, time.Minute, func() error {
			all, err := r.List(t.Context())
			if err != nil || len(all) != len(ids) {
				return fmt.Errorf("%d jobs, %v", len(all), err)
			}
			for _, job := range all {
				if job.Status != forebay.StatusQueued || job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBreaker || job.Attempt != 0 {
					return fmt.Errorf("%+v", job)
				}
			}
			return nil
		})
		for name, st := range model.Stats().Deployments {
			if st.Calls != st.Denied || st.Calls > 3*deniedPlaces {
				t.Errorf("%s got %d calls and turned %d of them away", name, st.Calls, st.Denied)
			}
		}

		sim := servertest.Remote{URL: model.url}
		if _, err := sim.Do(t.Context(), http.MethodPut, "/_sim/faults", nil, []any{}, nil); err != nil {
			t.Fatal(err)
		}
		for name := range reasons {
			if _, err := r.Do(t.Context(), http.MethodPost, "/v1/deployments/"+name+"/resume", nil, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			if job, attempts := r.MustAwait(t, id); job.Status != forebay.StatusSucceeded || job.Attempt != 1 {
				t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
			}
		}
	})
}

// TestDoubtfulRefusals: a 403 that may be about the prompt is permanent and fails only its job.
// After three in a row it counts as the deployment's, and the others wait.
func TestDoubtfulRefusals(t *testing.T) {
	t.Parallel()
	servertest.OnServers(t, func(t *testing.T, database string) {
		model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
			if c.Marker == "bad" {
				return modelsim.Reply{Status: http.StatusForbidden}
			}
			return modelsim.Reply{}
		})
		t.Cleanup(model.Close)
		o := routed(database, map[string]*modelsim.TestServer{"east": model})
		o.Queues[forebay.DefaultQueue] = server.Queue{Concurrency: 1}
		r := servertest.Over(t, servertest.Start(t, o))
		for range 4 {
			bad, good := r.Send(t, "bad"), r.Send(t, "good")
			if job, _ := r.MustAwait(t, bad.ID); job.Status != forebay.StatusFailed || job.Error == nil || job.Error.Code != "unauthorized" {
				t.Errorf("one that was refused: %+v", job)
			}
			if job, _ := r.MustAwait(t, good.ID); job.Status != forebay.StatusSucceeded {
				t.Errorf("the next: %+v", job)
			}
		}
		const jobs, lost = 10, 2
		model.Decide(turnedAway(http.StatusForbidden, ""))
		ids := servertest.SubmitMany(t, r, jobs, servertest.Chat("hello"))
		awaitDenied(t, r, "east", "unauthorized")
		model.Decide(nil)
		if _, err := r.Do(t.Context(), http.MethodPost, "/v1/deployments/east/resume", nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, id := range ids {
			if job, _ := r.MustAwait(t, id); job.Status != forebay.StatusSucceeded {
				failed++
			}
		}
		if failed != lost {
			t.Errorf("%d jobs failed for good; want %d", failed, lost)
		}
	})
}
