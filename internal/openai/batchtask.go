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
	"github.com/forebayhq/forebay/internal/responses"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// BatchEndpoints are the endpoints that lines of batches may call.
func BatchEndpoints() []string {
	list := make([]string, len(batchEndpoints))
	for i, endpoint := range batchEndpoints {
		list[i] = "/v1/" + endpoint
	}
	return list
}

var batchEndpoints = append([]string{endpointResponses}, endpoints...)

// BatchTask names the task of lines of batches. No task of a configuration has a slash.
func BatchTask(endpoint, model string) string { return "batch:" + endpoint + ":" + model }

// BatchTasks returns the tasks of lines of batches for these models. mixed reports whether some
// deployments of a model speak Responses and others do not.
func BatchTasks(forwarder Forwarder, answers *responses.Service, models []string, mixed func(model string) bool) []forebay.Task {
	var tasks []forebay.Task
	for _, name := range models {
		for _, endpoint := range batchEndpoints {
			t := batchLine{forwarder, answers, endpoint, name, endpoint == endpointResponses && mixed(name)}
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
	answers   *responses.Service // of /responses
	endpoint  string
	model     string
	mixed     bool // lines of /responses differ in which deployments can answer them
}

func (t batchLine) estimate(input json.RawMessage, size int64) forebay.CallEstimate {
	e := forebay.CallEstimate{PromptTokens: size / forebay.BytesPerToken}
	if input != nil {
		e = model.EstimateForward(t.endpoint, input)
	}
	e.AsOpenAI = true
	if t.mixed && input != nil {
		asked, err := bridge.Parse(input, t.model)
		e.AsResponses = err == nil && asked.Beyond() != nil
	}
	return e
}

// run makes the call. Its result is the response as the output of the batch has it. An answer
// that refuses the line for what it asks is a result too.
func (t batchLine) run(ctx context.Context, call forebay.TaskCall) (result forebay.TaskResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, resp, deployment, err := t.call(ctx, call)
	deployment.Charge(&result, resp.Usage, resp.CachedTokens, resp.CacheWrites)
	var refused *bridge.Error
	switch {
	case err == nil:
		result.Output, err = lineResponse(http.StatusOK, resp.Header, body)
		return result, err
	case errors.As(err, &refused):
		result.Output, err = lineResponse(http.StatusBadRequest, nil, badRequest(refused.Param, refused.Code, refused.Message).json())
		return result, err
	case refusesLine(resp, err):
		result.Output, err = lineResponse(resp.Status, resp.Header, resp.Body)
		return result, err
	}
	return result, err
}

// call makes the call, and returns its answer.
func (t batchLine) call(ctx context.Context, call forebay.TaskCall) (answer []byte, resp model.ForwardResponse, deployment *model.Deployment, err error) {
	if t.endpoint == endpointResponses {
		return t.answers.Answer(ctx, t.forwarder, responses.Call{
			Tenant: call.Tenant, Model: t.model, Body: call.Input, CostLeft: call.CostLeft, TokensLeft: call.TokensLeft,
		})
	}
	resp, deployment, err = t.forwarder.Forward(ctx, t.model, model.ForwardRequest{
		Path: t.endpoint, Body: call.Input, CostLeft: call.CostLeft, TokensLeft: call.TokensLeft,
		Begin: func(int, http.Header) error { return nil },
		Write: func(b []byte) error { answer = append(answer, b...); return nil },
	})
	return answer, resp, deployment, err
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
