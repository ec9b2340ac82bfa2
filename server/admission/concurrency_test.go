//go:build unix

package admission_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// gate is an HTTP function that answers nobody until it is opened, and counts calls by their path.
type gate struct {
	url     string
	arrived chan string
	open    chan struct{}

	mu        sync.Mutex
	now, most map[string]int
}

func startGate(t *testing.T) *gate {
	g := &gate{arrived: make(chan string, 1000), open: make(chan struct{}), now: map[string]int{}, most: map[string]int{}}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the caller has gone
		g.count(r.URL.Path, 1)
		g.count("all", 1)
		g.arrived <- r.URL.Path
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
		g.count(r.URL.Path, -1)
		g.count("all", -1)
		_, _ = io.WriteString(w, "1")
	}))
	t.Cleanup(h.Close)
	g.url = h.URL
	return g
}

func (g *gate) count(what string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[what] += by
	g.most[what] = max(g.most[what], g.now[what])
}

// await waits for so many more calls.
func (g *gate) await(t *testing.T, calls int) {
	t.Helper()
	for range calls {
		select {
		case <-g.arrived:
		case <-time.After(30 * time.Second):
			t.Fatalf("a call did not come; %v are there", g.now)
		}
	}
}

// TestConcurrencyOfAllProcesses: processes together call a function, and call for a tenant, within
// the limit of concurrent calls. When one is killed, the slots of its calls are free again after
// its locks have expired.
func TestConcurrencyOfAllProcesses(t *testing.T) {
	t.Parallel()
	const jobs, narrow, tenant = 10, 3, 5
	g := startGate(t)
	o := servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: filepath.Join(t.TempDir(), "blobs"),
		Queue: server.Queue{Concurrency: 8, LockDuration: 10 * time.Second}, Tenants: map[string]server.Tenant{forebay.DefaultTenant: {Concurrency: tenant}},
		Tasks: map[string]server.TaskOption{
			"narrow": {HTTP: &server.HTTPTask{URL: g.url + "/narrow", Concurrency: narrow}},
			"wide":   {HTTP: &server.HTTPTask{URL: g.url + "/wide"}},
		}}
	first := servertest.Launch(t, o)
	doomed := servertest.Remote{URL: first.MustListen(t)}
	var ids []string
	submit := func(to servertest.Remote) {
		for i := range jobs {
			job, _, err := to.Submit(t.Context(), "", map[string]any{"task": []string{"narrow", "wide"}[i%2], "input": 1})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, job.ID)
		}
	}
	submit(doomed)
	g.await(t, tenant)
	second, third := servertest.Launch(t, o), servertest.Launch(t, o)
	front := servertest.Remote{URL: second.MustListen(t)}
	submit(front)
	submit(servertest.Remote{URL: third.MustListen(t)})
	var info forebay.Tenant
	if err := front.Get(t.Context(), "/v1/tenants/"+forebay.DefaultTenant, &info); err != nil || info.Concurrency != tenant || info.Running == nil || *info.Running != tenant {
		t.Errorf("the tenant is %+v: %v", info, err)
	}
	waiting := 0
	for _, id := range ids {
		job, err := front.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if job.Status == forebay.StatusQueued {
			if waiting++; job.WaitingFor == nil || *job.WaitingFor != forebay.WaitConcurrency || job.Attempt != 0 {
				t.Errorf("a job waits for %v", job.WaitingFor)
			}
		}
	}
	if waiting != len(ids)-tenant {
		t.Errorf("%d jobs wait", waiting)
	}
	first.Kill()
	g.await(t, tenant)
	close(g.open)
	for _, id := range ids {
		if job, attempts := front.MustAwait(t, id); job.Status != forebay.StatusSucceeded {
			t.Errorf("%s after attempts %v", job.Status, servertest.Outcomes(attempts))
		}
	}
	if g.most["all"] != tenant || g.most["/narrow"] > narrow {
		t.Errorf("calls at once: %v", g.most)
	}
}
