package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// readyTimeout is how long the store may take to prove that it works.
const readyTimeout = 5 * time.Second

type health struct {
	Status string `json:"status" enum:"ok"`
}

type welcome struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OpenAPI string `json:"openapi" doc:"where the description of this API is"`
	Jobs    string `json:"jobs" doc:"where jobs go"`
}

// routeHealth registers what is open to everybody.
func (a *API) routeHealth() {
	tags := []string{"health"}
	healthy := &answer[health]{health{"ok"}}
	route(a, open, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: tags, Summary: "Is the process up?",
	}, func(context.Context, *call, *none) (*answer[health], error) { return healthy, nil })
	route(a, open, huma.Operation{
		OperationID: "ready", Method: http.MethodGet, Path: "/readyz", Tags: tags, Summary: "Can the server take jobs right now?",
	}, func(ctx context.Context, c *call, _ *none) (*answer[health], error) {
		if a.draining.Err() != nil {
			return nil, forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")
		}
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		if err := a.service.Ready(ctx); err != nil {
			if forebay.CodeOf(err) == forebay.CodeInternal {
				err = forebay.Errorf(forebay.CodeUnavailable, "the store cannot be written to").Caused(err)
			}
			return nil, err
		}
		return healthy, nil
	})
	root := &answer[welcome]{welcome{"forebay", a.version, "/openapi.json", "/v1/jobs"}}
	route(a, open, huma.Operation{
		OperationID: "root", Method: http.MethodGet, Path: "/{$}", Hidden: true,
	}, func(context.Context, *call, *none) (*answer[welcome], error) { return root, nil })
}
