// Package interop_test runs the SDKs of other languages, and programs that use them, against a
// server.
package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// sdk is a server for clients and workers that the SDK of npm connects, and a key for them.
type sdk struct {
	*server.Server
	address, key, modules, program string
}

func startSDK(t *testing.T) *sdk {
	t.Helper()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "durabletask"))
	s := startDurableTask(t)
	s.modules, s.program = modules, toolchain.NodeFor(t, modules)
	return s
}

// startDurableTask starts a server that speaks the protocol.
func startDurableTask(t *testing.T) *sdk {
	t.Helper()
	shout := forebay.Task{Name: "shout", Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		return forebay.TaskResult{Output: []byte(strings.ToUpper(string(call.Input)))}, nil
	}}
	database := "sqlite:" + dbtest.SQLite(t)
	key := keyFor(t, database, forebay.ScopeAdmin)
	s := servertest.UntilEnd(t, server.Options{
		Database: database, Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Functions: []forebay.Task{shout}, ShutdownTimeout: time.Second,
		Orchestrations: server.Orchestrations{
			GRPC:       server.OrchestrationsGRPC{Address: "127.0.0.1:0"},
			Activities: map[string]server.ActivityOption{"served": {Retry: server.ActivityRetry{Attempts: 3, First: 10 * time.Millisecond}}},
		},
	})
	return &sdk{Server: s, address: s.GRPCAddr(t.Context()).String(), key: key}
}

// The example's program does everything that an ordinary one does, with the version of Microsoft's
// SDK that it names.
func TestDurableTaskSDKForPython(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	folder := filepath.Join("..", "..", "examples", "durabletask")
	packages := toolchain.PythonPackages(t, folder)
	s := startDurableTask(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, "python3", filepath.Join(folder, "program.py"), s.address, s.key)
	program.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	var said bytes.Buffer
	program.Stderr = &said
	got, err := program.Output()
	const want = `chain COMPLETED "Hello Hello you!!"
fan_out COMPLETED 30
retried COMPLETED 3
timer COMPLETED "later"
parent COMPLETED 14
approval COMPLETED "by me"
terminated TERMINATED "enough"
`
	if err != nil || string(got) != want {
		t.Errorf("%v: got\n%swant\n%s\n%s", err, got, want, said.String())
	}
}

// So does the one for JavaScript.
func TestDurableTaskSDKExampleForJavaScript(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	folder := filepath.Join("..", "..", "examples", "durabletask", "javascript")
	modules := toolchain.NodeModules(t, folder)
	s := startDurableTask(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, toolchain.NodeFor(t, modules), filepath.Join(folder, "program.js"), s.address, s.key)
	program.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	var said bytes.Buffer
	program.Stderr = &said
	got, err := program.Output()
	if err != nil || string(got) != endedAsPrograms {
		t.Errorf("%v: got\n%swant\n%s\n%s", err, got, endedAsPrograms, said.String())
	}
}

// And the one for Go, with the version of the SDK that go.mod names.
func TestDurableTaskSDKExampleForGo(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	binary := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", binary, "../../examples/durabletask/go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := startDurableTask(t)
	program := exec.CommandContext(ctx, binary, s.address, s.key)
	var said bytes.Buffer
	program.Stderr = &said
	got, err := program.Output()
	if err != nil || string(got) != endedAsPrograms {
		t.Errorf("%v: got\n%swant\n%s\n%s", err, got, endedAsPrograms, said.String())
	}
}

// And the one for Java, with the version of Microsoft's SDK that its pom.xml names.
func TestDurableTaskSDKExampleForJava(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	toolchain.Need(t, toolchain.JDK())
	folder := filepath.Join("..", "..", "examples", "durabletask", "java")
	jars := filepath.Join(toolchain.Installed(t, folder, "pom.xml", []string{"pom.xml"}, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"), "jars", "*")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	classes := t.TempDir()
	if out, err := exec.CommandContext(ctx, "javac", "-J-XX:TieredStopAtLevel=1", "-cp", jars, "-d", classes, filepath.Join(folder, "src", "main", "java", "Program.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := startDurableTask(t)
	program := exec.CommandContext(ctx, "java", append(slices.Clone(toolchain.BriefJava), "-cp", classes+string(os.PathListSeparator)+jars, "Program", s.address, s.key)...)
	var said bytes.Buffer
	program.Stderr = &said
	got, err := program.Output()
	if err != nil || string(got) != endedAsPrograms {
		t.Errorf("%v: got\n%swant\n%s\n%s", err, got, endedAsPrograms, said.String())
	}
}

// The page names the versions that the tests run.
func TestDurableTaskPageNamesItsVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/durable-task.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, c := range map[string]struct{ pattern, named string }{
		"../../examples/durabletask/requirements.txt":        {`durabletask==(\S+)`, "`durabletask` %s "},
		"../../examples/durabletask/javascript/package.json": {`durabletask-js": "([^"]+)"`, "durabletask-js` %s "},
		"../../examples/durabletask/java/pom.xml":            {`durabletask-client</artifactId>\s*<version>([^<]+)`, "durabletask-client` %s "},
		"../../go.mod": {`dapr/durabletask-go (\S+)`, "durabletask-go` %s "},
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		version := regexp.MustCompile(c.pattern).FindSubmatch(content)
		if version == nil || !strings.Contains(string(page), fmt.Sprintf(c.named, version[1])) {
			t.Errorf("the page does not name the version of %s: %q", file, version)
		}
	}
}

// endedAsPrograms is what the programs for JavaScript, Go and Java say.
const endedAsPrograms = `chain COMPLETED "Hello Hello you!!"
fanOut COMPLETED 30
retried COMPLETED 3
timer COMPLETED "later"
parent COMPLETED 14
approval COMPLETED "by me"
terminated TERMINATED "enough"
`

// node makes a process of a script, which lasts no longer than the context.
func (s *sdk) node(ctx context.Context, script, key string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, s.program, append([]string{filepath.Join("testdata", "durabletask", script), s.address, key}, args...)...)
	command.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(s.modules, "node_modules"))
	return command
}

// A worker and client in another language, with the SDK that npm has, do what Go functions do.
func TestDurableTaskSDK(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		testDurableTaskSDK(t)
	})
	t.Run("with OpenTelemetry", func(t *testing.T) {
		t.Parallel()
		traces, err := filepath.Abs(filepath.Join("testdata", "durabletask", "traces.js"))
		if err != nil {
			t.Fatal(err)
		}
		testDurableTaskSDK(t, "NODE_OPTIONS=--require "+traces)
	})
}

func testDurableTaskSDK(t *testing.T, environment ...string) {
	s := startSDK(t)
	node := func(key string) (stdout, stderr string, err error) {
		limited, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		command := s.node(limited, "scenarios.js", key)
		command.Env = append(command.Env, environment...)
		command.Stdout, command.Stderr = &out, &errs
		err = command.Run()
		return out.String(), errs.String(), err
	}
	out, errs, err := node(s.key)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	var results map[string]any
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := map[string]any{
		"fanOut": "8555", "timer": "true", "retrySDK": `"mended"`, "retryServer": `"mended"`, "parent": "30", "task": `"HELLO"`, "event": `"yes"`,
		"attempts": map[string]any{"sdk": 3.0, "server": 3.0}, "suspended": `{"waiting":true}`, "resumed": "42", "terminated": `"enough"`, "purged": 1.0, "gone": true,
	}
	for name, v := range want {
		got, _ := json.Marshal(results[name])
		expected, _ := json.Marshal(v)
		if !bytes.Equal(got, expected) {
			t.Errorf("%s is %s, not %s", name, got, expected)
		}
		delete(results, name)
	}
	for name := range results {
		t.Errorf("%s was not expected", name)
	}
	if _, errs, err := node("fb_wrong"); !errors.As(err, new(*exec.ExitError)) || !strings.Contains(errs, "UNAUTHENTICATED") {
		t.Errorf("with a wrong key: %v, %s", err, errs)
	}
}

// worker starts a worker, and returns it and what it says. It is killed at the end of the test at
// the latest.
func (s *sdk) worker(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	command := s.node(t.Context(), "worker.js", s.key, args...)
	command.Stderr = t.Output()
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command, bufio.NewReader(out)
}

// What a worker has begun that is killed with SIGKILL is carried out by another, and each result
// is recorded once.
func TestDurableTaskWorkerIsKilled(t *testing.T) {
	t.Parallel()
	const n = 3
	s := startSDK(t)
	first, says := s.worker(t, "stall")
	id, err := s.StartOrchestration(t.Context(), "acme", "squares", "", n)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if line, err := says.ReadString('\n'); err != nil || !strings.HasPrefix(line, "begun ") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.worker(t)
	o, err := s.WaitOrchestration(t.Context(), "acme", id, 2*time.Minute)
	if err != nil || o.Status != forebay.OrchestrationCompleted || string(o.Output) != "[0,1,4]" {
		t.Fatalf("%s: %s %+v, %v", o.Status, o.Output, o.Failure, err)
	}
	api, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String(), Key: forebay.Secret(s.key)})
	if err != nil {
		t.Fatal(err)
	}
	history, err := api.OrchestrationHistory(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	results := map[int]int{}
	for _, e := range history {
		if e.Type == "TaskCompleted" {
			results[e.EventID]++
		}
	}
	attempts, err := s.ActivityAttempts(t.Context(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[int][]string{}
	for _, a := range attempts {
		outcomes[a.EventID] = append(outcomes[a.EventID], a.Outcome)
	}
	if len(results) != n || len(outcomes) != n {
		t.Errorf("%d activities have results, %d attempts", len(results), len(outcomes))
	}
	for activity, times := range results {
		if got := outcomes[activity]; times != 1 || !slices.Equal(got, []string{"lost", "succeeded"}) {
			t.Errorf("activity %d: %d results, attempts %q", activity, times, got)
		}
	}
}
