//go:build unix

package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay/internal/toolchain"
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

// packages hold PostgreSQL's server.
var packages = toolchain.Packages{"apt-get": {"postgresql"}, "apk": {"postgresql"}, "dnf": {"postgresql-server"}}

// Ensure finds what the package needs on this machine, or installs it.
func Ensure(ctx context.Context) error {
	if os.Getenv(Variable) == "" {
		if _, err := binaries(ctx); err != nil {
			return err
		}
	}
	if _, err := bouncerProgram(ctx); err != nil {
		return fmt.Errorf("PgBouncer is missing (Debian: apt-get install pgbouncer): %w", err)
	}
	return nil
}

// binaries returns the folder of initdb and postgres. It installs them if they are missing and it
// may.
func binaries(ctx context.Context) (string, error) {
	if dir := installed(ctx); dir != "" {
		return dir, nil
	}
	installErr := toolchain.Install(ctx, packages)
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

// complete reports whether a folder has a server's programs. Some packages have only clients.
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

// lastBytes is the end of a program's output, enough to hold its error.
func lastBytes(out []byte) []byte {
	out = bytes.TrimSpace(out)
	return out[max(0, len(out)-2000):]
}
