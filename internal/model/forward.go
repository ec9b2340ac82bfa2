package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// The paths of OpenAI's API that a provider may forward to, below the API's root.
const (
	pathChat        = "chat/completions"
	pathCompletions = "completions"
	pathEmbeddings  = "embeddings"
	pathModerations = "moderations"
	pathResponses   = "responses"
	pathCompact     = "responses/compact"
	// pathMessages is of Anthropic's API.
	pathMessages = "messages"
)

// ForwardPaths lists those of OpenAI's API.
var ForwardPaths = []string{pathChat, pathCompletions, pathEmbeddings, pathModerations, pathResponses, pathCompact}

// optionalPaths are those that many servers and most models do not have.
var optionalPaths = []string{pathCompletions, pathModerations, pathCompact}

// answerPatience is how long an answer in one piece may take to begin. It is OpenAI's default in
// its clients. A model writes such an answer whole before it sends the first byte.
const answerPatience = 10 * time.Minute

// ForwardRequest is a request of OpenAI's or Anthropic's HTTP API that goes to the provider byte
// for byte. Only the value of its member "model" is replaced. A stream of OpenAI's API is also
// asked for its usage.
type ForwardRequest struct {
	Path   string // one of ForwardPaths, or one of Anthropic's
	Body   []byte // a JSON object
	Stream bool   // the body asks for a stream
	// Choose returns the path and the body that a provider of this dialect gets. Path and Body
	// then only say what the call needs. nil: the provider gets Path and Body. It may be called
	// more than once before the first Write.
	Choose func(Dialect) (path string, body []byte, err error)
	// WantUsage says that the chunk with the usage goes to Write although the body did not ask for
	// it.
	WantUsage bool
	// Again says that the call can be made again after Write was called.
	Again bool
	// Header are the headers of the client that the provider gets. nil: none.
	Header http.Header

	CostLeft   *forebay.Money // these as in ChatRequest
	TokensLeft *int64
	OnLimits   func(RateLimits)

	// Begin is called once, before the first Write, if the answer is a success. For a stream, that
	// is when the header has arrived. For other answers, it is when their first bytes are passed
	// on. A Content-Length in the header is that of the bytes that Write gets.
	Begin func(status int, header http.Header) error
	// Write takes the bytes of the answer in order, for a stream one event with its blank line at
	// a time. They are valid during the call. An error of Begin or Write ends the call as
	// CodeClientGone. Time spent in Write does not count as silence of the endpoint.
	Write func([]byte) error
	// Flush, if set, is called in a stream once Write has got all events that have arrived. Its
	// error is like that of Write.
	Flush func() error
}

// Dialect is what a provider understands of OpenAI's API.
type Dialect struct {
	Responses bool // POST /responses
	// CompletionTokens says that it wants max_completion_tokens, and not the older max_tokens.
	CompletionTokens bool
}

// Chosen returns the request as a provider of this dialect gets it.
func (r ForwardRequest) Chosen(d Dialect) (ForwardRequest, error) {
	if r.Choose == nil {
		return r, nil
	}
	path, body, err := r.Choose(d)
	if err != nil {
		t := forebay.Permanent(CodeBadRequest, err.Error())
		t.Uncalled, t.Err = true, err
		return r, t
	}
	r.Path, r.Body, r.Choose = path, body, nil
	return r, nil
}

// ForwardResponse is what is known about a forwarded answer, also of a call that failed.
type ForwardResponse struct {
	Status int         // of the answer; 0: there was none
	Header http.Header // of the answer
	// Body is that of an answer that is not 2xx: at most 64 KiB and without credentials. The body
	// of a success goes to Write.
	Body []byte
	// Passed says that the client got an error from Write: an error event of a stream, or an
	// answer that describes a failure. The caller has nothing to add to it.
	Passed bool

	Model        string
	Usage        forebay.TokenUsage // estimated where the provider does not say it
	CachedTokens int64
	CacheWrites  int64
	Limits       RateLimits
	FinishReason string // of the first choice; of Responses: stop, length or content_filter
}

// Forwarder is a provider that takes requests of a public API as they are. Not every provider is
// one. A Forwarder makes one call. Its errors are those of a Provider. Where Write was called
// before the error, the request must not be made again.
type Forwarder interface {
	// Takes reports whether it takes requests of this path.
	Takes(path string) bool
	Forward(ctx context.Context, req ForwardRequest) (ForwardResponse, error)
}

// Takes reports whether a provider forwards requests of the path.
func Takes(p Provider, path string) bool {
	f, ok := p.(Forwarder)
	return ok && f.Takes(path)
}

// Takes implements Forwarder.
func (p *openAI) Takes(path string) bool { return slices.Contains(ForwardPaths, path) }

// Forward implements Forwarder. If the server refuses the stream_options that it added, it leaves
// them out and calls again at once.
func (p *openAI) Forward(ctx context.Context, req ForwardRequest) (ForwardResponse, error) {
	newName := p.completionTokens.Load()
	chosen, err := req.Chosen(Dialect{p.responses, newName})
	if err != nil {
		return ForwardResponse{}, err
	}
	resp, err := p.forwardChosen(ctx, chosen)
	if req.Choose == nil || err == nil {
		return resp, err
	}
	if t, ok := errors.AsType[*forebay.TaskError](p.learn(err, newName, false)); ok && t.Code == CodeParameterLearned {
		if chosen, err = req.Chosen(Dialect{p.responses, p.completionTokens.Load()}); err != nil {
			return ForwardResponse{}, err
		}
		return p.forwardChosen(ctx, chosen)
	}
	return resp, err
}

// forwardChosen forwards a request whose path and body are those that the provider gets.
func (p *openAI) forwardChosen(ctx context.Context, req ForwardRequest) (ForwardResponse, error) {
	start := objectStart(req.Body)
	if err := checkForward(p, req.Path, start); err != nil {
		return ForwardResponse{}, err
	}
	streams := req.Stream && (req.Path == pathChat || req.Path == pathCompletions)
	body, added := forwardedBody(req.Body, start, p.model, streams && !p.noStreamOptions.Load())
	resp, err := p.forward(ctx, req, body, added)
	if added && (resp.Status == 400 || resp.Status == 422) && bytes.Contains(resp.Body, []byte(streamOption)) {
		body, _ = forwardedBody(req.Body, start, p.model, false)
		resp, err = p.forward(ctx, req, body, false)
		// A request that fails without them too was refused for something else, such as a text
		// with this word.
		if resp.Status >= 200 && resp.Status <= 299 {
			p.noStreamOptions.Store(true)
		}
	}
	return resp, err
}

// checkForward refuses a request that f cannot forward. start is that of the body's object.
func checkForward(f Forwarder, path string, start int) error {
	var t *forebay.TaskError
	switch {
	case !f.Takes(path):
		t = forebay.Permanent(CodeNotSupported, fmt.Sprintf("the path %.40q cannot be forwarded", path))
	case start < 0:
		t = forebay.Permanent(CodeBadRequest, "the body is not a JSON object")
	default:
		return nil
	}
	t.Uncalled = true
	return t
}

// forward makes one call with the edited body. addedUsage says that only the edited body asks for
// the usage.
func (p *openAI) forward(ctx context.Context, req ForwardRequest, body []byte, addedUsage bool) (ForwardResponse, error) {
	need := sync.OnceValue(func() *forwardNeed { return readNeed(req.Path, req.Body) })
	f := forwardAnswer{endpoint: &p.endpoint, req: req, hideUsage: addedUsage && !req.WantUsage, texts: func() []string { return need().texts }}
	out := outgoing{url: p.url(req.Path), body: body, texts: f.texts, limits: f.resp.Limits.into(req.OnLimits), refused: f.refused,
		optional: slices.Contains(optionalPaths, req.Path)}
	if !req.Stream && req.Path != pathEmbeddings && req.Path != pathModerations {
		out.patience = max(answerPatience, p.idle)
	} else if req.Stream && p.mayThink(reasoningEffort(req.Body)) {
		out.patience, out.thinks = max(answerPatience, p.idle), true
	}
	err := p.post(ctx, out, f.read)
	p.hasThought(f.usage.reasoning, func() string { return reasoningEffort(req.Body) })
	return f.ended(ctx, p.model, need, err), err
}

// ended is what is known of the answer once the call has ended. The name is that of the model that
// was called.
func (f *forwardAnswer) ended(ctx context.Context, name string, need func() *forwardNeed, err error) ForwardResponse {
	f.resp.Model = cmp.Or(f.resp.Model, name)
	switch {
	case f.req.Path == PathCountTokens: // what is counted is not used
	case f.usage != (forwardUsage{}):
		f.resp.Usage, f.resp.CachedTokens, f.resp.CacheWrites = f.usage.tokens(), f.usage.cached, f.usage.written
	case err == nil || f.written:
		f.resp.Usage = forebay.TokenUsage{InputTokens: need().promptTokens(ctx),
			OutputTokens: (f.outputBytes + forebay.BytesPerToken - 1) / forebay.BytesPerToken}
	}
	return f.resp
}

// refused keeps an answer that is not 2xx.
func (f *forwardAnswer) refused(status int, header http.Header, body []byte) {
	f.resp.Status, f.resp.Header, f.resp.Body = status, header.Clone(), f.endpoint.cleanBody(body)
	f.resp.Header.Del("Content-Length") // it may be shorter now
}

// keyLikeValue is keyLike within JSON, where it must leave the quotes.
var keyLikeValue = regexp.MustCompile(`[^\s"'\\]*(?:\*{3,}|\b[sp]k-|\beyJ)[^\s"'\\]*`)

// cleanBody returns an error's body without credentials, which some servers repeat.
func (e *endpoint) cleanBody(b []byte) []byte {
	cleaned := keyLikeValue.ReplaceAll(b, []byte("***"))
	key := []byte(e.key.Reveal())
	if len(key) == 0 {
		return cleaned
	}
	cleaned = bytes.ReplaceAll(cleaned, key, []byte("***"))
	if len(key) >= 16 { // a shortened key still shows its first characters
		key = key[:8]
		cleaned = regexp.MustCompile(regexp.QuoteMeta(string(key))+`[^\s"'\\]*`).ReplaceAll(cleaned, []byte("***"))
	}
	var v any
	if bytes.IndexByte(cleaned, '\\') >= 0 && json.Unmarshal(cleaned, &v) == nil {
		if plain, err := forebay.EncodeJSON(v); err != nil || bytes.Contains(plain, key) { // it was escaped
			return []byte(`{"error":{"message":"the provider's message is left out","type":null,"param":null,"code":null}}`)
		}
	}
	return cleaned
}

// clientGone is the error for an error of Begin or Write. It is permanent, because it says nothing
// about the deployment.
func clientGone(err error) error {
	return &forebay.TaskError{Class: forebay.ClassPermanent, Code: CodeClientGone, Unmeasured: true,
		Message: "nobody takes the answer any more", Err: err}
}

// contentLength states the length of a body that was changed.
func contentLength(h http.Header, n int) http.Header {
	h = h.Clone()
	h.Set("Content-Length", strconv.Itoa(n))
	return h
}
