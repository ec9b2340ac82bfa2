package modelsim

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/sleep"
)

// TestServer is a Server for tests and benchmarks, on a free port of 127.0.0.1. A function
// decides what each call gets, valid or not. Calls are counted by their marker, a name in double
// square brackets in the prompt, such as "[[job-7]] say hello". So a test can tell how often a
// job's model was called. It is safe for concurrent use.
type TestServer struct {
	server *Server
	http   *http.Server
	url    string
	served chan struct{} // closed when http has ended

	mu      sync.Mutex // guards what follows
	decide  func(Call) Reply
	began   map[string][]time.Time // by marker, when each call began
	changed chan struct{}          // closed when a call has begun or ended
}

// Call is one request as a test sees it.
type Call struct {
	Marker string   // "" when the prompt has none
	Prompt string   // the last message's content, or the first input of an embedding
	Number int      // of this call among the marker's, from 1
	Inputs []string // of an embedding
	Embed  bool
	Stream bool
}

// Reply is what a call gets. The zero value is an answer at once: a short text, or real
// embeddings.
type Reply struct {
	Delay time.Duration // before anything is sent
	Hang  bool          // send nothing and wait until the client goes away
	Text  string        // of the answer, byte for byte; "": "answer to " and the marker
	Body  []byte        // sent in place of the answer's JSON or events

	Status     int           // an error's status, 400 to 599, instead of an answer
	Code       string        // of an error below 500, such as content_filter
	Message    string        // of the error, byte for byte
	RetryAfter time.Duration // of an error; whole seconds as Retry-After, else as retry-after-ms
}

// StartTest starts a server with one deployment, which has no quota and answers at once. change
// may make it otherwise. A nil decide answers every call. It panics when no port is free.
func StartTest(decide func(Call) Reply, change ...func(*Deployment)) *TestServer {
	d := DefaultDeployment()
	d.Name, d.Headers, d.TokensPerMinute, d.RequestsPerMinute, d.FirstToken, d.TokensPerSecond = "test", HeadersNone, 0, 0, 0, 0
	for _, f := range change {
		f(&d)
	}
	server, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{d}}, nil)
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &TestServer{server: server, http: &http.Server{Handler: server.Handler()}, url: "http://" + l.Addr().String() + "/v1",
		served: make(chan struct{}), began: map[string][]time.Time{}, changed: make(chan struct{})}
	s.Decide(decide)
	server.test, server.changed = s, s.wake
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l) // until Close
	}()
	return s
}

// URL is the base URL to configure an OpenAI provider with.
func (s *TestServer) URL() string { return s.url }

// Close cuts off the calls in flight, waits for their end and stops listening.
func (s *TestServer) Close() {
	_ = s.http.Close()
	<-s.served
	_ = s.Await(context.Background(), func(st Stats) bool { return st.InFlight == 0 })
	_ = s.server.Close()
}

// Decide replaces the function that decides, from the next call on.
func (s *TestServer) Decide(decide func(Call) Reply) {
	if decide == nil {
		decide = func(Call) Reply { return Reply{} }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = decide
}

// Stats returns what was seen so far.
func (s *TestServer) Stats() Stats { return s.server.deployments[0].Stats() }

// Calls returns how often the marker was called.
func (s *TestServer) Calls(marker string) int { return len(s.Began(marker)) }

// Began returns when each call of the marker began, in order.
func (s *TestServer) Began(marker string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.began[marker])
}

// Await waits until the statistics are as wanted, or returns ctx's error.
func (s *TestServer) Await(ctx context.Context, wanted func(Stats) bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if wanted(s.Stats()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake has every Await look again.
func (s *TestServer) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// note counts a call by its marker. It returns what answers the call.
func (s *TestServer) note(c *httpCall) func(*ending) error {
	noted := Call{Embed: c.embed, Stream: c.request.Stream}
	if c.embed {
		noted.Inputs = c.request.inputTexts()
		noted.Prompt = noted.Inputs[0]
	} else {
		noted.Prompt = string(c.request.Messages[len(c.request.Messages)-1].Content)
	}
	noted.Marker = marker(noted.Prompt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began[noted.Marker] = append(s.began[noted.Marker], time.Now())
	noted.Number = len(s.began[noted.Marker])
	decide := s.decide
	return func(e *ending) error { return c.respondWith(noted.Marker, decide(noted), e) }
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

// respondWith gives a call what a test has decided. The error is as of respond.
func (c *httpCall) respondWith(marker string, r Reply, e *ending) error {
	if r.Hang {
		<-c.r.Context().Done()
		return errGone
	}
	if sleep.For(c.r.Context(), r.Delay) != nil {
		return errGone
	}
	switch {
	case r.Status != 0:
		e.outcome, c.admission.Status = Failed, r.Status
		refused := refusal{status: r.Status, code: r.Code, message: r.Message, wait: r.RetryAfter}
		if r.RetryAfter%time.Second != 0 {
			refused.wait = 0
			c.w.Header().Set("Retry-After-Ms", strconv.FormatInt(r.RetryAfter.Milliseconds(), 10))
		}
		return c.refuse(refused)
	case r.Body != nil:
		e.outcome = Malformed
		kind := "application/json"
		if c.request.Stream {
			kind = "text/event-stream"
		}
		c.w.Header().Set("Content-Type", kind)
		c.begin(http.StatusOK)
		return c.write(string(r.Body))
	case c.embed:
		return c.respondEmbeddings(e)
	}
	text := cmp.Or(r.Text, "answer to "+marker)
	return c.answer(answer{text, tokensOf(text), "stop", ""}, e)
}
