package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/toolchain"
	"github.com/forebayhq/forebay/server"
)

// managed is a server with orchestrators for clients to manage, and the log of it. With a key it
// takes that in queries as well; without, it has none.
func managed(t *testing.T, withKey bool) (base, key string, log *syncBuffer) {
	t.Helper()
	database := "sqlite:" + dbtest.SQLite(t)
	if withKey {
		key = keyFor(t, database, forebay.ScopeSubmit, forebay.ScopeRead, forebay.ScopeOperate)
	}
	var calls atomic.Int32
	fails := server.NewActivity("fails once", func(context.Context, any) (string, error) {
		if calls.Add(1) == 1 {
			return "", errors.New("not yet")
		}
		return "mended", nil
	})
	log = &syncBuffer{}
	s := servertest.UntilEnd(t, server.Options{
		Database: database, Listen: "127.0.0.1:0", ShutdownTimeout: time.Second,
		Logger:         slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Orchestrations: server.Orchestrations{CodeInQuery: withKey},
		Durable: []server.DurableFunction{
			fails,
			server.NewOrchestrator("wait", func(o *server.Orchestration, _ any) (any, error) { return server.WaitForEvent[any](o, "go", -1) }),
			server.NewOrchestrator("flaky", func(o *server.Orchestration, _ any) (string, error) { return fails.Call(o, nil) }),
		},
	})
	return "http://" + s.Addr(t.Context()).String() + "/runtime/webhooks/durabletask", key, log
}

// syncBuffer is a buffer that many write to.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// Microsoft's clients for Durable Functions, of npm and of PyPI, manage instances here as they do
// in Azure.
func TestDurableFunctionsClients(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("testdata", "durablefunctions")
	node := func(t *testing.T) (program, environment string) {
		modules := toolchain.NodeModules(t, folder)
		return toolchain.NodeFor(t, modules), "NODE_PATH=" + filepath.Join(modules, "node_modules")
	}
	for _, c := range []struct {
		name, script string
		key          bool
		language     func(t *testing.T) (program, environment string)
	}{
		{"npm by base address", "management.js", false, node},
		{"npm by addresses with keys", "management.js", true, node},
		{"PyPI", "management.py", false, func(t *testing.T) (program, environment string) {
			return "python3", "PYTHONPATH=" + toolchain.PythonPackages(t, folder)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, key, log := managed(t, c.key)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			program, environment := c.language(t)
			command := exec.CommandContext(ctx, program, filepath.Join(folder, c.script), base, key)
			command.Env = append(os.Environ(), environment, "PYTHONDONTWRITEBYTECODE=1")
			var out, errs bytes.Buffer
			command.Stdout, command.Stderr = &out, &errs
			if err := command.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			var saw map[string]any
			if err := json.Unmarshal(out.Bytes(), &saw); err != nil {
				t.Fatalf("%v in %s", err, out.String())
			}
			const want = `{"again":"again","all":["a","b","c","d","e"],"ended":1,"left":["e"],"none":0,"one":1,"raised":[{"n":1},{"ok":true}],"rest":2,"rewound":"mended",` +
				`"some":["a","b","c"],"started":"a","taken":"refused","terminated":"enough"}`
			if got, _ := json.Marshal(saw); string(got) != want {
				t.Errorf("the client saw\n%s, not\n%s", got, want)
			}
			if logged := log.text(); key != "" && strings.Contains(logged, key) || !strings.Contains(logged, "terminate") {
				t.Errorf("the log has the key, or nothing:\n%s", logged)
			}
		})
	}
}
