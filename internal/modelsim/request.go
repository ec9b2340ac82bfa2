package modelsim

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
	"github.com/forebayhq/forebay/internal/model"
)

const (
	maxChoices = 128
	maxInputs  = 2048
)

// request holds the parameters of all APIs that matter here.
type request struct {
	Model               string    `json:"model"`
	Messages            []message `json:"messages"`
	System              text      `json:"system"`
	MaxTokens           int       `json:"max_tokens"`
	MaxCompletionTokens int       `json:"max_completion_tokens"`
	N                   int       `json:"n"`
	Stream              bool      `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Stop           stringOrList `json:"stop"`
	StopSequences  stringOrList `json:"stop_sequences"`
	ResponseFormat struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	OutputConfig struct {
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`

	Tools      []tool     `json:"tools"`
	ToolChoice toolChoice `json:"tool_choice"`

	Input          inputs `json:"input"`
	Dimensions     int    `json:"dimensions"`
	EncodingFormat string `json:"encoding_format"`
}

type message struct {
	Role    string `json:"role"`
	Content text   `json:"content"`
}

// text is a string, or a list of parts. The texts of the parts are joined.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '[' {
		return json.Unmarshal(b, (*string)(t))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.Text)
	}
	*t = text(all.String())
	return nil
}

// stringOrList is a string or a list of strings.
type stringOrList []string

func (w *stringOrList) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*w = make(stringOrList, 1)
		return json.Unmarshal(b, &(*w)[0])
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// inputs is a text, a list of texts, or lists of token numbers.
type inputs []input

type input struct {
	text   string
	tokens int // above 0: the input was that many numbers, and text is their JSON
}

func (in *inputs) UnmarshalJSON(b []byte) error {
	var one string
	switch {
	case string(b) == "null":
		return nil
	case json.Unmarshal(b, &one) == nil:
		*in = inputs{{text: one}}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return inputError("input must be a string or a list")
	}
	if len(list) > 0 && list[0][0] != '"' && list[0][0] != '[' { // a single input, as tokens
		list = []json.RawMessage{b}
	}
	for _, raw := range list {
		var numbers []int
		var s string
		switch {
		case json.Unmarshal(raw, &s) == nil:
			*in = append(*in, input{text: s})
		case json.Unmarshal(raw, &numbers) == nil && len(numbers) > 0:
			*in = append(*in, input{text: string(raw), tokens: len(numbers)})
		default:
			return inputError("input must hold strings, or lists of tokens")
		}
	}
	return nil
}

// inputTexts are the texts to embed.
func (r *request) inputTexts() []string {
	texts := make([]string, len(r.Input))
	for i, in := range r.Input {
		texts[i] = in.text
	}
	return texts
}

// inputError is an error about the input. It quotes nothing of it.
type inputError string

func (e inputError) Error() string { return string(e) }

// promptTokens returns the tokens of the prompt as the usage reports them, and a hash of its
// words.
func (r *request) promptTokens() (tokens int, key uint64) {
	texts := make([]string, 0, len(r.Messages)+len(r.Input)+1)
	for _, m := range r.Messages {
		tokens += tokensOf(string(m.Content)) + tokensPerMessage
		texts = append(texts, string(m.Content))
	}
	for _, in := range r.Input {
		if in.tokens > 0 {
			tokens += in.tokens
		} else {
			tokens += tokensOf(in.text)
		}
		texts = append(texts, in.text)
	}
	if r.System != "" {
		tokens += tokensOf(string(r.System)) + tokensPerMessage
		texts = append(texts, string(r.System))
	}
	tokens += (len(r.schema()) + 3) / 4
	for _, t := range r.Tools {
		name, schema := t.named()
		tokens += (len(name) + len(schema) + 3) / 4
	}
	return tokens, hash(texts...)
}

func (r *request) schema() json.RawMessage {
	if s := r.ResponseFormat.JSONSchema.Schema; len(s) > 0 {
		return s
	}
	return r.OutputConfig.Format.Schema
}

// structured reports whether the answer must be JSON.
func (r *request) structured() bool {
	return r.demanded().name != "" || len(r.schema()) > 0 || r.ResponseFormat.Type == "json_object"
}

// maxOutput is how many tokens one choice may have.
func (r *request) maxOutput(fallback int) int {
	limit := max(r.MaxCompletionTokens, r.MaxTokens)
	if limit <= 0 {
		limit = fallback
	}
	return min(limit, maxOutput)
}

func (r *request) choices() int { return max(r.N, 1) }

// invalid says what is wrong with the request, or "".
func (r *request) invalid(a api, embed bool) (param, complaint string) {
	switch {
	case embed && len(r.Input) == 0:
		return "input", "'input' is a required property"
	case embed && len(r.Input) > maxInputs:
		return "input", "'input' has too many items"
	case embed && (r.Dimensions < 0 || r.Dimensions > MaxDimensions):
		return "dimensions", "Invalid value for 'dimensions'"
	case embed && r.EncodingFormat != "" && r.EncodingFormat != "float" && r.EncodingFormat != "base64":
		return "encoding_format", "'encoding_format' must be float or base64"
	case embed:
		return "", ""
	case len(r.Messages) == 0 && a == anthropic:
		return "messages", "messages: at least one message is required"
	case len(r.Messages) == 0:
		return "messages", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
	case r.MaxTokens < 0 || r.MaxCompletionTokens < 0:
		return "max_tokens", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1."
	case r.unknownTool():
		return "tool_choice", "'tool_choice' demands a tool that is not among 'tools'"
	case r.N < 0 || r.N > maxChoices:
		return "n", "Invalid 'n': Expected a value of 1 to 128."
	}
	return "", ""
}

// asked is the request in the form that complete takes.
func (r *request) asked(max int) model.ChatRequest {
	req := model.ChatRequest{MaxOutputTokens: max, Stop: append(r.Stop, r.StopSequences...)}
	if call := r.demanded(); call.name != "" {
		if req.JSONSchema = call.schema; len(call.schema) == 0 {
			req.JSONSchema = json.RawMessage(`{"type":"object","additionalProperties":false}`)
		}
	} else if s := r.schema(); len(s) > 0 {
		req.JSONSchema = s
	}
	if r.System != "" {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleSystem, Content: string(r.System)})
	}
	for _, m := range r.Messages {
		role := model.Role(m.Role)
		if role == "developer" {
			role = model.RoleSystem
		}
		req.Messages = append(req.Messages, model.Message{Role: role, Content: string(m.Content)})
	}
	return req
}

// parseRequest reads a body. Errors quote nothing of it.
func parseRequest(body []byte) (*request, error) {
	if jsoncheck.Depth(body) > forebay.MaxJSONDepth {
		return nil, errors.New("the JSON is nested too deeply")
	}
	r := &request{}
	if err := json.Unmarshal(body, r); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, errors.New("'" + wrong.Field + "' is of the wrong type")
		}
		if e, ok := errors.AsType[inputError](err); ok {
			return nil, e
		}
		return nil, errors.New("could not parse the JSON body of the request")
	}
	return r, nil
}
