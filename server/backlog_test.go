package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// A backlog that waits when the server starts is worked off at the queue's own pace.
func TestBacklogIsNoStampede(t *testing.T) {
	t.Parallel()
	const jobs, places = 300, 6
	var calls atomic.Int32
	together := make(chan struct{})
	model := modelsim.StartTest(func(modelsim.Call) modelsim.Reply {
		n := calls.Add(1)
		if n == places {
			close(together)
		}
		if n <= places { // all places are taken at once, however slow the machine is
			select {
			case <-together:
			case <-time.After(30 * time.Second):
			}
		}
		return modelsim.Reply{Delay: 20 * time.Millisecond}
	})
	t.Cleanup(model.Close)
	opts := server.Options{
		Database:    "sqlite:" + dbtest.SQLite(t),
		Deployments: []server.Deployment{simulatedDeployment(model)},
		Queues:      map[string]server.Queue{forebay.DefaultQueue: {Concurrency: places}},
	}
	before, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range jobs {
		ids = append(ids, servertest.Submit(t, before, "chat", modelsim.Marked(fmt.Sprint("backlog-", i), "say something")).ID)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	if model.Stats().Calls != 0 {
		t.Fatal("a server that does not run made calls")
	}
	s := servertest.Start(t, opts)
	for i, id := range ids {
		if job := servertest.Await(t, s, id); job.Status != forebay.StatusSucceeded || model.Calls(fmt.Sprint("backlog-", i)) != 1 {
			t.Errorf("%s after %d calls", job.Status, model.Calls(fmt.Sprint("backlog-", i)))
		}
	}
	if peak := model.Stats().PeakInFlight; peak != places {
		t.Errorf("%d calls at once; the queue has %d places", peak, places)
	}
}

// inputs counts the bytes of input that run at the same time.
type inputs struct {
	mu        sync.Mutex
	now, peak int64
}

func (i *inputs) add(n int64) (now int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now += n
	i.peak = max(i.peak, i.now)
	return i.now
}

// Many large jobs under a small memory limit: they take turns, and all of them end.
func TestLargeJobsTakeTurns(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	const jobs, size, memory = 16, 5 << 20, 12 << 20
	var held inputs
	together := make(chan struct{}) // closed once two run at once, however slow the machine is
	meet := sync.OnceFunc(func() { close(together) })
	folder := t.TempDir()
	s := servertest.Start(t, server.Options{
		Database: "sqlite:" + filepath.Join(folder, "forebay.db"),
		Limits:   server.Limits{MemoryBytes: memory},
		Functions: []forebay.Task{{Name: "echo", Run: func(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
			if held.add(int64(len(call.Input))) > 3*size/2 {
				meet()
			}
			defer held.add(-int64(len(call.Input)))
			select {
			case <-together:
			case <-time.After(time.Second): // while the first one runs there may be no room for another
			case <-ctx.Done():
				return forebay.TaskResult{}, ctx.Err()
			}
			if err := sleep.For(ctx, 30*time.Millisecond); err != nil { // so that they overlap
				return forebay.TaskResult{}, err
			}
			return forebay.TaskResult{Output: call.Input}, nil
		}}},
	})
	r := servertest.Over(t, s)
	text := func(n int) string { return fmt.Sprint(n) + strings.Repeat("5 MB of text. ", size/14) }
	ids := make([]string, jobs)
	servertest.Operate(t, r, "pause")
	var sending sync.WaitGroup
	for first := range 4 {
		sending.Go(func() {
			for n := first; n < jobs; n += 4 {
				job, _, err := r.Submit(t.Context(), "", map[string]any{"task": "echo", "input": text(n)})
				if err != nil {
					t.Error(err)
				}
				ids[n] = job.ID
			}
		})
	}
	sending.Wait()
	if t.Failed() {
		return
	}
	servertest.Operate(t, r, "resume")
	for n, id := range ids {
		job, attempts := r.MustAwait(t, id)
		if job.Status != forebay.StatusSucceeded || len(attempts) != 1 || job.Result != nil && string(job.Result) != "null" {
			t.Fatalf("%s after %v, with an inline result of %d bytes", job.Status, servertest.Outcomes(attempts), len(job.Result))
		}
		want, err := json.Marshal(text(n))
		if err != nil {
			t.Fatal(err)
		}
		if got := resultSum(t, r, job); got != sha256.Sum256(want) {
			t.Errorf("the result of job %d is not its input", n)
		}
	}
	if held.peak > memory || held.peak < 3*size/2 {
		t.Errorf("inputs of %d bytes ran at once; the limit is %d", held.peak, memory)
	}
	if blobs := countFiles(t, folder); blobs < 2*jobs {
		t.Errorf("%d files beside the database; %d payloads were too large for it", blobs, 2*jobs)
	}
}

// resultSum reads a result of whatever size.
func resultSum(t *testing.T, r servertest.Remote, job forebay.Job) [sha256.Size]byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL+job.Links.Result, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("result: %d %v", resp.StatusCode, err)
	}
	return sha256.Sum256(bytes.TrimSpace(b))
}

func countFiles(t *testing.T, folder string) (n int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(_ string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
