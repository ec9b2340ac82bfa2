package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/memory"
)

// instant is a service that stores nothing, to measure and to fuzz what stands before it.
type instant struct{ *jobs.Service }

// anyKey takes any key, which names its tenant.
type anyKey struct{ *keys.Service }

func (anyKey) Authenticate(_ context.Context, key string) (forebay.Caller, bool, error) {
	return forebay.Caller{KeyID: "k", Tenant: cmp.Or(key, "t"), Scopes: forebay.Scopes}, false, nil
}

func (anyKey) Hold(ctx context.Context, _ forebay.Caller) (context.Context, func()) {
	return ctx, func() {}
}

func (instant) Submit(_ context.Context, tenant string, req forebay.SubmitRequest) (forebay.Job, bool, error) {
	return forebay.Job{ID: "job_1", Tenant: tenant, Task: req.Task, Links: forebay.NewLinks("job_1"), Result: json.RawMessage("null")}, false, nil
}

func (s instant) SubmitMany(ctx context.Context, tenant string, reqs []forebay.SubmitRequest) []forebay.SubmitResult {
	results := make([]forebay.SubmitResult, len(reqs))
	for i, req := range reqs {
		job, _, _ := s.Submit(ctx, tenant, req)
		results[i].Job = &job
	}
	return results
}

func (instant) AtOnce() int { return 128 }

func newInstant() *API {
	return New(Options{Jobs: instant{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20})
}

// Every line that is not blank has one answer, in order.
func FuzzBulk(f *testing.F) {
	for _, seed := range []string{"", "\n\n", `{"task":"a","input":1}` + "\n{\n\n[]\r\n" + `{"task":"b","input":2}`, "\xff\n\x00", strings.Repeat("x", 70<<10) + "\n1"} {
		f.Add([]byte(seed))
	}
	a := newInstant()
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("POST", "/v1/jobs/bulk", bytes.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		answers := json.NewDecoder(w.Body)
		for i, line := range bytes.Split(body, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			var result forebay.SubmitResult
			if err := answers.Decode(&result); err != nil {
				t.Fatalf("line %d of %q: %v", i+1, body, err)
			}
			_, err := decode.Submit(line, true)
			if result.Line != i+1 || (result.Error == nil) != (err == nil) || (result.Job == nil) != (err != nil) {
				t.Fatalf("line %d of %q: %+v, decoder %v", i+1, body, result, err)
			}
		}
		if answers.More() {
			t.Fatalf("%q has more answers than lines", body)
		}
	})
}

// blocking is a body of which a part arrives at once, the rest only when the gate opens.
type blocking struct {
	early int
	gate  <-chan struct{}
	body  *bytes.Reader
}

func (b *blocking) Read(p []byte) (int, error) {
	if b.early <= 0 {
		<-b.gate
		return b.body.Read(p)
	}
	n, err := b.body.Read(p[:min(len(p), b.early)])
	b.early -= n
	return n, err
}

func (b *blocking) Close() error { return nil }

// Large bodies take memory as they arrive, whatever they announce. What one tenant's hold leaves
// room for another's.
func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Jobs: instant{}, Keys: anyKey{}, Logger: slog.New(slog.DiscardHandler), MaxInputBytes: 1 << 20, MemoryBytes: 2560 << 10})
		large := []byte(`{"task":"echo","input":"` + strings.Repeat("x", 900<<10) + `"}`)
		submit := func(tenant string, body []byte, announced int64, early int, gate <-chan struct{}) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/v1/jobs", &blocking{early, gate, bytes.NewReader(body)})
			r.ContentLength = announced
			r.Header.Set("Authorization", "Bearer "+tenant)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			return w
		}
		closed, gate, size := make(chan struct{}), make(chan struct{}), int64(len(large))
		close(closed)
		accepted := func(what string, w *httptest.ResponseRecorder) {
			t.Helper()
			if w.Code != http.StatusAccepted {
				t.Errorf("%s was answered with %d %s", what, w.Code, w.Body)
			}
		}
		var wg sync.WaitGroup
		announced := make([]*httptest.ResponseRecorder, 6)
		for i := range announced {
			wg.Go(func() { announced[i] = submit("slow", large, []int64{size, -1}[i%2], transfer.FreeBytes, gate) })
		}
		synctest.Wait()
		if held := a.memory.Held(); held != 0 {
			t.Errorf("bodies that are only announced hold %d bytes", held)
		}
		accepted("beside bodies that are only announced, a large one", submit("slow", large, size, 0, closed))
		var first *httptest.ResponseRecorder
		wg.Go(func() { first = submit("slow", large, -1, len(large), gate) })
		synctest.Wait()

		begun := time.Now()
		if w := submit("slow", large, size, 0, closed); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), string(forebay.CodeTooManyRequests)) {
			t.Errorf("a second large body was answered with %d %s", w.Code, w.Body)
		}
		if waited := time.Since(begun); waited != memory.Wait/2 {
			t.Errorf("it waited %v", waited)
		}
		begun = time.Now()
		accepted("another tenant's large body", submit("other", large, size, 0, closed))
		accepted("another tenant's chunked body", submit("other", large, -1, 0, closed))
		accepted("a small body", submit("slow", []byte(`{"task":"echo","input":1}`), 25, 0, closed))
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("they waited %v", waited)
		}
		close(gate)
		wg.Wait()
		accepted("the first large body", first)
		for _, w := range announced {
			accepted("a body that came late", w)
		}
		accepted("after them, a large body", submit("slow", large, size, 0, closed))
		if held := a.memory.Held(); held != 0 {
			t.Errorf("%d bytes of memory were not given back", held)
		}
	})
}

func BenchmarkSubmit(b *testing.B) {
	a := newInstant()
	body := []byte(`{"task":"echo","input":"` + strings.Repeat("x", 1024) + `","metadata":{"k":"v"}}`)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("POST", "/v1/jobs", bytes.NewReader(body)))
		if w.Code != http.StatusAccepted {
			b.Fatal(w.Body)
		}
	}
}

// BenchmarkBareHandler is the same without the API: what the recorder and the answer's JSON cost.
func BenchmarkBareHandler(b *testing.B) {
	body := []byte(`{"task":"echo","input":"` + strings.Repeat("x", 1024) + `","metadata":{"k":"v"}}`)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req forebay.SubmitRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			b.Fatal(err)
		}
		job, _, _ := instant{}.Submit(r.Context(), "t", req)
		w.WriteHeader(http.StatusAccepted)
		json.NewEncoder(w).Encode(job)
	})
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/jobs", bytes.NewReader(body)))
	}
}
