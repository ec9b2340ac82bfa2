package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// The model of a provider of chat completions writes a summary. Its item stands for the
// conversation in later requests of the same tenant, on any process. Nobody else can use it.
func TestCompactionByChatCompletions(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) {
		t.Parallel()
		options := func(o *server.Options) { o.Database = database }
		s, u := startBridging(t, options)
		resp, answer := servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"the colour is blue"}`)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(answer)
		}
		before := gjson.Get(answer, "id").Str
		resp, answer = servertest.Post(t, s, "/v1/responses/compact", `{"model":"chat","instructions":"Be brief.","previous_response_id":"`+before+`","input":[
			{"role":"user","content":[{"type":"input_text","text":"and the size is 7"}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"out"},
			{"role":"assistant","content":"noted"},{"role":"user","content":"thanks"}]}`)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, answer)
		}
		asked := u.Body()
		if gjson.Get(asked, "messages.#").Int() != 9 || !strings.Contains(gjson.Get(asked, "messages.8.content").Str, "Summarize the conversation") ||
			gjson.Get(asked, "messages.0.content").Str != "Be brief." || gjson.Get(asked, "messages.1.content").Str != "the colour is blue" || gjson.Get(asked, "store").Bool() {
			t.Error(asked)
		}
		o := gjson.Parse(answer)
		if o.Get("object").Str != "response.compaction" || !strings.HasPrefix(o.Get("id").Str, "resp_") || o.Get("created_at").Int() == 0 ||
			o.Get("usage.input_tokens").Int() != 11 || o.Get("usage.output_tokens").Int() != 7 {
			t.Error(answer)
		}
		texts := o.Get("output.#.content.0.text").String()
		item := o.Get("output.3")
		if o.Get("output.#").Int() != 4 || texts != `["the colour is blue","and the size is 7","thanks"]` || item.Get("type").Str != "compaction" || !strings.HasPrefix(item.Get("id").Str, "cmp_") {
			t.Error(answer)
		}
		sealed := item.Get("encrypted_content").Str
		if !strings.HasPrefix(sealed, "fbc1_") || strings.Contains(answer, "h\u00ef") || strings.Contains(answer, `h\u00ef`) {
			t.Errorf("the summary can be read: %s", answer)
		}
		if resp, answer := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+o.Get("id").Str, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("it is stored: %s", answer)
		}
		servertest.Eventually(t, time.Minute, func() error { // the client hears of the end first
			if job := callJobs(t, s)[0]; job.Task != "/v1/responses/compact:chat" || job.Usage.InputTokens != 11 || job.Status != forebay.StatusSucceeded {
				return fmt.Errorf("%+v", job)
			}
			return nil
		})

		// Another process reads it, also when the item comes from a stored response.
		other := s
		if !strings.HasPrefix(database, "sqlite:") {
			other, u = startBridging(t, options)
		}
		next := `{"model":"chat","input":[` + item.Raw + `,{"role":"user","content":"go on"}]}`
		resp, answer = servertest.Post(t, other, "/v1/responses", next)
		expanded := gjson.Get(u.Body(), "messages.0")
		if resp.StatusCode != http.StatusOK || expanded.Get("role").Str != "assistant" || !strings.HasSuffix(expanded.Get("content").Str, "\n\nhï") {
			t.Error(answer, u.Body())
		}
		id := gjson.Get(answer, "id").Str
		if resp, answer = servertest.Post(t, other, "/v1/responses", `{"model":"chat","input":"and on","previous_response_id":"`+id+`"}`); resp.StatusCode != http.StatusOK ||
			gjson.Get(u.Body(), "messages.0").Raw != expanded.Raw || gjson.Get(u.Body(), "messages.#").Int() != 4 {
			t.Error(answer, u.Body())
		}
		_, answer = servertest.Ask(t, other, http.MethodGet, "/v1/responses/"+id+"/input_items?order=asc", "")
		if gjson.Get(answer, "data.0.encrypted_content").Str != sealed {
			t.Error(answer)
		}

		changed := []byte(sealed)
		changed[len(changed)/2] ^= 1
		for what, content := range map[string]string{"changed": string(changed), "cut": sealed[:len(sealed)-8], "empty": "fbc1_", "no base64": "fbc1_!!"} {
			resp, answer := servertest.Post(t, s, "/v1/responses", strings.Replace(next, sealed, content, 1))
			t.Run(what, func(t *testing.T) { refusedWith(t, resp, answer, http.StatusBadRequest, "invalid_encrypted_content") })
		}
		resp, answer = servertest.Post(t, s, "/v1/responses", strings.Replace(next, sealed, "gAAAA-made-elsewhere", 1))
		refusedWith(t, resp, answer, http.StatusBadRequest, "unsupported_value")
		resp, answer = servertest.Post(t, s, "/v1/responses", strings.Replace(next, sealed, "", 1))
		refusedWith(t, resp, answer, http.StatusBadRequest, "unsupported_value")

		local, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String()})
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := local.CreateKey(t.Context(), "stranger", []forebay.Scope{forebay.ScopeSubmit}, nil)
		if err != nil {
			t.Fatal(err)
		}
		calls := u.Calls.Load()
		resp, answer = servertest.Post(t, s, "/v1/responses", next, "Authorization", "Bearer "+stranger.Key)
		refusedWith(t, resp, answer, http.StatusBadRequest, "invalid_encrypted_content")
		if u.Calls.Load() != calls {
			t.Error("another tenant's compaction was sent to a provider")
		}
	})
}

// A compaction names the files that the user has named. The model gets what is in them.
func TestCompactionOfFiles(t *testing.T) {
	t.Parallel()
	s, u := startBridging(t, nil)
	file := uploaded(t, s, nil, field{"purpose", "user_data", ""}, field{"file", "words", "b.txt"})
	item := `{"role":"user","content":[{"type":"input_file","file_id":"` + file.ID + `"}]}`
	_, answer := servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":[`+item+`]}`)
	before := gjson.Get(answer, "id").Str
	_, listed := servertest.Ask(t, s, http.MethodGet, "/v1/responses/"+before+"/input_items", "")
	for what, asked := range map[string]string{
		"a stored response":   `"previous_response_id":"` + before + `","input":"and now"`,
		"a reference":         `"input":[{"type":"item_reference","id":"` + gjson.Get(listed, "data.0.id").Str + `"}]`,
		"the request's input": `"input":[` + item + `]`,
	} {
		resp, answer := servertest.Post(t, s, "/v1/responses/compact", `{"model":"chat",`+asked+`}`)
		part := gjson.Get(answer, "output.0.content.0")
		if resp.StatusCode != http.StatusOK || part.Get("file_id").Str != file.ID || strings.Contains(answer, "d29yZHM") || !strings.Contains(u.Body(), "d29yZHM") {
			t.Errorf("%s: %s\n%s", what, answer, u.Body())
		}
	}
}

// A summary that the model did not end is none.
func TestCompactionThatIsCutOff(t *testing.T) {
	t.Parallel()
	u := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Replace(servertest.PlainAnswer, `"stop"`, `"length"`, 1))
	})
	s := startForwarding(t, u, nil)
	resp, answer := servertest.Post(t, s, "/v1/responses/compact", `{"model":"chat","input":"x"}`)
	refusedWith(t, resp, answer, http.StatusBadGateway, "no_summary")
	if jobs := callJobs(t, s); u.Calls.Load() != 1 || jobs[0].Usage.OutputTokens != 7 {
		t.Errorf("%d calls, %+v", u.Calls.Load(), jobs[0])
	}
}

// A provider that speaks Responses gets the request byte for byte, and its answer comes back so.
// What only this server knows stands in the request as what it is.
func TestCompactionByResponses(t *testing.T) {
	t.Parallel()
	const compacted = `{ "id":"resp_up","object":"response.compaction","created_at":1,"odd":[1.0,12345678901234567890],"output":[{"type":"compaction","id":"cmp_up","encrypted_content":"gAAA"}],"usage":{"input_tokens":5,"output_tokens":3,"total_tokens":8} }`
	paths := make(chan string, 10)
	var u *servertest.Upstream
	u = servertest.StartUpstream(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		paths <- r.URL.Path
		switch {
		case strings.Contains(u.Body(), "refuse"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","param":"input","code":"odd"}}`)
		case strings.HasSuffix(r.URL.Path, "/responses/compact"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, compacted)
		case strings.HasSuffix(r.URL.Path, "/chat/completions"):
			servertest.AnswerPlainly(w, r, 0)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"r","object":"response","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`)
		}
	})
	s := startForwarding(t, u, func(o *server.Options) {
		chat := o.Deployments[0]
		o.Deployments[0].API = server.APIResponses
		chat.Name = "chats"
		o.Deployments = append(o.Deployments, chat)
		o.Models = map[string]server.Model{"chat": server.InOrder("up"), "other": server.InOrder("chats")}
	})
	request := `{ "model" : "%s", "odd":{"z":1.50,"a":12345678901234567890}, "input":[{"type":"compaction","encrypted_content":"gAAA"},{"role":"user","content":"h\u00ef"}] }`
	for _, path := range []string{"/v1/responses/compact", "/openai/v1/responses/compact", "/openai/deployments/chat/responses/compact"} {
		resp, answer := servertest.Post(t, s, path, strings.Replace(request, "%s", "chat", 1))
		if resp.StatusCode != http.StatusOK || answer != compacted || u.Body() != strings.Replace(request, "%s", "real", 1) || <-paths != "/responses/compact" {
			t.Errorf("%s: %d %s\n%s", path, resp.StatusCode, answer, u.Body())
		}
	}
	servertest.Eventually(t, time.Minute, func() error {
		if job := callJobs(t, s)[0]; job.Usage.InputTokens != 5 || job.Usage.OutputTokens != 3 {
			return fmt.Errorf("%+v", job.Usage)
		}
		return nil
	})
	resp, answer := servertest.Post(t, s, "/v1/responses/compact", `{"model":"chat","input":"refuse"}`)
	refusedWith(t, resp, answer, http.StatusBadRequest, "odd")

	// A summary of this server's goes to the provider as what it says.
	_, answer = servertest.Post(t, s, "/v1/responses/compact", `{"model":"other","input":"x"}`)
	item := gjson.Get(answer, "output.1").Raw
	resp, answer = servertest.Post(t, s, "/v1/responses/compact", `{"model":"chat","input":[`+item+`]}`)
	if sent := u.Body(); resp.StatusCode != http.StatusOK || gjson.Get(sent, "input.0.role").Str != "assistant" || strings.Contains(sent, "fbc1_") ||
		gjson.Get(sent, "store").Exists() || gjson.Get(sent, "stream").Exists() {
		t.Error(answer, sent)
	}
	for body, code := range map[string]string{
		`{"input":"x"}`: "", `{"model":"chat"}`: "missing_required_parameter", `{"model":"chat","input":"x","stream":true}`: "unknown_parameter",
		`{"model":"chat","input":"x","background":true}`:                  "unknown_parameter",
		`{"model":"chat","input":"x","previous_response_id":"resp_none"}`: "previous_response_not_found",
		`{"model":"other","input":[{"type":"compaction"}]}`:               "missing_required_parameter",
	} {
		resp, answer := servertest.Post(t, s, "/v1/responses/compact", body)
		t.Run(body, func(t *testing.T) { refusedWith(t, resp, answer, http.StatusBadRequest, code) })
	}
	resp, answer = servertest.Post(t, s, "/v1/responses/compact", `{"model":"none","input":"x"}`)
	refusedWith(t, resp, answer, http.StatusNotFound, "model_not_found")
}
