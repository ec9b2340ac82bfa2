package model

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

const defaultOpenAIEndpoint = "https://api.openai.com/v1"

// OpenAIConfig configures OpenAI or a compatible server.
type OpenAIConfig struct {
	Endpoint string // base URL, such as http://127.0.0.1:11434/v1; default OpenAI's own
	Model    string
	APIKey   forebay.Secret // "": no Authorization header
	// Responses says that the server speaks the Responses API, and gets requests for responses as
	// they are.
	Responses bool
	HTTPConfig
}

// NewOpenAI returns a provider for the chat completions and embeddings of an OpenAI-compatible
// API. It does not use the official SDK. For a streamed answer of fifty tokens, the SDK takes
// twelve times the processor time of the bare call.
func NewOpenAI(c OpenAIConfig) (Provider, error) {
	if c.Model == "" {
		return nil, errors.New("model: required")
	}
	if c.Endpoint == "" {
		c.Endpoint = defaultOpenAIEndpoint
	}
	base, err := baseURL(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := checkKey(c.APIKey); err != nil {
		return nil, err
	}
	header := map[string]string{}
	if c.APIKey != "" {
		header["Authorization"] = "Bearer " + c.APIKey.Reveal()
	}
	p := &openAI{
		endpoint: newEndpoint(c.HTTPConfig, c.APIKey, header),
		chatURL:  base + "/" + pathChat,
		embedURL: base + "/" + pathEmbeddings,
		url:      func(path string) string { return base + "/" + path },
		model:    c.Model, responses: c.Responses,
	}
	p.knowThinking(c.HTTPConfig)
	if u, err := url.Parse(base); err == nil {
		p.completionTokens.Store(u.Hostname() == "api.openai.com")
	}
	return p, nil
}

// openAI implements OpenAI's protocol for all servers. Two request parameters differ between
// servers. A server that knows only the other form says so, and the provider learns that once.
type openAI struct {
	endpoint
	chatURL  string
	embedURL string
	url      func(path string) string // of any part of the API
	model    string

	ofDeployment bool // the model is the name of a deployment, as Azure has them

	responses bool // it speaks the Responses API

	// completionTokens says to send max_completion_tokens, which newer models require, instead of
	// max_tokens, which other servers know.
	completionTokens atomic.Bool
	// noStreamOptions says that the server does not know stream_options. Its usage is then
	// estimated.
	noStreamOptions atomic.Bool
	// thinks says that the model thinks although a request does not ask for it.
	thinks atomic.Bool
	// mayLearnToWait says that no idle timeout was configured.
	mayLearnToWait bool

	learning      sync.Mutex
	tokensLearned bool
}

var unknownParameter = regexp.MustCompile(`(?i)unsupported_parameter|unknown_parameter|not supported|unrecognized|not permitted|extra_forbidden`)

type chatBody struct {
	Model               string         `json:"model"`
	Messages            any            `json:"messages"` // []Message, or []json.RawMessage
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	Stop                []string       `json:"stop,omitempty"`
	ResponseFormat      *chatFormat    `json:"response_format,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
}

type chatFormat struct {
	Type       string      `json:"type"`
	JSONSchema *chatSchema `json:"json_schema,omitempty"`
}

type chatSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Strict      bool            `json:"strict"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Chat implements Provider.
func (p *openAI) Chat(ctx context.Context, req ChatRequest) (ChatResponse, error) {
	body := chatBody{Model: p.model, Temperature: req.Temperature, TopP: req.TopP, Stop: req.Stop, Stream: !req.Whole}
	newName := p.completionTokens.Load()
	if newName {
		body.MaxCompletionTokens = req.MaxOutputTokens
	} else {
		body.MaxTokens = req.MaxOutputTokens
	}
	if body.Stream && !p.noStreamOptions.Load() {
		body.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if req.JSONObject {
		body.ResponseFormat = &chatFormat{Type: "json_object"}
	}
	if req.JSONSchema != nil {
		name := req.SchemaName
		if name == "" {
			name = "answer"
		}
		body.ResponseFormat = &chatFormat{Type: "json_schema", JSONSchema: &chatSchema{
			Name: name, Description: req.SchemaDescription, Schema: req.JSONSchema, Strict: strictSchema(req.JSONSchema)}}
	}
	encoded, err := encodeChat(body, req)
	if err != nil {
		return ChatResponse{}, forebay.Permanent(CodeBadRequest, "the request cannot be written as JSON")
	}
	a := chatAnswer{endpoint: &p.endpoint, texts: req.texts, wantRaw: req.WantRaw, onText: req.OnText, answers: max(req.Answers, 1)}
	var limits RateLimits
	out := outgoing{url: p.chatURL, body: encoded, texts: req.texts, limits: limits.into(req.OnLimits)}
	effort := ""
	for _, m := range req.Extra {
		if m.Name == "reasoning_effort" {
			effort = gjson.ParseBytes(m.Value).Str
		}
	}
	out.thinks = p.mayThink(effort)
	if req.Whole || out.thinks {
		out.patience = max(answerPatience, p.idle)
	}
	err = p.post(ctx, out, a.read)
	resp := a.response(ctx, req, err == nil)
	p.hasThought(parseUsage(a.usage).ReasoningTokens, func() string { return effort })
	resp.Limits = limits
	if err != nil {
		return resp, p.learn(err, newName, body.StreamOptions != nil)
	}
	return resp, nil
}

// encodeChat writes a request: its body, with the messages and the other members as they are.
func encodeChat(body chatBody, req ChatRequest) ([]byte, error) {
	body.Messages = req.Messages
	if slices.ContainsFunc(req.Messages, func(m Message) bool { return m.Object != nil }) {
		messages := make([]json.RawMessage, len(req.Messages))
		for i, m := range req.Messages {
			if messages[i] = m.Object; m.Object == nil {
				var err error
				if messages[i], err = forebay.EncodeJSON(m); err != nil {
					return nil, err
				}
			}
		}
		body.Messages = messages
	}
	encoded, err := forebay.EncodeJSON(body)
	if err != nil || len(req.Extra) == 0 {
		return encoded, err
	}
	encoded = encoded[:len(encoded)-1]
	for _, m := range req.Extra {
		name, err := forebay.EncodeJSON(m.Name)
		if err != nil {
			return nil, err
		}
		encoded = append(append(append(append(encoded, ','), name...), ':'), m.Value...)
	}
	return append(encoded, '}'), nil
}

// learn checks whether the server refused a parameter by its name. If the next call will use the
// other name, the error becomes transient.
func (p *openAI) learn(err error, sentNewName, sentStreamOptions bool) error {
	var f *failure
	if !errors.As(err, &f) || f.status != 400 && f.status != 422 {
		return err
	}
	names := func(parameter string) bool {
		// The message "'max_tokens' is not supported with this model. Use 'max_completion_tokens'
		// instead." contains both names. The refused one comes first.
		return f.param == parameter || f.param == "" && firstWordWith(f.message, "max_", "stream_options") == parameter
	}
	sentName := "max_tokens"
	if sentNewName {
		sentName = "max_completion_tokens"
	}
	p.learning.Lock()
	defer p.learning.Unlock()
	switch {
	case sentStreamOptions && names("stream_options"):
		p.noStreamOptions.Store(true)
	case !names(sentName):
		return err
	case p.completionTokens.Load() == sentNewName: // otherwise another call has learned it
		if p.tokensLearned || !unknownParameter.MatchString(f.code+" "+f.message) {
			return err // the value was refused, or both names were
		}
		p.tokensLearned = true
		p.completionTokens.Store(!sentNewName)
	}
	// The class is Throttled, so that no job is charged an attempt for this.
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: CodeParameterLearned, RetryAfter: 10 * time.Millisecond,
		Message: "the endpoint refused a parameter that the next call leaves out or renames", Err: err}
}

// firstWordWith returns the first run of letters and underscores in s that begins with a prefix.
func firstWordWith(s string, prefixes ...string) string {
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		for _, p := range prefixes {
			if strings.HasPrefix(word, p) {
				return word
			}
		}
	}
	return ""
}

// Embed implements Provider.
func (p *openAI) Embed(ctx context.Context, req EmbedRequest) (EmbedResponse, error) {
	body, err := forebay.EncodeJSON(struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Dimensions int      `json:"dimensions,omitempty"`
	}{p.model, req.Inputs, req.Dimensions})
	if err != nil {
		return EmbedResponse{}, forebay.Permanent(CodeBadRequest, "the request cannot be written as JSON")
	}
	var resp EmbedResponse
	var limits RateLimits
	err = p.post(ctx, outgoing{url: p.embedURL, body: body, texts: req.texts, limits: limits.into(req.OnLimits)}, func(a answer) error {
		b, err := p.readAll(a.body)
		if err != nil {
			return err
		}
		resp, err = p.parseEmbeddings(ctx, b, req)
		return err
	})
	resp.Limits = limits
	return resp, err
}

func (p *openAI) parseEmbeddings(ctx context.Context, b []byte, req EmbedRequest) (EmbedResponse, error) {
	var wire struct {
		Model string `json:"model"`
		Data  []struct {
			Index     *int      `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
		Usage *chatUsage      `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(b, &wire); err != nil {
		return EmbedResponse{}, malformed("the embeddings are not the JSON they should be")
	}
	if present(wire.Error) {
		return EmbedResponse{}, p.streamError(b, req.texts)
	}
	resp := EmbedResponse{Model: wire.Model, Vectors: make([][]float32, len(req.Inputs))}
	if wire.Usage != nil {
		if wire.Usage.PromptTokens == 0 { // some servers say the total alone
			wire.Usage.PromptTokens = wire.Usage.TotalTokens
		}
		resp.Usage = wire.Usage.tokens()
	}
	if len(wire.Data) != len(req.Inputs) {
		return resp, malformed("not one embedding for each input")
	}
	for i, d := range wire.Data {
		at := i
		if d.Index != nil {
			at = *d.Index
		}
		if at < 0 || at >= len(resp.Vectors) || resp.Vectors[at] != nil || len(d.Embedding) == 0 {
			return EmbedResponse{Usage: resp.Usage}, malformed("not one embedding for each input")
		}
		resp.Vectors[at] = d.Embedding
	}
	if resp.Model == "" {
		resp.Model = p.model
	}
	if wire.Usage == nil {
		resp.Usage = forebay.TokenUsage{InputTokens: req.promptTokens(ctx)}
	}
	return resp, nil
}

// present reports whether a JSON member exists and is not null.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// strictSchema reports whether OpenAI's strict mode accepts a schema: each object is closed and
// requires all its properties. Other schemas are sent without strict mode, because it would refuse
// them.
func strictSchema(schema json.RawMessage) bool {
	var v any
	if json.Unmarshal(schema, &v) != nil {
		return false
	}
	return strict(v)
}

func strict(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if properties, ok := v["properties"].(map[string]any); ok {
			required, _ := v["required"].([]any)
			if v["additionalProperties"] != false || len(required) != len(properties) {
				return false
			}
		} else if v["type"] == "object" {
			return false
		}
		for _, child := range v {
			if !strict(child) {
				return false
			}
		}
	case []any:
		for _, child := range v {
			if !strict(child) {
				return false
			}
		}
	}
	return true
}
