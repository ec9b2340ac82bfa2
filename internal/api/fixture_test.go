package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/live"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/processes"
	"github.com/forebayhq/forebay/internal/retention"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/tenant"
	"github.com/forebayhq/forebay/internal/webhook"
)

const maxInput = 1 << 20

// fixture is an API over a real service, whose deliveries the test settles itself.
type fixture struct {
	t        *testing.T
	service  *jobs.Service
	keys     *keys.Service
	bus      *messaging.Service
	webhooks *webhook.Service
	api      *api.API
	server   *httptest.Server
	logs     *logBuffer
	sims     *sims
	key      string // sent with every request, if set
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newServices(t *testing.T) (*stores.Stores, *jobs.Service, *messaging.Service, *webhook.Service) {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	s, err := stores.Open(ctx, db.Options{Path: filepath.Join(dir, "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	blobs, err := blob.Open(ctx, filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	o := jobs.Options{Store: s.Jobs, Payloads: s.Payloads(blobs)}
	o.MaxInputBytes = maxInput
	o.Settings = jobs.Settings{Tasks: map[string]forebay.Task{
		"echo": {Name: "echo", Description: "returns its input"},
		"picky": {Name: "picky", Check: func(json.RawMessage) error {
			return errors.New("must be something else")
		}},
	}}
	o.Queues = []jobs.Queue{{
		Name: forebay.DefaultQueue, Concurrency: 4, LockDuration: time.Minute, MaxDeliveryCount: 10, OnFailure: forebay.DeadLetters,
		Retry: retry.Policy{Backoff: retry.Exponential, First: time.Second, Coefficient: 2, Max: time.Minute, Attempts: 5},
	}}
	service, err := jobs.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	local := webhook.Policy{AllowHTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	hooks := webhook.New(webhook.Options{
		Store: s.Webhooks, Bus: s.Bus, Sender: webhook.SenderOptions{Policy: local}, Logger: slog.New(slog.DiscardHandler),
	})
	return s, service, messaging.New(messaging.Options{Store: s.Bus, Taken: func(ctx context.Context, tenant, name string) bool {
		_, err := service.Queue(ctx, tenant, name)
		return err == nil
	}}), hooks
}

// sims is one simulated deployment that remembers its faults.
type sims struct {
	faults    json.RawMessage
	paused    bool
	forgotten bool
	actor     string
}

func (s *sims) List(context.Context) ([]forebay.Deployment, error) {
	return []forebay.Deployment{s.deployment()}, nil
}

func (s *sims) deployment() forebay.Deployment {
	return forebay.Deployment{Name: "sim", Kind: forebay.DeploymentModel, Provider: "sim", Models: []string{"chat"}, Simulated: true, Paused: s.paused, Breaker: forebay.BreakerClosed}
}

func (s *sims) Get(_ context.Context, name string) (forebay.Deployment, error) {
	if name != "sim" {
		return forebay.Deployment{}, forebay.ErrNotFound
	}
	return s.deployment(), nil
}

func (s *sims) SetPaused(_ context.Context, name string, paused bool, actor string) error {
	if name != "sim" {
		return forebay.ErrNotFound
	}
	s.paused, s.actor = paused, actor
	return nil
}

func (s *sims) Forget(_ context.Context, name, actor string) error {
	if name != "sim" {
		return forebay.ErrNotFound
	}
	s.forgotten, s.actor = true, actor
	return nil
}

func (s *sims) Changes(_ context.Context, name string, limit int, cursor string) (forebay.Page[forebay.DeploymentChange], error) {
	if name != "sim" {
		return forebay.Page[forebay.DeploymentChange]{}, forebay.ErrNotFound
	}
	change := forebay.DeploymentChange{Number: 7, Deployment: name, Type: "breaker_opened", TokensPerMinute: int64(limit)}
	return forebay.Page[forebay.DeploymentChange]{Items: []forebay.DeploymentChange{change}, NextCursor: cursor}, nil
}

func (s *sims) SimFaults(name string) (json.RawMessage, error) {
	if name != "sim" {
		return nil, forebay.ErrNotFound
	}
	return s.faults, nil
}

func (s *sims) SetSimFaults(name string, faults json.RawMessage) error {
	if name != "sim" {
		return forebay.ErrNotFound
	}
	s.faults = bytes.Clone(faults)
	return nil
}

func newFixture(t *testing.T, change ...func(*api.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, logs: &logBuffer{}, sims: &sims{faults: json.RawMessage(`{}`)}}
	var s *stores.Stores
	s, f.service, f.bus, f.webhooks = newServices(t)
	f.keys = keys.NewService(s.Keys, nil)
	o := api.Options{
		Jobs: f.service, Keys: f.keys, Tenants: tenant.NewService(s.Tenants, s.Admission, nil), Audit: s.Audit, Reports: s.Reports, Purger: retention.New(s.Jobs, nil), Messages: f.bus, Webhooks: f.webhooks, Deployments: f.sims, MaxInputBytes: maxInput, Version: "test",
		Logger: slog.New(slog.NewJSONHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	o.Live = f.whatHappens(s)
	for _, c := range change {
		c(&o)
	}
	f.api = api.New(o)
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = f.api.Server(context.Background())
	f.server.Start()
	t.Cleanup(f.server.Close)
	return f
}

// whatHappens makes what tells of what happens now. It runs until the test ends.
func (f *fixture) whatHappens(s *stores.Stores) *live.Service {
	known := processes.New(processes.Options{DB: s.DB, Version: "test", Role: "all", Number: s.Jobs.Process.Store, Logger: slog.New(slog.DiscardHandler),
		Queues: func() []forebay.ProcessQueue {
			return []forebay.ProcessQueue{{Queue: forebay.DefaultQueue, Concurrency: 4}}
		}})
	hub := feed.NewHub(s.DB, known.ID())
	s.DB.OnTold(hub.Tell)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	f.t.Cleanup(func() { stop(); running.Wait() })
	return &live.Service{Queues: s.Queues, Jobs: f.service, Processes: known, Feed: hub, CallsQueue: "calls"}
}

type reply struct {
	*http.Response
	body []byte
}

// do sends a request; headers come as name, value pairs.
func (f *fixture) do(method, path, body string, headers ...string) reply {
	f.t.Helper()
	return f.send(f.request(method, path, strings.NewReader(body), headers...))
}

func (f *fixture) request(method, path string, body io.Reader, headers ...string) *http.Request {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.server.URL+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.key != "" {
		req.Header.Set("Authorization", "Bearer "+f.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (f *fixture) send(req *http.Request) reply {
	f.t.Helper()
	res, err := f.server.Client().Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply{res, b}
}

func into[T any](t *testing.T, r reply, status int) T {
	t.Helper()
	var v T
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", r.StatusCode, status, r.body)
	}
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return v
}

type problem struct {
	Type      string       `json:"type"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail"`
	Code      forebay.Code `json:"code"`
	Field     string       `json:"field"`
	RequestID string       `json:"request_id"`
}

// wantProblem checks everything that all problems have in common.
func wantProblem(t *testing.T, r reply, status int, code forebay.Code) problem {
	t.Helper()
	p := into[problem](t, r, status)
	if p.Code != code {
		t.Errorf("code %q, want %q: %s", p.Code, code, r.body)
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	if p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Status != status || p.Detail == "" {
		t.Errorf("incomplete problem: %s", r.body)
	}
	if p.RequestID == "" || p.RequestID != r.Header.Get("X-Request-Id") {
		t.Errorf("request id %q in the body, %q in the header", p.RequestID, r.Header.Get("X-Request-Id"))
	}
	return p
}

func (f *fixture) submit(body string, headers ...string) forebay.Job {
	f.t.Helper()
	return into[forebay.Job](f.t, f.do("POST", "/v1/jobs", body, headers...), http.StatusAccepted)
}

// settle claims the one job that is ready and ends its call.
func (f *fixture) settle(output string, failure error) {
	f.t.Helper()
	ctx := f.t.Context()
	deliveries, err := f.service.Worker().Claim(ctx, f.service.Worker().Configured()[0], false, 1, 1<<20)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range deliveries {
		res := forebay.TaskResult{Deployment: "sim", Usage: forebay.TokenUsage{InputTokens: 3}}
		if failure == nil {
			res.Output = json.RawMessage(output)
		}
		if _, err := f.service.Worker().Finish(ctx, d, res, failure); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) newKey(tenant string, scopes ...forebay.Scope) string {
	f.t.Helper()
	key, err := f.keys.Create(f.t.Context(), tenant, scopes, nil, forebay.Budget{}, "test")
	if err != nil {
		f.t.Fatal(err)
	}
	return key.Key
}

func jobBody(input string) string { return fmt.Sprintf(`{"task":"echo","input":%s}`, input) }
