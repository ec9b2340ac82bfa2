package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// The commands of batches speak OpenAI's API: lines go up as a form, and results come as they are.
func TestBatchCommands(t *testing.T) {
	var uploaded, key string
	made := forebay.Batch{ID: "batch_1", Endpoint: "/v1/embeddings", Status: forebay.BatchCompleted, OutputFile: "file-out", ErrorFile: "file-err",
		Counts: forebay.BatchCounts{Total: 3, Completed: 2, Failed: 1}, Usage: &forebay.BatchUsage{InputTokens: 7, OutputTokens: 9}}
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/files", func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("file")
		if err != nil || r.FormValue("purpose") != "batch" {
			t.Errorf("the form: %v %v", err, r.Form)
			return
		}
		content, _ := io.ReadAll(file)
		uploaded = string(content)
		answer(w, map[string]string{"id": "file-in"})
	})
	mux.HandleFunc("POST /v1/batches", func(w http.ResponseWriter, r *http.Request) {
		var n forebay.NewBatch
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || n.InputFile != "file-in" || n.Endpoint != "/v1/embeddings" || n.Window != "48h" || n.Metadata["a"] != "b" {
			t.Errorf("made of %+v (%v)", n, err)
		}
		key = r.Header.Get("Idempotency-Key")
		answer(w, made)
	})
	mux.HandleFunc("GET /v1/batches", func(w http.ResponseWriter, r *http.Request) {
		other := made
		if other.ID = "batch_2"; r.URL.Query().Get("after") == "" {
			answer(w, map[string]any{"data": []forebay.Batch{made}, "has_more": true})
			return
		}
		answer(w, map[string]any{"data": []forebay.Batch{other}, "has_more": false})
	})
	mux.HandleFunc("GET /v1/batches/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == made.ID {
			answer(w, made)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":{"message":"No such batch object: x","type":"invalid_request_error","param":"id","code":null}}`)
	})
	mux.HandleFunc("POST /v1/batches/{id}/cancel", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"error":{"message":"Cannot cancel a batch with status 'completed'.","type":"invalid_request_error","param":null,"code":null}}`)
	})
	mux.HandleFunc("GET /v1/files/{id}/content", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.PathValue("id")+" content\n") })
	s := httptest.NewServer(mux)
	defer s.Close()
	lines := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(lines, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"batch create " + lines + " --endpoint /v1/embeddings --window 48h --metadata a=b --wait", command.ExitOK, "7 in, 9 out"},
		{"batch list", command.ExitOK, "batch_2"},
		{"batch show batch_1", command.ExitOK, "completed"},
		{"batch show x", command.ExitNotFound, "No such batch object: x"},
		{"batch results batch_1", command.ExitOK, "file-out content"},
		{"batch results batch_1 --errors", command.ExitOK, "file-err content"},
		{"batch cancel batch_1", command.ExitConflict, "Cannot cancel a batch with status 'completed'."},
		{"batch create " + lines + ".none", command.ExitUsage, "cannot open"},
	} {
		got := (commandLine{url: s.URL}).run(t.Context(), strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	if uploaded != "{}\n" || key == "" {
		t.Errorf("uploaded %q with the key %q", uploaded, key)
	}
}
