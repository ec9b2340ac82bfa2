package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// startSim runs the sim command. stop ends it as a signal does and returns its exit code and
// errors.
func startSim(t *testing.T, args ...string) (url string, stop func() ran) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	a := &command.App{In: strings.NewReader(""), Out: stdout, Err: &stderr, Now: time.Now, Zone: time.UTC}
	exited := make(chan int, 1)
	go func() {
		code := a.Run(ctx, root(a), append([]string{"sim", "--listen", "127.0.0.1:0", "-o", "jsonl"}, args...))
		stdout.Close()
		exited <- code
	}()
	stop = func() ran {
		cancel()
		code := <-exited
		exited <- code
		return ran{code: code, err: stderr.String()}
	}
	t.Cleanup(func() { stop() })
	var started struct{ URL string }
	if err := json.NewDecoder(out).Decode(&started); err != nil {
		t.Fatalf("sim ended: %+v", stop())
	}
	return started.URL, stop
}

func ask(t *testing.T, url, name string) int {
	t.Helper()
	body := `{"model":"` + name + `","messages":[{"role":"user","content":"x"}],"max_tokens":50}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k-1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestSim(t *testing.T) {
	log := filepath.Join(t.TempDir(), "calls.jsonl")
	url, stop := startSim(t, "--tokens-per-minute", "100", "--phase", "30s", "--first-token", "0s", "--tokens-per-second", "0", "--log", log, "--api-key", "k-1")
	if one, two := ask(t, url, "anything"), ask(t, url, "else"); one != 200 || two != 429 {
		t.Errorf("%d, then %d", one, two)
	}
	if got := stop(); got.code != command.ExitOK || got.err != "" {
		t.Errorf("%+v", got)
	}
	lines, err := os.ReadFile(log)
	if err != nil || bytes.Count(lines, []byte("\n")) != 2 || !bytes.Contains(lines, []byte(`"outcome":"throttled","status":429,"refused":"tokens"`)) {
		t.Errorf("log %s, %v", lines, err)
	}
}

// The example of the documentation is what it is run from.
func TestSimWithAFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/sim.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "```yaml\n# sim.yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("docs/sim.md has no sim.yaml")
	}
	file := filepath.Join(t.TempDir(), "sim.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	url, stop := startSim(t, "--config", file, "--api-key", "k-1")
	if known, unknown := ask(t, url, "east"), ask(t, url, "north"); known != 200 || unknown != 404 {
		t.Errorf("%d and %d", known, unknown)
	}
	if got := stop(); got.code != command.ExitOK {
		t.Errorf("%+v", got)
	}
}

func TestSimErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad := write("bad.yaml", "deployments:\n  - name: a\n    kid: rolling\n")
	none := write("none.yaml", "seed: 1\n")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--listen 8090", command.ExitUnavailable, "cannot listen on 8090: address 8090: missing port"},
		{"--kind rollin", command.ExitUsage, `--kind must be one of [azure-openai rolling`},
		{"--tokens-per-minute -5", command.ExitUsage, "--tokens-per-minute must be 0 to"},
		{"--headers some", command.ExitUsage, "--headers must be one of [full"},
		{"--first-token soon", command.ExitUsage, `--first-token takes a duration such as 90s or 24h, not "soon"`},
		{"--faults nope", command.ExitUsage, `--faults: there is no script "nope"; there are none, reference`},
		{"--faults " + filepath.Join(dir, "absent.yaml"), command.ExitConfiguration, "no such file"},
		{"--faults " + write("f.yaml", "- from: 1s\n  hangs: 1"), command.ExitConfiguration, `f.yaml: line 2: unknown key "hangs"`},
		{"--config " + bad, command.ExitConfiguration, `bad.yaml: line 3: unknown key "kid"`},
		{"--config " + none, command.ExitConfiguration, "none.yaml: deployments: there must be one at least"},
		{"--config " + bad + " --kind openai", command.ExitUsage, "--kind and --config exclude each other"},
		{"--listen " + taken.Addr().String(), command.ExitUnavailable, "address already in use"},
		{"--log " + dir, command.ExitConfiguration, "is a directory"},
		{"extra", command.ExitUsage, `unexpected argument "extra"`},
	} {
		got := commandLine{}.run(t.Context(), append([]string{"sim"}, strings.Fields(c.args)...)...)
		if got.code != c.code || !strings.HasPrefix(got.err, "forebay: ") || !strings.Contains(got.err, c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("sim %s: exit code %d, %q; want %d with %q", c.args, got.code, got.err, c.code, c.want)
		}
	}
	if len(modelsim.ScriptNames()) != 2 {
		t.Error("the help names the scripts")
	}
}
