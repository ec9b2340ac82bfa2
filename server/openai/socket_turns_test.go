package openai_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// keyed opens a WebSocket with a new key. The admin client may change that.
func keyed(t *testing.T, s *server.Server) (c conversation, key forebay.APIKey, admin *client.Client) {
	t.Helper()
	url := "http://" + s.Addr(t.Context()).String()
	admin, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	master, err := admin.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeAdmin}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if admin, err = client.New(client.Options{BaseURL: url, Key: forebay.Secret(master.Key)}); err != nil {
		t.Fatal(err)
	}
	if key, err = admin.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeSubmit}, nil); err != nil {
		t.Fatal(err)
	}
	return converse(t, s, "Authorization", "Bearer "+key.Key), key, admin
}

// A budget that a key gets binds the connections that are open with it.
func TestWebSocketMeetsNewBudget(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		t.Parallel()
		s, u := startBridging(t, func(o *server.Options) { o.Database = database })
		c, key, admin := keyed(t, s)
		if e := c.turn(sayHello); e.Get("type").Str != "response.completed" {
			t.Fatal(e.Raw)
		}
		nothing := int64(0)
		if _, err := admin.SetKeyBudget(t.Context(), key.ID, forebay.Budget{MonthlyTokens: &nothing}); err != nil {
			t.Fatal(err)
		}
		c.refused(sayHello, http.StatusTooManyRequests, "insufficient_quota")
		if n := u.Calls.Load(); n != 1 {
			t.Errorf("%d calls were made", n)
		}
	})
}

// A turn whose stream breaks has one last event, so the events of the next turn are its own.
func TestWebSocketBrokenStream(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, n int64) {
		servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"role":"assistant","content":"so"}}]}`)
		if n == 1 {
			return // without an end
		}
		servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, servertest.ChatUsage)
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	c := converse(t, startForwarding(t, u, nil))
	broken := c.turn(sayHello)
	if broken.Get("type").Str != "response.failed" || broken.Get("response.error.code").Str == "" || broken.Get("response.error.message").Str == "" {
		t.Error(broken.Raw)
	}
	next := c.turn(sayHello)
	if next.Get("type").Str != "response.completed" || next.Get("response.id").Str == broken.Get("response.id").Str {
		t.Error(next.Raw)
	}
}

// Idle conversations leave the memory for payloads to requests, and are forgotten where they are
// too many. A client whose conversation is gone is told so.
func TestWebSocketsIdleBesideRequests(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	s, _ := startBridging(t, nil)
	warmUp := func(c conversation, mebibytes int) string {
		c.Helper()
		e := c.turn(`{"type":"response.create","model":"chat","generate":false,"input":"` + strings.Repeat("x", mebibytes<<20) + `"}`)
		if e.Get("type").Str != "response.completed" {
			c.Fatal(e.Raw)
		}
		return e.Get("response.id").Str
	}
	a, b := converse(t, s), converse(t, s)
	first, second := warmUp(a, 9), warmUp(b, 6)
	resp, answer := servertest.Post(t, s, "/v1/responses", `{"model":"chat","store":false,"input":"`+strings.Repeat("x", 4<<20)+`"}`)
	if resp.StatusCode != http.StatusOK { // 429, had it waited for memory in vain
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	for c, id := range map[conversation]string{a: first, b: second} {
		if e := c.turn(`{"type":"response.create","model":"chat","store":false,"previous_response_id":"` + id + `","input":"x"}`); e.Get("type").Str != "response.completed" {
			t.Errorf("%.300s", e.Raw)
		}
	}
	first = warmUp(a, 9)
	second = warmUp(b, 8)
	a.refused(`{"type":"response.create","model":"chat","store":false,"previous_response_id":"`+first+`","input":"x"}`, http.StatusBadRequest, "previous_response_not_found")
	if e := b.turn(`{"type":"response.create","model":"chat","store":false,"previous_response_id":"` + second + `","input":"x"}`); e.Get("type").Str != "response.completed" {
		t.Errorf("%.300s", e.Raw)
	}
}
