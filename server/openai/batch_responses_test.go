package openai_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/servertest"
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
