package client

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
)

// What a repetition would find done is sent once. A lost answer is told as such, and not as a
// thing that is not there or has not failed.
func TestWhatARepetitionFindsDoneIsSentOnce(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"delete a webhook":  func(ctx context.Context, c *Client) error { return c.DeleteWebhook(ctx, "w") },
		"delete a document": func(ctx context.Context, c *Client) error { return c.DeleteDocument(ctx, "d") },
		"retry a document": func(ctx context.Context, c *Client) error {
			_, err := c.RetryDocument(ctx, "d")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 {
					panic(http.ErrAbortHandler) // done, but the answer is lost
				}
				answerProblem(w, http.StatusNotFound, forebay.CodeNotFound, "", "there is no such thing")
			})
			if err := do(t.Context(), c); forebay.CodeOf(err) != forebay.CodeUnavailable || asked.Load() != 1 {
				t.Errorf("%v after %d requests", err, asked.Load())
			}
		})
	}
}
