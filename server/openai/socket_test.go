package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// conversation is a WebSocket of a client.
type conversation struct {
	*testing.T
	*websocket.Conn
}

// converse opens a WebSocket.
func converse(t *testing.T, s *server.Server, headers ...string) conversation {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c, resp, err := websocket.Dial(t.Context(), "ws://"+s.Addr(t.Context()).String()+"/v1/responses", &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		t.Fatal(resp, err)
	}
	c.SetReadLimit(-1)
	t.Cleanup(func() { c.CloseNow() })
	return conversation{t, c}
}

func (c conversation) send(event string) {
	c.Helper()
	if err := c.Write(c.Context(), websocket.MessageText, []byte(event)); err != nil {
		c.Fatal(err)
	}
}

// next is the next event.
func (c conversation) next() gjson.Result {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	kind, event, err := c.Read(ctx)
	if err != nil || kind != websocket.MessageText || !gjson.ValidBytes(event) {
		c.Fatal(kind, err, string(event))
	}
	return gjson.ParseBytes(event)
}

// turn sends an event and returns the last one of its answer: of the end, or an error.
func (c conversation) turn(event string) gjson.Result {
	c.Helper()
	c.send(event)
	for n := int64(0); ; n++ {
		e := c.next()
		if number := e.Get("sequence_number"); number.Exists() && number.Int() != n {
			c.Errorf("event %d is %s", n, e.Raw)
		}
		switch e.Get("type").Str {
		case "response.completed", "response.failed", "response.incomplete", "error":
			return e
		}
	}
}

// refused fails unless an event is refused with that status and code.
func (c conversation) refused(event string, status int64, code string) {
	c.Helper()
	e := c.turn(event)
	if e.Get("type").Str != "error" || e.Get("status").Int() != status || e.Get("error.code").Str != code || e.Get("error.message").Str == "" || !e.Get("error.type").Exists() || !e.Get("error.param").Exists() ||
		e.Get("code").Raw != e.Get("error.code").Raw || e.Get("message").Raw != e.Get("error.message").Raw || e.Get("param").Raw != e.Get("error.param").Raw {
		c.Errorf("%.200s: %s", event, e.Raw)
	}
}

// closed fails unless the server closes the connection with that status.
func (c conversation) closed(want websocket.StatusCode) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			if websocket.CloseStatus(err) != want {
				c.Errorf("closed with %v", err)
			}
			return
		}
	}
}

const sayHello = `{"type":"response.create","model":"chat","store":false,"input":"hello"}`

// Responses are made over a WebSocket as over HTTP, and one that is not stored can be gone on from
// on its connection alone.
func TestResponsesOverWebSocket(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		t.Parallel()
		s, u := startBridging(t, func(o *server.Options) { o.Database = database })
		c := converse(t, s)
		first := c.turn(sayHello)
		id := first.Get("response.id").Str
		if first.Get("response.output.0.content.0.text").Str != "hï there" || first.Get("response.usage.total_tokens").Int() != 18 || first.Get("response.store").Bool() {
			t.Error(first.Raw)
		}
		servertest.Eventually(t, time.Minute, func() error { // the client hears of the end first
			if jobs := callJobs(t, s); len(jobs) != 1 || jobs[0].Task != "/v1/responses:chat" || jobs[0].Usage.InputTokens != 11 || jobs[0].Status != forebay.StatusSucceeded {
				return fmt.Errorf("%+v", jobs)
			}
			return nil
		})
		second := c.turn(`{"type":"response.create","model":"chat","store":false,"previous_response_id":"` + id + `","input":"and now"}`)
		if said := gjson.Get(u.Body(), "messages.#.content").Raw; said != `["hello","hï there","and now"]` || second.Get("response.previous_response_id").Str != id {
			t.Error(said, second.Raw)
		}
		// Only the latest one can be gone on from.
		c.refused(`{"type":"response.create","model":"chat","previous_response_id":"`+id+`","input":"x"}`, 400, "previous_response_not_found")
		second = c.turn(sayHello)
		id = second.Get("response.id").Str
		converse(t, s).refused(`{"type":"response.create","model":"chat","previous_response_id":"`+id+`","input":"x"}`, 400, "previous_response_not_found")
		if resp, answer := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("it is stored: %s", answer)
		}
		// One that is stored after one that is not has all that was said.
		stored := c.turn(`{"type":"response.create","model":"chat","previous_response_id":"` + id + `","input":"keep it"}`).Get("response.id").Str
		_, answer := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+stored+"/input_items?order=asc", "")
		if said := gjson.Get(answer, "data.#.content.0.text").Raw; said != `["hello","hï there","keep it"]` {
			t.Error(answer)
		}
		if resp, answer := servertest.Post(t, s, "/v1/responses", `{"model":"chat","previous_response_id":"`+stored+`","input":"over HTTP"}`); resp.StatusCode != http.StatusOK || gjson.Get(u.Body(), "messages.#").Int() != 5 {
			t.Error(answer, u.Body())
		}
		if e := c.turn(`{"type":"response.create","model":"chat","previous_response_id":"` + stored + `","stream_id":"a.1","input":"again"}`); e.Get("stream_id").Str != "a.1" || e.Get("type").Str != "response.completed" {
			t.Error(e.Raw)
		}
		// A warm-up calls no model.
		calls := u.Calls.Load()
		warm := c.turn(`{"type":"response.create","model":"chat","generate":false,"instructions":"Be kind.","input":"the rules"}`)
		if u.Calls.Load() != calls || warm.Get("response.output.#").Int() != 0 || warm.Get("response.store").Raw != "false" { // it is not stored, though it may be
			t.Error(warm.Raw)
		}
		c.turn(`{"type":"response.create","model":"chat","previous_response_id":"` + warm.Get("response.id").Str + `","input":"go"}`)
		if said := gjson.Get(u.Body(), "messages.#.content").Raw; said != `["the rules","go"]` {
			t.Error(said)
		}
		// A turn that fails ends the chain.
		id = c.turn(sayHello).Get("response.id").Str
		c.refused(`{"type":"response.create","model":"chat","previous_response_id":"`+id+`","input":"x","tools":[{"type":"web_search"}]}`, 400, "unsupported_value")
		c.refused(`{"type":"response.create","model":"chat","previous_response_id":"`+id+`","input":"x"}`, 400, "previous_response_not_found")
	})
}

// What is wrong with an event is told in an event, and the connection goes on.
func TestWebSocketRefusals(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","code":"odd"}}`)
	})
	budget := int64(0)
	s := startForwarding(t, u, func(o *server.Options) { o.Limits.MaxInputBytes = limit })
	c := converse(t, s)
	for event, code := range map[string]string{
		"{": "", "[]": "", `{"type":"response.steer"}`: "invalid_value", `{"model":"chat","input":"x"}`: "invalid_value", `{"type":7}`: "invalid_type",
		`{"type":"response.create","model":"chat"}`:                                   "missing_required_parameter",
		`{"type":"response.create","model":"chat","input":"x","background":true}`:     "unsupported_parameter",
		`{"type":"response.create","model":"chat","input":"x","stream_id":""}`:        "invalid_value",
		`{"type":"response.create","model":"chat","input":"x","generate":"no"}`:       "invalid_type",
		`{"type":"response.create","model":"chat","input":"x","stream_id":"a b"}`:     "invalid_value",
		`{"Type":"response.create","model":"chat","input":"x"}`:                       "invalid_value",
		`{"type":"response.create","model":"chat","input":"x","max_output_tokens":1}`: "integer_below_min_value",
		`{"type":"response.create","model":"chat","input":"x"}`:                       "odd",
	} {
		c.refused(event, 400, code)
	}
	c.refused(`{"type":"response.create","model":"none","input":"x"}`, 404, "model_not_found")
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte(sayHello)); err != nil {
		t.Fatal(err)
	}
	if e := c.next(); e.Get("error.code").Str != "invalid_type" {
		t.Error(e.Raw)
	}
	c.refused(`{"type":"response.create","model":"chat","input":"`+strings.Repeat("x", limit)+`"}`, 413, "payload_too_large")
	c.closed(websocket.StatusMessageTooBig)

	for _, page := range []string{"https://elsewhere.example"} {
		_, resp, err := websocket.Dial(t.Context(), "ws://"+s.Addr(t.Context()).String()+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {page}}})
		if err == nil || resp.StatusCode != http.StatusForbidden {
			t.Error(resp, err)
		}
	}
	resp, answer := servertest.Ask(t, s, http.MethodGet, "/v1/responses", "", "Upgrade", "websocket", "Connection", "Upgrade") // without the rest of a handshake
	refusedWith(t, resp, answer, http.StatusBadRequest, "invalid_handshake")
	if resp, answer := servertest.Ask(t, s, http.MethodGet, "/v1/responses", "", "Upgrade", "h2c", "Connection", "Upgrade"); resp.StatusCode != http.StatusOK || gjson.Get(answer, "object").Str != "list" {
		t.Errorf("an offer of HTTP/2: %d %s", resp.StatusCode, answer)
	}
	poor := startForwarding(t, u, func(o *server.Options) {
		o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Budget: server.Budget{MonthlyTokens: &budget}}}
	})
	began := time.Now()
	converse(t, poor).refused(sayHello, 429, "insufficient_quota")
	if took := time.Since(began); took > soon {
		t.Errorf("after %s", took)
	}
}

// streaming answers with the beginning of a stream, and waits until its client leaves or the
// channel is closed. It tells which.
func streaming(end <-chan struct{}, how chan<- error) func(w http.ResponseWriter, r *http.Request, n int64) {
	return func(w http.ResponseWriter, r *http.Request, _ int64) {
		servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"role":"assistant","content":"so"}}]}`)
		select {
		case <-r.Context().Done():
			how <- r.Context().Err()
		case <-end:
			servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, servertest.ChatUsage, "[DONE]")
			how <- nil
		}
	}
}

// A client that leaves, politely or not, ends the call at the provider. So does the end of its
// key.
func TestWebSocketEnds(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		t.Parallel()
		how := make(chan error, 8)
		u := servertest.StartUpstream(t, streaming(nil, how))
		s := startForwarding(t, u, func(o *server.Options) { o.Database = database })
		url := "http://" + s.Addr(t.Context()).String()
		local, err := client.New(client.Options{BaseURL: url})
		if err != nil {
			t.Fatal(err)
		}
		master, err := local.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeAdmin, forebay.ScopeRead}, nil)
		if err != nil {
			t.Fatal(err)
		}
		admin, err := client.New(client.Options{BaseURL: url, Key: forebay.Secret(master.Key)})
		if err != nil {
			t.Fatal(err)
		}
		key, err := admin.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeSubmit}, nil)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := admin.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeRead}, nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := func(c conversation) {
			c.Helper()
			c.send(sayHello)
			for c.next().Get("type").Str != "response.output_text.delta" {
			}
		}
		ended := func(what string) {
			t.Helper()
			select {
			case err := <-how:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", what, err)
				}
			case <-time.After(soon): // before a ping would find it out
				t.Fatalf("%s: the call goes on", what)
			}
			servertest.Eventually(t, time.Minute, func() error {
				_, jobs := servertest.Ask(t, s, http.MethodGet, "/v1/jobs?limit=1", "", "Authorization", "Bearer "+master.Key)
				if status := forebay.Status(gjson.Get(jobs, "items.0.status").Str); status != forebay.StatusCancelled && status != forebay.StatusFailed {
					return servertest.ErrNotYet
				}
				return nil
			})
		}
		c := converse(t, s, "Authorization", "Bearer "+key.Key)
		begun(c)
		_ = c.CloseNow()
		ended("it is gone")
		c = converse(t, s, "Authorization", "Bearer "+key.Key)
		begun(c)
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Log(err)
		}
		ended("it has closed")

		for authorization, status := range map[string]int{"Bearer none": http.StatusUnauthorized, "Bearer " + reader.Key: http.StatusForbidden} {
			_, resp, err := websocket.Dial(t.Context(), "ws://"+s.Addr(t.Context()).String()+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {authorization}}})
			if err == nil || resp.StatusCode != status {
				t.Error(resp, err)
			}
		}
		c = converse(t, s, "Authorization", "Bearer "+key.Key)
		begun(c)
		if err := admin.RevokeKey(t.Context(), key.ID); err != nil {
			t.Fatal(err)
		}
		e := c.next()
		for e.Get("type").Str != "error" {
			e = c.next()
		}
		if e.Get("status").Int() != http.StatusUnauthorized || e.Get("error.code").Str != "invalid_api_key" {
			t.Error(e.Raw)
		}
		c.closed(websocket.StatusPolicyViolation)
		select {
		case err := <-how:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the call of a revoked key goes on")
		}
	})
}

// Events wait for their turn, up to a number. A server that stops lets the response finish that is
// being made, and then closes.
func TestWebSocketTurns(t *testing.T) {
	t.Parallel()
	end, how := make(chan struct{}), make(chan error, 100)
	u := servertest.StartUpstream(t, streaming(end, how))
	opts := server.Options{
		Database: "sqlite:" + t.TempDir() + "/forebay.db", Listen: "127.0.0.1:0", ShutdownTimeout: time.Minute,
		Deployments: []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: u.URL, Model: "real", APIKey: "sk-up"}},
	}
	opts.Log.Level = "error"
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	if s.Addr(t.Context()) == nil {
		t.Fatal("it does not listen")
	}
	c := converse(t, s)
	c.send(sayHello)
	for c.next().Get("type").Str != "response.output_text.delta" {
	}
	const waiting = 16
	for range waiting + 1 {
		c.send(sayHello)
	}
	if e := c.next(); e.Get("error.code").Str != "rate_limit_exceeded" || e.Get("status").Int() != 429 {
		t.Error(e.Raw)
	}
	if n := u.Calls.Load(); n != 1 {
		t.Errorf("%d responses are made at once", n)
	}
	stop()
	select { // it waits for the response
	case err := <-stopped:
		t.Fatalf("it has not waited: %v", err)
	case <-time.After(time.Second):
	}
	close(end)
	e := c.next()
	for e.Get("type").Str != "response.completed" {
		e = c.next()
	}
	c.closed(websocket.StatusGoingAway)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := u.Calls.Load(); n != 1 {
		t.Errorf("%d responses were made", n)
	}
}
