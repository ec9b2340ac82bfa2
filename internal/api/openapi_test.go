package api_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay/internal/raced"
)

var paths = map[string][]string{
	"/v1/jobs": {"get", "post"}, "/v1/jobs/bulk": {"post"}, "/v1/jobs/purge": {"post"}, "/v1/jobs/{id}": {"get"}, "/v1/jobs/{id}/attempts": {"get"},
	"/v1/jobs/{id}/events": {"get"}, "/v1/jobs/{id}/history": {"get"}, "/v1/jobs/{id}/result": {"get"}, "/v1/jobs/{id}/input": {"get"}, "/v1/jobs/{id}/cancel": {"post"}, "/v1/jobs/{id}/redrive": {"post"},
	"/v1/queues": {"get"}, "/v1/queues/{queue}": {"get", "put", "delete"}, "/v1/queues/{queue}/pause": {"post"}, "/v1/queues/{queue}/resume": {"post"},
	"/v1/queues/{queue}/dead-letters": {"get"}, "/v1/queues/{queue}/dead-letters/{job_id}": {"get"},
	"/v1/queues/{queue}/dead-letters/redrive": {"post"}, "/v1/queues/{queue}/dead-letters/purge": {"post"},
	"/v1/queues/{queue}/quarantine": {"get"}, "/v1/queues/{queue}/quarantine/{job_id}": {"get"},
	"/v1/dead-letters": {"get"}, "/v1/dead-letters/groups": {"get"}, "/v1/quarantine": {"get"}, "/v1/quarantine/groups": {"get"},
	"/v1/queues/{queue}/quarantine/redrive": {"post"}, "/v1/queues/{queue}/quarantine/purge": {"post"},
	"/v1/queues/{queue}/messages": {"get", "post"}, "/v1/queues/{queue}/messages/receive": {"post"},
	"/v1/queues/{queue}/locks/{lock_token}/complete": {"post"}, "/v1/queues/{queue}/locks/{lock_token}/abandon": {"post"},
	"/v1/queues/{queue}/locks/{lock_token}/defer": {"post"}, "/v1/queues/{queue}/locks/{lock_token}/dead-letter": {"post"},
	"/v1/queues/{queue}/locks/{lock_token}/renew": {"post"}, "/v1/queues/{queue}/locks/{lock_token}/release": {"post"},
	"/v1/queues/{queue}/$deadletterqueue/locks/{lock_token}/release": {"post"},
	"/v1/queues/{queue}/$deadletterqueue/messages":                   {"get"}, "/v1/queues/{queue}/$deadletterqueue/messages/receive": {"post"},
	"/v1/queues/{queue}/$deadletterqueue/locks/{lock_token}/complete": {"post"}, "/v1/queues/{queue}/$deadletterqueue/locks/{lock_token}/abandon": {"post"},
	"/v1/queues/{queue}/$deadletterqueue/locks/{lock_token}/defer": {"post"}, "/v1/queues/{queue}/$deadletterqueue/locks/{lock_token}/renew": {"post"},
	"/v1/queues/{queue}/messages/{sequence_number}": {"get"}, "/v1/queues/{queue}/$deadletterqueue/messages/{sequence_number}": {"get"},
	"/v1/dead-letter-messages/groups": {"get"}, "/v1/queues/{queue}/$deadletterqueue/messages/groups": {"get"},
	"/v1/queues/{queue}/$deadletterqueue/messages/redrive": {"post"}, "/v1/queues/{queue}/$deadletterqueue/messages/purge": {"post"},
	"/v1/queues/{queue}/messages/delete": {"post"}, "/v1/queues/{queue}/$deadletterqueue/messages/delete": {"post"},
	"/v1/queues/{queue}/messages/{sequence_number}/cancel": {"post"}, "/v1/queues/{queue}/sessions/accept": {"post"}, "/v1/queues/{queue}/sessions/release": {"post"}, "/v1/queues/{queue}/sessions": {"get"},
	"/v1/queues/{queue}/sessions/{session_token}/receive": {"post"}, "/v1/queues/{queue}/sessions/{session_token}/renew": {"post"},
	"/v1/queues/{queue}/sessions/{session_token}/close": {"post"}, "/v1/queues/{queue}/sessions/{session_token}/state": {"get", "put"},
	"/v1/processes": {"get"}, "/v1/calls": {"get"}, "/v1/backlog": {"get"}, "/v1/job-sessions": {"get"}, "/v1/events": {"get"},
	"/v1/reports/retries": {"get"}, "/v1/reports/usage": {"get"}, "/v1/tasks": {"get"}, "/v1/tasks/{task}": {"get"}, "/v1/workflows": {"get"}, "/v1/workflows/{workflow}": {"get"}, "/v1/deployments": {"get"}, "/v1/deployments/{name}/sim": {"get", "put"},
	"/v1/deployments/{name}": {"get"}, "/v1/deployments/{name}/pause": {"post"}, "/v1/deployments/{name}/resume": {"post"}, "/v1/deployments/{name}/forget": {"post"}, "/v1/deployments/{name}/changes": {"get"},
	"/v1/keys": {"get", "post"}, "/v1/keys/{id}": {"delete"}, "/v1/keys/{id}/budget": {"put"}, "/v1/tenants": {"get"}, "/v1/tenants/{tenant}": {"get", "put"}, "/v1/tenants/{tenant}/pause": {"post"}, "/v1/tenants/{tenant}/resume": {"post"}, "/v1/audit": {"get"}, "/v1/audit/verify": {"get"}, "/healthz": {"get"}, "/readyz": {"get"},
	"/v1/webhooks": {"get", "post"}, "/v1/webhooks/{webhook}": {"get", "put", "delete"}, "/v1/webhooks/{webhook}/test": {"post"},
	"/v1/webhooks/{webhook}/rotate-secret": {"post"}, "/v1/webhooks/{webhook}/tries": {"get"}, "/v1/webhooks/{webhook}/dead-letters": {"get"},
	"/v1/webhooks/{webhook}/redeliver": {"post"},
	durable + "/orchestrators/{name}":  {"post"}, durable + "/orchestrators/{name}/{instanceId}": {"post"}, durable + "/instances": {"get", "delete"},
	durable + "/instances/{instanceId}": {"get", "delete"}, durable + "/instances/{instanceId}/attempts": {"get"}, durable + "/instances/{instanceId}/raiseEvent/{eventName}": {"post"},
	durable + "/instances/{instanceId}/terminate": {"post"}, durable + "/instances/{instanceId}/suspend": {"post"}, durable + "/instances/{instanceId}/resume": {"post"},
	durable + "/instances/{instanceId}/rewind": {"post"}, durable + "/instances/{instanceId}/restart": {"post"},
}

type object = map[string]any

func TestOpenAPI(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	f := newFixture(t, withOrchestrations(t))
	doc := into[object](t, f.do("GET", "/openapi.json", ""), 200)
	if doc["openapi"] != "3.1.0" || doc["info"].(object)["title"] != "Forebay" || doc["info"].(object)["version"] != "test" {
		t.Errorf("head: %v %v", doc["openapi"], doc["info"])
	}
	ids := map[string]bool{}
	documented := doc["paths"].(object)
	for path, methods := range paths {
		item, _ := documented[path].(object)
		for _, method := range methods {
			op, ok := item[method].(object)
			if !ok {
				t.Errorf("%s %s is not documented", method, path)
				continue
			}
			checkOperation(t, method, path, op)
			id, _ := op["operationId"].(string)
			if id == "" || ids[id] {
				t.Errorf("%s %s: operation id %q", method, path, id)
			}
			ids[id] = true
		}
	}
	for path, item := range documented {
		for method := range item.(object) {
			if !slices.Contains(paths[path], method) {
				t.Errorf("%s %s is documented, but not in this test", method, path)
			}
		}
	}
	schemas := doc["components"].(object)["schemas"].(object)
	eachRef(doc, func(ref string) {
		if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); !ok || schemas[name] == nil {
			t.Errorf("dangling reference %s", ref)
		}
	})
	job := schemas["Job"].(object)["properties"].(object)
	if cost := schemas["Usage"].(object)["properties"].(object)["cost_usd"].(object); cost["type"] != "number" {
		t.Errorf("cost_usd is documented as %v", cost)
	}
	if status := job["status"].(object)["enum"].([]any); len(status) != 8 {
		t.Errorf("status is one of %v", status)
	}
	chat, _ := schemas["ChatInput"].(object)
	if options, _ := chat["oneOf"].([]any); len(options) != 2 || schemas["EmbedResult"] == nil {
		t.Errorf("the input of chat is documented as %v", chat)
	}
	body := documented["/v1/jobs"].(object)["post"].(object)["requestBody"].(object)["content"].(object)["application/json"].(object)["schema"].(object)
	fields := body["properties"].(object)
	if fields["task"] == nil || fields["input"] == nil || fields["idempotency_key"] != nil {
		t.Errorf("submit takes %v", reflect.ValueOf(fields).MapKeys())
	}

	r := f.do("GET", "/openapi.yaml", "")
	var fromYAML object
	if err := yaml.Unmarshal(r.body, &fromYAML); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	var normal object
	json.Unmarshal(again, &normal)
	if !reflect.DeepEqual(normal["paths"], doc["paths"]) {
		t.Error("the YAML and the JSON document differ")
	}
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func checkOperation(t *testing.T, method, path string, op object) {
	t.Helper()
	var inPath []string
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(object); p["in"] == "path" {
			inPath = append(inPath, p["name"].(string))
		}
	}
	for _, m := range parameter.FindAllStringSubmatch(path, -1) {
		if !slices.Contains(inPath, m[1]) {
			t.Errorf("%s %s: parameter %s is not documented", method, path, m[1])
		}
	}
	responses := op["responses"].(object)
	problem, _ := responses["default"].(object)
	if problem["content"].(object)["application/problem+json"] == nil || len(responses) < 2 {
		t.Errorf("%s %s: responses %v", method, path, responses)
	}
	if op["summary"] == nil {
		t.Errorf("%s %s has no summary", method, path)
	}
	if secured := op["security"] != nil; secured != (path != "/healthz" && path != "/readyz") {
		t.Errorf("%s %s: security %v", method, path, op["security"])
	}
}

func eachRef(v any, visit func(string)) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			visit(ref)
		}
		for _, child := range v {
			eachRef(child, visit)
		}
	case []any:
		for _, child := range v {
			eachRef(child, visit)
		}
	}
}
