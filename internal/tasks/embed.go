package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

const (
	maxEmbedInputs = 2048
	maxDimensions  = 8192
)

// embedder is a task that turns texts into vectors.
type embedder struct {
	models  Models
	model   string
	timeout time.Duration
}

func (e embedder) check(input json.RawMessage) error {
	_, err := parseEmbed(input)
	return err
}

// parseEmbed reads a string, a list of strings, or an object with either and the dimensions.
func parseEmbed(input json.RawMessage) (model.EmbedRequest, error) {
	var req model.EmbedRequest
	in := &object{path: "input"}
	name := "input"
	switch kindOf(input) {
	case "an object":
		in = readObject("input", input, "input", "dimensions")
		req.Dimensions = in.integer("dimensions", maxDimensions)
		if _, ok := in.has("input"); !ok {
			in.fail("input", "is missing")
		}
	case "a string", "a list":
		// Read the input like a field of an object. Its name does not appear in errors.
		in = &object{values: map[string]json.RawMessage{"input": input}}
	default:
		in.err = forebay.Invalid("input", "must be a string, a list of strings or an object, not %s", kindOf(input))
	}
	if raw, _ := in.has(name); kindOf(raw) == "a string" {
		req.Inputs = []string{in.text(name)}
	} else {
		req.Inputs = in.texts(name, 1, maxEmbedInputs)
	}
	for i, s := range req.Inputs {
		if blank(s) {
			if len(req.Inputs) > 1 {
				name = fmt.Sprintf("input[%d]", i)
			}
			in.fail(name, "must not be empty")
			break
		}
	}
	return req, in.err
}

func (e embedder) run(ctx context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	req, err := parseEmbed(call.Input)
	if err != nil {
		return forebay.TaskResult{}, invalidInput(err)
	}
	req.CostLeft, req.TokensLeft = call.CostLeft, call.TokensLeft
	var resp model.EmbedResponse
	var deployment *model.Deployment
	err = underTimeout(ctx, e.timeout, func(ctx context.Context) (err error) {
		resp, deployment, err = e.models.Embed(ctx, e.model, req)
		return err
	})
	var result forebay.TaskResult
	deployment.Charge(&result, resp.Usage, 0, 0)
	if err != nil {
		return result, err
	}
	if len(resp.Vectors) != len(req.Inputs) {
		return result, malformed(fmt.Sprintf("the answer has %d vectors for %d inputs", len(resp.Vectors), len(req.Inputs)))
	}
	dimensions := len(resp.Vectors[0])
	for _, v := range resp.Vectors {
		if len(v) == 0 || len(v) != dimensions {
			return result, malformed("the vectors of the answer are not of one length")
		}
	}
	result.Output, err = forebay.EncodeJSON(struct {
		Embeddings [][]float32 `json:"embeddings"`
		Dimensions int         `json:"dimensions"`
		Model      string      `json:"model"`
	}{resp.Vectors, dimensions, resp.Model})
	if err != nil { // JSON has no NaN and no infinity
		return result, malformed("the vectors of the answer are no finite numbers")
	}
	return result, nil
}
