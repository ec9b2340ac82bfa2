package model

import (
	"io"
	"net/http"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// TestDenials: an error about a deployment's key, account or name concerns the deployment. An
// error that may be about a request, its words or its size does not, or is uncertain.
func TestDenials(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		body    string
		denial  quota.Denial
		certain bool
	}{
		{"OpenAI: wrong key", 401, `{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, quota.Unauthorized, true},
		{"a gateway: no key", 401, "unauthorized", quota.Unauthorized, true},
		{"OpenAI: no credit", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, quota.Unpaid, true},
		{"OpenAI: hard limit", 400, `{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","param":null,"code":"billing_hard_limit_reached"}}`, quota.Unpaid, true},
		{"OpenAI: model", 404, `{"error":{"message":"The model does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, quota.NotFound, true},
		{"OpenAI: country", 403, `{"error":{"message":"Country not supported","type":"request_forbidden","param":null,"code":"unsupported_country_region_territory"}}`, quota.Unauthorized, true},
		{"Azure: wrong key", 401, `{"error":{"code":"401","message":"Access denied due to invalid subscription key"}}`, quota.Unauthorized, true},
		{"Azure: role", 401, `{"error":{"code":"PermissionDenied","message":"The principal lacks the required data action"}}`, quota.Unauthorized, true},
		{"Azure: deployment", 404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, quota.NotFound, true},
		{"Anthropic: wrong key", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, quota.Unauthorized, true},
		{"Anthropic: not allowed", 403, `{"type":"error","error":{"type":"permission_error","message":"no permission"}}`, quota.Unauthorized, true},
		{"Anthropic: model", 404, `{"type":"error","error":{"type":"not_found_error","message":"model: claude"}}`, quota.NotFound, true},
		{"Anthropic: no credit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`, quota.Unpaid, true},
		{"Anthropic: spending limit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}`, quota.Unpaid, true},
		{"Anthropic: spending limit of a workspace", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified workspace API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}`, quota.Unpaid, true},
		{"Anthropic: billing", 402, `{"type":"error","error":{"type":"billing_error","message":"payment required"}}`, quota.Unpaid, true},
		{"a gateway: no credit", 402, `{"error":{"message":"no credit","code":"insufficient_quota"}}`, quota.Unpaid, true},
		{"DeepSeek: no credit", 402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, quota.Unpaid, true},

		{"Gemini: wrong key", 400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`, quota.Unauthorized, true},
		{"Gemini: no such key, by its reason", 400, `[{"error":{"code":400,"message":"API Key not found. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}]`, quota.Unauthorized, true},
		{"Gemini: old key", 400, `[{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT"}}]`, quota.Unauthorized, true},

		{"a firewall's page", 403, "<html>Request blocked</html>", quota.Unauthorized, false},
		{"Azure: network", 403, `{"error":{"code":"403","message":"Access denied due to Virtual Network/Firewall rules."}}`, quota.Unauthorized, false},
		{"payment required", 402, "", quota.Unpaid, false},
		{"a gateway: too little credit for this request", 402, `{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`, quota.Unpaid, false},
		{"a proxy's page", 404, "<html>not here</html>", quota.NotFound, false},

		{"content filter", 400, `{"error":{"message":"filtered","code":"content_filter"}}`, quota.NotDenied, false},
		{"content filter with 403", 403, `{"error":{"message":"filtered","code":"content_filter"}}`, quota.NotDenied, false},
		{"moderation with 403", 403, `{"error":{"message":"flagged","code":"moderation_blocked"}}`, quota.NotDenied, false},
		{"a prompt that speaks of credit", 400, `{"error":{"message":"Invalid input: 'Your credit balance is too low'","type":"invalid_request_error"}}`, quota.NotDenied, false},
		{"a prompt that speaks of limits", 400, `{"error":{"message":"Invalid input: 'You have reached your specified API usage limits'","type":"invalid_request_error"}}`, quota.NotDenied, false},
		{"bad request", 400, `{"error":{"message":"bad","type":"invalid_request_error"}}`, quota.NotDenied, false},
		{"too fast", 429, `{"error":{"message":"slow down","type":"tokens","code":"rate_limit_exceeded"}}`, quota.NotDenied, false},
		{"too large", 429, `{"error":{"message":"Request too large for small in organization org-x on tokens per min (TPM): Limit 30000, Requested 36278.","type":"tokens","code":"rate_limit_exceeded"}}`, quota.NotDenied, false},
		{"broken", 500, "", quota.NotDenied, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			r, err := NewRouter(map[string]Model{"chat": {Deployments: []*Deployment{{Name: "east", Provider: openAIAt(t, url, HTTPConfig{})}}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []func(*quota.Call) error{
				func(c *quota.Call) error {
					_, _, err := r.Chat(quota.WithCall(t.Context(), c), "chat", say("hi"))
					return err
				},
				func(c *quota.Call) error {
					_, _, err := r.Embed(quota.WithCall(t.Context(), c), "chat", EmbedRequest{Inputs: []string{"hi"}})
					return err
				},
			} {
				told := &quota.Call{Deployment: "east"}
				err := call(told)
				o := told.Outcome
				if o != nil && (o.Kind == quota.Oversize) != (c.name == "too large") {
					t.Errorf("%v was told as of kind %d", err, o.Kind)
				}
				if err == nil || o == nil || o.Denial != c.denial || o.Certain != c.certain || (o.Kind == quota.Denied) != (c.denial != quota.NotDenied) {
					t.Errorf("%v was told as %+v", err, o)
				}
			}
		})
	}
}
