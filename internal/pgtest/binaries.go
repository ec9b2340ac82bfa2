//go:build unix

package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// folders are where distributions put PostgreSQL's server programs, which are seldom on PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin",             // Debian, Ubuntu
	"/usr/pgsql-*/bin",                      // packages of the PostgreSQL project for Red Hat
	"/usr/libexec/postgresql*",              // Alpine
	"/usr/lib/postgresql*/bin",              // SUSE
	"/opt/homebrew/opt/postgresql*/bin",     // macOS
	"/usr/local/opt/postgresql*/bin",        // macOS on Intel
	"/usr/local/pgsql/bin",                  // built from source
	"/Applications/Postgres.app/*/*/*/bin/", // Postgres.app
}

// installers are the package managers that can bring PostgreSQL.
var installers = []struct {
	program  string
	commands [][]string
}{
	{"apt-get", [][]string{{"apt-get", "update", "-q"}, {"apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql"}}},
	{"apk", [][]string{{"apk", "add", "--no-cache", "postgresql"}}},
	{"dnf", [][]string{{"dnf", "install", "-q", "-y", "postgresql-server"}}},
}

// unattended keeps apt-get from asking.
const unattended = "DEBIAN_FRONTEND=noninteractive"

// binaries returns the folder of initdb and postgres, installing them when they are missing and that
// is allowed.
func binaries(ctx context.Context) (string, error) {
	if dir := installed(ctx); dir != "" {
		return dir, nil
	}
	installErr := install(ctx, "")
	if dir := installed(ctx); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("no PostgreSQL server was found: install one (Debian: apt-get install postgresql, macOS: brew install postgresql), "+
		"put the folder of initdb and postgres on PATH, or set %s to the URL of a server on which databases may be created (%w)", Variable, installErr)
}

func installed(ctx context.Context) string {
	if initdb, err := exec.LookPath("initdb"); err == nil && complete(filepath.Dir(initdb)) {
		return filepath.Dir(initdb)
	}
	var found []string
	for _, pattern := range folders {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		found = append(found, slices.DeleteFunc(dirs, func(dir string) bool { return !complete(dir) })...)
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); complete(dir) {
			found = append(found, dir)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(majorVersion(a), majorVersion(b)) })
}

// complete tells whether a folder has the programs of a server; some packages have only clients.
func complete(dir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var firstNumber = regexp.MustCompile(`\d+`)

// majorVersion is the first number in the name of a folder, 0 without one.
func majorVersion(dir string) int {
	n, _ := strconv.Atoi(firstNumber.FindString(dir))
	return n
}

// install installs the distribution's package of PostgreSQL's server, or another one of that name, as root or through
// a sudo that asks for no password.
func install(ctx context.Context, other string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, installer := range installers {
		if _, err := exec.LookPath(installer.program); err != nil {
			continue
		}
		var prefix []string
		if os.Geteuid() != 0 {
			if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
				return fmt.Errorf("%s would need root's rights or a sudo without a password", installer.program)
			}
			prefix = []string{"sudo", "-n", "env", unattended} // sudo passes no variables on
		}
		for _, command := range installer.commands {
			if last := len(command) - 1; other != "" && strings.HasPrefix(command[last], "postgresql") {
				command = append(slices.Clone(command[:last]), other)
			}
			if err := run(ctx, append(prefix, command...)); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("no known package manager could install one")
}

// run carries a command out; its error has the end of what the command said.
func run(ctx context.Context, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), unattended)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, lastBytes(out))
	}
	return nil
}

// lastBytes is the end of a program's output, enough to hold its error.
func lastBytes(out []byte) []byte {
	out = bytes.TrimSpace(out)
	return out[max(0, len(out)-2000):]
}
