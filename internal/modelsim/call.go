package modelsim

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/sleep"
)

// api is the shape in which a call is made and answered.
type api string

const (
	openAI    api = "openai"
	azure     api = "azure-openai"
	anthropic api = "anthropic"
)

// streamInterval is how often a stream is written to. Tokens that come faster travel together.
const streamInterval = 50 * time.Millisecond

// maxPieces bounds the pieces of a stream without a speed.
const maxPieces = 1000

// httpCall is one request to a deployment.
type httpCall struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	api    api
	embed  bool
	counts bool // the tokens of its prompt, and nothing else
	number uint64

	deployment *Service
	name       string // the call's, of the deployment or its model
	request    *request
	prompt     int // tokens, as the usage says
	cached     int // of them
	key        uint64
	admission  Admission
	status     int // sent
	// decided, if set, answers the call as a test wants it.
	decided func(*ending) error
}

func (s *Server) call(w http.ResponseWriter, r *http.Request, a api) *httpCall {
	return &httpCall{server: s, w: w, r: r, api: a, number: s.requests.Add(1)}
}

func (s *Server) serve(a api, embed bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.call(w, r, a)
		c.embed = embed
		if refusal, ok := c.read(); !ok {
			s.invalid.Add(1)
			_ = c.refuse(refusal) // to a client that is gone, or is not
			return
		}
		c.run()
	})
}

// read reads and checks the request. A request that is refused here is not counted.
func (c *httpCall) read() (refusal, bool) {
	if !c.authorized() {
		return unauthorized, false
	}
	c.name = c.r.PathValue("deployment")
	if c.name != "" && c.r.URL.Query().Get("api-version") == "" {
		return notFound("Resource not found"), false
	}
	if c.api == anthropic && c.r.Header.Get("anthropic-version") == "" {
		return badRequest("", "anthropic-version: header is required"), false
	}
	control := http.NewResponseController(c.w)
	control.SetReadDeadline(time.Now().Add(readTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxRequestBytes))
	control.SetReadDeadline(time.Time{})
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return refusal{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", code: "413", message: "Request exceeds the maximum size"}, false
		}
		return badRequest("", "the body of the request cannot be read"), false
	}
	if c.request, err = parseRequest(body); err != nil {
		return badRequest("", err.Error()), false
	}
	if param, complaint := c.request.invalid(c.api, c.embed); complaint != "" {
		return badRequest(param, complaint), false
	}
	if c.api == anthropic && !c.counts && c.request.MaxTokens <= 0 {
		return badRequest("max_tokens", "max_tokens: Field required"), false
	}
	if c.name == "" {
		c.name = c.request.Model
	}
	var ok bool
	if c.deployment, ok = c.server.byName(c.name); !ok {
		return unknownModel(c.name), false
	}
	c.prompt, c.key = c.request.promptTokens()
	return refusal{}, true
}

// authorized reports whether the call has the key, in any of the providers' headers.
func (c *httpCall) authorized() bool {
	want := c.server.options.APIKey.Reveal()
	if want == "" {
		return true
	}
	bearer, _ := strings.CutPrefix(c.r.Header.Get("Authorization"), "Bearer ")
	for _, key := range []string{c.r.Header.Get("api-key"), c.r.Header.Get("x-api-key"), bearer} {
		if subtle.ConstantTimeCompare([]byte(key), []byte(want)) == 1 {
			return true
		}
	}
	return false
}

// errGone says that the client has gone away.
var errGone = errors.New("the client went away")

// errBroken says that the connection is to be closed at once.
var errBroken = errors.New("connection closed on purpose")

// ending is how a call ended.
type ending struct {
	outcome Outcome
	used    Used
}

// run admits the call and answers it.
func (c *httpCall) run() {
	began := time.Now()
	cost := Cost{Prompt: c.deployment.Estimate(c.prompt, c.key)}
	if !c.embed {
		c.cached, cost.Cached = c.deployment.cached(c.prompt), c.deployment.cached(cost.Prompt)
		cost.Output = c.request.maxOutput(c.deployment.MaxOutputTokens) * c.request.choices()
	}
	half := time.Duration(c.deployment.RoundTrip) / 2
	if sleep.For(c.r.Context(), half) != nil {
		return // the client left before its call had arrived
	}
	if c.server.test != nil {
		c.decided = c.server.test.note(c)
	}
	c.admission = c.deployment.Begin(time.Now(), cost)
	if c.server.changed != nil {
		c.server.changed()
		defer c.server.changed()
	}
	e := ending{c.admission.Outcome, Used{Prompt: c.prompt, Cached: c.cached}}
	err := errGone
	if sleep.For(c.r.Context(), half) == nil {
		err = c.respond(&e)
	}
	if errors.Is(err, errGone) {
		e.outcome = Gone
	}
	now := time.Now()
	c.deployment.End(now, c.admission, e.outcome, e.used)
	v := c.admission.Verdict
	c.server.log.write(entry{At: began, Deployment: c.deployment.Name, API: c.api, Embed: c.embed, Stream: c.request.Stream,
		Outcome: e.outcome, Status: c.status, Refused: v.Refused, RetryMS: v.RetryAfter.Milliseconds(),
		Charged: c.admission.charged(), Prompt: c.prompt, MaxOutput: cost.Output, Output: e.used.Output, MS: float64(now.Sub(began).Microseconds()) / 1000})
	if errors.Is(err, errBroken) {
		panic(http.ErrAbortHandler) // has net/http close the connection
	}
}

// respond gives the call its outcome. The error is errGone or errBroken, or nil.
func (c *httpCall) respond(e *ending) error {
	switch e.outcome {
	case Outage:
		return errBroken
	case Throttled:
		return c.refuse(c.throttled())
	case Denied:
		return c.refuse(c.denied())
	case Failed:
		return c.refuse(c.failed(c.admission.Status))
	case Filtered:
		return c.refuse(filteredRefusal)
	case Hung:
		select {
		case <-c.r.Context().Done():
		case <-c.server.stopping:
		}
		return errBroken
	}
	switch {
	case c.decided != nil:
		return c.decided(e)
	case c.embed:
		return c.respondEmbeddings(e)
	}
	a, err := c.deployment.compose(c.request, c.key)
	if err != nil {
		e.outcome = Invalid
		return c.refuse(badRequest("", err.Error()))
	}
	if c.admission.Outcome == Cut { // only half of the answer is sent
		for half := range pieces(a.text, max(a.tokens/2, 1)) {
			a.text, a.tokens = half, tokensOf(half)
			break
		}
	}
	return c.answer(a, e)
}

// answer sends an answer, streamed or whole as the request says.
func (c *httpCall) answer(a answer, e *ending) error {
	e.used.Output = a.tokens * c.request.choices()
	if c.request.Stream {
		return c.stream(a, time.Now(), e)
	}
	return c.plain(a, time.Now())
}

// completed returns the answer with what its shape needs.
func (c *httpCall) completed(a answer) *completion {
	return &completion{answer: a, api: c.api, id: fmt.Sprintf("%016x%08x", c.key, c.number), created: c.admission.now.Unix(), model: c.deployment.Model,
		prompt: c.prompt, cached: c.cached, choices: c.request.choices(), streamUsage: c.request.StreamOptions.IncludeUsage}
}

// wait waits until that many tokens of the answer would be there.
func (c *httpCall) wait(started time.Time, tokens int) error {
	d := c.deployment.Duration(tokens, c.admission.Conditions) - time.Since(started)
	if sleep.For(c.r.Context(), d) != nil {
		return errGone
	}
	return nil
}

// plain sends an answer in one piece.
func (c *httpCall) plain(a answer, started time.Time) error {
	if err := c.wait(started, a.tokens); err != nil {
		return err
	}
	c.quotaHeaders(nil)
	body := c.completed(a).body()
	switch c.admission.Outcome {
	case Malformed:
		return c.send(http.StatusOK, body[:len(body)/2])
	case Cut:
		c.w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if err := c.send(http.StatusOK, body[:len(body)/2]); err != nil {
			return err
		}
		return errBroken
	}
	return c.send(http.StatusOK, body)
}

// stream sends an answer as server-sent events.
func (c *httpCall) stream(a answer, started time.Time, e *ending) error {
	if err := c.wait(started, 0); err != nil {
		e.used.Output = 0
		return err
	}
	c.quotaHeaders(nil)
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.Header().Set("Cache-Control", "no-cache")
	c.begin(http.StatusOK)
	if c.admission.Outcome == Malformed {
		return c.write("data: {\"id\": no JSON at all\n\n")
	}
	shape := c.completed(a)
	if err := c.write(shape.firstEvents()); err != nil {
		return err
	}
	each := max(4, a.tokens/maxPieces)
	if speed := c.deployment.TokensPerSecond; speed > 0 {
		each = max(int(speed*streamInterval.Seconds()/c.admission.Conditions.Latency), 1)
	}
	sent := 0
	for piece := range pieces(a.text, each) {
		if c.deployment.TokensPerSecond > 0 {
			if err := c.flush(); err != nil {
				e.used.Output = sent * c.request.choices()
				return err
			}
			if err := c.wait(started, sent); err != nil {
				e.used.Output = sent * c.request.choices()
				return err
			}
		}
		if err := c.write(shape.textEvents(piece)); err != nil {
			return err
		}
		sent += tokensOf(piece)
	}
	if c.admission.Outcome == Cut {
		_ = c.flush()
		return errBroken
	}
	if err := c.wait(started, a.tokens); err != nil {
		return err
	}
	return c.write(shape.lastEvents())
}

func (c *httpCall) begin(status int) {
	c.status = status
	http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	c.w.WriteHeader(status)
}

func (c *httpCall) send(status int, body []byte) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.begin(status)
	return c.write(string(body))
}

func (c *httpCall) write(s string) error {
	if _, err := io.WriteString(c.w, s); err != nil || c.r.Context().Err() != nil {
		return errGone
	}
	return nil
}

func (c *httpCall) flush() error {
	control := http.NewResponseController(c.w)
	control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if control.Flush() != nil {
		return errGone
	}
	return nil
}
