package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// address finds where a program answers, in what it prints.
var address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)

// startMock starts aimock, which answers as OpenAI does, and returns its address.
func startMock(t *testing.T, modules string, args ...string) string {
	t.Helper()
	fixtures, err := filepath.Abs(filepath.Join("testdata", "openai", "fixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(modules, "node_modules", ".bin", "llmock")
	return startProgram(t, exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), append([]string{program, "-p", "0", "-f", fixtures, "--log-level", "info"}, args...)...))
}

// startProgram starts a program that prints where it answers, and returns that address.
func startProgram(t *testing.T, program *exec.Cmd) string {
	t.Helper()
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	program.Stderr = program.Stdout
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := address.FindString(lines.Text()); found != "" {
			go func() {
				for lines.Scan() { // it stops when nobody reads
				}
				_ = program.Wait()
			}()
			return found
		}
	}
	t.Fatalf("%s has not started: %v", program, program.Wait())
	return ""
}

// startOpenAI starts a server whose models chat and embedding are served by that upstream, and
// makes a key for it.
func startOpenAI(t *testing.T, upstream string, change func(*server.Options)) (base, key string) {
	t.Helper()
	database := "sqlite:" + dbtest.SQLite(t)
	o := server.Options{
		Database: database, Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ShutdownTimeout: time.Second,
		Deployments: []server.Deployment{{Name: "mock", Provider: server.ProviderOpenAI, Endpoint: upstream + "/v1", Model: "gpt-4o-mini", APIKey: "sk-upstream"}},
	}
	if change != nil {
		change(&o)
	}
	key = keyFor(t, database, forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	return "http://" + servertest.UntilEnd(t, o).Addr(t.Context()).String(), key
}

// goProgram returns the path of a program of testdata/openaigo, which is a module of its own: the
// checks of OpenAI's SDK for Go, or the observer.
func goProgram(t *testing.T, name string) string {
	t.Helper()
	if err := buildGoPrograms(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(goPrograms, name)
}

// goPrograms is the folder of the programs, once they are built.
var goPrograms string

var buildGoPrograms = sync.OnceValue(func() (err error) {
	if goPrograms, err = os.MkdirTemp("", "forebay-openaigo-"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-C", filepath.Join("testdata", "openaigo"), "-ldflags", "-s -w", "-o", goPrograms+string(filepath.Separator), "./...")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	// Tests here wait for programs more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if goPrograms != "" {
		os.RemoveAll(goPrograms)
	}
	os.Exit(code)
}

// observed is what the observer tells.
type observed struct {
	Operations map[string]int
	Faults     []string
}

// checks runs a program of checks against a server and fails with what it says. Each answer is
// compared with OpenAI's OpenAPI file.
func checks(t *testing.T, program *exec.Cmd, base, key string) {
	t.Helper()
	base = startProgram(t, exec.CommandContext(t.Context(), goProgram(t, "observer"), base))
	runChecks(t, program, base, key)
	resp, err := http.Get(base + "/observed")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var saw observed
	if err := json.NewDecoder(resp.Body).Decode(&saw); err != nil {
		t.Fatal(err)
	}
	for _, fault := range saw.Faults {
		t.Error(fault)
	}
	t.Logf("compared with OpenAI's file: %v", saw.Operations)
	if saw.Operations["POST /chat/completions"]+saw.Operations["POST /responses"] < 9 {
		t.Error("too few answers were compared")
	}
}

func runChecks(t *testing.T, program *exec.Cmd, base, key string) {
	t.Helper()
	program.Env = append(os.Environ(), append(program.Env, "BASE_URL="+base, "API_KEY="+key)...)
	out, err := program.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "ok "); n < 9 {
		t.Fatalf("%d checks have passed", n)
	}
}

// OpenAI's own SDK for JavaScript needs nothing but another base URL.
func TestOpenAISDKForJavaScript(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "openai"))
	mock := startMock(t, modules)
	for _, name := range []string{"sdk.mjs", "responses.mjs", "helpers.mjs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var environment []string
			base, key := startOpenAI(t, mock, func(o *server.Options) {
				environment = []string{
					"ADMIN_KEY=" + keyFor(t, o.Database, forebay.ScopeAdmin),
					"SPENT_KEY=" + keyWithBudget(t, o.Database, forebay.Budget{MonthlyTokens: new(int64(1))}, forebay.ScopeSubmit),
				}
			})
			script, err := os.ReadFile(filepath.Join("testdata", "openai", name))
			if err != nil {
				t.Fatal(err)
			}
			// Node finds packages from where the script is.
			path := filepath.Join(modules, filepath.Base(t.TempDir())+"-"+name)
			if err := os.WriteFile(path, script, 0o644); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(path) })
			program := exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), path)
			environment = append(environment, "SERVER_URL="+base)
			program.Env = environment
			checks(t, program, base, key)
		})
	}
}

// OpenAI's own SDK for Python needs nothing but another base URL.
func TestOpenAISDKForPython(t *testing.T) {
	t.Parallel()
	packages := toolchain.PythonPackages(t, filepath.Join("testdata", "openai"))
	mock := startMock(t, toolchain.NodeModules(t, filepath.Join("testdata", "openai")))
	for _, name := range []string{"sdk.py", "responses.py"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, key := startOpenAI(t, mock, nil)
			program := exec.CommandContext(t.Context(), "python3", filepath.Join("testdata", "openai", name))
			program.Env = []string{"PYTHONPATH=" + packages, "SERVER_URL=" + base}
			checks(t, program, base, key)
		})
	}
}

// OpenAI's own SDK for Go needs nothing but another base URL.
func TestOpenAISDKForGo(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "openai"))
	base, key := startOpenAI(t, startMock(t, modules), nil)
	checks(t, exec.CommandContext(t.Context(), goProgram(t, "checks")), base, key)
}

// OpenAI's and Azure's own SDKs for .NET need nothing but another address.
func TestOpenAISDKsForDotNet(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	program := toolchain.DotNet(t, filepath.Join("testdata", "openaidotnet"))
	base, key := startOpenAI(t, startMock(t, toolchain.NodeModules(t, filepath.Join("testdata", "openai"))), nil)
	program.Env = append(program.Env, "SERVER_URL="+base)
	checks(t, program, base, key)
}

// What a provider gets wrong, its clients do not see: calls are made again until one is answered.
func TestOpenAICallsThroughChaos(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "openai"))
	chaos := startMock(t, modules, "--chaos-drop", "0.1", "--chaos-malformed", "0.05", "--chaos-disconnect", "0.05")
	base, key := startOpenAI(t, chaos, func(o *server.Options) {
		o.Queues = map[string]server.Queue{server.CallsQueue: {Retry: server.Retry{Attempts: 30, First: 20 * time.Millisecond, Max: 200 * time.Millisecond, Budget: 0.9}}}
	})
	const calls = 60
	ends := make(chan error, calls)
	for i := range calls {
		stream := i%2 == 0
		go func() { ends <- chatOnce(t.Context(), base, key, stream) }()
	}
	for range calls {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// Background responses survive what a provider gets wrong, too.
func TestOpenAIResponsesThroughChaos(t *testing.T) {
	t.Parallel()
	modules := toolchain.NodeModules(t, filepath.Join("testdata", "openai"))
	chaos := startMock(t, modules, "--chaos-drop", "0.1", "--chaos-malformed", "0.05", "--chaos-disconnect", "0.05")
	base, key := startOpenAI(t, chaos, func(o *server.Options) {
		o.Queues = map[string]server.Queue{server.ResponsesQueue: {Retry: server.Retry{Attempts: 30, First: 20 * time.Millisecond, Max: 200 * time.Millisecond, Budget: 0.9}}}
	})
	const responses = 40
	ends := make(chan error, responses)
	for range responses {
		go func() { ends <- respondOnce(t.Context(), base, key) }()
	}
	for range responses {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// respondOnce makes one background response, follows it to its end and checks that it is whole.
func respondOnce(ctx context.Context, base, key string) error {
	status, answer, err := posted(ctx, base+"/v1/responses", key, `{"model":"chat","background":true,"stream":true,"input":"hello"}`)
	last := answer[max(0, bytes.LastIndex(answer, []byte("event: "))):]
	whole := bytes.HasPrefix(last, []byte("event: response.completed\n")) && bytes.Contains(last, []byte(`"text":"Hi there, what can I do for you today?"`)) && bytes.HasSuffix(last, []byte("data: [DONE]\n\n"))
	if err != nil || status != http.StatusOK || !whole {
		return fmt.Errorf("%d: %s %w", status, answer, err)
	}
	return nil
}

// chatOnce makes one call and checks that its answer is whole.
func chatOnce(ctx context.Context, base, key string, stream bool) error {
	body := fmt.Sprintf(`{"model":"chat","stream":%v,"messages":[{"role":"user","content":"hello"}]}`, stream)
	status, answer, err := posted(ctx, base+"/v1/chat/completions", key, body)
	whole := strings.Contains(string(answer), `"finish_reason":"stop"`) && strings.HasSuffix(string(answer), "data: [DONE]\n\n") == stream
	if err != nil || status != http.StatusOK || !whole {
		return fmt.Errorf("%d: %s %w", status, answer, err)
	}
	return nil
}

// posted sends a JSON body and reads the whole answer.
func posted(ctx context.Context, url, key, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
