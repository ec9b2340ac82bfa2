package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/command"
)

// refusing is the address of a provider that knows no key.
func refusing(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// answering is the address of a provider that answers everything so, with an empty list.
func answering(t *testing.T, status int) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"object":"list","data":[]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// listing is an endpoint that lists a model.
func listing(t *testing.T, model string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q}]}`, model)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func configuration(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The doctor asks deployments for their models and calls them only on request. Either way it
// reports one that refuses the key, and one that is not there.
func TestDoctorTriesDeployments(t *testing.T) {
	content := fmt.Sprintf(`
listen: 127.0.0.1:0
database: sqlite:%s
deployments:
  - {name: east, provider: openai, endpoint: %q, model: gpt-5, api_key: sk-wrong}
  - {name: west, provider: openai, endpoint: %q, model: gpt-5, api_key: sk-right}
  - {name: silent, provider: openai, endpoint: %q, model: gpt-5, api_key: sk-any}
  - {name: typo, provider: openai, endpoint: %q, model: gpt-55, api_key: sk-right}
  - {name: nobody, provider: openai, endpoint: "http://127.0.0.1:1/v1", model: e, api_key: sk-wrong}
models: {chat: [east, west, silent, typo], embedding: [nobody]}
orchestrations: {grpc: {address: "127.0.0.1:0"}}
`, filepath.Join(t.TempDir(), "forebay.db"), refusing(t), answering(t, http.StatusOK), answering(t, http.StatusNotFound), listing(t, "gpt-5"))
	file := configuration(t, content)
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"untried  5 configured; --call tries each one", "deployment west    ok       lists its models to this key in ", "deployment silent  untried  answers, but says nothing of the key",
			"deployment east    WRONG    unauthorized", "deployment nobody  WRONG    connection_failed", `, but "gpt-55" is not among them; --call tells whether it is there`, "gRPC"}},
		{[]string{"--call"}, []string{"deployment east    WRONG  unauthorized", "deployment nobody  WRONG  connection_failed"}},
	} {
		out := commandLine{}.run(t.Context(), append([]string{"doctor", "--config", file}, c.flags...)...)
		if out.code != command.ExitConfiguration {
			t.Errorf("%v: exit code %d", c.flags, out.code)
		}
		for _, want := range c.want {
			if !strings.Contains(out.out, want) {
				t.Errorf("%v: %q is not in\n%s", c.flags, want, out.out)
			}
		}
	}
}

// The doctor tries the caller's key on the server that runs by the same configuration.
func TestDoctorTriesTheKey(t *testing.T) {
	url, database, _ := startServer(t)
	file := configuration(t, fmt.Sprintf("listen: %s\ndatabase: %s\n", strings.TrimPrefix(url, "http://"), database))
	with := func(key string) commandLine {
		return commandLine{environ: []string{"FOREBAY_API_KEY=" + key}}
	}
	if wrong := with("").wrong(t, "--config", file); len(wrong) > 0 {
		t.Errorf("without a key: %+v", wrong)
	}
	if wrong := with("fb_wrong").wrong(t, "--config", file); len(wrong) != 1 {
		t.Errorf("with a wrong key: %+v", wrong)
	}
	if out := with("fb_wrong").run(t.Context(), "doctor", "--config", file); out.code != command.ExitConfiguration {
		t.Errorf("with a wrong key: exit code %d\n%s", out.code, out.out)
	}
}

// buffer is what a command has written so far.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// Who waits for a job is told what it waits for.
func TestSubmitSaysWhatItWaitsFor(t *testing.T) {
	file := configuration(t, fmt.Sprintf("deployments: [{name: east, provider: openai, endpoint: %q, model: gpt-5, api_key: sk-wrong}]\nmodels: {chat: [east]}\n", refusing(t)))
	url, _ := serveFile(t, file)
	ctx, cancel := context.WithCancel(t.Context())
	var said buffer
	done := make(chan int)
	go func() {
		a := &command.App{In: strings.NewReader(""), Out: io.Discard, Err: &said, Environ: []string{"FOREBAY_URL=" + url}, Now: time.Now, Zone: time.UTC}
		done <- a.Run(ctx, root(a), []string{"submit", "chat", "--input", "hello", "--wait"})
	}()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(said.String(), "circuit breaker"); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it says %q", said.String())
		}
	}
	if !strings.Contains(said.String(), "unauthorized: HTTP 401") {
		t.Errorf("it says %q", said.String())
	}
	cancel()
	if code := <-done; code != command.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
}
