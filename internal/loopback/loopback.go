// Package loopback is a model endpoint for tests and benchmarks: OpenAI's chat completions, streamed
// and not, and embeddings, over real HTTP on 127.0.0.1.
//
// It counts the calls of each marker, a name that a prompt holds in double square brackets, such as
// "[[job-7]] say hello", so that a test can tell how often a job's model was really called. A script
// decides what each call gets: an answer, at once or slowly, an error status, silence until the
// client goes away, or bytes that are no answer at all.
package loopback

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxRequestBytes bounds one request.
const maxRequestBytes = 128 << 20

// Call is one request as the script sees it.
type Call struct {
	Marker string   // what the prompt's first [[…]] holds; "" when it has none
	Prompt string   // the last message's content, or the first input of an embedding
	Number int      // of this call among the marker's, from 1
	Inputs []string // of an embedding
	Embed  bool
	Stream bool
}

// Reply is what a call gets. The zero value is a short answer at once.
type Reply struct {
	Delay time.Duration // before anything is sent
	Pace  time.Duration // between the words of a streamed answer
	Hang  bool          // send nothing and wait until the client goes away
	Text  string        // of the answer, byte for byte; default "answer to " and the marker
	Body  []byte        // sent in place of the answer's JSON or events

	Status     int           // an error's status, 400 to 599, instead of an answer
	Code       string        // of the error, such as content_filter
	Message    string        // of the error, byte for byte
	RetryAfter time.Duration // sent with the error; whole seconds as Retry-After, else as retry-after-ms
}

// Stats is what the endpoint has seen so far.
type Stats struct {
	Calls       int
	InFlight    int
	Peak        int // most in flight at once, since the start or ResetPeak
	Disconnects int // clients that went away before their answer was complete
}

// Server is a running endpoint. All methods are safe for concurrent use.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	script  func(Call) Reply
	stats   Stats
	began   map[string][]time.Time // by marker, when each call began
	changed chan struct{}          // closed at the next change of stats
}

// Start listens on a free port of 127.0.0.1. A nil script answers every call at once.
func Start(script func(Call) Reply) *Server {
	s := &Server{began: map[string][]time.Time{}, changed: make(chan struct{})}
	s.Script(script)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, false) })
	mux.HandleFunc("POST /v1/embeddings", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, true) })
	s.http = httptest.NewServer(mux)
	return s
}

// URL is the base URL to configure a provider with.
func (s *Server) URL() string { return s.http.URL + "/v1" }

// Close cuts off the calls in flight and stops listening.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Script replaces what decides about calls, from the next call on.
func (s *Server) Script(script func(Call) Reply) {
	if script == nil {
		script = func(Call) Reply { return Reply{} }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Stats returns what was seen so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// ResetPeak begins to measure the peak anew.
func (s *Server) ResetPeak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Peak = s.stats.InFlight
}

// Calls returns how often the marker was called.
func (s *Server) Calls(marker string) int { return len(s.Began(marker)) }

// Began returns when each call of the marker began, in order.
func (s *Server) Began(marker string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.began[marker])
}

// Await waits until the stats are as wanted, or returns ctx's error.
func (s *Server) Await(ctx context.Context, wanted func(Stats) bool) error {
	for {
		s.mu.Lock()
		ok, changed := wanted(s.stats), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// update changes the stats and wakes whoever awaits them. The caller holds the lock.
func (s *Server) update(change func(*Stats)) {
	change(&s.stats)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) begin(call *Call) (script func(Call) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began[call.Marker] = append(s.began[call.Marker], time.Now())
	call.Number = len(s.began[call.Marker])
	s.update(func(st *Stats) {
		st.Calls++
		st.InFlight++
		st.Peak = max(st.Peak, st.InFlight)
	})
	return s.script
}

func (s *Server) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(func(st *Stats) {
		st.InFlight--
		if err != nil {
			st.Disconnects++
		}
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, embed bool) {
	req, err := readRequest(r)
	if err != nil {
		// Not a call: its client died while it was sending, or is broken.
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call := Call{Prompt: req.prompt(embed), Inputs: req.Input, Embed: embed, Stream: req.Stream}
	call.Marker = marker(call.Prompt)
	reply := s.begin(&call)(call)
	a := answer{w: w, ctx: r.Context(), call: call, request: req, reply: reply}
	s.end(a.send())
}

// request is what both kinds of call have in common with what is needed of each.
type request struct {
	Model    string
	Stream   bool
	Messages []struct{ Content string }
	Input    []string
}

func readRequest(r *http.Request) (req request, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		return req, err
	}
	return req, json.Unmarshal(body, &req)
}

func (r request) prompt(embed bool) string {
	switch {
	case embed && len(r.Input) > 0:
		return r.Input[0]
	case !embed && len(r.Messages) > 0:
		return r.Messages[len(r.Messages)-1].Content
	}
	return ""
}

func marker(prompt string) string {
	_, rest, _ := strings.Cut(prompt, "[[")
	name, _, found := strings.Cut(rest, "]]")
	if !found {
		return ""
	}
	return name
}

// Marked returns a prompt with that marker.
func Marked(name, text string) string { return "[[" + name + "]] " + text }

// pause waits for d and reports errGone when the client went away first; d below 0 waits for that.
func pause(ctx context.Context, d time.Duration) error {
	var over <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errGone
	}
}

var errGone = errors.New("the client went away")

// Refused returns the base URL of an endpoint where nothing listens.
func Refused() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "http://" + l.Addr().String() + "/v1", l.Close()
}
