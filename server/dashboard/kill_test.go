//go:build unix

package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/server"
)

// childVariable holds, as JSON, the options of a server that this program is to be instead of
// running tests.
const childVariable = "FOREBAY_DASHBOARD_CHILD"

// childOptions are the options of a server process.
type childOptions struct{ Database, Listen, Upstream, Blob string }

func TestMain(m *testing.M) {
	raw := os.Getenv(childVariable)
	if raw == "" {
		os.Exit(m.Run())
	}
	if err := beServer(raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beServer serves until it is killed.
func beServer(raw string) error {
	var c childOptions
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	waits := server.NewOrchestrator("waits", func(o *server.Orchestration, _ string) (string, error) {
		return server.WaitForEvent[string](o, "approval", time.Hour)
	})
	s, err := server.New(server.Options{
		Database: c.Database, Listen: c.Listen, Blob: c.Blob, Log: server.Log{Level: "error"}, Durable: []server.DurableFunction{waits},
		Deployments: []server.Deployment{{Name: "up", Provider: server.ProviderOpenAI, Endpoint: c.Upstream, Model: "real", APIKey: "sk-up"}},
		Queues:      map[string]server.Queue{server.BatchesQueue: {Concurrency: 2, LockDuration: 2 * time.Second}, "default": {LockDuration: 2 * time.Second}},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	fmt.Printf("listening %s\n", s.Addr(context.Background()))
	return <-ended
}

// launch starts a server process and returns its address and what kills it.
func launch(t *testing.T, c childOptions) (address string, kill func()) {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+string(raw)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // by the signal
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server process does not listen: %v", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening ")), kill
}

// gate is a model that answers some calls and keeps the others waiting, or turns all away.
type gate struct {
	*httptest.Server
	left   atomic.Int64 // calls that are answered before others wait
	denies atomic.Bool
	open   chan struct{} // closed: nobody waits
}

func newGate(t *testing.T, answers int64) *gate {
	g := &gate{open: make(chan struct{})}
	g.left.Store(answers)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if g.denies.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`)
			return
		}
		if g.left.Add(-1) < 0 {
			select {
			case <-g.open:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"real","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"done"}}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`)
	}))
	t.Cleanup(g.Close)
	return g
}

// A batch, an orchestration and a breaker are followed live, without a new visit of their pages,
// while the server is killed and comes back.
func TestPagesSurviveAKill(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		g := newGate(t, 7)
		c := childOptions{Database: database, Listen: "127.0.0.1:0", Upstream: g.URL, Blob: "file://" + filepath.ToSlash(t.TempDir())}
		address, kill := launch(t, c)
		c.Listen = address
		s := &dashboardtest.Running{Database: database, URL: "http://" + address}
		key := s.Key(t, forebay.ScopeAdmin)
		api := s.Client(t, key)
		batch := dashboardtest.BatchOf(t, s, api, dashboardtest.LinesOf(strings.Fields(strings.Repeat("line ", 20))...))
		dashboardtest.StartInstance(t, s, key, "waits", "survivor", `""`)

		pages := map[string]*browsertest.Page{}
		for name, path := range map[string]string{"batch": "/ui/batches/" + batch.ID, "instance": "/ui/orchestrations/survivor", "deployment": "/ui/deployments/up"} {
			pages[name] = s.SignIn(t, browser, key)
			pages[name].Go(s.URL + path)
			pages[name].Evaluate(`window.visited = true`, nil)
		}
		pages["batch"].WaitText("7")
		pages["batch"].WaitText("in_progress")
		pages["instance"].WaitText("Running")
		g.denies.Store(true)
		if _, _, err := api.Submit(t.Context(), forebay.SubmitRequest{Task: "chat", Input: json.RawMessage(`"hello"`)}); err != nil {
			t.Fatal(err)
		}
		pages["deployment"].WaitText("unauthorized")

		kill()
		for _, page := range pages {
			page.Wait(`document.getElementById('live').textContent.startsWith('No connection')`)
		}
		launch(t, c)
		g.denies.Store(false)
		close(g.open)
		for _, page := range pages {
			page.Wait(`document.getElementById('live').textContent.startsWith('Live')`)
		}
		pages["deployment"].WaitText("unauthorized")
		if _, err := api.ResumeDeployment(t.Context(), "up"); err != nil {
			t.Fatal(err)
		}
		if err := api.RaiseEvent(t.Context(), "survivor", "approval", json.RawMessage(`"yes"`)); err != nil {
			t.Fatal(err)
		}
		pages["batch"].WaitText("completed")
		pages["instance"].WaitText("Completed")
		pages["deployment"].WaitText("closed")
		for name, page := range pages {
			var visited bool
			if page.Evaluate(`window.visited === true`, &visited); !visited {
				t.Errorf("the page of the %s was loaded anew", name)
			}
		}
	})
}
