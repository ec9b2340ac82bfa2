package main

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/command"
)

// A setting of a tenant that is new says so once: its name may be a mistake.
func TestSettingsOfANewTenantSayThatItIsNew(t *testing.T) {
	url, _, _ := startServer(t)
	for i, args := range [][]string{{"set-concurrency", "acmee", "3"}, {"set-budget", "acmee", "--daily-usd", "5"}, {"set-limits", "acmee", "--topics", "7"}} {
		got := commandLine{url: url}.run(t.Context(), append([]string{"tenants"}, args...)...)
		if told := strings.Contains(got.err, "There was no tenant acmee before."); got.code != command.ExitOK || told != (i == 0) {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.err)
		}
	}
}
