package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

type signInsInput struct {
	Owner string `query:"owner" maxLength:"1024" doc:"only sessions of this API key, by its id, or of this person, such as person:ada@example.com"`
}

type endSignInsInput struct {
	Owner string `query:"owner" required:"true" maxLength:"1024" doc:"the id of an API key, or a person, such as person:ada@example.com"`
}

type signInPath struct {
	ID string `path:"id" doc:"id of the session"`
}

// routeSignIns registers the sessions of the dashboard.
func (a signInRoutes) routeSignIns() {
	if a.signIns == nil {
		return
	}
	tags := []string{"sign-ins"}
	route(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "list-sign-ins", Method: http.MethodGet, Path: "/v1/sign-ins", Tags: tags,
		Summary:     "List who has signed in to the dashboard",
		Description: "The sessions that count now, those that end last first, at most 1,000; more tells that there are others.",
	}, func(ctx context.Context, _ *call, in *signInsInput) (*answer[forebay.Page[forebay.SignIn]], error) {
		list, more, err := a.signIns.List(ctx, in.Owner)
		found := page(list)
		found.More = more
		return pageAnswer(found, err)
	})
	route(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "end-sign-in", Method: http.MethodDelete, Path: "/v1/sign-ins/{id}", Tags: tags,
		Summary: "End a session of the dashboard", Description: "Its pages ask to sign in again.", DefaultStatus: http.StatusNoContent,
	}, func(ctx context.Context, c *call, in *signInPath) (*none, error) {
		return &none{}, a.signIns.End(ctx, in.ID, c.actor())
	})
	route(a.API, forebay.ScopeAdmin, huma.Operation{
		OperationID: "end-sign-ins", Method: http.MethodDelete, Path: "/v1/sign-ins", Tags: tags,
		Summary:     "End all sessions of a key or a person in the dashboard",
		Description: "Who may still sign in can do so again: revoke the key, or take the person's role away at the provider.",
	}, func(ctx context.Context, c *call, in *endSignInsInput) (*answer[forebay.EndedSignIns], error) {
		ended, err := a.signIns.EndAll(ctx, in.Owner, c.actor())
		return answerOf(forebay.EndedSignIns{Ended: ended}, err)
	})
}
