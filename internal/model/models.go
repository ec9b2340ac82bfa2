package model

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/forebayhq/forebay"
)

// pathModels is where a provider lists its models. OpenAI, Azure OpenAI ("Models - List") and
// Anthropic ("List models") have it, and charge nothing for it.
const pathModels = "models"

// KeyAsker is a provider that can be asked about its key without a call that costs something.
type KeyAsker interface {
	// AskKey returns an error if the key is refused, or if no answer came: that of Provider's calls.
	// said is false if the provider says nothing of the key: it has no list of models, or keeps that
	// from keys that may call.
	AskKey(ctx context.Context) (said bool, err error)
}

// AskKey implements KeyAsker.
func (p *openAI) AskKey(ctx context.Context) (said bool, err error) {
	return p.askKey(ctx, p.url(pathModels))
}

// AskKey implements KeyAsker.
func (p *anthropic) AskKey(ctx context.Context) (said bool, err error) {
	return p.askKey(ctx, strings.TrimSuffix(p.url, "messages")+pathModels)
}

func (e *endpoint) askKey(ctx context.Context, url string) (said bool, err error) {
	status := 0
	err = e.post(ctx, outgoing{
		method: http.MethodGet, url: url, limits: func(RateLimits) {}, texts: func() []string { return nil },
		refused: func(code int, _ http.Header, _ []byte) { status = code },
	}, func(answer) error { return nil }) // the list itself is not read
	t, ok := errors.AsType[*forebay.TaskError](err)
	refused := ok && t.Code == CodeUnauthorized && status != http.StatusForbidden // a key that may not list may still call
	if err != nil && status != 0 && !refused {
		return false, nil
	}
	return err == nil, err
}
