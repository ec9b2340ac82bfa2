package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// answerChat answers chat completions in the form that was asked for.
func answerChat(w http.ResponseWriter, body string) {
	if !strings.Contains(body, `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, servertest.PlainAnswer)
		return
	}
	servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"index":0,"delta":{"content":"h\u00ef"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":" there"}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, servertest.ChatUsage, "[DONE]")
}

// startBridging starts a server whose upstream speaks chat completions only.
func startBridging(t *testing.T, change func(*server.Options)) (*server.Server, *servertest.Upstream) {
	t.Helper()
	var u *servertest.Upstream
	u = servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			http.NotFound(w, r)
			return
		}
		answerChat(w, u.Body())
	})
	return startForwarding(t, u, change), u
}

// A response of a provider that speaks chat completions only, in one piece and as a stream.
func TestResponseOverTheBridge(t *testing.T) {
	t.Parallel()
	s, u := startBridging(t, nil)
	resp, body := servertest.Post(t, s, "/v1/responses", `{"model":"chat","instructions":"be brief","input":"hello","max_output_tokens":100,"metadata":{"a":"b"}}`)
	o := servertest.Object(t, body)
	if resp.StatusCode != http.StatusOK || o["status"] != "completed" || servertest.OutputText(o) != "hï" || o["model"] != "chat" || o["usage"].(map[string]any)["input_tokens"] != 11.0 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	sent := servertest.Object(t, u.Body())
	if sent["model"] != "real" || sent["max_tokens"] != 100.0 || sent["store"] != false || len(sent["messages"].([]any)) != 2 {
		t.Errorf("the provider got %s", u.Body())
	}
	resp, body = servertest.Post(t, s, "/openai/responses?api-version=preview", `{"model":"chat","input":"hello","stream":true}`)
	events := servertest.ReadStream(t, body)
	events.Gapless(t, 0)
	want := []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"}
	if fmt.Sprint(events.Types) != fmt.Sprint(want) || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") || resp.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("%v %s", resp.Header, body)
	}
	last := events.Data[len(events.Data)-1]["response"].(map[string]any)
	if servertest.OutputText(last) != "hï there" || last["usage"].(map[string]any)["total_tokens"] != 18.0 {
		t.Errorf("%v", last)
	}
}

// What cannot be answered is refused with the part that is wrong.
func TestResponseIsRefused(t *testing.T) {
	t.Parallel()
	s, u := startBridging(t, nil)
	for body, want := range map[string][2]string{
		`{"model":"chat"}`: {"input", "missing_required_parameter"},
		`{"model":"chat","input":"x","tools":[{"type":"web_search"}]}`:                               {"tools[0].type", "unsupported_value"},
		`{"model":"chat","input":"x","background":true,"store":false}`:                               {"background", "invalid_value"},
		`{"model":"chat","input":"x","max_output_tokens":1}`:                                         {"max_output_tokens", "integer_below_min_value"},
		`{"model":"chat","input":[{"role":"user","content":[{"type":"input_file","file_id":"a"}]}]}`: {"input", "invalid_value"},
		`{"model":"chat","input":"x","conversation":"conv_1"}`:                                       {"conversation", "not_supported"},
		`{"model":"nobody","input":"x"}`:                                                             {"model", "model_not_found"},
	} {
		resp, answer := servertest.Post(t, s, "/v1/responses", body)
		status := http.StatusBadRequest
		if want[1] == "model_not_found" {
			status = http.StatusNotFound
		}
		refusedWith(t, resp, answer, status, want[1])
		if !strings.Contains(answer, `"param":"`+want[0]+`"`) {
			t.Errorf("%s: %s", body, answer)
		}
	}
	resp, answer := servertest.Post(t, s, "/openai/v1/responses/input_tokens", `{"model":"chat","input":"x"}`)
	refusedWith(t, resp, answer, http.StatusNotFound, "not_supported")
	if n := u.Calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A stream that breaks in the middle ends with an error and a failed response.
func TestResponseStreamIsCut(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
		servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"content":"a"}}]}`)
		panic(http.ErrAbortHandler)
	})
	s := startForwarding(t, u, nil)
	_, body := servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"hello","stream":true}`)
	events := servertest.ReadStream(t, body)
	events.Gapless(t, 0)
	n := len(events.Types)
	if n < 2 || events.Types[n-2] != "error" || events.Types[n-1] != "response.failed" || u.Calls.Load() != 1 {
		t.Errorf("%v", events.Types)
	}
	if o := events.Data[n-1]["response"].(map[string]any); o["status"] != "failed" || o["error"].(map[string]any)["code"] != "server_error" {
		t.Errorf("%v", o)
	}
}

// A provider that speaks Responses gets the request as it is, but stores nothing.
func TestResponseOfAProviderThatSpeaksResponses(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		if !strings.HasSuffix(r.URL.Path, "/responses") {
			http.NotFound(w, r)
			return
		}
		if n == 1 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"resp_theirs","object":"response","status":"completed","new_field":[1],"output":[{"type":"message","id":"msg_9","content":[{"type":"output_text","text":"hey"}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{
			`{"type":"response.created","sequence_number":5,"response":{"id":"resp_theirs","status":"in_progress"}}`,
			`{"type":"response.output_item.added","sequence_number":6,"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}`,
			`{"type":"response.web_search_call.searching","sequence_number":9,"output_index":0,"item_id":"ws_1","odd":18446744073709551616}`,
			`{"type":"response.output_item.done","sequence_number":10,"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"completed"}}`,
			`{"type":"response.completed","sequence_number":11,"response":{"id":"resp_theirs","status":"completed","output":[{"id":"ws_1","type":"web_search_call","status":"completed"}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}`,
		} {
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", servertest.Object(t, data)["type"], data)
		}
	})
	s := startForwarding(t, u, func(o *server.Options) { o.Deployments[0].API = server.APIResponses })
	resp, body := servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"x","tools":[{"type":"web_search"}],"future":{"n":18446744073709551616}}`)
	o := servertest.Object(t, body)
	if resp.StatusCode != http.StatusOK || servertest.OutputText(o) != "hey" || o["new_field"] == nil || o["id"] == "resp_theirs" || o["usage"].(map[string]any)["input_tokens_details"] == nil {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if sent := u.Body(); !strings.Contains(sent, `"future":{"n":18446744073709551616}`) || !strings.Contains(sent, `"store":false`) || !strings.Contains(sent, `"model":"real"`) {
		t.Errorf("the provider got %s", sent)
	}
	_, body = servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"x","stream":true,"tools":[{"type":"web_search"}]}`)
	events := servertest.ReadStream(t, body)
	events.Gapless(t, 0)
	if len(events.Types) != 6 || events.Types[3] != "response.web_search_call.searching" || !strings.Contains(body, `"odd":18446744073709551616`) || strings.Contains(body, "resp_theirs") {
		t.Errorf("%s", body)
	}
}

// ended waits until a response has ended and returns it.
func ended(t *testing.T, s *server.Server, id string) (o map[string]any) {
	t.Helper()
	servertest.Eventually(t, 2*time.Minute, func() error {
		_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id, "")
		o = servertest.Object(t, body)
		if status := o["status"]; status == "queued" || status == "in_progress" {
			return fmt.Errorf("it is %v", status)
		}
		return nil
	})
	return o
}

// created makes a response and returns it.
func created(t *testing.T, s *server.Server, body string, headers ...string) map[string]any {
	t.Helper()
	resp, answer := servertest.Post(t, s, "/v1/responses", body, headers...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	return servertest.Object(t, answer)
}

// onBothEngines runs a test on SQLite and on PostgreSQL.
func onBothEngines(t *testing.T, f func(t *testing.T, change func(*server.Options))) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, func(*server.Options) {})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		database := dbtest.Postgres(t)
		f(t, func(o *server.Options) { o.Database = database })
	})
}

// A stored response can be read, listed, gone on from and deleted.
func TestStoredResponse(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		s, u := startBridging(t, change)
		first := created(t, s, `{"model":"chat","instructions":"only once","input":[{"role":"user","content":"one"},{"role":"user","content":[{"type":"input_text","text":"two"}]}]}`)
		id := first["id"].(string)
		resp, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?include[]=message.output_text.logprobs", "")
		if again := servertest.Object(t, body); resp.StatusCode != http.StatusOK || !reflect.DeepEqual(again, first) {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		_, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"/input_items?limit=1", "")
		page := servertest.Object(t, body)
		item := page["data"].([]any)[0].(map[string]any)
		if page["has_more"] != true || page["first_id"] != item["id"] || item["content"].([]any)[0].(map[string]any)["text"] != "two" {
			t.Fatalf("%s", body)
		}
		_, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"/input_items?after="+item["id"].(string), "")
		if page = servertest.Object(t, body); len(page["data"].([]any)) != 1 || page["has_more"] != false {
			t.Fatalf("%s", body)
		}
		second := created(t, s, `{"model":"chat","input":"three","previous_response_id":"`+id+`"}`)
		third := created(t, s, `{"model":"chat","input":[{"role":"user","content":"four"},{"type":"item_reference","id":"`+item["id"].(string)+`"}],"previous_response_id":"`+second["id"].(string)+`"}`)
		var sent struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal([]byte(u.Body()), &sent); err != nil {
			t.Fatal(err)
		}
		want := "[{user one} {user two} {assistant hï} {user three} {assistant hï} {user four} {user two}]"
		if got := fmt.Sprint(sent.Messages); got != want {
			t.Errorf("the provider got %s", got)
		}
		_, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+third["id"].(string)+"/input_items?limit=1", "")
		if listed := servertest.Object(t, body)["data"].([]any)[0]; !reflect.DeepEqual(listed, any(item)) {
			t.Errorf("a reference is listed as %v, and it means %v", listed, item)
		}
		resp, body = servertest.Ask(t, s, http.MethodPost, "/v1/responses/"+id+"/cancel", "")
		refusedWith(t, resp, body, http.StatusBadRequest, "")
		resp, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
		refusedWith(t, resp, body, http.StatusBadRequest, "")
		resp, body = servertest.Ask(t, s, http.MethodDelete, "/v1/responses/"+id, "")
		if o := servertest.Object(t, body); resp.StatusCode != http.StatusOK || o["deleted"] != true || o["object"] != "response" {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		for method, path := range map[string]string{http.MethodGet: "", http.MethodPost: "/cancel", http.MethodDelete: ""} {
			resp, body = servertest.Ask(t, s, method, "/v1/responses/"+id+path, "")
			refusedWith(t, resp, body, http.StatusNotFound, "")
		}
		_, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+third["id"].(string)+"/input_items?limit=1", "")
		if listed := servertest.Object(t, body)["data"].([]any)[0].(map[string]any); listed["type"] != "item_reference" || listed["id"] != item["id"] {
			t.Errorf("a reference to what is gone is listed as %v", listed)
		}
		for _, before := range []string{id, third["id"].(string)} { // the latter goes on from what is deleted
			resp, body = servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"x","previous_response_id":"`+before+`"}`)
			refusedWith(t, resp, body, http.StatusBadRequest, "previous_response_not_found")
		}
		unstored := created(t, s, `{"model":"chat","input":"x","store":false}`)
		resp, body = servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+unstored["id"].(string), "")
		refusedWith(t, resp, body, http.StatusNotFound, "")
	})
}
