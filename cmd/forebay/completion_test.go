package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/command"
)

func TestCompletion(t *testing.T) {
	known := answers()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if kind := r.URL.Query().Get("kind"); kind != "" {
			path += "?kind=" + kind
		}
		if v, ok := known[path]; ok {
			json.NewEncoder(w).Encode(v)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	const noFiles, files, folders = ":4", ":0", ":16"
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"jobs", ""}, []string{"list", "show", "purge", noFiles}},
		{[]string{"jobs", "list", "--output", ""}, []string{"table", "json", "jsonl", noFiles}},
		{[]string{"jobs", "list", "--status", ""}, []string{"queued", "succeeded", noFiles}},
		{[]string{"jobs", "purge", "--status", ""}, []string{"expired", noFiles}},
		{[]string{"jobs", "list", "--limit", ""}, []string{noFiles}},
		{[]string{"jobs", "show", ""}, []string{"job_1", "job_2", noFiles}},
		{[]string{"jobs", "show", "job_1", ""}, []string{noFiles}},
		{[]string{"-o", "json", "queues", "show", ""}, []string{"default", "slow", "mail", noFiles}},
		{[]string{"dlq", "list", "--queue", ""}, []string{"default", "slow", noFiles}},
		{[]string{"webhooks", "show", ""}, []string{"billing", "crm", noFiles}},
		{[]string{"orchestrations", "raise", ""}, []string{"order-4711", noFiles}},
		{[]string{"rules", "list", "no such topic", ""}, []string{noFiles}},
		{[]string{"submit", "chat", "--file", ""}, []string{files}},
		{[]string{"batch", "run", "x.jsonl", "--output", ""}, []string{files}},
		{[]string{"documents", "add", ""}, []string{files}},
		{[]string{"restore", ""}, []string{folders}},
		{[]string{"serve", "--role", ""}, []string{"api", "worker", noFiles}},
		{[]string{"workflows", "validate", "a.yaml", ""}, []string{files}},
	} {
		got := commandLine{url: server.URL}.run(t.Context(), append([]string{"__completeNoDesc"}, c.args...)...)
		offered := strings.Fields(got.out)
		for _, want := range c.want {
			if !strings.Contains("\n"+strings.Join(offered, "\n")+"\n", "\n"+want+"\n") {
				t.Errorf("%q offers %q, want %q", c.args, offered, c.want)
			}
		}
		if len(c.want) == 1 && len(offered) != 1 {
			t.Errorf("%q offers %q, want nothing", c.args, offered)
		}
	}
	got := commandLine{}.run(t.Context(), "completion", "bash")
	if got.code != command.ExitOK || !strings.Contains(got.out, "__start_forebay") {
		t.Errorf("exit code %d, %d bytes", got.code, len(got.out))
	}
}
