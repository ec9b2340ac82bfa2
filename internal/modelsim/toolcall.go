package modelsim

import (
	"encoding/json"
	"slices"
	"strconv"
)

// tool is a function that the model may call, as OpenAI or Anthropic describes it.
type tool struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"input_schema"`
}

func (t tool) named() (name string, schema json.RawMessage) {
	if t.Function.Name != "" {
		return t.Function.Name, t.Function.Parameters
	}
	return t.Name, t.InputSchema
}

// toolChoice says whether the model has to call a tool, and which.
type toolChoice struct {
	must    bool
	name    string // "": any
	allowed []string
}

func (c *toolChoice) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		c.must = word == "required"
		return nil
	}
	var choice struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		AllowedTools struct {
			Mode  string `json:"mode"`
			Tools []tool `json:"tools"`
		} `json:"allowed_tools"`
	}
	if err := json.Unmarshal(b, &choice); err != nil {
		return err
	}
	switch choice.Type {
	case "any":
		c.must = true
	case "tool":
		c.must, c.name = true, choice.Name
	case "function":
		c.must, c.name = true, choice.Function.Name
	case "allowed_tools":
		c.must = choice.AllowedTools.Mode == "required"
		for _, t := range choice.AllowedTools.Tools {
			name, _ := t.named()
			c.allowed = append(c.allowed, name)
		}
	}
	return nil
}

// toolCall is the call of a tool that an answer has to be. Its arguments are the answer's text.
type toolCall struct {
	name   string // "": the answer is a text
	schema json.RawMessage
}

// demanded is the tool that the request demands a call of. If any will do, that is the first.
func (r *request) demanded() toolCall {
	c := r.ToolChoice
	if !c.must {
		return toolCall{}
	}
	for _, t := range r.Tools {
		name, schema := t.named()
		if name != "" && (c.name == "" || c.name == name) && (c.allowed == nil || slices.Contains(c.allowed, name)) {
			return toolCall{name, schema}
		}
	}
	return toolCall{}
}

// unknownTool reports whether the request demands a tool that it does not have.
func (r *request) unknownTool() bool { return r.ToolChoice.name != "" && r.demanded().name == "" }

// finished returns the reason that OpenAI gives for the end of an answer that ended so. A call of
// the one tool that was named is no reason of its own.
func (r *request) finished(finish string) string {
	if finish == "stop" && r.ToolChoice.name == "" && r.demanded().name != "" {
		return "tool_calls"
	}
	return finish
}

// toolID is the id of the call in one of the choices.
func (c *completion) toolID(choice int) string {
	if c.api == anthropic {
		return quoted("toolu_" + c.id)
	}
	return quoted("call_" + c.id + "_" + strconv.Itoa(choice))
}

// toolInput is the input of Anthropic's call: an object, also if the arguments were cut.
func (c *completion) toolInput() string {
	if !json.Valid([]byte(c.text)) {
		return "{}"
	}
	return c.text
}
