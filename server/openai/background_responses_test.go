package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A background response is made by a job. Its stream can be read as it comes, again, and in part.
func TestBackgroundResponse(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		s, u := startBridging(t, change)
		first := created(t, s, `{"model":"chat","input":"hello","background":true}`)
		if first["status"] != "queued" || first["background"] != true || len(first["output"].([]any)) != 0 || first["error"] != nil {
			t.Fatalf("%v", first)
		}
		id := first["id"].(string)
		o := ended(t, s, id)
		if o["status"] != "completed" || servertest.OutputText(o) != "hï there" || o["usage"].(map[string]any)["total_tokens"] != 18.0 {
			t.Fatalf("%v", o)
		}
		_, whole := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
		events := servertest.ReadStream(t, whole)
		events.Gapless(t, 0)
		want := []string{"response.created", "response.queued", "response.in_progress", "response.output_item.added", "response.content_part.added",
			"response.output_text.delta", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"}
		if fmt.Sprint(events.Types) != fmt.Sprint(want) || !reflect.DeepEqual(events.Data[len(want)-1]["response"], any(o)) {
			t.Fatalf("%s", whole)
		}
		for after := range len(want) + 2 {
			_, part := servertest.Ask(t, s, http.MethodGet, fmt.Sprintf("/v1/responses/%s?stream=true&starting_after=%d", id, after), "")
			rest := servertest.ReadStream(t, part)
			rest.Gapless(t, after+1)
			if len(rest.Types) != max(0, len(want)-1-after) || !strings.HasSuffix(whole, part) {
				t.Fatalf("after %d: %s", after, part)
			}
		}
		for _, after := range []string{"x", "9223372036854775807"} {
			resp, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true&starting_after="+after, "")
			refusedWith(t, resp, body, http.StatusBadRequest, "invalid_type")
		}
		resp, body := servertest.Ask(t, s, http.MethodPost, "/v1/responses/"+id+"/cancel", "")
		if resp.StatusCode != http.StatusOK || !reflect.DeepEqual(servertest.Object(t, body), o) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		// The stream of the request that makes it, and Go's way of asking for one.
		_, body = servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"hello","background":true,"stream":true}`)
		if events = servertest.ReadStream(t, body); fmt.Sprint(events.Types) != fmt.Sprint(want) || events.Data[0]["response"].(map[string]any)["status"] != "queued" {
			t.Errorf("%s", body)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr(t.Context()).String()+"/v1/responses/"+id+"?starting_after=8", strings.NewReader(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err = http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		part, err := io.ReadAll(resp.Body)
		if err != nil || len(servertest.ReadStream(t, string(part)).Types) != 2 {
			t.Errorf("%s %v", part, err)
		}
		if n := u.Calls.Load(); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// A cancelled response stays so, whatever the provider says later. Its stream ends without an
// event of its own. A response that is deleted is cancelled.
func TestBackgroundResponseIsCancelled(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		called, left := make(chan struct{}, 2), make(chan struct{}, 2)
		u := servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"content":"a"}}]}`)
			called <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		})
		s := startForwarding(t, u, change)
		id := created(t, s, `{"model":"chat","input":"hello","background":true}`)["id"].(string)
		<-called
		streams := make(chan string, 1)
		go func() {
			_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
			streams <- body
		}()
		resp, body := servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"x","previous_response_id":"`+id+`"}`)
		refusedWith(t, resp, body, http.StatusBadRequest, "previous_response_not_completed")
		for range 2 {
			resp, body = servertest.Ask(t, s, http.MethodPost, "/v1/responses/"+id+"/cancel", "")
			if o := servertest.Object(t, body); resp.StatusCode != http.StatusOK || o["status"] != "cancelled" {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
		}
		<-left
		events := servertest.ReadStream(t, <-streams)
		events.Gapless(t, 0)
		for _, kind := range events.Types {
			if slices.Contains([]string{"response.completed", "response.failed", "response.incomplete", "response.cancelled"}, kind) {
				t.Errorf("%v", events.Types)
			}
		}
		id = created(t, s, `{"model":"chat","input":"hello","background":true}`)["id"].(string)
		<-called
		if resp, body := servertest.Ask(t, s, http.MethodDelete, "/v1/responses/"+id, ""); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		<-left
	})
}

// A background response whose provider refuses it has failed, and is an answer like any other.
func TestBackgroundResponseFails(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no such thing","type":"invalid_request_error","param":null,"code":null}}`)
		})
		s := startForwarding(t, u, change)
		id := created(t, s, `{"model":"chat","input":"hello","background":true}`)["id"].(string)
		o := ended(t, s, id)
		if e, _ := o["error"].(map[string]any); o["status"] != "failed" || e["code"] != "invalid_prompt" || !strings.Contains(fmt.Sprint(e["message"]), "no such thing") {
			t.Fatalf("%v", o)
		}
		_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
		events := servertest.ReadStream(t, body)
		if events.Gapless(t, 0); events.Types[len(events.Types)-1] != "response.failed" {
			t.Errorf("%s", body)
		}
		if list := callJobs(t, s); list[0].Queue != server.ResponsesQueue || list[0].Status != forebay.StatusFailed {
			t.Errorf("%+v", list[0])
		}
	})
}

// A call that breaks off is made again. What it had begun is closed, and is no part of the
// response.
func TestBackgroundResponseGoesOn(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		var u *servertest.Upstream
		u = servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, n int64) {
			if n == 1 {
				servertest.ChatStream(w, `{"choices":[{"index":0,"delta":{"content":"lost"}}]}`)
				panic(http.ErrAbortHandler)
			}
			answerChat(w, u.Body())
		})
		s := startForwarding(t, u, func(o *server.Options) {
			change(o)
			o.Queues = map[string]server.Queue{server.ResponsesQueue: {Retry: server.Retry{First: 10 * time.Millisecond, Max: 20 * time.Millisecond}}}
		})
		id := created(t, s, `{"model":"chat","input":"hello","background":true}`)["id"].(string)
		o := ended(t, s, id)
		if o["status"] != "completed" || servertest.OutputText(o) != "hï there" || len(o["output"].([]any)) != 1 {
			t.Fatalf("%v", o)
		}
		_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
		events := servertest.ReadStream(t, body)
		events.Gapless(t, 0)
		statuses := []string{}
		for _, e := range events.Data {
			if item, ok := e["item"].(map[string]any); ok {
				statuses = append(statuses, fmt.Sprint(e["output_index"], item["status"]))
			}
		}
		if fmt.Sprint(statuses) != "[0in_progress 0incomplete 1in_progress 1completed]" && fmt.Sprint(statuses) != "[0 in_progress 0 incomplete 1 in_progress 1 completed]" {
			t.Errorf("%v in %s", statuses, body)
		}
	})
}

// A request that is repeated makes one response.
func TestBackgroundResponseIsRepeated(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		s, u := startBridging(t, change)
		const body = `{"model":"chat","input":"hello","background":true}`
		first := created(t, s, body)["id"]
		if again := created(t, s, body, "X-Stainless-Retry-Count", "0")["id"]; again == first {
			t.Error("two requests made one response")
		}
		third := created(t, s, body, "X-Stainless-Retry-Count", "0")["id"]
		if again := created(t, s, body, "X-Stainless-Retry-Count", "1")["id"]; again != third {
			t.Error("a repeated request made a second response")
		}
		keyed := created(t, s, body, "Idempotency-Key", "a")["id"].(string)
		if again := created(t, s, body, "Idempotency-Key", "a")["id"]; again != keyed || keyed == third {
			t.Error("a key made two responses")
		}
		resp, answer := servertest.Post(t, s, "/v1/responses", strings.Replace(body, "hello", "other", 1), "Idempotency-Key", "a")
		refusedWith(t, resp, answer, http.StatusBadRequest, "idempotency_mismatch")
		ended(t, s, keyed)
		if resp, answer := asked(t, s, http.MethodDelete, "/v1/responses/"+keyed); resp.StatusCode != http.StatusOK {
			t.Errorf("%d %s", resp.StatusCode, answer)
		}
		resp, answer = servertest.Post(t, s, "/v1/responses", body, "Idempotency-Key", "a")
		refusedWith(t, resp, answer, http.StatusGone, "gone")
		servertest.Eventually(t, time.Minute, func() error {
			if n := u.Calls.Load(); n != 4 {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
	})
}

// The provider gets the contents of files that a request names.
func TestResponseOfFiles(t *testing.T) {
	t.Parallel()
	s, u := startBridging(t, nil)
	image := uploaded(t, s, nil, field{"purpose", "vision", ""}, field{"file", "\x89PNG\r\n\x1a\n", "a.png"})
	text := uploaded(t, s, nil, field{"purpose", "user_data", ""}, field{"file", "words", "b.txt"})
	body := `{"model":"chat","background":true,"input":[{"role":"user","content":[{"type":"input_image","file_id":"` + image.ID + `","detail":"low"},{"type":"input_file","file_id":"` + text.ID + `"}]}]}`
	id := created(t, s, body)["id"].(string)
	if o := ended(t, s, id); o["status"] != "completed" {
		t.Fatalf("%v", o)
	}
	for _, want := range []string{`"url":"data:image/png;base64,iVBORw0KGgo="`, `"file_data":"data:text/plain;base64,d29yZHM="`, `"filename":"b.txt"`} {
		if sent := u.Body(); !strings.Contains(sent, want) || strings.Contains(sent, "file_id") {
			t.Errorf("the provider got %s", sent)
		}
	}
	// What is kept names the file, and a provider gets it again.
	_, items := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"/input_items", "")
	if !strings.Contains(items, `"file_id":"`+image.ID+`"`) {
		t.Errorf("%s", items)
	}
	created(t, s, `{"model":"chat","input":"and?","previous_response_id":"`+id+`"}`)
	if sent := u.Body(); !strings.Contains(sent, "iVBORw0KGgo=") {
		t.Errorf("the provider got %s", sent)
	}
}

// Large requests and answers are in blob storage, and go with their response.
func TestLargeBackgroundResponse(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		word := strings.Repeat("word ", 20<<10)
		u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
			servertest.ChatStream(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, word), fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, word),
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
		})
		blobs := t.TempDir()
		s := startForwarding(t, u, func(o *server.Options) {
			change(o)
			o.Blob = "file://" + blobs
		})
		files := func() (n int) {
			_ = filepath.WalkDir(blobs, func(_ string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && strings.Contains(d.Name(), "-") {
					n++
				}
				return nil
			})
			return n
		}
		id := created(t, s, fmt.Sprintf(`{"model":"chat","background":true,"input":%q}`, word))["id"].(string)
		o := ended(t, s, id)
		if servertest.OutputText(o) != word+word {
			t.Fatalf("%d bytes", len(servertest.OutputText(o)))
		}
		_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
		if events := servertest.ReadStream(t, body); events.Types[len(events.Types)-1] != "response.completed" {
			t.Errorf("%v", events.Types)
		}
		if n := files(); n < 2 {
			t.Errorf("%d blobs", n)
		}
		if resp, body := servertest.Ask(t, s, http.MethodDelete, "/v1/responses/"+id, ""); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		servertest.Eventually(t, time.Minute, func() error {
			if n := files(); n > 0 {
				return fmt.Errorf("%d blobs are left", n)
			}
			return nil
		})
	})
}

// A background response of a provider that speaks Responses has the provider's events under its
// own numbers. What was begun before a break is closed.
func TestBackgroundResponseOfAProviderThatSpeaksResponses(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, n int64) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, data := range []string{
			`{"type":"response.created","sequence_number":0,"response":{"id":"resp_theirs","status":"in_progress"}}`,
			`{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}`,
			`{"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"completed"}}`,
			`{"type":"response.completed","sequence_number":3,"response":{"id":"resp_theirs","status":"completed","output":[{"id":"ws_1","type":"web_search_call","status":"completed"}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}`,
		} {
			if n == 1 && i == 2 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", servertest.Object(t, data)["type"], data)
		}
	})
	s := startForwarding(t, u, func(o *server.Options) {
		o.Deployments[0].API = server.APIResponses
		o.Queues = map[string]server.Queue{server.ResponsesQueue: {Retry: server.Retry{First: 10 * time.Millisecond, Max: 20 * time.Millisecond}}}
	})
	id := created(t, s, `{"model":"chat","background":true,"input":"x","tools":[{"type":"web_search"}]}`)["id"].(string)
	if o := ended(t, s, id); o["status"] != "completed" || len(o["output"].([]any)) != 1 || o["id"] != id || o["background"] != true {
		t.Fatalf("%v", o)
	}
	_, body := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+id+"?stream=true", "")
	events := servertest.ReadStream(t, body)
	events.Gapless(t, 0)
	var places []any
	for _, e := range events.Data {
		if place, ok := e["output_index"]; ok {
			places = append(places, place, e["item"].(map[string]any)["status"])
		}
	}
	if fmt.Sprint(places) != "[0 in_progress 0 incomplete 1 in_progress 1 completed]" || strings.Contains(body, "resp_theirs") {
		t.Errorf("%v in %s", places, body)
	}
}

// Subscribers are told how background responses end, in the shape of OpenAI's webhooks.
func TestEventsOfResponses(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		var u *servertest.Upstream
		u = servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			switch body := u.Body(); {
			case strings.Contains(body, "wait"):
				<-r.Context().Done()
			case strings.Contains(body, "fail"):
				http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
			default:
				answerChat(w, body)
			}
		})
		s := startForwarding(t, u, change)
		c, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutTopic(t.Context(), forebay.TopicJobEvents, forebay.TopicSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutSubscription(t.Context(), forebay.TopicJobEvents, "all", forebay.SubscriptionSettings{}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, input := range []string{"hello", "fail", "wait"} {
			id := created(t, s, `{"model":"chat","background":true,"input":"`+input+`"}`)["id"].(string)
			if input == "wait" {
				servertest.Ask(t, s, http.MethodPost, "/v1/responses/"+id+"/cancel", "")
			}
			want[id] = "response." + ended(t, s, id)["status"].(string)
		}
		servertest.Eventually(t, time.Minute, func() error {
			got := map[string]string{}
			for m, err := range c.Messages(forebay.TopicJobEvents+"/subscriptions/all").Peek(t.Context(), 0) {
				if err != nil {
					return err
				}
				var e forebay.ObjectEvent
				if strings.HasPrefix(m.Subject, "response.") {
					if err := json.Unmarshal([]byte(*m.Body), &e); err != nil || e.Object != "event" || got[e.Data.ID] != "" {
						t.Fatalf("%s %v", *m.Body, err)
					}
					got[e.Data.ID] = string(e.Type)
				}
			}
			if !reflect.DeepEqual(got, want) {
				return fmt.Errorf("told %v of %v", got, want)
			}
			return nil
		})
	})
}
