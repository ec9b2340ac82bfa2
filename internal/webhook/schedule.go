package webhook

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
)

// Schedule is how long a message waits after each try that failed. There are ten tries, the last
// some three days (75 h 35 min 5 s) after the first. Each wait varies by a tenth, so that an
// endpoint that recovers does not get everything at once. The schedule is the example of the
// specification.
var Schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// MaxTries is how often a message is delivered before it goes to the dead letters.
const MaxTries = 10

// maxRetryAfter is the longest wait that an endpoint may ask for.
const maxRetryAfter = 24 * time.Hour

// Dead-letter reasons of messages that were not delivered, beside forebay.ReasonMaxDeliveries.
const ReasonEndpointGone = "EndpointGone" // the endpoint answered 410

// decide returns what becomes of a message after its try.
func decide(count int, a Attempt) Outcome {
	o := Outcome{Attempt: a, Hold: hold(a)}
	switch {
	case a.Failure == "":
		o.Verb = Complete
	case a.Failure == FailedStopped:
		o.Verb = Release
	case a.Status == http.StatusGone:
		o.Verb, o.Disable = GiveUp, true
		o.Reason, o.Detail = ReasonEndpointGone, "the endpoint answered 410 Gone and was disabled"
	case count >= MaxTries:
		o.Verb, o.Reason = GiveUp, forebay.ReasonMaxDeliveries
		o.Detail = fmt.Sprintf("tried %d times; the last: %s", count, a.describe())
	default:
		o.Verb, o.Delay = Retry, delay(count, a.RetryAfter)
	}
	return o
}

// hold is how long all deliveries to an endpoint wait because it is overloaded.
func hold(a Attempt) time.Duration {
	const tooManyRequests = 5 * time.Second // where the answer does not say
	switch a.Status {
	case http.StatusTooManyRequests:
		return max(a.RetryAfter, tooManyRequests)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return a.RetryAfter
	}
	return 0
}

// delay is the wait after try number count. An endpoint can make it longer, not shorter: it would
// use up the tries before it has recovered.
func delay(count int, asked time.Duration) time.Duration {
	const jitter = 0.1
	planned := Schedule[max(0, min(count, len(Schedule))-1)]
	planned = time.Duration(float64(planned) * (1 - jitter + 2*jitter*rand.Float64()))
	return max(planned, min(asked, maxRetryAfter))
}

// describe says what went wrong, without addresses: the endpoint's owner reads it.
func (a Attempt) describe() string {
	switch a.Failure {
	case "":
		return fmt.Sprintf("delivered, status %d", a.Status)
	case FailedStatus:
		return fmt.Sprintf("status %d", a.Status)
	case FailedTimeout:
		return "no answer in time"
	case FailedAddress:
		return "the host has no address to which webhooks are sent"
	case FailedTLS:
		return "no trusted TLS connection"
	case FailedConfig:
		return "the URL or the secrets cannot be used"
	case FailedStopped:
		return "the server stopped"
	}
	return "the connection failed"
}

// String returns the result of the try, without addresses.
func (a Attempt) String() string { return a.describe() }
