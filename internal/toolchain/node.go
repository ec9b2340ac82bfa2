package toolchain

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// newerNode lists a Node.js for each platform, as packages of npm.
//
//go:embed node/package.json node/package-lock.json
var newerNode embed.FS

// npmCI installs what a lock file lists, and runs no script of a package.
var npmCI = []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}

// NodeModules installs the packages of npm that a folder of tests needs, and returns where.
// NodeFor finds the program that runs them.
func NodeModules(t testing.TB, source string) string {
	t.Helper()
	Need(t, Node())
	return Installed(t, source, "package-lock.json", []string{"package.json", "package-lock.json"}, npmCI[0], npmCI[1:]...)
}

// NodeFor returns a Node.js for a folder with a package-lock.json. It is the machine's, if each
// package's "engines" allows that. Otherwise it is a newer one, which npm fetches once.
func NodeFor(t testing.TB, folder string) string {
	t.Helper()
	Need(t, Node())
	lock, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	machines, err := nodeFits(t.Context(), "node", lock)
	if err != nil {
		t.Fatal(err)
	}
	if machines == "" {
		return "node"
	}
	newer := fetchNode(t)
	misfit, err := nodeFits(t.Context(), newer, lock)
	if err != nil {
		t.Fatal(err)
	}
	if misfit != "" {
		t.Fatalf("internal/toolchain/node needs another version: %s", misfit)
	}
	return newer
}

// fetchNode installs the Node.js of newerNode for this platform.
func fetchNode(t testing.TB) string {
	t.Helper()
	source, err := fs.Sub(newerNode, "node")
	if err != nil {
		t.Fatal(err)
	}
	dir := installed(t, "node", source, "package-lock.json", []string{"package.json", "package-lock.json"}, npmCI[0], npmCI[1:]...)
	program := filepath.Join(dir, "node_modules", ".bin", "node")
	if _, err := os.Stat(program); err != nil {
		// npm takes no notice of an optional package that it cannot fetch: try again next time.
		os.Remove(filepath.Join(dir, installedMark))
		t.Fatalf("npm has installed no Node.js from internal/toolchain/node: %v", err)
	}
	return program
}

// nodeFits says which package of a lock file cannot be run by a Node.js, or nothing.
func nodeFits(ctx context.Context, program string, lock []byte) (misfit string, err error) {
	said, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	version := strings.TrimSpace(string(said))
	var list struct {
		Packages map[string]struct {
			Engines json.RawMessage `json:"engines"` // old packages have a list
		} `json:"packages"`
	}
	if err := json.Unmarshal(lock, &list); err != nil {
		return "", err
	}
	for name, p := range list.Packages {
		var engines struct{ Node string }
		if json.Unmarshal(p.Engines, &engines) != nil || engines.Node == "" {
			continue
		}
		fits, err := inRange(version, engines.Node)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if !fits {
			return fmt.Sprintf("%s needs Node.js %s, and this is %s", name, engines.Node, version), nil
		}
	}
	return "", nil
}

// alternative is one of the ranges of versions between ||, as packages write them in "engines".
var alternative = regexp.MustCompile(`^(>=|\^)? ?v?(\d+|[*x])(?:\.(\d+|[*x]))?(?:\.(\d+|[*x]))?$`)

// inRange reports whether a version such as v20.1.2 is in a range of npm. Of its syntax
// (https://github.com/npm/node-semver#ranges) it knows what "engines" of today need: >=, ^, *,
// parts that are left out, and ||.
func inRange(version, ranges string) (bool, error) {
	have, err := versionParts(strings.Split(strings.TrimPrefix(version, "v"), "."))
	if err != nil || len(have) != 3 {
		return false, fmt.Errorf("%q is no version", version)
	}
	fits := false
	for one := range strings.SplitSeq(ranges, "||") {
		m := alternative.FindStringSubmatch(strings.TrimSpace(one))
		if m == nil {
			return false, fmt.Errorf("the range of versions %q is not understood", ranges)
		}
		given := m[2:]
		if i := slices.IndexFunc(given, func(s string) bool { return s == "" || s == "*" || s == "x" }); i >= 0 {
			given = given[:i]
		}
		least, err := versionParts(given)
		if err != nil {
			return false, err
		}
		switch {
		case len(least) == 0:
			fits = true
		case m[1] == ">=":
			fits = fits || slices.Compare(have, least) >= 0
		case m[1] == "^":
			fits = fits || have[0] == least[0] && slices.Compare(have, least) >= 0
		default:
			fits = fits || slices.Equal(have[:len(least)], least)
		}
	}
	return fits, nil
}

func versionParts(parts []string) ([]int, error) {
	numbers := make([]int, len(parts))
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	return numbers, nil
}
