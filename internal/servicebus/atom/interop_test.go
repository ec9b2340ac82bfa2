package atom_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// checksOfClients is how many checks the programs in testdata make.
const checksOfClients = 7

// drive runs a program against a namespace of its own, over TLS.
func drive(t *testing.T, environment []string, command ...string) {
	t.Helper()
	n := newNamespace(t)
	n.crowded(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Env = append(os.Environ(), append(environment, "CONNECTION="+n.connection(t, "acme", forebay.ScopeManage), "WEAK="+n.connection(t, "acme", forebay.ScopeSend),
		"CA="+n.ca, "NODE_EXTRA_CA_CERTS="+n.ca)...)
	out, err := program.CombinedOutput()
	t.Logf("%s", out)
	if passed := strings.Count("\n"+string(out), "\nok "); err != nil || passed != checksOfClients {
		t.Fatalf("%d checks have passed, %v", passed, err)
	}
}

func TestJavaScriptClient(t *testing.T) {
	modules := toolchain.NodeModules(t, "testdata")
	script, err := os.ReadFile(filepath.Join("testdata", "admin.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(modules, filepath.Base(t.TempDir())+".mjs") // where it finds its packages
	if err := os.WriteFile(path, script, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	drive(t, nil, toolchain.NodeFor(t, modules), path)
}

func TestPythonClient(t *testing.T) {
	packages := toolchain.PythonPackages(t, "testdata")
	drive(t, []string{"PYTHONPATH=" + packages}, "python3", filepath.Join("testdata", "admin.py"))
}
