// Package toolchain finds the programs besides Go that tests need: Node.js, Python, a JDK,
// Chromium, bash and curl. Package pgtest does the same for PostgreSQL and PgBouncer.
//
// It installs a program that is not on PATH from the distribution's packages. This user must be
// root, or have a sudo that asks for no password. Otherwise the error names what is missing and
// how to get it. The command in the folder ensure does this for all tests before any is compiled.
package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// Packages are the names of packages, by the program of the package manager: apt-get, apk or dnf.
type Packages map[string][]string

// Tool is something that tests run.
type Tool struct {
	Name     string   // what a person calls it
	Programs []string // each has to be on PATH
	Packages Packages
	check    func(context.Context) error // what else must hold; nil: nothing
	or       *Tool                       // what does as well, if this one is not there and cannot be had
}

// Node runs the JavaScript SDKs.
func Node() Tool {
	return Tool{"Node.js with npm", []string{"node", "npm"}, Packages{
		"apt-get": {"nodejs", "npm"}, "apk": {"nodejs", "npm"}, "dnf": {"nodejs", "npm"},
	}, nil, nil}
}

// Python runs the Python SDKs. Its pip installs them, and a PostgreSQL with pgvector. The
// documents' commands make virtual environments, for which Debian has a package of its own.
func Python() Tool {
	return Tool{"Python 3 with pip and venv", []string{"python3"}, Packages{
		"apt-get": {"python3", "python3-pip", "python3-venv"}, "apk": {"python3", "py3-pip"}, "dnf": {"python3", "python3-pip"},
	}, func(ctx context.Context) error {
		if err := exec.CommandContext(ctx, "python3", "-c", "import ensurepip, venv").Run(); err != nil {
			return errors.New("python3 makes no virtual environments")
		}
		_, err := Pip(ctx)
		return err
	}, nil}
}

// HeadlessShell is Chromium without the windows around its pages. To open a page in it takes a
// third of the processor time.
const HeadlessShell = "chromium-headless-shell"

// Chromium shows the pages of the dashboard: its headless shell, which Debian has, or the whole.
func Chromium() Tool {
	whole := Tool{"Chromium", []string{"chromium"}, Packages{
		"apt-get": {"chromium", "fonts-liberation"}, "apk": {"chromium", "font-liberation"}, "dnf": {"chromium", "liberation-sans-fonts"},
	}, nil, nil}
	return Tool{whole.Name, []string{HeadlessShell}, Packages{"apt-get": {HeadlessShell, "fonts-liberation"}}, nil, &whole}
}

// Shell runs the commands of the documents.
func Shell() Tool {
	return Tool{"bash with curl", []string{"bash", "curl"}, Packages{"apt-get": {"bash", "curl"}, "apk": {"bash", "curl"}, "dnf": {"bash", "curl"}}, nil, nil}
}

// JDK compiles and runs the Java SDK, which Maven fetches.
func JDK() Tool {
	return Tool{"a JDK with Maven", []string{"java", "javac", "mvn"}, Packages{
		"apt-get": {"default-jdk-headless", "maven"}, "apk": {"openjdk21", "maven"}, "dnf": {"java-latest-openjdk-devel", "maven"},
	}, nil, nil}
}

// BriefJava are options of Java for what runs for seconds: the second compiler would take more
// time than it saves.
var BriefJava = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// missing returns why a tool cannot be used, or nil.
func (tool Tool) missing(ctx context.Context) error {
	if tool.or != nil && tool.or.missing(ctx) == nil {
		return nil
	}
	var absent []string
	for _, program := range tool.Programs {
		if _, err := exec.LookPath(program); err != nil {
			absent = append(absent, program)
		}
	}
	if len(absent) > 0 {
		return fmt.Errorf("%s not on PATH", strings.Join(absent, ", "))
	}
	if tool.check != nil {
		return tool.check(ctx)
	}
	return nil
}

// Ensure installs missing tools. Its error names each one that is still missing, in one line.
func Ensure(ctx context.Context, tools ...Tool) error {
	var still []string
	for _, tool := range tools {
		if err := tool.ensure(ctx); err != nil {
			still = append(still, err.Error())
		}
	}
	if len(still) == 0 {
		return nil
	}
	return errors.New(strings.Join(still, "; "))
}

func (tool Tool) ensure(ctx context.Context) error {
	if tool.missing(ctx) == nil {
		return nil
	}
	installed := Install(ctx, tool.Packages)
	err := tool.missing(ctx)
	if err == nil {
		return nil
	}
	if tool.or != nil {
		return tool.or.ensure(ctx)
	}
	advice := "Debian: apt-get install " + strings.Join(tool.Packages["apt-get"], " ")
	if installed != nil {
		return fmt.Errorf("%s is missing: %w (%s; %s)", tool.Name, err, advice, oneLine(installed.Error()))
	}
	return fmt.Errorf("%s is missing: %w (%s is installed)", tool.Name, err, strings.Join(tool.Packages[manager()], " "))
}

// Need is Ensure for one test, which fails without the tool.
func Need(t testing.TB, tool Tool) {
	t.Helper()
	if err := Ensure(t.Context(), tool); err != nil {
		t.Fatalf("this test needs more than there is: %s", err)
	}
}

// managers are the package managers that are known, and how each is asked to install something.
var managers = []struct {
	program  string
	commands [][]string
}{
	{"apt-get", [][]string{{"apt-get", "update", "-q"}, {"apt-get", "install", "-q", "-y", "--no-install-recommends"}}},
	{"apk", [][]string{{"apk", "add", "--no-cache"}}},
	{"dnf", [][]string{{"dnf", "install", "-q", "-y"}}},
}

// manager is the package manager of this machine, empty without one.
func manager() string {
	for _, m := range managers {
		if _, err := exec.LookPath(m.program); err == nil {
			return m.program
		}
	}
	return ""
}

// unattended keeps apt-get from asking.
const unattended = "DEBIAN_FRONTEND=noninteractive"

// Install installs packages of the distribution and says so on standard error. One process of a
// user does so at a time.
func Install(ctx context.Context, packages Packages) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, m := range managers {
		names := packages[m.program]
		if _, err := exec.LookPath(m.program); err != nil || len(names) == 0 {
			continue
		}
		var prefix []string
		if os.Geteuid() != 0 {
			if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
				return fmt.Errorf("%s would need root's rights or a sudo without a password", m.program)
			}
			prefix = []string{"sudo", "-n", "env", unattended} // sudo passes no variables on
		}
		unlock, err := lock("install")
		if err != nil {
			return err
		}
		defer unlock()
		fmt.Fprintf(os.Stderr, "%s installs %s, which tests need\n", m.program, strings.Join(names, " "))
		for i, command := range m.commands {
			if i == len(m.commands)-1 {
				command = append(slices.Clone(command), names...)
			}
			if err := Run(ctx, append(slices.Clone(prefix), command...)...); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("no known package manager could install one")
}

// Run carries a command out; its error has the end of what the command said.
func Run(ctx context.Context, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), unattended)
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = bytes.TrimSpace(out)
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

// Folder is where tests keep installed packages for later runs: the user's cache folder, or
// without a home the folder for temporary files.
func Folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("forebay-cache-%d", os.Geteuid()))
	}
	dir := filepath.Join(cache, "forebay-test")
	return dir, os.MkdirAll(dir, 0o755)
}

// lock waits until no other process of this user holds the lock of that name.
func lock(name string) (unlock func(), err error) {
	dir, err := Folder()
	if err != nil {
		return nil, err
	}
	mutex := flock.New(filepath.Join(dir, name+".lock"))
	if err := mutex.Lock(); err != nil {
		return nil, err
	}
	return func() { mutex.Unlock() }, nil
}

// pip is found once: starting Python takes a while.
var pip struct {
	sync.Mutex
	command []string
}

// Pip returns the command that runs pip: python3's own, else that of a virtual environment, which
// it creates.
func Pip(ctx context.Context) ([]string, error) {
	pip.Lock()
	defer pip.Unlock()
	if pip.command != nil {
		return slices.Clone(pip.command), nil
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, err
	}
	const hasPip = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pip') is None)"
	if exec.CommandContext(ctx, python, "-c", hasPip).Run() != nil {
		if python, err = environment(ctx, python); err != nil {
			return nil, fmt.Errorf("python3 has no pip, and no virtual environment with one can be made: %s", oneLine(err.Error()))
		}
	}
	pip.command = []string{python, "-m", "pip"}
	return slices.Clone(pip.command), nil
}

// environment creates a virtual environment, or finds an existing one, and returns its Python.
func environment(ctx context.Context, python string) (string, error) {
	unlock, err := lock("python")
	if err != nil {
		return "", err
	}
	defer unlock()
	folder, err := Folder()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "python")
	own := filepath.Join(folder, "bin", "python3")
	if exec.CommandContext(ctx, own, "-c", "import pip").Run() == nil {
		return own, nil
	}
	return own, Run(ctx, python, "-m", "venv", "--clear", folder)
}

// oneLine turns a program's output into one line, keeping the end if it is long.
func oneLine(said string) string {
	said = strings.Join(strings.Fields(said), " ")
	const most = 300
	if len(said) > most {
		said = "…" + strings.ToValidUTF8(said[len(said)-most:], "")
	}
	return said
}
