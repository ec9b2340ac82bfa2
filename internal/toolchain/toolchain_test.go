//go:build unix

package toolchain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// onlyPath makes a folder with some programs, which is all that PATH names, and an empty home.
func onlyPath(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	before := pip.command
	pip.command = nil
	t.Cleanup(func() { pip.command = before })
	return dir
}

// root stands for sudo, so that an installation goes the same way whoever runs the test.
func root(programs map[string]string) map[string]string {
	programs["sudo"] = `shift; exec "$@"`
	programs["env"] = `export "$1"; shift; exec "$@"`
	programs["true"] = ""
	return programs
}

func TestOneLineNamesAllThatIsMissing(t *testing.T) {
	onlyPath(t, map[string]string{"node": ""})
	err := Ensure(t.Context(), Node(), Python(), JDK())
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, part := range []string{"Node.js with npm is missing: npm not on PATH", "apt-get install nodejs npm", "python3 not on PATH", "java, javac, mvn not on PATH"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

func TestNothingIsInstalledThatIsThere(t *testing.T) {
	dir := onlyPath(t, root(map[string]string{"node": "", "npm": "", "apt-get": "echo called >> \"$0.log\""}))
	if err := Ensure(t.Context(), Node()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "apt-get.log")); err == nil {
		t.Error("the package manager ran")
	}
}

func TestMissingToolIsInstalled(t *testing.T) {
	onlyPath(t, root(map[string]string{"node": "", "apt-get": `PATH=/usr/bin:/bin:$PATH
[ "$1" = install ] || exit 0
[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 3
case "$*" in *"nodejs npm") ;; *) exit 4;; esac
cp "$(dirname "$0")/node" "$(dirname "$0")/npm"`}))
	if err := Ensure(t.Context(), Node()); err != nil {
		t.Error(err)
	}
}

// The headless shell is installed where the distribution has it, else the whole Chromium. Neither
// is where one of them is there.
func TestEitherChromiumDoes(t *testing.T) {
	const apt = `PATH=/usr/bin:/bin:$PATH
[ "$1" = install ] || exit 0
echo "$5" >> "$0.log"
case "$5" in %s) cp "$(dirname "$0")/true" "$(dirname "$0")/$5" ;; *) exit 100 ;; esac`
	for has, want := range map[string]string{
		HeadlessShell:                  HeadlessShell + "\n",
		"chromium":                     HeadlessShell + "\nchromium\n",
		HeadlessShell + " is there":    "",
		"chromium" + " is there":       "",
		"neither can be installed now": HeadlessShell + "\nchromium\n",
	} {
		t.Run(has, func(t *testing.T) {
			name, _, there := strings.Cut(has, " ")
			programs := root(map[string]string{"apt-get": fmt.Sprintf(apt, name)})
			if there && name != "neither" {
				programs[name] = ""
			}
			dir := onlyPath(t, programs)
			err := Ensure(t.Context(), Chromium())
			log, _ := os.ReadFile(filepath.Join(dir, "apt-get.log")) // none: it did not run
			if string(log) != want || (err != nil) != (name == "neither") {
				t.Errorf("%v; installed in turn: %q", err, log)
			}
			if err != nil && !strings.Contains(err.Error(), "Chromium is missing: chromium not on PATH (Debian: apt-get install chromium ") {
				t.Error(err)
			}
		})
	}
}

func TestFailedInstallationSaysWhyInOneLine(t *testing.T) {
	onlyPath(t, root(map[string]string{"apt-get": "echo no >&2; echo network >&2; exit 100"}))
	err := Ensure(t.Context(), Node())
	if err == nil || !strings.Contains(err.Error(), "no network") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// A Python without pip is used through a virtual environment, which is made once.
func TestPythonWithoutPip(t *testing.T) {
	dir := onlyPath(t, map[string]string{"python3": `PATH=/usr/bin:/bin
[ "$1" = -c ] && exit 1
[ "$2" = venv ] || exit 2
echo made >> "$0.log"
mkdir -p "$4/bin"
echo '#!/bin/sh' > "$4/bin/python3"
chmod +x "$4/bin/python3"`})
	for range 2 {
		pip.command = nil
		command, err := Pip(t.Context())
		if err != nil || filepath.Base(filepath.Dir(command[0])) != "bin" || command[0] == filepath.Join(dir, "python3") {
			t.Fatalf("%v: %v", command, err)
		}
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "python3.log")); string(log) != "made\n" {
		t.Errorf("environments were made %d times", strings.Count(string(log), "made"))
	}
}

func TestNoHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := Folder()
	if err != nil || !strings.HasPrefix(dir, os.TempDir()) {
		t.Errorf("%s: %v", dir, err)
	}
}
