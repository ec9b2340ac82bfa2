package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forebayhq/forebay"
)

// responses is the part of Client about kept responses of OpenAI's API.
type responses struct{ *endpoint }

// ResponseFilter selects responses.
type ResponseFilter struct {
	ID         string // only this one
	Status     string // "": all
	Background *bool  // nil: both
	After      string // id of the response that comes before; "": the list begins
	Limit      int    // 1 to 100; 0 leaves it to the server
}

// Responses returns a page of the responses that the filter selects, newest first. A page may be
// empty although there are more: the server looks at a bounded number for one page.
func (c *responses) Responses(ctx context.Context, f ResponseFilter) (page forebay.ResponsePage, err error) {
	query := url.Values{}
	set(query, "id", f.ID)
	set(query, "status", f.Status)
	set(query, "after", f.After)
	if f.Background != nil {
		query.Set("background", strconv.FormatBool(*f.Background))
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	err = c.call(ctx, request{method: http.MethodGet, path: path("responses"), query: query}, &page)
	return page, err
}

// AllResponses returns all responses that the filter selects, newest first. It reads pages as they
// are needed. The filter's Limit is the page size.
func (c *responses) AllResponses(ctx context.Context, f ResponseFilter) iter.Seq2[forebay.Response, error] {
	return func(yield func(forebay.Response, error) bool) {
		f.Limit = min(f.Limit, maxBatchPage)
		for {
			page, err := c.Responses(ctx, f)
			if err != nil {
				yield(forebay.Response{}, err)
				return
			}
			for _, r := range page.Data {
				if !yield(r, nil) {
					return
				}
			}
			if f.After = page.LastID; !page.HasMore || f.After == "" {
				return
			}
		}
	}
}

// Response returns a response in the form of OpenAI's API.
func (c *responses) Response(ctx context.Context, id string) (json.RawMessage, error) {
	return c.response(ctx, http.MethodGet, id)
}

// CancelResponse ends a background response unless it has ended, and returns it.
func (c *responses) CancelResponse(ctx context.Context, id string) (json.RawMessage, error) {
	return c.response(ctx, http.MethodPost, id, "cancel")
}

// DeleteResponse removes a response. One that is being made is cancelled.
func (c *responses) DeleteResponse(ctx context.Context, id string) error {
	_, err := c.response(ctx, http.MethodDelete, id)
	return err
}

func (c *responses) response(ctx context.Context, method, id string, verb ...string) (object json.RawMessage, err error) {
	if err := checkID("response", id); err != nil {
		return nil, err
	}
	err = c.call(ctx, request{method: method, path: path(append([]string{"responses", id}, verb...)...)}, &object)
	return object, err
}
