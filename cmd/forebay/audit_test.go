package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/command"
)

// The times of a list of the audit log reach the server, with the other filters.
func TestAuditListByTime(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery)
		w.Write([]byte(`{"items":[]}`))
	}))
	defer server.Close()
	line := commandLine{url: server.URL}
	for args, want := range map[string]string{
		"--after 2030-01-02T14:00:00+01:00 --before 2030-01-02T15:00:00Z": "created_after=2030-01-02T13%3A00%3A00Z&created_before=2030-01-02T15%3A00%3A00Z",
		"--after 2h --action purge":                                       "action=purge&created_after=2030-01-02T13%3A04%3A05Z",
		"--before 1d --tenant acme --actor key_1":                         "actor=key_1&created_before=2030-01-01T15%3A04%3A05Z&tenant=acme",
	} {
		asked = nil
		got := line.run(t.Context(), append([]string{"audit", "list", "--limit", "0"}, strings.Fields(args)...)...)
		if got.code != command.ExitOK || len(asked) != 1 || strings.ReplaceAll(asked[0], "&limit=500", "") != "/v1/audit?"+want {
			t.Errorf("%s: exit code %d, %s, asked %q", args, got.code, got.err, asked)
		}
	}
	for _, flag := range []string{"--after", "--before"} {
		asked = nil
		got := line.run(t.Context(), "audit", "list", flag, "yesterday")
		if got.code != command.ExitUsage || !strings.Contains(got.err, flag+" must be a duration such as 90d") || len(asked) != 0 {
			t.Errorf("%s: exit code %d, %s, asked %q", flag, got.code, got.err, asked)
		}
	}
}
