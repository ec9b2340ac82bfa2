package interop_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// Anthropic's own SDKs need nothing but another base URL.
func TestAnthropicSDKs(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("testdata", "anthropic")
	modules := toolchain.NodeModules(t, folder)
	mock := startMock(t, modules)
	counted := modelsim.StartTest(nil) // the mock does not count tokens
	t.Cleanup(counted.Close)
	base, key := startOpenAI(t, mock, func(o *server.Options) {
		o.Deployments = append(o.Deployments, server.Deployment{Name: "claude", Provider: server.ProviderAnthropic, Endpoint: mock, Model: "claude-sonnet-4-5"})
		o.Deployments = append(o.Deployments, server.Deployment{Name: "counted", Provider: server.ProviderAnthropic, Endpoint: counted.URL(), Model: "claude-sonnet-4-5"})
		o.Models = map[string]server.Model{"chat": server.InOrder("mock"), "claude": server.InOrder("claude"), "counted": server.InOrder("counted")}
	})
	t.Run("JavaScript", func(t *testing.T) {
		t.Parallel()
		script, err := os.ReadFile(filepath.Join(folder, "sdk.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(modules, filepath.Base(t.TempDir())+".mjs")
		if err := os.WriteFile(path, script, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
		runChecks(t, exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), path), base, key)
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		packages := toolchain.PythonPackages(t, folder)
		program := exec.CommandContext(t.Context(), "python3", filepath.Join(folder, "sdk.py"))
		program.Env = []string{"PYTHONPATH=" + packages}
		runChecks(t, program, base, key)
	})
}

// The page names the versions that the tests run.
func TestAnthropicPageNamesItsVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/anthropic.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for file, c := range map[string]struct{ pattern, named string }{
		"requirements.txt": {`(?m)^anthropic==(\S+)`, "`anthropic` %s)"},
		"package.json":     {`@anthropic-ai/sdk": "([^"]+)"`, "`@anthropic-ai/sdk` %s)"},
	} {
		content, err := os.ReadFile(filepath.Join("testdata", "anthropic", file))
		if err != nil {
			t.Fatal(err)
		}
		version := regexp.MustCompile(c.pattern).FindSubmatch(content)
		if version == nil || !strings.Contains(text, fmt.Sprintf(c.named, version[1])) {
			t.Errorf("the page does not name the version of %s: %q", file, version)
		}
	}
}
