//go:build hostile

package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binaryVariable names a forebay binary to attack instead of the one that is built from the
// checkout.
const binaryVariable = "FOREBAY_HOSTILE_BINARY"

// binary is the server under attack.
var binary string

// shared holds what all tests use: the binary and a database with keys.
var shared string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if raw, ok := os.LookupEnv(attackerVariable); ok {
		return runAttacker(raw)
	}
	if raw, ok := os.LookupEnv(sinkVariable); ok {
		return runSink(raw)
	}
	var err error
	if shared, err = os.MkdirTemp("", "forebay-hostile-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared)
	if binary, err = build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	printTable(os.Stdout)
	return code
}

func build() (string, error) {
	if given := os.Getenv(binaryVariable); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(shared, "forebay")
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../cmd/forebay").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build forebay: %w\n%s", err, out)
	}
	return path, nil
}

// size chooses between the full and the short form.
func size[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}
