package modelsim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
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
	writeTimeout    = time.Minute // of one write; after it, a client that reads nothing is gone
	graceTimeout    = 5 * time.Second
)

// Server serves deployments over HTTP.
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

// NewServer returns a server. log, if not nil, gets a line of JSON for each call; Close flushes
// it.
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

// Run serves on l until ctx ends. Then it takes no more calls, gives those in flight a few
// seconds, and ends calls that hang at once.
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
	mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
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

// countTokens counts the prompt of a message as the usage of its answer does. No quota and no
// fault is about it.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	c := s.call(w, r, anthropic)
	c.counts = true
	if refusal, ok := c.read(); !ok {
		s.invalid.Add(1)
		_ = c.refuse(refusal) // to a client that is gone, or is not
		return
	}
	c.idHeaders()
	c.json(http.StatusOK, map[string]int{"input_tokens": c.prompt})
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

// created is when every model was made: a fixed time, so that answers repeat.
const created = 1700000000

func (c *httpCall) json(status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers, lists and maps
	}
	_ = c.send(status, b) // an error says that the client is gone
}

// byName finds a deployment for the name that a call gave.
func (s *Server) byName(name string) (*Service, bool) {
	if d, ok := s.names[name]; ok {
		return d, true
	}
	if s.options.AnyModel {
		return s.deployments[0], true
	}
	return nil, false
}

// named returns one deployment, or all for "".
func (s *Server) named(name string) ([]*Service, error) {
	if name == "" {
		return s.deployments, nil
	}
	for _, d := range s.deployments {
		if d.Name == name {
			return []*Service{d}, nil
		}
	}
	return nil, forebay.Errorf(forebay.CodeNotFound, "there is no deployment %.64q", name)
}
