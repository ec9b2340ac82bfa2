package model

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
)

// pathModels is where a provider lists its models. OpenAI, Azure OpenAI ("Models - List") and
// Anthropic ("List models") have it, and charge nothing for it.
const pathModels = "models"

// maxModelList bounds the list that is read. OpenAI's has some 20 KB.
const maxModelList = 4 << 20

// KeyAnswer is what a provider says of its key without a call that costs something.
type KeyAnswer struct {
	// Said is false if the provider says nothing of the key: it has no list of models, or keeps
	// that from keys that may call.
	Said bool
	// Unlisted says that the whole list of models came, and has nothing like the name of the one
	// to call. It may be there all the same: lists lack aliases, and gateways list what they want.
	Unlisted bool
}

// KeyAsker is a provider that can be asked about its key without a call that costs something.
type KeyAsker interface {
	// AskKey returns an error if the key is refused, or if no answer came: that of Provider's calls.
	AskKey(ctx context.Context) (KeyAnswer, error)
}

// AskKey implements KeyAsker.
func (p *openAI) AskKey(ctx context.Context) (KeyAnswer, error) {
	if p.ofDeployment { // lists have models and no deployments
		return p.askKey(ctx, p.url(pathModels), "")
	}
	return p.askKey(ctx, p.url(pathModels), p.model)
}

// AskKey implements KeyAsker.
func (p *anthropic) AskKey(ctx context.Context) (KeyAnswer, error) {
	return p.askKey(ctx, strings.TrimSuffix(p.url, "messages")+pathModels, p.model)
}

func (e *endpoint) askKey(ctx context.Context, url, model string) (said KeyAnswer, err error) {
	status := 0
	err = e.post(ctx, outgoing{
		method: http.MethodGet, url: url, limits: func(RateLimits) {}, texts: func() []string { return nil },
		refused: func(code int, _ http.Header, _ []byte) { status = code },
	}, func(a answer) error {
		if model != "" {
			list, err := io.ReadAll(io.LimitReader(a.body, maxModelList))
			said.Unlisted = err == nil && !mayList(list, model)
		}
		return nil
	})
	t, ok := errors.AsType[*forebay.TaskError](err)
	refused := ok && t.Code == CodeUnauthorized && status != http.StatusForbidden // a key that may not list may still call
	if err != nil && status != 0 && !refused {
		return KeyAnswer{}, nil
	}
	said.Said = err == nil
	return said, err
}

// mayList reports whether a list of models has the name, or one that is close: with a date or a
// tag behind it, or a provider before it. A list that is not whole, or empty, may have any.
func mayList(list []byte, name string) bool {
	ids := gjson.GetBytes(list, "data.#.id").Array()
	if !gjson.ValidBytes(list) || len(ids) == 0 || gjson.GetBytes(list, "has_more").Bool() {
		return true
	}
	name = strings.TrimSuffix(strings.ToLower(name), "-latest")
	return slices.ContainsFunc(ids, func(r gjson.Result) bool {
		id := strings.ToLower(r.Str)
		return strings.Contains(id, name) || strings.HasSuffix(name, "/"+id)
	})
}
