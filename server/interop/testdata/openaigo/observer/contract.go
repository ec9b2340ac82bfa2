package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed openapi.json.gz
var compressed []byte

// contract is OpenAI's OpenAPI file.
type contract struct {
	doc *openapi3.T
}

func load() (*contract, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromIoReader(r)
	if err != nil {
		return nil, err
	}
	return &contract{doc}, nil
}

// roots are the addresses under which OpenAI's API is served, longest first.
var roots = []string{"/openai/v1", "/openai", "/v1"}

// operation is what an address stands for.
type operation struct {
	*contract
	name string
	// answer is the schema of a success in JSON, nil if it has none. event is that of the events of a
	// stream.
	answer, event *openapi3.SchemaRef
	raw           bool // a success is any bytes
}

// find returns the operation of a request.
func (c *contract) find(method string, u *url.URL) operation {
	path := u.EscapedPath()
	for _, root := range roots {
		if rest, ok := strings.CutPrefix(path, root+"/"); ok {
			path = "/" + rest
			break
		}
	}
	if rest, ok := strings.CutPrefix(path, "/deployments/"); ok {
		_, after, _ := strings.Cut(rest, "/")
		path = "/" + after
	}
	parts := strings.Split(path, "/")
	for pattern, item := range c.doc.Paths.Map() {
		op := item.GetOperation(method)
		if op == nil || strings.Contains(pattern, "?") || !matches(strings.Split(pattern, "/"), parts) {
			continue
		}
		found := operation{contract: c, name: method + " " + pattern}
		if ok := op.Responses.Status(http.StatusOK); ok != nil {
			if json := ok.Value.Content.Get("application/json"); json != nil {
				found.answer = json.Schema
			}
			if stream := ok.Value.Content["text/event-stream"]; stream != nil {
				found.event = stream.Schema
			}
		}
		switch found.name {
		case "GET /files/{file_id}/content": // declared as a JSON string, and it is bytes
			found.raw = true
		case "DELETE /responses/{response_id}": // the file describes no answer
			found.raw = true
		case "POST /chat/completions":
			found.event = c.schema("CreateChatCompletionStreamResponse")
		case "POST /completions": // its chunks have the shape of its answer
			found.event = c.schema("CreateCompletionResponse")
		case "GET /responses/{response_id}":
			found.event = c.schema("ResponseStreamEvent")
		}
		return found
	}
	return operation{contract: c, name: "unknown"}
}

func (c *contract) schema(name string) *openapi3.SchemaRef { return c.doc.Components.Schemas[name] }

func matches(pattern, parts []string) bool {
	if len(pattern) != len(parts) {
		return false
	}
	for i, p := range pattern {
		if p != parts[i] && !(strings.HasPrefix(p, "{") && parts[i] != "") {
			return false
		}
	}
	return true
}

// check returns how many things were checked, and what was wrong with them. whole says that the
// client has read the body to its end.
func (op operation) check(status int, h http.Header, body []byte, whole bool) (n int, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if h.Get("X-Request-Id") == "" {
		fault("there is no x-request-id")
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case status >= 300 && status < 400:
		fault("it redirects")
	case status >= 400:
		return 1, append(faults, op.judge("ErrorResponse", op.schema("ErrorResponse"), body)...)
	case op.raw:
		return 1, faults
	case kind == "text/event-stream":
		if op.event == nil {
			fault("a stream that no schema describes")
			return 1, faults
		}
		if !whole {
			return 0, faults
		}
		events, wrong := splitEvents(body)
		faults = append(faults, wrong...)
		if len(events) == 0 || events[len(events)-1] != "[DONE]" {
			fault("the stream does not end with [DONE]")
			return len(events), faults
		}
		for _, event := range events[:len(events)-1] {
			faults = append(faults, op.judge("event", op.event, known([]byte(event)))...)
		}
		return len(events), faults
	case kind != "application/json":
		fault("the content type is %q", kind)
	case op.answer == nil:
		fault("no schema describes the answer")
	case whole || json.Valid(body):
		if op.name == "POST /embeddings" {
			body = base64Vector.ReplaceAll(body, []byte(`"embedding":[0]`))
		}
		faults = append(faults, op.judge("answer", op.answer, known(body))...)
	}
	return 1, faults
}

// nullUsage is how OpenAI's own server says that a response has no usage yet, and nullDescription
// that a text format has no description. The file wants the keys to be missing, and Open Responses
// wants them to be there.
var (
	nullUsage       = regexp.MustCompile(`,"usage":null`)
	nullDescription = regexp.MustCompile(`("format":\{)"description":null,`)
)

// known returns an answer without what the file is known to forget: that a response has no usage
// yet, that a text format has no description, and that an uploaded file may be for evals.
func known(body []byte) []byte {
	body = nullDescription.ReplaceAll(nullUsage.ReplaceAll(body, nil), []byte("$1"))
	return bytes.ReplaceAll(body, []byte(`"purpose":"evals"`), []byte(`"purpose":"user_data"`))
}

// base64Vector is a vector as OpenAI's SDKs ask for it. The file knows only lists of numbers.
var base64Vector = regexp.MustCompile(`"embedding": *"[A-Za-z0-9+/]+=*"`)

// judge says what is wrong with a JSON text by a schema.
func (op operation) judge(what string, schema *openapi3.SchemaRef, body []byte) []string {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return []string{fmt.Sprintf("the %s is no JSON: %.200q", what, body)}
	}
	if err := schema.Value.VisitJSON(v, openapi3.VisitAsResponse(), openapi3.MultiErrors()); err != nil {
		return []string{fmt.Sprintf("the %s is not as its schema says: %.600s in %.600s", what, err, body)}
	}
	return nil
}
