package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// The commands of responses speak OpenAI's API, and list page by page.
func TestResponseCommands(t *testing.T) {
	var asked, deleted []string
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(w http.ResponseWriter, status int, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"`+message+`","type":"invalid_request_error","param":null,"code":null}}`)
	}
	const whole = `{"id":"resp_1","object":"response","status":"completed","model":"chat","created_at":1700000000,"unknown":{"kept":true},
  "usage":{"input_tokens":7,"output_tokens":9},"output":[{"type":"function_call","name":"weather"},{"type":"message","content":[{"type":"output_text","text":"Rivers \u001b[2Jcarry water."}]}]}`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if id := q.Get("id"); id != "" {
			page := forebay.ResponsePage{Data: []forebay.Response{}}
			if id == "resp_1" {
				page.Data = append(page.Data, forebay.Response{ID: id, JobID: "job_7", CompletedAt: 1700000060})
			}
			answer(w, page)
			return
		}
		asked = append(asked, q.Encode())
		switch q.Get("after") {
		case "":
			answer(w, forebay.ResponsePage{Data: []forebay.Response{{ID: "resp_3", Status: "failed", Background: true}}, HasMore: true, LastID: "resp_3"})
		case "resp_3": // a page may be empty although there are more
			answer(w, forebay.ResponsePage{Data: []forebay.Response{}, HasMore: true, LastID: "resp_2"})
		default:
			answer(w, forebay.ResponsePage{Data: []forebay.Response{{ID: "resp_1", Status: "completed"}}})
		}
	})
	mux.HandleFunc("GET /v1/responses/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "resp_1" {
			refuse(w, http.StatusNotFound, "No such response")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
	})
	mux.HandleFunc("POST /v1/responses/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "resp_1" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Replace(whole, "completed", "cancelled", 1))
			return
		}
		refuse(w, http.StatusBadRequest, "Cannot cancel a synchronous response.")
	})
	mux.HandleFunc("DELETE /v1/responses/{id}", func(w http.ResponseWriter, r *http.Request) {
		deleted = append(deleted, r.PathValue("id"))
		answer(w, map[string]any{"id": r.PathValue("id"), "deleted": true})
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"response list --status failed", command.ExitOK, []string{"resp_3", "resp_1", "yes"}},
		{"response list --background=false --limit 1 -o jsonl", command.ExitOK, []string{`"id":"resp_3"`}},
		{"response list --status failed,completed", command.ExitUsage, []string{"one status of a response at a time"}},
		{"response list --status odd", command.ExitUsage, nil},
		{"response show resp_1", command.ExitOK, []string{"completed", "7 in, 9 out", "carry water.", "function_call", "weather", "job_7"}},
		{"response show resp_1 -o json", command.ExitOK, []string{`"kept": true`}},
		{"response show resp_none", command.ExitNotFound, []string{"No such response"}},
		{"response cancel resp_1", command.ExitOK, []string{"cancelled"}},
		{"response cancel resp_3", command.ExitUsage, []string{"Cannot cancel a synchronous response."}},
		{"response delete resp_1", command.ExitOK, nil},
		{"response delete", command.ExitUsage, []string{"RESPONSE is missing"}},
	} {
		got := (commandLine{url: s.URL}).run(t.Context(), strings.Fields(c.args)...)
		for _, want := range c.want {
			if !strings.Contains(got.out+got.err, want) {
				t.Errorf("%s lacks %q: %+v", c.args, want, got)
			}
		}
		if got.code != c.code || strings.Contains(got.out, "\x1b") {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	if !slices.Equal(deleted, []string{"resp_1"}) {
		t.Errorf("deleted %v", deleted)
	}
	if len(asked) != 4 || !strings.Contains(asked[0], "status=failed") || strings.Contains(asked[0], "background") || asked[2] == asked[1] || asked[3] != "background=false&limit=1" {
		t.Errorf("asked for %q", asked)
	}
}
