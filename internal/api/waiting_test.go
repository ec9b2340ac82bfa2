package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/memory"
)

// silent is a service with jobs that never change, for tenants named by their keys.
type silent struct {
	*jobs.Service
}

func (*silent) Watch(context.Context, string, string) (<-chan struct{}, func(), error) {
	return nil, func() {}, nil
}

func (*silent) Events(_ context.Context, _, id string, _ int64) ([]forebay.Event, bool, error) {
	if id == "none" {
		return nil, false, forebay.ErrNotFound
	}
	return nil, false, nil
}

func (*silent) Wait(ctx context.Context, _, _ string, timeout time.Duration) (forebay.Job, error) {
	select {
	case <-ctx.Done():
	case <-time.After(timeout):
	}
	return forebay.Job{ID: "j"}, nil
}

func TestWaitersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Jobs: &silent{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler)})
		get := func(ctx context.Context, tenant, path string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
			r.Header.Set("Authorization", "Bearer "+tenant)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			return w
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		fill := func(tenant string) {
			for i := range connections.MaxTenantWaiters {
				path := "/v1/jobs/j/events"
				if i%2 == 0 {
					path = "/v1/jobs/j?wait=60s"
				}
				wg.Go(func() { get(ctx, tenant, path) })
			}
			synctest.Wait()
		}
		refused := func(tenant string) {
			t.Helper()
			for _, path := range []string{"/v1/jobs/j/events", "/v1/jobs/j?wait=1s"} {
				w := get(ctx, tenant, path)
				if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), string(forebay.CodeTooManyRequests)) {
					t.Errorf("%s of %s was answered with %d %s", path, tenant, w.Code, w.Body)
				}
			}
		}
		fill("t0")
		refused("t0")
		if w := get(ctx, "t1", "/v1/jobs/j?wait=1ms"); w.Code != http.StatusOK {
			t.Errorf("another tenant was answered with %d", w.Code)
		}
		for i := 1; i < connections.MaxWaiters/connections.MaxTenantWaiters; i++ {
			fill(fmt.Sprintf("t%d", i))
		}
		refused("late")
		cancel()
		wg.Wait()
		if w := get(t.Context(), "t0", "/v1/jobs/none/events"); w.Code != http.StatusNotFound {
			t.Errorf("a job that is not there was answered with %d", w.Code)
		}
		if all, tenants := a.waiters.Counted(); all != 0 || tenants != 0 {
			t.Errorf("left behind: %d of %d tenants", all, tenants)
		}
	})
}

func (s *silent) PeekDeadLetter(ctx context.Context, _, _ string, _ forebay.SetAside, id string) (forebay.SetAsideJob, error) {
	if id == "none" {
		return forebay.SetAsideJob{}, forebay.ErrNotFound
	}
	input := json.RawMessage(`"` + strings.Repeat("x", 900<<10) + `"`)
	return forebay.SetAsideJob{Input: input}, memory.Grow(ctx, int64(len(input)))
}

// What is read for an answer, and the answer until it is written, take memory. Where there is none
// a read is refused.
func TestAnswersTakeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Jobs: &silent{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20, MemoryBytes: 2 << 20})
		get := func(tenant string, w http.ResponseWriter) {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/queues/q/dead-letters/j", nil)
			r.Header.Set("Authorization", "Bearer "+tenant)
			a.ServeHTTP(w, r)
		}
		gate := make(chan struct{})
		unread := make([]*slowReader, 8)
		var wg sync.WaitGroup
		for i := range unread {
			unread[i] = &slowReader{ResponseRecorder: httptest.NewRecorder(), gate: gate}
			wg.Go(func() { get("slow", unread[i]) })
		}
		<-time.After(memory.Wait + time.Second) // those without memory are refused by now
		synctest.Wait()
		if held := a.memory.Held(); held > a.memory.Capacity()*7/8 || held < 1800<<10 {
			t.Errorf("%d bytes are held for answers that nobody reads", held)
		}
		close(gate)
		wg.Wait()
		answered, refused := 0, 0
		for _, w := range unread {
			switch {
			case w.Code == http.StatusOK && w.Body.Len() > 900<<10:
				answered++
			case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "" && strings.Contains(w.Body.String(), string(forebay.CodeTooManyRequests)):
				refused++
			default:
				t.Errorf("answered %d with %d bytes: %.200s", w.Code, w.Body.Len(), w.Body)
			}
		}
		if answered != 1 || refused != 7 {
			t.Errorf("%d answered, %d refused", answered, refused)
		}
		w := httptest.NewRecorder()
		if get("slow", w); w.Code != http.StatusOK {
			t.Errorf("when there is room again: %d", w.Code)
		}
		if held := a.memory.Held(); held != 0 {
			t.Errorf("%d bytes of memory were not given back", held)
		}
	})
}

// slowReader is a client that reads nothing of a large answer until the gate opens.
type slowReader struct {
	*httptest.ResponseRecorder
	gate <-chan struct{}
}

func (s *slowReader) Write(b []byte) (int, error) {
	if len(b) > 4<<10 {
		<-s.gate
	}
	return s.ResponseRecorder.Write(b)
}
