package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

// chatCall is a synchronous call of OpenAI's API.
var chatCall = []byte(`{"model":"chat","stream":true,"messages":[{"role":"user","content":"When is high water at the harbour tomorrow morning?"}]}`)

const (
	callRate   = "calls/s"
	firstToken = "first token p50 ms"
)

// passthrough measures synchronous calls of OpenAI's API beside the same calls of the model.
func passthrough(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Synchronous calls in the shape of OpenAI's API",
		text: `The same call of chat completions (an answer of eight streamed tokens), sent to the loopback model and to Forebay before
it: first one after the other, then from 64 keep-alive clients. The server has a process of its own; clients and model share the
other. A reverse proxy of Go's standard library, which does nothing else, stands in the same place. First token: until its event has
come, one call after the other, from a model that sends its tokens 5 ms apart.`,
		columns: []string{"p50 ms", "p99 ms", callRate, "p50 ms of 64", "p99 ms of 64", firstToken},
	}
	calls := b.size(8000, 2000)
	contenders := []contender{
		{"the model", func(ctx context.Context) (sample, error) { return directCalls(ctx, calls) }},
		{"Go's reverse proxy", func(ctx context.Context) (sample, error) { return proxiedCalls(ctx, calls) }},
		{"Forebay", func(ctx context.Context) (sample, error) { return forebayCalls(ctx, b, calls) }},
	}
	if b.liteLLM != "" {
		contenders = append(contenders, contender{"LiteLLM's proxy", func(ctx context.Context) (sample, error) { return liteLLMCalls(ctx, b, calls/10) }})
	}
	if err := t.takeTurns(ctx, b.rounds, contenders...); err != nil {
		return t, err
	}
	t.expect("milliseconds that Forebay adds to p50", t.median("Forebay", "p50 ms")-t.median("the model", "p50 ms"), "≤", 1)
	t.expect("milliseconds that Forebay adds to p99", t.median("Forebay", "p99 ms")-t.median("the model", "p99 ms"), "≤", 5)
	t.expect("milliseconds that Forebay adds to the first token", t.median("Forebay", firstToken)-t.median("the model", firstToken), "≤", 1)
	t.expect("Forebay's rate as a share of the model's", t.median("Forebay", callRate)/t.median("the model", callRate), "≥", 0.5)
	t.expect("Forebay's rate as a share of the proxy's", t.median("Forebay", callRate)/t.median("Go's reverse proxy", callRate), "≥", 0.5)
	return t, nil
}

func directCalls(ctx context.Context, calls int) (sample, error) {
	model, err := startModel(behaviour{})
	if err != nil {
		return nil, err
	}
	defer model.stop()
	c := newClient()
	defer c.CloseIdleConnections()
	return timedCalls(ctx, c, model, model.url+"/chat/completions", calls)
}

func proxiedCalls(ctx context.Context, calls int) (s sample, err error) {
	proxy, err := startService(ctx, nil, "proxy", behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.close()) }()
	return timedCalls(ctx, proxy.client, proxy.model, proxy.url+"/v1/chat/completions", calls)
}

func forebayCalls(ctx context.Context, b *bench, calls int) (s sample, err error) {
	f, err := startService(ctx, b, "forebay", behaviour{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	return timedCalls(ctx, f.client, f.model, f.url+"/v1/chat/completions", calls)
}

// timedCalls makes the call one after the other, then from all clients, and then with a model that
// sends its answers token by token.
func timedCalls(ctx context.Context, c client, model *cannedModel, url string, calls int) (sample, error) {
	call := func() error {
		_, err := c.post(ctx, url, "application/json", chatCall)
		return err
	}
	if _, err := produce(warmUp, call); err != nil {
		return nil, err
	}
	alone, err := produceFrom(1, calls/4, call)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	together, err := produce(calls, call)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	model.pause.Store(int64(5 * time.Millisecond))
	var firsts []time.Duration
	if _, err = produceFrom(1, calls/80, func() error {
		first, err := c.firstEvent(ctx, url, chatCall)
		firsts = append(firsts, first)
		return err
	}); err != nil {
		return nil, err
	}
	slices.Sort(alone)
	slices.Sort(together)
	slices.Sort(firsts)
	return sample{
		"p50 ms": percentile(alone, 0.5), "p99 ms": percentile(alone, 0.99), callRate: float64(calls) / took.Seconds(),
		"p50 ms of 64": percentile(together, 0.5), "p99 ms of 64": percentile(together, 0.99),
		firstToken: percentile(firsts, 0.5),
	}, nil
}
