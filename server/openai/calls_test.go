// Package openai_test calls the APIs of OpenAI and Anthropic of a whole server, whose provider a
// test writes: calls, streams, sockets, responses, files and batches.
package openai_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// startForwarding starts a server whose models that upstream serves.
func startForwarding(t *testing.T, u *servertest.Upstream, change func(*server.Options)) *server.Server {
	t.Helper()
	o := server.Options{
		Deployments:     []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "real", APIKey: "sk-up"}},
		ShutdownTimeout: 10 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	return servertest.Start(t, o)
}

// refusedWith fails unless an answer is an error of OpenAI's shape with that status and code.
func refusedWith(t *testing.T, resp *http.Response, body string, status int, code string) {
	t.Helper()
	var e struct {
		Error struct {
			Message, Type *string
			Param         json.RawMessage
			Code          *string
		}
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == nil || e.Error.Type == nil || e.Error.Param == nil {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	got := ""
	if e.Error.Code != nil {
		got = *e.Error.Code
	}
	if resp.StatusCode != status || got != code || resp.Header.Get("X-Request-Id") == "" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
}

const hello = `{"model":"chat","messages":[{"role":"user","content":"hello"}]}`

// calls are the jobs of synchronous calls, newest first.
func callJobs(t *testing.T, s *server.Server) []forebay.Job {
	t.Helper()
	var page forebay.Page[forebay.Job]
	if err := servertest.Over(t, s).Get(t.Context(), "/v1/jobs?limit=100", &page); err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// A request reaches the provider with nothing but its model changed, and the answer comes back as
// it is. What it used is recorded, and no word of it.
func TestOpenAICallIsByteTrue(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, servertest.AnswerPlainly)
	s := startForwarding(t, u, nil)
	const body = `{ "z":1, "messages":[{"role":"user","content":"\u0068ello","x":18446744073709551616}], "model" : "chat","seed":1.0,"model2":null }`
	resp, answer := servertest.Post(t, s, "/v1/chat/completions", body)
	if resp.StatusCode != http.StatusOK || answer != servertest.PlainAnswer || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, answer)
	}
	if want := strings.Replace(body, `"model" : "chat"`, `"model" : "real"`, 1); u.Body() != want {
		t.Errorf("the provider got %s", u.Body())
	}
	servertest.Eventually(t, time.Minute, func() error {
		list := callJobs(t, s)
		if len(list) != 1 || list[0].Status != forebay.StatusSucceeded || list[0].Usage.InputTokens != 11 || list[0].Usage.OutputTokens != 7 {
			return fmt.Errorf("recorded: %+v", list)
		}
		return nil
	})
	if list := callJobs(t, s); list[0].Queue != server.CallsQueue || list[0].Task != "/v1/chat/completions:chat" || string(list[0].Result) != "null" {
		t.Errorf("recorded: %+v", list[0])
	}
}

// A provider that turns calls away is asked again, and its client sees nothing of it.
func TestOpenAICallWaitsForQuota(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		switch n {
		case 1:
			w.Header().Set("Retry-After-Ms", "50")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}`)
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			servertest.AnswerPlainly(w, r, n)
		}
	})
	s := startForwarding(t, u, nil)
	if resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello); resp.StatusCode != http.StatusOK || answer != servertest.PlainAnswer {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	servertest.Eventually(t, time.Minute, func() error {
		attempts, err := servertest.Over(t, s).Attempts(t.Context(), callJobs(t, s)[0].ID)
		if err != nil || len(attempts) != 3 || attempts[2].Outcome != forebay.OutcomeSucceeded {
			return fmt.Errorf("attempts: %+v %w", attempts, err)
		}
		return nil
	})
}

// A call that cannot be made in time is refused with a real 429, and its job is cancelled.
func TestOpenAICallIsRefusedInTime(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, servertest.AnswerPlainly)
	s := startForwarding(t, u, nil)
	operate := func(what string) {
		if _, err := servertest.Over(t, s).Do(t.Context(), http.MethodPost, "/v1/"+what, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	operate("queues/calls/pause")
	began := time.Now()
	resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello, "X-Stainless-Timeout", "1")
	refusedWith(t, resp, answer, http.StatusServiceUnavailable, "paused")
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("after %v", took)
	}
	if list := callJobs(t, s); len(list) != 1 || list[0].Status != forebay.StatusCancelled {
		t.Errorf("%+v", list)
	}
	operate("queues/calls/resume")
	operate("deployments/up/pause")
	resp, answer = servertest.Post(t, s, "/v1/chat/completions", hello, "X-Stainless-Read-Timeout", "0.5")
	if resp.StatusCode < 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, answer)
	}
	if n := u.Calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A client that leaves ends the call at the provider, before the first byte and within a stream.
func TestOpenAIClientLeaves(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", streams), func(t *testing.T) {
			called, left := make(chan struct{}, 1), make(chan struct{}, 1)
			u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
				if streams {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
					w.(http.Flusher).Flush()
				}
				called <- struct{}{}
				<-r.Context().Done()
				left <- struct{}{}
			})
			s := startForwarding(t, u, nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := hello
			if streams {
				body = strings.Replace(hello, "{", `{"stream":true,`, 1)
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr(t.Context()).String()+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			go func() {
				<-called
				if !streams {
					leave()
				}
			}()
			resp, err := http.DefaultClient.Do(req)
			if streams {
				if err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"a"`) {
					t.Fatalf("%q %v", line, err)
				}
				leave()
				resp.Body.Close()
			} else if err == nil {
				t.Fatal(resp.Status)
			}
			select {
			case <-left:
			case <-time.After(time.Minute):
				t.Fatal("the provider goes on")
			}
			servertest.Eventually(t, time.Minute, func() error {
				if list := callJobs(t, s); len(list) != 1 || !list[0].Status.Terminal() || list[0].Status == forebay.StatusSucceeded {
					return fmt.Errorf("%+v", list)
				}
				return nil
			})
			if n := u.Calls.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// A stream that breaks in the middle ends with an error event, and is not made again.
func TestOpenAIStreamIsCut(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	s := startForwarding(t, u, nil)
	resp, answer := servertest.Post(t, s, "/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(answer, "\n\n") || strings.Contains(answer, "[DONE]") {
		t.Fatalf("%d %q", resp.StatusCode, answer)
	}
	events := strings.Split(strings.TrimSpace(answer), "\n\n")
	if last := events[len(events)-1]; len(events) != 2 || !strings.HasPrefix(last, `data: {"error":{"message":`) || !strings.Contains(last, `"param":null`) {
		t.Errorf("%q", answer)
	}
	servertest.Eventually(t, time.Minute, func() error {
		if list := callJobs(t, s); list[0].Status != forebay.StatusFailed {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	if n := u.Calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// What a provider says of a request goes to the client. What it says of this server's key does
// not. Failed calls leave nothing in the dead-letter subqueue.
func TestOpenAICallFails(t *testing.T) {
	t.Parallel()
	const refusal = `{"error":{"message":"no such parameter","type":"invalid_request_error","param":"logit_bias","code":"unknown_parameter","extra":1}}`
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "embeddings") {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"overloaded","type":"server_error","param":null,"code":null}}`)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, refusal)
	})
	s := startForwarding(t, u, func(o *server.Options) {
		o.Queues = map[string]server.Queue{server.CallsQueue: {Retry: server.Retry{Attempts: 3, First: 10 * time.Millisecond, Max: 20 * time.Millisecond}}}
	})
	resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello)
	if answer != refusal || resp.StatusCode != http.StatusBadRequest || u.Calls.Load() != 1 {
		t.Errorf("%d %s, %d calls", resp.StatusCode, answer, u.Calls.Load())
	}
	resp, answer = servertest.Post(t, s, "/openai/deployments/embedding/embeddings?api-version=2024-10-21", `{"input":"x"}`, "Api-Key", "anything")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(answer, "overloaded") {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, answer)
	}
	for _, job := range callJobs(t, s) {
		if job.Status != forebay.StatusFailed || job.Error == nil {
			t.Errorf("%+v", job)
		}
	}
	var info forebay.QueueInfo
	if err := servertest.Over(t, s).Get(t.Context(), "/v1/queues/"+server.CallsQueue, &info); err != nil || info.DeadLetter != 0 || info.Active != 0 {
		t.Errorf("%+v %v", info, err)
	}
}

// Everything that is wrong with a request is told in OpenAI's shape.
func TestOpenAIBadRequests(t *testing.T) {
	t.Parallel()
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	for _, test := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/v1/chat/completions", `{"model":`, 400, ""},
		{"/v1/chat/completions", `[]`, 400, ""},
		{"/v1/chat/completions", `{"messages":[]}`, 400, ""},
		{"/v1/chat/completions", `{"model":"none"}`, 404, "model_not_found"},
		{"/v1/chat/completions", `{"model":"chat","stream":"yes"}`, 400, "invalid_type"},
		{"/v1/chat/completions/", `{}`, 404, ""},
		{"/v1/images/generations", `{}`, 404, ""},
		{"/v1/evals", `{}`, 404, ""},
		{"/v1/containers", `{}`, 404, ""},
		{"/openai/anything", `{}`, 404, ""},
		{"/v1/models", `{}`, 405, "method_not_allowed"},
		{"/v1/embeddings", `{"model":"embedding","input":"` + strings.Repeat("x", forebay.DefaultMaxInputBytes+1) + `"}`, 413, "payload_too_large"},
	} {
		resp, answer := servertest.Post(t, s, test.path, test.body)
		t.Run(test.path, func(t *testing.T) { refusedWith(t, resp, answer, test.status, test.code) })
	}
	// A key that nobody knows is as good as none where the server needs none.
	if resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello, "Authorization", "Bearer sk-anything"); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// A key in api-key counts once, however often it is said. Two different ones are none.
func TestOpenAIKeyInAzuresHeader(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + dbtest.SQLite(t)
	key := servertest.Key(t, database, "acme", forebay.ScopeSubmit)
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) { o.Database = database })
	for header, status := range map[string]int{
		key: http.StatusOK, key + ", " + key: http.StatusOK, key + ", " + key + "," + key: http.StatusOK,
		key + ", " + key + "x": http.StatusUnauthorized, key + ",": http.StatusUnauthorized, "": http.StatusUnauthorized,
	} {
		if resp, answer := servertest.Post(t, s, "/v1/chat/completions", hello, "Api-Key", header); resp.StatusCode != status {
			t.Errorf("%d instead of %d: %s", resp.StatusCode, status, answer)
		}
	}
}

// Where processes share a database, each answers the clients that it has.
func TestOpenAICallsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, servertest.AnswerPlainly)
	database := dbtest.Postgres(t)
	servers := []*server.Server{}
	for range 2 {
		servers = append(servers, startForwarding(t, u, func(o *server.Options) { o.Database = database }))
	}
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			if resp, answer := servertest.Post(t, servers[i%2], "/v1/chat/completions", hello); resp.StatusCode != http.StatusOK || answer != servertest.PlainAnswer {
				t.Errorf("%d %s", resp.StatusCode, answer)
			}
		})
	}
	clients.Wait()
	queues := map[string]int{}
	for _, job := range callJobs(t, servers[0]) {
		queues[job.Queue]++
	}
	if queues["calls"] != 20 || u.Calls.Load() != 40 {
		t.Errorf("%v, %d calls", queues, u.Calls.Load())
	}
}

// A call that waits while the server stops is told so at once.
func TestOpenAICallWhileTheServerStops(t *testing.T) {
	t.Parallel()
	ends := make(chan string, 1)
	t.Run("until it stops", func(t *testing.T) {
		s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) {
			o.ShutdownTimeout = time.Minute // a slow machine is no reason to cut the call off
		})
		if _, err := servertest.Over(t, s).Do(t.Context(), http.MethodPost, "/v1/queues/calls/pause", nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		address := "http://" + s.Addr(t.Context()).String() + "/v1/chat/completions"
		go func() {
			resp, err := http.Post(address, "application/json", strings.NewReader(hello)) //nolint:noctx // it outlives the server
			if err != nil {
				ends <- err.Error()
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			ends <- fmt.Sprint(resp.StatusCode, string(answer), err)
		}()
		servertest.Eventually(t, time.Minute, func() error {
			if n := len(callJobs(t, s)); n != 1 {
				return fmt.Errorf("%d calls wait", n)
			}
			return nil
		})
	})
	if end := <-ends; !strings.HasPrefix(end, "503") || !strings.Contains(end, "stopping") {
		t.Error(end)
	}
}

// The queue of calls is not for the jobs of clients: their 202 promises that they are on disk.
func TestJobsAreNotTakenIntoTheQueueOfCalls(t *testing.T) {
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	for _, job := range []string{`"task":"chat","input":"hello"`, `"task":"batch:/v1/chat/completions:chat","input":{"model":"chat","messages":[]}`,
		`"task":"/v1/responses/background:chat","input":{"response":"resp_00000000000000000000000000"}`} {
		resp, body := servertest.Post(t, s, "/v1/jobs", `{"queue":"calls",`+job+`}`)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "only for calls whose clients wait") {
			t.Errorf("%s: %s %s", job, resp.Status, body)
		}
	}
}

// Prompts and answers are kept only if that is configured.
func TestOpenAIBodiesAreKeptIfConfigured(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), func(o *server.Options) { o.OpenAI.KeepBodies = keep })
		const asked = `{"model":"chat","seed":12345678901234567890,"messages":[{"role":"user","content":"hello"}]}`
		resp, answer := servertest.Post(t, s, "/v1/chat/completions", asked)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, answer)
		}
		job := callJobs(t, s)[0]
		servertest.Eventually(t, time.Minute, func() error {
			if job = callJobs(t, s)[0]; job.Status != forebay.StatusSucceeded {
				return fmt.Errorf("the job is %s", job.Status)
			}
			return nil
		})
		var result json.RawMessage
		if err := servertest.Over(t, s).Get(t.Context(), "/v1/jobs/"+job.ID+"/result", &result); err != nil {
			t.Fatal(err)
		}
		want := "null"
		if keep {
			want = `{"request":` + asked + `,"response":` + strings.TrimSpace(answer) + `}`
		}
		if string(result) != want {
			t.Errorf("keep %v: %s", keep, result)
		}
	}
}
