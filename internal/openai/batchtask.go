package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/model"
)

// BatchEndpoints are the endpoints that lines of batches may call.
func BatchEndpoints() []string {
	list := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		list[i] = "/v1/" + endpoint
	}
	return list
}

// BatchTask names the task of lines of batches. No task of a configuration has a slash.
func BatchTask(endpoint, model string) string { return "batch:" + endpoint + ":" + model }

// BatchTasks returns the tasks of lines of batches for these models.
func BatchTasks(forwarder Forwarder, models []string) []forebay.Task {
	var tasks []forebay.Task
	for _, name := range models {
		for _, endpoint := range endpoints {
			t := batchLine{forwarder, endpoint, name}
			tasks = append(tasks, forebay.Task{
				Name: BatchTask("/v1/"+endpoint, name), Description: "a line of a batch: OpenAI's POST /v1/" + endpoint, Model: name,
				Estimate: t.estimate, Run: t.run,
			})
		}
	}
	return tasks
}

// batchLine is the task of lines of batches for an endpoint's calls of a model. The input of a job
// is the body of its line.
type batchLine struct {
	forwarder Forwarder
	endpoint  string
	model     string
}

func (t batchLine) estimate(input json.RawMessage, size int64) forebay.CallEstimate {
	e := forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken}
	if input != nil {
		e = model.EstimateForward(t.endpoint, input)
	}
	e.AsOpenAI = true
	return e
}

// run makes the call. Its result is the response as the output of the batch has it. An answer
// that refuses the line for what it asks is a result too.
func (t batchLine) run(ctx context.Context, call forebay.TaskCall) (result forebay.TaskResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body bytes.Buffer
	var header http.Header
	resp, deployment, err := t.forwarder.Forward(ctx, t.model, model.ForwardRequest{
		Path: t.endpoint, Body: call.Input, CostLeft: call.CostLeft, TokensLeft: call.TokensLeft,
		Begin: func(_ int, h http.Header) error { header = h; return nil },
		Write: func(b []byte) error { body.Write(b); return nil },
	})
	result.Usage = resp.Usage
	if deployment != nil {
		result.Deployment, result.Cost = deployment.Name, deployment.Price.Cost(resp.Usage)
	}
	switch {
	case err == nil:
		result.Output, err = lineResponse(http.StatusOK, header, body.Bytes())
		return result, err
	case refusesLine(resp, err):
		result.Output, err = lineResponse(resp.Status, resp.Header, resp.Body)
		return result, err
	}
	return result, err
}

// ownFault are the statuses of answers that blame the request itself.
var ownFault = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}

// refusesLine reports whether the provider has refused what the line asks for. Others would hear
// the same.
func refusesLine(resp model.ForwardResponse, err error) bool {
	var t *forebay.TaskError
	return errors.As(err, &t) && t.Class == forebay.ClassPermanent && slices.Contains(ownFault, resp.Status) && !resp.Passed
}

// lineResponse is the response of a line: JSON without line breaks.
func lineResponse(status int, header http.Header, body []byte) (json.RawMessage, error) {
	request := header.Get("X-Request-Id")
	if !forebay.ValidText(request, maxRequestID) {
		request = ids.New("req_")
	}
	id, err := forebay.EncodeJSON(request)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`{"status_code":` + strconv.Itoa(status) + `,"request_id":` + string(id) + `,"body":`)
	begun := b.Len()
	valid := json.Compact(&b, body) == nil && gjson.ValidBytes(body)
	if status >= http.StatusBadRequest && (!valid || b.Len() >= forebay.InlineBytes) {
		b.Truncate(begun)
		f := failure{kind: typeInvalid, code: "bad_request", message: strings.ToValidUTF8(string(body[:min(len(body), forebay.MaxErrorMessageBytes)]), "")}
		b.Write(f.json())
	} else if !valid {
		return nil, &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeMalformedResponse, Message: "the answer is not JSON"}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// maxRequestID is the longest id of a provider that is passed on.
const maxRequestID = 128
