package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
)

type health struct {
	Status string `json:"status" enum:"ok"`
}

// readiness is the body of /readyz.
type readiness struct {
	Status string `json:"status" enum:"ok"`
	Parts  []part `json:"parts"`
}

// part is a part of the server that can fail alone.
type part struct {
	Name   string       `json:"name" doc:"writer, submitter, readers, files or disk"`
	Status string       `json:"status" enum:"ok,failing"`
	Code   forebay.Code `json:"code,omitempty" doc:"stable name of what is wrong"`
	Reason string       `json:"reason,omitempty"`
}

// ready reports whether each part works. wrong is the error of the first one that does not.
func ready(parts []jobs.Part) (report []part, wrong error) {
	for _, p := range parts {
		one := part{Name: p.Name, Status: "ok"}
		if p.Err != nil {
			one.Status, one.Code, one.Reason = "failing", forebay.CodeOf(p.Err), p.Err.Error()
			if wrong == nil {
				wrong = p.Err
			}
		}
		report = append(report, one)
	}
	return report, wrong
}

type welcome struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	OpenAPI   string `json:"openapi" doc:"where the description of this API is"`
	Jobs      string `json:"jobs" doc:"where jobs go"`
	Dashboard string `json:"dashboard,omitempty" doc:"where the pages for people are"`
}

// welcomed is the answer to GET /. Browsers follow its Location to the dashboard.
type welcomed struct {
	Status   int
	Location string `header:"Location"`
	Vary     string `header:"Vary"`
	Body     welcome
}

// routeHealth registers the routes that are open to everybody.
func (a *API) routeHealth() {
	tags := []string{"health"}
	route(a, open, huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: tags, Summary: "Is the process up?",
	}, func(context.Context, *call, *none) (*answer[health], error) { return answerOf(health{"ok"}, nil) })
	route(a, open, huma.Operation{
		OperationID: "ready", Method: http.MethodGet, Path: "/readyz", Tags: tags, Summary: "Can the server take jobs right now?",
	}, func(ctx context.Context, c *call, _ *none) (*answer[readiness], error) {
		if a.draining.Err() != nil {
			return nil, forebay.Errorf(forebay.CodeUnavailable, "the server is stopping")
		}
		parts, wrong := ready(a.jobs.Health(ctx))
		if wrong != nil {
			p := a.problem(ctx, c, wrong)
			p.Parts = parts
			return nil, p
		}
		return &answer[readiness]{readiness{"ok", parts}}, nil
	})
	root := welcome{"forebay", a.version, "/openapi.json", "/v1/jobs", a.dashboard}
	route(a, open, huma.Operation{
		OperationID: "root", Method: http.MethodGet, Path: "/{$}", Hidden: true,
	}, func(_ context.Context, c *call, _ *none) (*welcomed, error) {
		if a.dashboard != "" && strings.Contains(c.r.Header.Get("Accept"), "text/html") {
			return &welcomed{http.StatusSeeOther, a.dashboard + "/", "Accept", root}, nil
		}
		return &welcomed{http.StatusOK, "", "Accept", root}, nil
	})
}
