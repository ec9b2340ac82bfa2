package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// What a request has made counts against the tenant's limits. Its repeats find that all the same,
// and only what is new is refused.
func TestRepeatsAtALimit(t *testing.T) {
	onBothEngines(t, func(t *testing.T, change func(*server.Options)) {
		one := int64(1)
		s, _ := startBridging(t, func(o *server.Options) {
			change(o)
			o.Tenants = map[string]server.Tenant{forebay.DefaultTenant: {Limits: forebay.TenantLimits{Files: &one, Batches: &one, WaitingJobs: &one}}}
		})
		for _, queue := range []string{server.BatchesQueue, server.ResponsesQueue} {
			if _, err := servertest.Over(t, s).Do(t.Context(), http.MethodPost, "/v1/queues/"+queue+"/pause", nil, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		file := uploaded(t, s, []string{"Idempotency-Key", "a"}, field{"file", servertest.BatchLines("one"), "lines.jsonl"}, field{"purpose", "batch", ""}).ID
		repeats := map[string]func(headers ...string) (*http.Response, string){
			"files": func(headers ...string) (*http.Response, string) {
				return upload(t, s, "/v1/files", headers, field{"file", servertest.BatchLines("one"), "lines.jsonl"}, field{"purpose", "batch", ""})
			},
			"responses": func(headers ...string) (*http.Response, string) {
				return servertest.Post(t, s, "/v1/responses", `{"model":"chat","input":"hello","background":true}`, headers...)
			},
			"batches": func(headers ...string) (*http.Response, string) {
				return servertest.Post(t, s, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file), headers...)
			},
		}
		for _, what := range []string{"files", "responses", "batches"} {
			ask := repeats[what]
			first := ""
			for _, again := range [][]string{{"Idempotency-Key", "a"}, {"Idempotency-Key", "a"}, {"X-Stainless-Retry-Count", "1"}} {
				if what == "responses" && again[0] != "Idempotency-Key" { // of one with a key only the key is known
					continue
				}
				resp, body := ask(again...)
				id := gjson.Get(body, "id").Str
				if resp.StatusCode != http.StatusOK || first != "" && id != first {
					t.Errorf("%s, %v: %d %s after %s", what, again, resp.StatusCode, body, first)
				}
				first = id
			}
			resp, body := ask("Idempotency-Key", "")
			refusedWith(t, resp, body, http.StatusBadRequest, "invalid_request")
			if message := gjson.Get(body, "error.message").Str; !strings.Contains(message, "is empty") {
				t.Errorf("%s with an empty key: %s", what, message)
			}
			resp, body = ask("Idempotency-Key", "b")
			refusedWith(t, resp, body, http.StatusTooManyRequests, "rate_limit_exceeded")
			resp, body = ask()
			refusedWith(t, resp, body, http.StatusTooManyRequests, "rate_limit_exceeded")
		}
	})
}
