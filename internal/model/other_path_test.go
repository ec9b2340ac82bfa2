package model

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// TestOtherPaths: a 404 or 403 for a path that a server or a model does not have says nothing
// about the calls of other paths.
func TestOtherPaths(t *testing.T) {
	const (
		notFound     = `{"detail":"Not Found"}`
		chatModel    = `{"error":{"message":"This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/completions?","type":"invalid_request_error","param":"model","code":null}}`
		notChat      = `{"error":{"message":"This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use v1/completions?","type":"invalid_request_error","param":"model","code":null}}`
		responses    = `{"error":{"message":"This model is only supported in v1/responses and not in v1/chat/completions.","type":"invalid_request_error","param":"model","code":null}}`
		noEmbeddings = `{"error":{"message":"You are not allowed to generate embeddings from this model","type":"invalid_request_error","param":null,"code":null}}`
		noModel      = `{"error":{"message":"The model does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}`
	)
	for _, c := range []struct {
		name   string
		calls  []string // paths
		has    string   // the path that answers
		status int
		body   string // of the refusal
		denial quota.Denial
	}{
		{"a path that the server does not have", []string{pathChat, pathModerations}, pathChat, 404, notFound, quota.NotDenied},
		{"OpenAI: embeddings of a chat model", []string{pathChat, pathEmbeddings}, pathChat, 403, noEmbeddings, quota.NotDenied},
		{"OpenAI: embeddings before any answer", []string{pathEmbeddings}, pathChat, 403, noEmbeddings, quota.Unauthorized},
		{"before any answer", []string{pathResponses}, pathChat, 404, notFound, quota.NotFound},
		{"a path that most servers lack, before any answer", []string{pathModerations}, pathChat, 404, notFound, quota.NotDenied},
		{"no such model at such a path", []string{pathModerations}, pathChat, 404, noModel, quota.NotFound},
		{"a path that was answered before", []string{pathChat, pathChat}, "", 404, notFound, quota.NotFound},
		{"of two that were answered", []string{pathChat, pathEmbeddings, pathChat}, pathEmbeddings, 404, notFound, quota.NotFound},
		{"no such model at another path", []string{pathChat, pathCompletions}, pathChat, 404, noModel, quota.NotFound},
		{"OpenAI: a chat model", []string{pathCompletions}, "", 404, chatModel, quota.NotDenied},
		{"OpenAI: no chat model", []string{pathChat}, "", 404, notChat, quota.NotDenied},
		{"OpenAI: a model of responses", []string{pathChat}, "", 404, responses, quota.NotDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := len(c.calls)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if left--; left > 0 || strings.HasSuffix(r.URL.Path, "/"+c.has) {
					_, _ = io.WriteString(w, `{}`)
					return
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			p := openAIAt(t, url, HTTPConfig{}).(Forwarder)
			var told *quota.Call
			for _, path := range c.calls {
				told = &quota.Call{Deployment: "east"}
				ctx := quota.WithCall(t.Context(), told)
				ReportSent(ctx)
				resp, err := p.Forward(ctx, ForwardRequest{Path: path, Body: []byte(`{"model":"chat"}`),
					Begin: func(int, http.Header) error { return nil }, Write: func([]byte) error { return nil }})
				ReportOutcome(ctx, resp.Limits, resp.Usage, 0, err)
			}
			if o := told.Outcome; o.Denial != c.denial || (o.Kind == quota.Denied) != (c.denial != quota.NotDenied) {
				t.Errorf("told as %+v", o)
			}
		})
	}
}
