package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// signIns is the part of Client about sessions of the dashboard.
type signIns struct{ *endpoint }

// SignIns returns the sessions of the dashboard that count now, those that end last first. It
// returns at most [forebay.MaxSignIns], all of them ("") or those of an owner. That is the id of
// an API key, or a person such as person:ada@example.com. more tells that there are others.
func (c *signIns) SignIns(ctx context.Context, owner string) (list []forebay.SignIn, more bool, err error) {
	query := url.Values{}
	if owner != "" {
		query.Set("owner", owner)
	}
	var page forebay.Page[forebay.SignIn]
	err = c.call(ctx, request{method: http.MethodGet, path: path("sign-ins"), query: query}, &page)
	return page.Items, page.More, err
}

// EndSignIn ends a session of the dashboard.
func (c *signIns) EndSignIn(ctx context.Context, id string) error {
	if err := checkID("sign-in id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("sign-ins", id)}, nil)
}

// EndSignIns ends all sessions of an owner in the dashboard, and returns how many there were.
func (c *signIns) EndSignIns(ctx context.Context, owner string) (ended int, err error) {
	if owner == "" {
		return 0, forebay.Invalid("owner", "is missing")
	}
	var answer forebay.EndedSignIns
	err = c.call(ctx, request{method: http.MethodDelete, path: path("sign-ins"), query: url.Values{"owner": {owner}}}, &answer)
	return answer.Ended, err
}
