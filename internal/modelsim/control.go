package modelsim

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// controls adds the paths that are about the server itself.
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

// Reset starts all deployments again: quotas are unused, scripts begin, statistics are zero.
// Calls in flight go on and are no longer counted.
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
