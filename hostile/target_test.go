//go:build hostile

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// Tenants of every target.
const (
	attackerTenant = "attacker"
	victimTenant   = "victim"
)

const (
	shutdownTimeout = 5 * time.Second
	// stopSlack is what a busy machine may add to a time that the server promises.
	stopSlack = 3 * time.Second
	// patience bounds every wait for something that has to happen.
	patience = time.Minute
)

// Keys are those of a target's database.
type Keys struct{ Attacker, Victim, Admin string }

// settings are parts of a configuration file by their first key.
type settings map[string]any

// TargetOptions say what is attacked.
type TargetOptions struct {
	Postgres  bool
	Config    settings                           // replaces parts of the base configuration
	Model     func(modelsim.Call) modelsim.Reply // nil: every call is answered after 2 ms
	OpenFiles int                                // ulimit -n; 0: the machine's
	Sources   bool                               // documents may be added from the folder Sources
}

// Target is a running server.
type Target struct {
	testing.TB
	URL, GRPC string
	Keys      Keys
	Model     *modelsim.TestServer
	Dir       string // holds the database and its files

	database string
	cmd      *exec.Cmd
	exited   chan struct{} // closed once the process is gone
	log      *tail
}

// Start starts a server; it is stopped when the test ends, which has to work.
func Start(t testing.TB, o TargetOptions) *Target {
	t.Helper()
	s := &Target{TB: t, Dir: t.TempDir(), exited: make(chan struct{}), log: &tail{}}
	script := o.Model
	if script == nil {
		script = func(modelsim.Call) modelsim.Reply { return modelsim.Reply{Delay: 2 * time.Millisecond} }
	}
	s.Model = modelsim.StartTest(script)
	t.Cleanup(s.Model.Close)
	if err := s.makeDatabase(o.Postgres); err != nil {
		t.Fatal(err)
	}
	replaced := maps.Clone(o.Config)
	if o.Sources {
		if err := os.Mkdir(s.Sources(), 0o755); err != nil {
			t.Fatal(err)
		}
		replaced = settings{"documents": settings{"extract_task": "none", "sources": settings{"files": "file://" + s.Sources()}}}
		maps.Copy(replaced, o.Config)
	}
	config, err := s.writeConfig(replaced)
	if err != nil {
		t.Fatal(err)
	}
	s.launch(config, o.OpenFiles)
	t.Cleanup(func() {
		s.Stop(s.TB)
		if said := s.log.String(); t.Failed() && said != "" {
			t.Logf("the server said:\n%s", said)
		}
	})
	return s
}

// Sources is the folder that documents may be added from by URL.
func (s *Target) Sources() string { return filepath.Join(s.Dir, "sources") }

var seeded struct {
	sync.Once
	keys Keys
	err  error
}

// makeDatabase makes a database with keys. That of SQLite is a copy, for keys take a process each.
func (s *Target) makeDatabase(postgres bool) (err error) {
	if postgres {
		s.database = dbtest.Postgres(s)
		s.Keys, err = createKeys(s.Context(), s.database)
		return err
	}
	template := filepath.Join(shared, "template.db")
	seeded.Do(func() { seeded.keys, seeded.err = createKeys(context.Background(), "sqlite:"+template) })
	if seeded.err != nil {
		return seeded.err
	}
	s.Keys, s.database = seeded.keys, "sqlite:"+filepath.Join(s.Dir, "forebay.db")
	content, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Dir, "forebay.db"), content, 0o600)
}

func createKeys(ctx context.Context, database string) (k Keys, err error) {
	for _, key := range []struct {
		to             *string
		tenant, scopes string
	}{
		{&k.Attacker, attackerTenant, "submit,read,operate"},
		{&k.Victim, victimTenant, "submit,read,operate"},
		{&k.Admin, "operator", "admin"},
	} {
		out, err := command(ctx, "", "keys", "create", "--database", database, "--tenant", key.tenant, "--scopes", key.scopes, "-o", "json").Output()
		var made forebay.APIKey
		if err == nil {
			err = json.Unmarshal(out, &made)
		}
		if err != nil {
			return k, fmt.Errorf("create a key: %w %s", err, stderrOf(err))
		}
		*key.to = made.Key
	}
	return k, nil
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// command is the forebay command line, without the settings of this process's environment.
func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir, c.Env = dir, cleanEnvironment()
	return c
}

func cleanEnvironment() (env []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "FOREBAY_") {
			env = append(env, variable)
		}
	}
	return env
}

func (s *Target) writeConfig(replaced settings) (path string, err error) {
	if s.GRPC, err = freeAddress(); err != nil {
		return "", err
	}
	config := settings{
		"listen":           "127.0.0.1:0",
		"database":         s.database,
		"blob":             filepath.Join(s.Dir, "blobs"),
		"shutdown_timeout": shutdownTimeout.String(),
		"log":              settings{"level": "info", "format": "json"},
		"orchestrations":   settings{"grpc": settings{"address": s.GRPC}},
		"documents":        settings{"extract_task": "none"},
		"deployments":      []settings{{"name": "model", "provider": "openai", "endpoint": s.Model.URL(), "model": "test", "api_key": "any"}},
		"models":           settings{"chat": []string{"model"}, "embedding": []string{"model"}},
	}
	maps.Copy(config, replaced)
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.Dir, "forebay.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// freeAddress is one on which nothing listens: the server does not say where it answers by gRPC.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// launch starts the process and waits until it listens.
func (s *Target) launch(config string, openFiles int) {
	s.Helper()
	s.cmd = command(context.Background(), s.Dir, "serve", "--config", config)
	if openFiles > 0 {
		s.cmd.Path, s.cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n ` + strconv.Itoa(openFiles) + ` && exec "$0" "$@"`}, s.cmd.Args...)
	}
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	listening := make(chan string, 1)
	go func() {
		defer close(s.exited)
		defer close(listening)
		lines := bufio.NewReader(io.TeeReader(stderr, s.log))
		for {
			line, err := lines.ReadBytes('\n')
			var entry struct{ Listen string }
			if json.Unmarshal(line, &entry) == nil && entry.Listen != "" {
				listening <- entry.Listen
			}
			if err != nil {
				_ = s.cmd.Wait() // the exit code is in ProcessState
				return
			}
		}
	}()
	select {
	case address, ok := <-listening:
		if !ok {
			s.Fatalf("the server ended with exit code %d: %s", s.cmd.ProcessState.ExitCode(), s.log)
		}
		s.URL = "http://" + address
	case <-time.After(patience):
		s.Fatalf("the server does not listen: %s", s.log)
	}
}

// Alive reports whether the process has not ended.
func (s *Target) Alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// Stop ends the process gracefully and reports how long that took. An end of its own, a wrong exit
// code and a slow stop fail the test.
func (s *Target) Stop(t testing.TB) time.Duration {
	t.Helper()
	if s.cmd.Process == nil || s.URL == "" {
		return 0
	}
	if !s.Alive() {
		t.Errorf("the server process ended by itself, with exit code %d: %s", s.cmd.ProcessState.ExitCode(), lastLine(s.log.String()))
		s.URL = ""
		return 0
	}
	s.URL = ""
	begun := time.Now()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(shutdownTimeout + stopSlack):
		t.Errorf("after SIGTERM the server runs for more than %s, its shutdown timeout is %s", shutdownTimeout+stopSlack, shutdownTimeout)
		_ = s.cmd.Process.Kill()
		<-s.exited
		return time.Since(begun)
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM the server exited with %d", code)
	}
	return time.Since(begun)
}

// PeakMemory is the process's highest resident memory since it began or ResetPeak, in MiB.
func (s *Target) PeakMemory() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kilobytes, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")))
	return kilobytes >> 10
}

// as returns the party with that key.
func (s *Target) as(key string) Party { return Party{URL: s.URL, Key: key} }

func (s *Target) attacker() Party { return s.as(s.Keys.Attacker) }
func (s *Target) victim() Party   { return s.as(s.Keys.Victim) }
func (s *Target) admin() Party    { return s.as(s.Keys.Admin) }

// until waits for a condition.
func (s *Target) until(what string, limit time.Duration, so func() bool) {
	s.Helper()
	if !within(s.Context(), limit, so) {
		s.Fatalf("not within %s: %s", limit, what)
	}
}

// within reports whether a condition comes true in time.
func within(ctx context.Context, limit time.Duration, so func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !so() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	w.b = w.b[max(0, len(w.b)-8<<10):]
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// lastLine is the first line of a panic, if there is one, else the last line of all.
func lastLine(said string) string {
	if _, rest, found := strings.Cut(said, "panic: "); found {
		line, _, _ := strings.Cut(rest, "\n")
		return "panic: " + line
	}
	said = strings.TrimSpace(said)
	return said[bytes.LastIndexByte([]byte(said), '\n')+1:]
}
