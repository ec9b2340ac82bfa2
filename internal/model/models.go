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

// KeyAnswer is what a provider says of a key that it need not be paid for.
type KeyAnswer int

const (
	KeyUnknown KeyAnswer = iota // it has no list of models, or keeps that from keys that may call
	KeyTaken                    // it lists its models
	KeyRefused                  // it knows no such key
)

// KeyAsker is a provider that can be asked about its key. The error is that of Provider's calls
// where no answer came.
type KeyAsker interface {
	AskKey(ctx context.Context) (KeyAnswer, error)
}

// AskKey implements KeyAsker.
func (p *openAI) AskKey(ctx context.Context) (KeyAnswer, error) {
	return p.askKey(ctx, p.url(pathModels))
}

// AskKey implements KeyAsker.
func (p *anthropic) AskKey(ctx context.Context) (KeyAnswer, error) {
	return p.askKey(ctx, strings.TrimSuffix(p.url, "messages")+pathModels)
}

func (e *endpoint) askKey(ctx context.Context, url string) (KeyAnswer, error) {
	status := 0
	err := e.post(ctx, outgoing{
		method: http.MethodGet, url: url, limits: func(RateLimits) {}, texts: func() []string { return nil },
		refused: func(code int, _ http.Header, _ []byte) { status = code },
	}, func(answer) error { return nil }) // the list itself is not read
	var denied *forebay.TaskError
	switch {
	case err == nil:
		return KeyTaken, nil
	case status == http.StatusUnauthorized, status == 0 && errors.As(err, &denied) && denied.Code == CodeUnauthorized: // Entra ID's refusal
		return KeyRefused, err
	case status != 0:
		return KeyUnknown, nil
	}
	return KeyUnknown, err
}
