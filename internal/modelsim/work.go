package modelsim

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay/internal/model"
)

// Limits of the model.
const (
	DefaultModel           = "sim-1"
	DefaultDimensions      = 256 // of embeddings
	MaxDimensions          = 4096
	DefaultMaxOutputTokens = 1024
	// contextBytes is how much of a document is read: the context window. Usage counts all of it.
	contextBytes = 256 << 10
)

// complete answers a chat request. The same request gets the same answer. finish is "stop", or
// "length" where the request's limit cut the text. An error says that the schema is invalid.
func complete(req model.ChatRequest) (text, finish string, err error) {
	a, err := understand(req)
	if err != nil {
		return "", "", err
	}
	text = a.answer()
	for _, stop := range req.Stop {
		if stop != "" {
			text, _, _ = strings.Cut(text, stop)
		}
	}
	if short, cut := cutTokens(text, req.MaxOutputTokens); cut {
		return short, "length", nil
	}
	return text, "stop", nil
}

// answer does the work and writes the result in the form that is asked for.
func (a ask) answer() string {
	if a.schema != nil {
		return a.structured()
	}
	switch a.work {
	case workSummarize:
		return a.write("summary", summarize(a.document, a.maxTokens, a.maxWords, a.focus))
	case workClassify:
		if len(a.labels) > 0 {
			return a.write("label", classify(a.document, a.labels)[0].label)
		}
		return a.write("label", classify(a.document, commonLabels)[0].label)
	case workSentiment:
		mood := sentimentOf(a.document)
		if a.json {
			return encode(map[string]any{"sentiment": mood.label, "score": mood.score})
		}
		return mood.label
	case workExtract:
		found := entities(a.document)
		if a.json {
			return fit(found, a.maxTokens, func(some []entity) string { return encode(map[string]any{"entities": some}) })
		}
		return fit(found, a.maxTokens, func(some []entity) string {
			lines := make([]string, len(some))
			for i, e := range some {
				lines[i] = e.Type + ": " + e.Text
			}
			return strings.Join(lines, "\n")
		})
	}
	return a.write("reply", reply(a.document, a.maxTokens))
}

func (a ask) write(field, text string) string {
	if a.json {
		return encode(map[string]any{field: text})
	}
	return text
}

// fit writes as many of the items as fit into max tokens.
func fit[T any](items []T, max int, write func([]T) string) string {
	text := write(items)
	for len(items) > 0 && countTokens(text) > max {
		items = items[:len(items)/2]
		text = write(items)
	}
	return text
}

// encode writes JSON; invalid UTF-8 becomes U+FFFD.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only strings, finite numbers, lists and maps come here
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// embedAll returns a unit vector of that many dimensions for each input.
func embedAll(ctx context.Context, inputs []string, dimensions int) ([][]float32, error) {
	vectors := make([][]float32, len(inputs))
	for i, input := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		vectors[i] = embed(clip(input, contextBytes), dimensions)
	}
	return vectors, nil
}
