package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// Anthropic's own SDK for JavaScript needs nothing but another base URL.
func TestAnthropicSDKForJavaScript(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "anthropic"))
	mock := startMock(t, modules)
	base, key := startOpenAI(t, mock, func(o *server.Options) {
		o.Deployments = append(o.Deployments, server.Deployment{Name: "claude", Provider: server.ProviderAnthropic, Endpoint: mock, Model: "claude-sonnet-4-5"})
		o.Models = map[string]server.Model{"chat": server.InOrder("mock"), "claude": server.InOrder("claude")}
	})
	script, err := os.ReadFile(filepath.Join("testdata", "anthropic", "sdk.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(modules, filepath.Base(t.TempDir())+".mjs")
	if err := os.WriteFile(path, script, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	program := exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), path)
	program.Env = append(os.Environ(), "BASE_URL="+base, "API_KEY="+key)
	out, err := program.CombinedOutput()
	t.Logf("%s", out)
	if n := strings.Count(string(out), "ok "); err != nil || n != 11 {
		t.Fatalf("%d checks have passed, %v", n, err)
	}
}
