package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Installed installs what a folder of tests lists in a file, once for all runs, and returns where.
// What it needs and does not find, a program or the network, fails the test and says so.
func Installed(t testing.TB, source, list string, files []string, program string, args ...string) string {
	t.Helper()
	return installed(t, filepath.Base(source), os.DirFS(source), list, files, program, args...)
}

// installedMark is the file that says that a folder is complete.
const installedMark = "installed"

func installed(t testing.TB, source string, from fs.FS, list string, files []string, program string, args ...string) string {
	t.Helper()
	content, err := fs.ReadFile(from, list)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(content)
	name := source + "-" + hex.EncodeToString(hash[:6])
	dir := filepath.Join(cache, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(name)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, installedMark)); err == nil {
		return dir
	}
	for _, name := range files {
		content, err := fs.ReadFile(from, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, program, args...)
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%s could not be installed with %s, which needs its registry: %v\n%s", source, program, err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, installedMark), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// PythonPackages installs the packages of PyPI that a folder names, and returns where they are.
func PythonPackages(t testing.TB, source string) string {
	t.Helper()
	return pythonPackages(t, filepath.Base(source), os.DirFS(source))
}

func pythonPackages(t testing.TB, source string, from fs.FS) string {
	t.Helper()
	Need(t, Python())
	pip, err := Pip(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(pip[1:], []string{"install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--target", "packages",
		"--requirement", "requirements.txt"})
	return filepath.Join(installed(t, source, from, "requirements.txt", []string{"requirements.txt"}, pip[0], args...), "packages")
}
