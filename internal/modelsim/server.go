// Package modelsim is a model endpoint to test against: a server that answers as OpenAI, Azure OpenAI
// and Anthropic do, over real HTTP and server-sent events, and that counts quotas, throttles, slows
// down and breaks as they do. What it says means nothing; how it behaves does.
//
// A [Meter] does the counting, and a [Script] says what goes wrong when. A [Service] is both together
// with the speed of a deployment and the record of what it saw. None of them asks for the time: they
// are given it, so that a simulation can drive them through hours in a moment. A [Server] puts services
// behind HTTP. Everything random comes from seeds: the same request gets the same answer.
//
// Package loopback is the other endpoint for tests. It replies byte for byte what a test tells it to,
// valid or not, and knows no quota; the two share no code, because exact bytes are all that the one is
// about and what the other must never need to be told.
package modelsim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
)

const (
	maxRequestBytes = 32 << 20
	maxHeaderBytes  = 64 << 10
	maxHeaders      = 100
	readTimeout     = time.Minute // of one request's body
	writeTimeout    = time.Minute // of what is sent at once; a client that reads nothing is gone after it
	graceTimeout    = 5 * time.Second
)

// Server is a set of deployments behind HTTP.
type Server struct {
	options     ServerOptions
	deployments []*Service
	names       map[string]*Service // by name, and by model where no name is the same
	log         *callLog
	handler     http.Handler
	requests    atomic.Uint64 // for ids
	invalid     atomic.Int64  // requests that reached no deployment
	stopping    chan struct{} // closed when hanging calls are to end
	stopOnce    sync.Once
	changed     func()      // if set, called after a call has begun or ended; for tests that wait
	test        *TestServer // if set, decides about calls that meet no fault
}

// NewServer returns a server. log, if not nil, gets a line of JSON for each call; Close flushes it.
func NewServer(o ServerOptions, log io.Writer) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o, names: map[string]*Service{}, stopping: make(chan struct{})}
	if log != nil {
		s.log = newCallLog(log)
	}
	now := time.Now()
	for _, options := range o.Deployments {
		d, err := NewService(options, o.Seed, now)
		if err != nil {
			return nil, err
		}
		s.deployments = append(s.deployments, d)
		s.names[d.Name] = d
	}
	for _, d := range s.deployments {
		if _, taken := s.names[d.Model]; !taken {
			s.names[d.Model] = d
		}
	}
	s.handler = s.routes()
	return s, nil
}

// Handler answers HTTP.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends calls that hang, and writes out the log.
func (s *Server) Close() error {
	s.stopOnce.Do(func() { close(s.stopping) })
	return s.log.flush()
}

// Run serves on l until ctx ends. Then it takes no more calls and gives those in flight a few seconds;
// calls that hang end at once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaderBytes}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	var err error
	select {
	case err = <-served:
		_ = h.Close()
	case <-ctx.Done():
		s.stopOnce.Do(func() { close(s.stopping) })
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
		defer cancel()
		if h.Shutdown(grace) != nil {
			_ = h.Close()
		}
		if err = <-served; errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	return errors.Join(err, s.Close())
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for prefix, a := range map[string]api{"/v1": openAI, "/openai/v1": azure} {
		mux.Handle("POST "+prefix+"/chat/completions", s.serve(a, false))
		mux.Handle("POST "+prefix+"/embeddings", s.serve(a, true))
		mux.HandleFunc("GET "+prefix+"/models", func(w http.ResponseWriter, r *http.Request) { s.models(w, r, a) })
		mux.HandleFunc("GET "+prefix+"/models/{model}", func(w http.ResponseWriter, r *http.Request) { s.models(w, r, a) })
	}
	mux.Handle("POST /openai/deployments/{deployment}/chat/completions", s.serve(azure, false))
	mux.Handle("POST /openai/deployments/{deployment}/embeddings", s.serve(azure, true))
	mux.Handle("POST /v1/messages", s.serve(anthropic, false))
	s.controls(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_ = s.call(w, r, openAI).refuse(notFound("Invalid URL (" + r.Method + " " + clip(r.URL.Path, 200) + ")"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header) > maxHeaders {
			http.Error(w, "too many headers", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// models lists what can be called, in OpenAI's or Anthropic's shape.
func (s *Server) models(w http.ResponseWriter, r *http.Request, a api) {
	if a == openAI && r.Header.Get("anthropic-version") != "" {
		a = anthropic
	}
	c := s.call(w, r, a)
	if !c.authorized() {
		_ = c.refuse(unauthorized)
		return
	}
	one := r.PathValue("model")
	list := []any{}
	for _, d := range s.deployments {
		if one != "" && s.names[one] != d {
			continue
		}
		if a == anthropic {
			list = append(list, map[string]any{"type": "model", "id": d.Name, "display_name": d.Model, "created_at": "2024-01-01T00:00:00Z"})
		} else {
			list = append(list, map[string]any{"id": d.Name, "object": "model", "created": created, "owned_by": "sim"})
		}
	}
	switch {
	case one != "" && len(list) == 0:
		_ = c.refuse(unknownModel(one))
	case one != "":
		c.json(http.StatusOK, list[0])
	case a == anthropic:
		c.json(http.StatusOK, map[string]any{"data": list, "has_more": false, "first_id": s.deployments[0].Name, "last_id": s.deployments[len(s.deployments)-1].Name})
	default:
		c.json(http.StatusOK, map[string]any{"object": "list", "data": list})
	}
}

// created is when all models were made: a fixed time, so that answers repeat.
const created = 1700000000

// controls are the paths that are about the server itself.
func (s *Server) controls(mux *http.ServeMux) {
	handle := func(pattern string, f func(r *http.Request, body []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c := s.call(w, r, openAI)
			if !c.authorized() {
				_ = c.refuse(unauthorized)
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFileBytes))
			if err != nil {
				c.json(http.StatusRequestEntityTooLarge, problem{"the body cannot be read"})
				return
			}
			v, err := f(r, body)
			switch e, coded := errors.AsType[*forebay.Error](err); {
			case err == nil:
				c.json(http.StatusOK, v)
			case coded && e.Code == forebay.CodeNotFound:
				c.json(http.StatusNotFound, problem{err.Error()})
			default:
				c.json(http.StatusBadRequest, problem{err.Error()})
			}
		})
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	handle("GET /_sim/stats", func(*http.Request, []byte) (any, error) { return s.Stats(), nil })
	handle("POST /_sim/reset", func(*http.Request, []byte) (any, error) {
		s.Reset()
		return struct{}{}, nil
	})
	handle("GET /_sim/faults", func(*http.Request, []byte) (any, error) { return s.scripts(), nil })
	handle("PUT /_sim/faults", func(r *http.Request, body []byte) (any, error) {
		script, err := ReadScript(body)
		if err != nil {
			return nil, err
		}
		scale := 1.0
		if text := r.URL.Query().Get("scale"); text != "" {
			if scale, err = strconv.ParseFloat(text, 64); err != nil || !(scale > 0 && scale <= 10_000) {
				return nil, forebay.Invalid("scale", "must be a factor above 0")
			}
		}
		list, err := s.named(r.URL.Query().Get("deployment"))
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			d.SetScript(script.Scaled(scale))
		}
		return s.scripts(), nil
	})
}

type problem struct {
	Error string `json:"error"`
}

// Report is what GET /_sim/stats answers.
type Report struct {
	ElapsedSeconds float64          `json:"elapsed_seconds"` // since the start or the last reset
	Invalid        int64            `json:"invalid"`         // requests that reached no deployment: 400, 401, 404, 413
	Deployments    map[string]Stats `json:"deployments"`
}

// Stats returns what every deployment has seen.
func (s *Server) Stats() Report {
	r := Report{Invalid: s.invalid.Load(), Deployments: map[string]Stats{}}
	for _, d := range s.deployments {
		r.Deployments[d.Name] = d.Stats()
		r.ElapsedSeconds = d.elapsed().Seconds()
	}
	return r
}

// Reset begins the time of all deployments anew: quotas unused, scripts at their beginning, nothing
// seen. Calls in flight go on and are not counted any more.
func (s *Server) Reset() {
	now := time.Now()
	s.invalid.Store(0)
	for _, d := range s.deployments {
		d.Reset(now)
	}
}

func (s *Server) scripts() map[string]Script {
	all := map[string]Script{}
	for _, d := range s.deployments {
		all[d.Name] = d.currentScript()
	}
	return all
}

func (c *httpCall) json(status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers, lists and maps
	}
	_ = c.send(status, b) // nobody is left to be told
}
