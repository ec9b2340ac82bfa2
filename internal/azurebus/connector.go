package azurebus

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/retry"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Outcomes of messages.
const (
	Accepted     = "accepted"      // a source's message: its job is on disk
	DeadLettered = "dead_lettered" // it can never become a job, or is too large to be sent
	Abandoned    = "abandoned"     // a source's message: something went wrong, and it comes again
	Sent         = "sent"          // a sink's event: the service has it
)

// Observer hears what happens to messages. Its functions are called concurrently.
type Observer struct {
	Messages func(connector, outcome string, n int)
	Failed   func(connector, code string)
}

func (o Observer) messages(connector, outcome string, n int) {
	if o.Messages != nil && n > 0 {
		o.Messages(connector, outcome, n)
	}
}

// backoff spreads what many connectors do after the same failure.
var backoff = retry.Policy{Backoff: retry.Exponential, First: time.Second, Coefficient: 2, Max: 30 * time.Second}

// shortest bounds a pause from below, as a random one may be nothing.
const shortest = 250 * time.Millisecond

func pause(n int) time.Duration { return shortest + backoff.Delay(n, rand.Float64) }

// connector runs a pass again and again.
type connector struct {
	name    string
	log     *slog.Logger
	observe Observer
}

// healthy is how long a pass runs before its failure counts as a first one.
const healthy = time.Minute

// repeat calls pass until ctx ends, with a pause after each failure.
func (c connector) repeat(ctx context.Context, pass func(context.Context) error) {
	for failures, last := 0, ""; ctx.Err() == nil; {
		began := time.Now()
		err := panics.Run(c.log, "a connector", func() error { return pass(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures, last = 0, ""
			continue
		}
		if time.Since(began) > healthy {
			failures, last = 0, ""
		}
		failures++
		code := codeOf(err)
		if c.observe.Failed != nil {
			c.observe.Failed(c.name, code)
		}
		if code != last {
			last = code
			c.log.Warn("the connector to Azure Service Bus pauses and tries again", slog.String("code", code), slog.String("error", short(err)))
		}
		if sleep.For(ctx, pause(failures)) != nil {
			return
		}
	}
}

// maxErrorText bounds a service's text in the log.
const maxErrorText = 400

func short(err error) string {
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text
}
