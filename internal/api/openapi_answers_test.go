package api_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
)

// Generated clients read answers by the document: by the status, then by its schema.
func TestOpenAPIDescribesAnswers(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	f := newFixture(t, withOrchestrations(t))
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(f.do("GET", "/openapi.json", "").body))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("https://forebay.example/openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	check := func(method, path, target, body string, status int) {
		t.Helper()
		r := f.do(method, target, body)
		if r.StatusCode != status {
			t.Fatalf("%s %s: %d %s", method, target, r.StatusCode, r.body)
		}
		at := strings.Join([]string{"https://forebay.example/openapi.json#/paths", strings.ReplaceAll(path, "/", "~1"), strings.ToLower(method), "responses", strconv.Itoa(status), "content/application~1json/schema"}, "/")
		schema, err := compiler.Compile(at)
		if err != nil {
			t.Errorf("%s %s: status %d: %v", method, path, status, err)
			return
		}
		answer, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.body))
		if err == nil {
			err = schema.Validate(answer)
		}
		if err != nil {
			t.Errorf("%s %s: status %d: %v", method, path, status, err)
		}
	}
	const instances, byID, start, startWithID = durable + "/instances", durable + "/instances/{instanceId}", durable + "/orchestrators/{name}", durable + "/orchestrators/{name}/{instanceId}"
	check("POST", start, durable+"/orchestrators/echo?wait=60s", `[1]`, 200)
	check("POST", startWithID, durable+"/orchestrators/echo/told?wait=60s", `"said"`, 200)
	check("POST", startWithID, durable+"/orchestrators/wait/waits", "", 202)
	check("GET", byID, durable+"/instances/waits", "", 202)
	check("GET", byID, durable+"/instances/told?showHistory=true", "", 200)
	check("POST", startWithID, durable+"/orchestrators/flaky/fails?wait=60s", "", 200)
	f.until("fails", forebay.OrchestrationFailed)
	check("GET", byID, durable+"/instances/fails", "", 200)
	check("GET", byID, durable+"/instances/fails?returnInternalServerErrorOnFailure=true", "", 500)
	check("GET", instances, durable+"/instances", "", 200)

	check("POST", "/v1/webhooks", "/v1/webhooks", `{"name":"untried","url":"https://8.8.8.8/"}`, 201)
	check("GET", "/v1/webhooks", "/v1/webhooks", "", 200)
	check("GET", "/v1/webhooks/{webhook}", "/v1/webhooks/untried", "", 200)
	check("GET", "/v1/tasks", "/v1/tasks", "", 200)
	check("GET", "/v1/tasks/{task}", "/v1/tasks/echo", "", 200)
	check("POST", "/v1/jobs", "/v1/jobs", jobBody(`"x"`), 202)
	check("GET", "/v1/jobs", "/v1/jobs", "", 200)
}

// A purge of instances is refused without the time from which on they were made.
func TestOpenAPIRequiresWhatAPurgeNeeds(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	f := newFixture(t, withOrchestrations(t))
	wantProblem(t, f.do("DELETE", durable+"/instances", ""), 400, forebay.CodeInvalidRequest)
	doc := into[object](t, f.do("GET", "/openapi.json", ""), 200)
	for method, required := range map[string]bool{"delete": true, "get": false} {
		for _, p := range doc["paths"].(object)[durable+"/instances"].(object)[method].(object)["parameters"].([]any) {
			if p := p.(object); p["name"] == "createdTimeFrom" && (p["required"] == true) != required {
				t.Errorf("%s: createdTimeFrom is documented as %v", method, p)
			}
		}
	}
}
