// Package openai measures the API in OpenAI's shape: synchronous calls, beside other proxies, and
// batches.
package openai

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// chatCall is a synchronous call of OpenAI's API.
var chatCall = []byte(`{"model":"chat","stream":true,"messages":[{"role":"user","content":"When is high water at the harbour tomorrow morning?"}]}`)

const (
	callRate   = "calls/s"
	firstToken = "first token p50 ms"
)

// Passthrough measures synchronous calls of OpenAI's API beside the same calls of the model.
func Passthrough(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Synchronous calls in the shape of OpenAI's API",
		Text: `The same call of chat completions (an answer of eight streamed tokens), sent to the loopback model and to Forebay before
it: first one after the other, then from 64 keep-alive clients. The server has a process of its own; clients and model share the
other. A reverse proxy of Go's standard library, which does nothing else, stands in the same place. First token: until its event has
come, one call after the other, from a model that sends its tokens 5 ms apart.`,
		Columns: []string{"p50 ms", "p99 ms", callRate, "p50 ms of 64", "p99 ms of 64", firstToken},
	}
	calls := b.Size(8000, 2000)
	contenders := []measure.Contender{
		{Name: "the model", Round: func(ctx context.Context) (measure.Sample, error) { return directCalls(ctx, calls) }},
		{Name: "Go's reverse proxy", Round: func(ctx context.Context) (measure.Sample, error) { return proxiedCalls(ctx, calls) }},
		{Name: "Forebay", Round: func(ctx context.Context) (measure.Sample, error) { return forebayCalls(ctx, b, calls) }},
	}
	if b.LiteLLM != "" {
		contenders = append(contenders, measure.Contender{Name: "LiteLLM's proxy", Round: func(ctx context.Context) (measure.Sample, error) { return liteLLMCalls(ctx, b, calls/10) }})
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	t.Expect("milliseconds that Forebay adds to p50", t.Median("Forebay", "p50 ms")-t.Median("the model", "p50 ms"), "≤", 1)
	t.Expect("milliseconds that Forebay adds to p99", t.Median("Forebay", "p99 ms")-t.Median("the model", "p99 ms"), "≤", 5)
	t.Expect("milliseconds that Forebay adds to the first token", t.Median("Forebay", firstToken)-t.Median("the model", firstToken), "≤", 1)
	t.Expect("Forebay's rate as a share of the model's", t.Median("Forebay", callRate)/t.Median("the model", callRate), "≥", 0.5)
	t.Expect("Forebay's rate as a share of the proxy's", t.Median("Forebay", callRate)/t.Median("Go's reverse proxy", callRate), "≥", 0.5)
	return t, nil
}

func directCalls(ctx context.Context, calls int) (measure.Sample, error) {
	model, err := serving.StartModel(serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer model.Stop()
	c := serving.NewClient()
	defer c.CloseIdleConnections()
	return timedCalls(ctx, c, model, model.URL+"/chat/completions", calls)
}

func proxiedCalls(ctx context.Context, calls int) (s measure.Sample, err error) {
	proxy, err := serving.StartService(ctx, nil, "proxy", serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	return timedCalls(ctx, proxy.Client, proxy.Model, proxy.URL+"/v1/chat/completions", calls)
}

func forebayCalls(ctx context.Context, b *measure.Bench, calls int) (s measure.Sample, err error) {
	f, err := serving.StartService(ctx, b, "forebay", serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return timedCalls(ctx, f.Client, f.Model, f.URL+"/v1/chat/completions", calls)
}

// timedCalls makes the call one after the other, then from all clients, and then with a model that
// sends its answers token by token.
func timedCalls(ctx context.Context, c serving.Client, model *serving.CannedModel, url string, calls int) (measure.Sample, error) {
	call := func() error {
		_, err := c.PostBody(ctx, url, "application/json", chatCall)
		return err
	}
	if _, err := measure.Produce(serving.WarmUp, call); err != nil {
		return nil, err
	}
	alone, err := measure.ProduceFrom(1, calls/4, call)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	together, err := measure.Produce(calls, call)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	model.Pause.Store(int64(5 * time.Millisecond))
	var firsts []time.Duration
	if _, err = measure.ProduceFrom(1, calls/80, func() error {
		first, err := c.FirstEvent(ctx, url, chatCall)
		firsts = append(firsts, first)
		return err
	}); err != nil {
		return nil, err
	}
	slices.Sort(alone)
	slices.Sort(together)
	slices.Sort(firsts)
	return measure.Sample{
		"p50 ms": measure.Percentile(alone, 0.5), "p99 ms": measure.Percentile(alone, 0.99), callRate: float64(calls) / took.Seconds(),
		"p50 ms of 64": measure.Percentile(together, 0.5), "p99 ms of 64": measure.Percentile(together, 0.99),
		firstToken: measure.Percentile(firsts, 0.5),
	}, nil
}
