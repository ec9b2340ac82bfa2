package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/tasks"
)

const description = "Durable jobs for language models. Every error is application/problem+json (RFC 9457) with a " +
	"stable `code`. Times are RFC 3339 in UTC. Lists are `{\"items\": […], \"next_cursor\": \"…\"}`; next_cursor is " +
	"empty on the last page. A server without any API key serves its own machine only, as tenant `default`."

// publish completes the OpenAPI document and serves it. It must be called after all routes are
// registered.
func (a *API) publish() {
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's own errors are never sent
	delete(schemas, "ErrorDetail")
	for _, name := range []string{"Job", "Event"} {
		enumerate(schemas[name].Properties["status"], forebay.Statuses)
	}
	for _, name := range []string{"APIKey", "CreateKeyRequest"} {
		enumerate(schemas[name].Properties["scopes"].Items, forebay.Scopes)
	}
	if a.orchestrations != nil {
		enumerate(schemas["Instance"].Properties["runtimeStatus"], forebay.OrchestrationStatuses)
	}
	// A reference alone cannot say that null is allowed.
	for _, nullable := range []string{"Job.error", "Job.max_cost_usd", "Instance.failure", "Webhook.last_try"} {
		name, property, _ := strings.Cut(nullable, ".")
		if schema := schemas[name]; schema != nil {
			schema.Properties[property] = &huma.Schema{AnyOf: []*huma.Schema{schema.Properties[property], {Type: "null"}}}
		}
	}
	for name, schema := range tasks.Schemas() {
		described := &huma.Schema{}
		if err := json.Unmarshal(schema, &described.Extensions); err != nil {
			panic(fmt.Errorf("describe %s: %w", name, err))
		}
		schemas[name] = described
	}
	// The document is written when it is first requested: that takes longer than all else of a start.
	a.serve("/openapi.json", "application/openapi+json", func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) })
	a.serve("/openapi.yaml", "application/openapi+yaml", a.huma.OpenAPI().YAML)
}

func enumerate[S ~string](schema *huma.Schema, values []S) {
	for _, v := range values {
		schema.Enum = append(schema.Enum, string(v))
	}
}

// serve registers a document that is open to everybody and is not part of the API's description.
// It depends only on the code, so it is written once.
func (a *API) serve(path, mediaType string, write func() ([]byte, error)) {
	document := sync.OnceValue(func() []byte {
		b, err := write()
		if err != nil {
			panic(fmt.Errorf("describe the API: %w", err))
		}
		return b
	})
	a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		callFrom(r.Context()).route = "GET " + path
		w.Header().Set("Content-Type", mediaType)
		w.Write(document())
	})
}
