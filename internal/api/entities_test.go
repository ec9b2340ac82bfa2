package api_test

import (
	"net/http"
	"testing"

	"github.com/forebayhq/forebay"
)

// A key that is bound to entities reaches these, with what is below them, and nothing else.
func TestKeysBoundToEntities(t *testing.T) {
	f := newFixture(t)
	bound, err := f.keys.Create(t.Context(), "t", forebay.MessageScopes, nil, forebay.Budget{}, "test", "orders", "news/subscriptions/a")
	if err != nil {
		t.Fatal(err)
	}
	f.key = bound.Key
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/queues/orders", "", http.StatusCreated},
		{"POST", "/v1/queues/orders/messages", `{"body":"a"}`, http.StatusCreated},
		{"POST", "/v1/queues/orders/messages/receive", "", http.StatusOK},
		{"GET", "/v1/queues/orders/messages", "", http.StatusOK},
		{"GET", "/v1/queues/orders/" + forebay.SubqueueDeadLetter + "/messages", "", http.StatusOK},
		{"PUT", "/v1/queues/orders", `{"forward_to":"other"}`, http.StatusForbidden},
		{"PUT", "/v1/queues/other", "", http.StatusForbidden},
		{"POST", "/v1/queues/orders2/messages", `{"body":"a"}`, http.StatusForbidden},
		{"GET", "/v1/queues/other/messages", "", http.StatusForbidden},
		{"GET", "/v1/topics/news/subscriptions/a/messages", "", http.StatusNotFound},
		{"GET", "/v1/queues/news%2Fsubscriptions%2Fb/messages", "", http.StatusForbidden},
		{"GET", "/v1/topics/news/subscriptions/b/messages", "", http.StatusForbidden},
		{"POST", "/v1/topics/news/messages", `{"body":"a"}`, http.StatusForbidden},
		{"GET", "/v1/queues?kind=messages", "", http.StatusForbidden},
		{"GET", "/v1/topics", "", http.StatusForbidden},
		{"GET", "/v1/jobs", "", http.StatusForbidden},
		{"GET", "/v1/keys", "", http.StatusForbidden},
	} {
		if r := f.do(c.method, c.path, c.body); r.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, r.StatusCode, c.status, r.body)
		}
	}
}
