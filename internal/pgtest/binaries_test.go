//go:build unix

package pgtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lookOnlyIn makes a folder the only one that is searched for programs.
func lookOnlyIn(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("PATH", dir)
	before := folders
	folders = []string{filepath.Join(dir, "*", "bin")}
	t.Cleanup(func() { folders = before })
}

func program(t *testing.T, name, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestNewestBinariesAreTaken(t *testing.T) {
	dir := t.TempDir()
	lookOnlyIn(t, dir)
	for _, version := range []string{"9", "15", "17"} {
		program(t, filepath.Join(dir, version, "bin", "initdb"), "")
		if version != "17" { // whose server is not installed
			program(t, filepath.Join(dir, version, "bin", "postgres"), "")
		}
	}
	if got, err := binaries(t.Context()); err != nil || got != filepath.Join(dir, "15", "bin") {
		t.Errorf("%s: %v", got, err)
	}
}

func TestNothingCanBeInstalled(t *testing.T) {
	lookOnlyIn(t, t.TempDir())
	_, err := binaries(t.Context())
	if err == nil || !strings.Contains(err.Error(), Variable) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

func TestPackageIsInstalled(t *testing.T) {
	dir := t.TempDir()
	lookOnlyIn(t, dir)
	bin := filepath.Join(dir, "16", "bin")
	program(t, filepath.Join(dir, "sudo"), `shift; exec "$@"`)
	program(t, filepath.Join(dir, "env"), `export "$1"; shift; exec "$@"`)
	program(t, filepath.Join(dir, "apt-get"), `PATH=/usr/bin:/bin
[ "$1" = install ] || exit 0
[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 3
mkdir -p `+bin+`
for p in initdb postgres; do echo > `+bin+`/$p; chmod +x `+bin+`/$p; done`)
	program(t, filepath.Join(dir, "true"), "")
	if got, err := binaries(t.Context()); err != nil || got != bin {
		t.Errorf("%s: %v", got, err)
	}
}

func TestInstallationFails(t *testing.T) {
	dir := t.TempDir()
	lookOnlyIn(t, dir)
	program(t, filepath.Join(dir, "sudo"), `shift; exec "$@"`)
	program(t, filepath.Join(dir, "env"), `export "$1"; shift; exec "$@"`)
	program(t, filepath.Join(dir, "true"), "")
	program(t, filepath.Join(dir, "apt-get"), "echo no network >&2; exit 100")
	if _, err := binaries(t.Context()); err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("the error does not say why: %v", err)
	}
}
