package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// A line may ask for a response, whose provider speaks only chat completions. The response is
// stored, and a line that the API refuses is an error.
func TestBatchOfResponses(t *testing.T) {
	t.Parallel()
	s := startForwarding(t, servertest.StartUpstream(t, servertest.AnswerPlainly), nil)
	line := `{"custom_id":"%s","method":"POST","url":"/v1/responses","body":{"model":"chat",%s}}` + "\n"
	lines := fmt.Sprintf(line, "good", `"input":"hello"`) + fmt.Sprintf(line, "bad", `"input":"hello","max_output_tokens":1`)
	f := uploaded(t, s, nil, field{"file", lines, "lines.jsonl"}, field{"purpose", "batch", ""})
	resp, body := servertest.Post(t, s, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/responses","completion_window":"24h"}`, f.ID))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	b := becomes(t, s, gjson.Get(body, "id").Str, "completed")
	answers, errors := outputOf(t, s, b.Get("output_file_id").Str), outputOf(t, s, b.Get("error_file_id").Str)
	good, bad := answers["good"].Get("response"), errors["bad"].Get("response")
	if good.Get("status_code").Int() != 200 || good.Get("body.object").Str != "response" || good.Get("body.status").Str != "completed" {
		t.Errorf("%s", answers["good"].Raw)
	}
	if bad.Get("status_code").Int() != 400 || bad.Get("body.error.param").Str != "max_output_tokens" {
		t.Errorf("%s", errors["bad"].Raw)
	}
	if resp, body := asked(t, s, http.MethodGet, "/v1/responses/"+good.Get("body.id").Str); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A line that only a provider can answer that speaks Responses goes to one. Where there is none,
// the line is refused with the field, as a request is.
func TestBatchOfResponsesThatNeedResponses(t *testing.T) {
	t.Parallel()
	chat := servertest.StartUpstream(t, servertest.AnswerPlainly)
	native := servertest.StartUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"resp_theirs","object":"response","status":"completed","output":[{"type":"message","id":"msg_9","content":[{"type":"output_text","text":"found"}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`)
	})
	both := func(o *server.Options) {
		o.Deployments = append(o.Deployments, server.Deployment{Name: "native", Provider: server.ProviderOpenAI, Endpoint: native.URL, Model: "real", APIKey: "sk-up", API: server.APIResponses})
	}
	for name, change := range map[string]func(*server.Options){"both": both, "chat alone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startForwarding(t, chat, change)
			lines := `{"custom_id":"search","method":"POST","url":"/v1/responses","body":{"model":"chat","input":"hello","tools":[{"type":"web_search"}]}}` + "\n"
			f := uploaded(t, s, nil, field{"file", lines, "lines.jsonl"}, field{"purpose", "batch", ""})
			resp, body := servertest.Post(t, s, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/responses","completion_window":"24h"}`, f.ID))
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			b := becomes(t, s, gjson.Get(body, "id").Str, "completed")
			if change == nil {
				line := outputOf(t, s, b.Get("error_file_id").Str)["search"]
				if e := line.Get("response.body.error"); line.Get("response.status_code").Int() != 400 || e.Get("param").Str != "tools[0].type" || e.Get("code").Str != "unsupported_value" {
					t.Errorf("%s", line.Raw)
				}
				return
			}
			if b.Get("output_file_id").Str == "" {
				t.Fatalf("%s", outputOf(t, s, b.Get("error_file_id").Str)["search"].Raw)
			}
			if line := outputOf(t, s, b.Get("output_file_id").Str)["search"]; line.Get("response.body.output.0.content.0.text").Str != "found" {
				t.Errorf("%s", line.Raw)
			}
		})
	}
}
