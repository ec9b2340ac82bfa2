package model

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// messagesBody is a request of the messages API.
type messagesBody struct {
	Model         string            `json:"model"`
	MaxTokens     int               `json:"max_tokens"`
	System        string            `json:"system,omitempty"`
	Messages      []messagesTurn    `json:"messages"`
	Temperature   *float64          `json:"temperature,omitempty"`
	TopP          *float64          `json:"top_p,omitempty"`
	StopSequences []string          `json:"stop_sequences,omitempty"`
	Tools         []messagesTool    `json:"tools,omitempty"`
	ToolChoice    *messagesChoice   `json:"tool_choice,omitempty"`
	Metadata      *messagesMetadata `json:"metadata,omitempty"`
	OutputConfig  *messagesOutput   `json:"output_config,omitempty"`
	Stream        bool              `json:"stream"`

	forced string // the tool whose input is the answer; "": none
}

// messagesTurn is a message. Its content is a text, or a list of messagesBlock.
type messagesTurn struct {
	Role    Role `json:"role"`
	Content any  `json:"content"`
}

// messagesBlock is a part of a message, of any type.
type messagesBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Source    *messagesSource `json:"source,omitempty"`
	Title     string          `json:"title,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   any             `json:"content,omitempty"`
}

type messagesSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type messagesTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Strict      bool            `json:"strict,omitempty"`
}

type messagesChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

type messagesMetadata struct {
	UserID string `json:"user_id"`
}

type messagesOutput struct {
	Format *messagesFormat `json:"format,omitempty"`
	Effort string          `json:"effort,omitempty"`
}

type messagesFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// request translates a request. The fields that it does not know have been refused at submit.
func (p *anthropic) request(req ChatRequest) (*messagesBody, error) {
	if req.AsOpenAI {
		t := forebay.Permanent(CodeNotSupported, "Anthropic's API cannot do what the request asks for")
		t.Uncalled = true
		return nil, t
	}
	body := &messagesBody{Model: p.model, MaxTokens: req.MaxOutputTokens, Temperature: req.Temperature,
		TopP: req.TopP, StopSequences: req.Stop, Stream: true, Messages: make([]messagesTurn, 0, len(req.Messages))}
	if body.MaxTokens <= 0 {
		body.MaxTokens = p.maxTokens
	}
	var system []string
	for _, m := range req.Messages {
		if m.Role == RoleSystem {
			system = append(system, m.Content)
		} else {
			body.add(m)
		}
	}
	body.System = strings.Join(system, "\n\n")
	output := messagesOutput{}
	for _, m := range req.Extra {
		body.addMember(m.Name, gjson.ParseBytes(m.Value), &output)
	}
	body.structure(req, &output)
	if output != (messagesOutput{}) {
		body.OutputConfig = &output
	}
	if len(body.Tools) == 0 {
		body.ToolChoice = nil
	} else if c := body.ToolChoice; c != nil && c.Type == "none" {
		c.DisableParallel = false
	}
	return body, nil
}

// structure asks for an answer in JSON. The API refuses an open schema as a format. Such an answer
// comes as the input of a tool that must be called, unless the request has tools of its own. The
// task checks the answer in any case.
func (b *messagesBody) structure(req ChatRequest, output *messagesOutput) {
	switch {
	case req.JSONSchema == nil:
	case strictSchema(req.JSONSchema):
		output.Format = &messagesFormat{Type: "json_schema", Schema: req.JSONSchema}
	case len(b.Tools) == 0:
		b.forced = req.SchemaName
		if b.forced == "" {
			b.forced = "answer"
		}
		b.Tools = []messagesTool{{Name: b.forced, Description: req.SchemaDescription, InputSchema: req.JSONSchema}}
		b.ToolChoice = &messagesChoice{Type: "tool", Name: b.forced}
	}
}

// addMember translates a member of a request of OpenAI's API.
func (b *messagesBody) addMember(name string, v gjson.Result, output *messagesOutput) {
	choice := func() *messagesChoice {
		if b.ToolChoice == nil {
			b.ToolChoice = &messagesChoice{Type: "auto"}
		}
		return b.ToolChoice
	}
	switch name {
	case "tools":
		v.ForEach(func(_, tool gjson.Result) bool {
			b.Tools = append(b.Tools, translateTool(tool.Get("function")))
			return true
		})
	case "tool_choice":
		c := choice()
		if c.Name = v.Get("function.name").Str; c.Name != "" {
			c.Type = "tool"
		} else if c.Type = v.Str; c.Type == "required" {
			c.Type = "any"
		}
	case "parallel_tool_calls":
		if v.Type == gjson.False {
			choice().DisableParallel = true
		}
	case "user", "safety_identifier":
		b.Metadata = &messagesMetadata{v.Str}
	case "reasoning_effort":
		output.Effort = efforts[v.Str]
	}
}

func translateTool(function gjson.Result) messagesTool {
	t := messagesTool{Name: function.Get("name").Str, Description: function.Get("description").Str,
		InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
	if parameters := function.Get("parameters"); parameters.IsObject() {
		t.InputSchema = json.RawMessage(parameters.Raw)
		t.Strict = function.Get("strict").Bool() && strictSchema(t.InputSchema)
	}
	return t
}

// add adds a message. The results of tools are the beginning of the user's next message.
func (b *messagesBody) add(m Message) {
	if m.Object == nil {
		if last := b.results(); last != nil && m.Role == RoleUser {
			last.Content = append(last.Content.([]messagesBlock), messagesBlock{Type: "text", Text: m.Content})
			return
		}
		b.Messages = append(b.Messages, messagesTurn{m.Role, m.Content})
		return
	}
	object := gjson.ParseBytes(m.Object)
	role, blocks := m.Role, translateParts(object.Get("content"))
	switch m.Role {
	case RoleTool:
		result := messagesBlock{Type: "tool_result", ToolUseID: object.Get("tool_call_id").Str}
		if len(blocks) > 0 {
			result.Content = blocks
		}
		role, blocks = RoleUser, []messagesBlock{result}
	case RoleAssistant:
		object.Get("tool_calls").ForEach(func(_, call gjson.Result) bool {
			use := messagesBlock{Type: "tool_use", ID: call.Get("id").Str, Name: call.Get("function.name").Str, Input: json.RawMessage(`{}`)}
			if arguments := call.Get("function.arguments").Str; strings.TrimSpace(arguments) != "" {
				use.Input = json.RawMessage(arguments)
			}
			blocks = append(blocks, use)
			return true
		})
	}
	if last := b.results(); last != nil && role == RoleUser {
		last.Content = append(last.Content.([]messagesBlock), blocks...)
		return
	}
	b.Messages = append(b.Messages, messagesTurn{role, blocks})
}

// results returns the last message if it begins with the result of a tool.
func (b *messagesBody) results() *messagesTurn {
	if len(b.Messages) == 0 {
		return nil
	}
	last := &b.Messages[len(b.Messages)-1]
	if blocks, ok := last.Content.([]messagesBlock); ok && len(blocks) > 0 && blocks[0].Type == "tool_result" {
		return last
	}
	return nil
}

// translateParts translates the content of a message. The API refuses empty texts.
func translateParts(content gjson.Result) (blocks []messagesBlock) {
	text := func(v gjson.Result) {
		if strings.TrimSpace(v.Str) != "" {
			blocks = append(blocks, messagesBlock{Type: "text", Text: v.Str})
		}
	}
	if content.Type == gjson.String {
		text(content)
		return blocks
	}
	content.ForEach(func(_, part gjson.Result) bool {
		switch part.Get("type").Str {
		case "text":
			text(part.Get("text"))
		case "image_url":
			if s, ok := readImage(part.Get("image_url.url").Str); ok {
				blocks = append(blocks, messagesBlock{Type: "image", Source: s.block()})
			}
		case "file":
			if s, ok := readPDF(part.Get("file.file_data").Str); ok {
				blocks = append(blocks, messagesBlock{Type: "document", Source: s.block(), Title: part.Get("file.filename").Str})
			}
		}
		return true
	})
	return blocks
}

func (s source) block() *messagesSource {
	return &messagesSource{Type: s.kind, MediaType: s.media, Data: s.data, URL: s.url}
}
