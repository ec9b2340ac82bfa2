//go:build unix

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clockVariable tells a process built by skewable by how many seconds its clock is wrong.
const clockVariable = "FOREBAY_TEST_CLOCK_SKEW"

// The change of the time package: the wall clock is ahead by this, and the monotonic clock is not.
// That is a machine whose clock is set wrong.
const (
	readClock   = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	readSkewed  = readClock + "\tsec += clockSkew()\n"
	skewPackage = `package time

import (
	"sync"
	"syscall"
)

var clockSkew = sync.OnceValue(func() (seconds int64) {
	text, _ := syscall.Getenv("` + clockVariable + `")
	for _, c := range text {
		if c >= '0' && c <= '9' {
			seconds = 10*seconds + int64(c-'0')
		}
	}
	if len(text) > 0 && text[0] == '-' {
		return -seconds
	}
	return seconds
})
`
)

// skewable builds this test binary, in that folder, with a time package whose clock can be set
// wrong for one process, and returns its path. The first time that takes minutes, for everything
// is compiled anew.
func skewable(ctx context.Context, dir string) (string, error) {
	goRoot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	timePackage := filepath.Join(strings.TrimSpace(string(goRoot)), "src", "time")
	source, err := os.ReadFile(filepath.Join(timePackage, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(source), readClock) != 1 {
		return "", errors.New("time.Now of this Go version is not as this test knows it")
	}
	replaced := map[string]string{}
	for name, text := range map[string]string{"time.go": strings.Replace(string(source), readClock, readSkewed, 1), "skew.go": skewPackage} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(timePackage, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "skewable.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", list, "-o", binary, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a process whose clock can be wrong: %w: %s", err, out)
	}
	return binary, nil
}
