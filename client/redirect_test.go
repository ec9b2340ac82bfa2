package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// A proxy may lead to https with an answer that turns a POST into a GET, whose answer is a list.
// That must not look as if something was stored or deleted.
func TestRedirectionsThatDropTheRequest(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"submit": func(ctx context.Context, c *Client) error {
			_, _, err := c.Submit(ctx, forebay.SubmitRequest{Task: "chat"})
			return err
		},
		"delete": func(ctx context.Context, c *Client) error { return c.DeleteMessageQueue(ctx, "q") },
		"put":    func(ctx context.Context, c *Client) error { return c.SetSimFaults(ctx, "d", []byte("{}")) },
		"send": func(ctx context.Context, c *Client) error {
			_, err := c.Messages("q").Send(ctx, forebay.NewMessage{})
			return err
		},
		"bulk": func(ctx context.Context, c *Client) error {
			for _, err := range c.SubmitBulk(ctx, func(yield func(forebay.SubmitRequest) bool) { yield(forebay.SubmitRequest{Task: "chat"}) }) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
			defer server.Close()
			asked := 0
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked++
				http.Redirect(w, r, server.URL+r.URL.Path, http.StatusMovedPermanently)
			})
			err := do(t.Context(), client)
			if forebay.CodeOf(err) != forebay.CodeUnavailable || !strings.Contains(err.Error(), server.URL) || asked != 1 {
				t.Errorf("asked %d times, error %v", asked, err)
			}
		})
	}
}

// A redirection that keeps the request is followed.
func TestRedirectionsThatKeepTheRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`{"id":"` + r.Method + `"}`)) }))
	defer server.Close()
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, server.URL+r.URL.Path, http.StatusPermanentRedirect)
	})
	if job, _, err := client.Submit(t.Context(), forebay.SubmitRequest{Task: "chat"}); err != nil || job.ID != http.MethodPost {
		t.Errorf("job %q, %v", job.ID, err)
	}
}
