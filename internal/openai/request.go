package openai

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// request is what is read of a request. The rest of its body goes to the provider as it is.
type request struct {
	body   []byte
	model  string
	stream bool
	tier   string
}

// parse reads a request's body. deployment is the model that the address names; "": none.
func parse(body []byte, deployment string) (request, error) {
	if !jsoncheck.Valid(body) {
		return request{}, badRequest("", "", "We could not parse the JSON body of your request.")
	}
	all := gjson.ParseBytes(body)
	if !all.IsObject() {
		return request{}, badRequest("", "", "The body of the request must be a JSON object.")
	}
	req := request{body: body, model: deployment}
	if name := all.Get("model"); deployment == "" {
		if name.Type != gjson.String || name.Str == "" {
			return request{}, badRequest("model", "", "you must provide a model parameter")
		}
		req.model = name.Str
	}
	switch stream := all.Get("stream"); stream.Type {
	case gjson.True, gjson.False, gjson.Null:
		req.stream = stream.Bool()
	default:
		return request{}, badRequest("stream", "invalid_type", "Invalid type for 'stream': expected a boolean.")
	}
	switch tier := all.Get("service_tier"); tier.Type {
	case gjson.String, gjson.Null:
		req.tier = tier.Str
	default:
		return request{}, badRequest("service_tier", "invalid_type", "Invalid type for 'service_tier': expected a string.")
	}
	return req, nil
}

// Priorities of service tiers.
const (
	flexPriority     = 2
	priorityPriority = 8
)

func (r request) priority() int {
	switch r.tier {
	case "flex":
		return flexPriority
	case "priority", "fast":
		return priorityPriority
	}
	return forebay.DefaultPriority
}

// How long a call waits until it may be made. Most SDKs give up after ten minutes, and some after
// five without a byte. Libraries for Java and proxies do so after a minute.
const (
	mostPatience = 50 * time.Second
	flexPatience = 4 * time.Minute
)

// patience is how long a call may wait for quota: half of the time that its client has announced,
// within a bound.
func (r request) patience(h http.Header) time.Duration {
	most := mostPatience
	if r.tier == "flex" {
		most = flexPatience
	}
	for _, name := range []string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"} {
		if seconds, err := strconv.ParseFloat(h.Get(name), 64); err == nil && seconds > 0 && seconds < 1e6 {
			most = min(most, time.Duration(seconds*float64(time.Second))/2)
		}
	}
	return most
}
