package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/api"
)

// ofAnthropic reports whether a request is one of Anthropic's API at an address that OpenAI's API
// has too. Anthropic's API needs the header.
func ofAnthropic(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	first, _, _ := strings.Cut(rest, "/")
	return ok && (first == "models" || first == "files") && r.Header.Get("Anthropic-Version") != ""
}

// orAnthropic returns what answers at a path of OpenAI's API. A request of Anthropic's API gets
// that API's answer: to files, that they are not served.
func (a *API) orAnthropic(path string, handle func(*api.SurfaceRequest) error) func(*api.SurfaceRequest) error {
	other := func(*api.SurfaceRequest) error { return notServed("Anthropic's API of files") }
	switch path {
	case "/v1/models":
		other = a.listModelInfos
	case "/v1/models/{model...}":
		other = a.getModelInfo
	}
	first, second := answering(handle, (*failure).write), answering(other, (*failure).writeMessages)
	return func(r *api.SurfaceRequest) error {
		if ofAnthropic(r.Request) {
			return second(r)
		}
		return first(r)
	}
}

// messagesKey is the key of a request of Anthropic's API: x-api-key, or Authorization: Bearer.
func messagesKey(r *http.Request) (string, error) {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key, nil
	}
	return api.Bearer(r.Header)
}

// modelInfo is a model as Anthropic's API shows it. What is null is not known here.
type modelInfo struct {
	Type           string     `json:"type"`
	ID             string     `json:"id"`
	DisplayName    string     `json:"display_name"`
	CreatedAt      time.Time  `json:"created_at"`
	Lifecycle      string     `json:"lifecycle"`
	DeprecatedAt   *time.Time `json:"deprecated_at"`
	RetiresAt      *time.Time `json:"retires_at"`
	Line           *string    `json:"line"`
	Capabilities   *struct{}  `json:"capabilities"`
	MaxInputTokens *int64     `json:"max_input_tokens"`
	MaxTokens      *int64     `json:"max_tokens"`
}

// modelInfos lists the models that take requests of Anthropic's API.
func (a *API) modelInfos() []modelInfo {
	list := []modelInfo{}
	for _, m := range a.Models() {
		if _, forwards := a.ServesMessages(m.Name); forwards {
			list = append(list, modelInfo{Type: "model", ID: m.Name, DisplayName: m.Name, CreatedAt: m.Created.UTC().Truncate(time.Second), Lifecycle: "active"})
		}
	}
	return list
}

// Pages of models, as Anthropic's API has them.
const (
	defaultModels = 20
	maxModels     = 1000
)

// listModelInfos answers GET /v1/models of Anthropic's API.
func (a *API) listModelInfos(r *api.SurfaceRequest) error {
	q, limit := r.URL.Query(), defaultModels
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxModels {
			return badRequest("limit", "", "expected an integer from 1 to "+strconv.Itoa(maxModels))
		}
	}
	models := a.modelInfos()
	at := func(name string) (int, error) {
		i := slices.IndexFunc(models, func(m modelInfo) bool { return m.ID == q.Get(name) })
		if i < 0 {
			return 0, badRequest(name, "", "there is no model `"+cut(q.Get(name), 100)+"`")
		}
		return i, nil
	}
	list := struct {
		Data    []modelInfo `json:"data"`
		FirstID *string     `json:"first_id"`
		LastID  *string     `json:"last_id"`
		HasMore bool        `json:"has_more"`
	}{}
	if q.Get("before_id") != "" {
		i, err := at("before_id")
		if err != nil {
			return err
		}
		list.Data, list.HasMore = models[max(i-limit, 0):i], i > limit
	} else {
		if q.Get("after_id") != "" {
			i, err := at("after_id")
			if err != nil {
				return err
			}
			models = models[i+1:]
		}
		list.Data, list.HasMore = models[:min(limit, len(models))], len(models) > limit
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return answer(r, list)
}

// getModelInfo answers GET /v1/models/{model} of Anthropic's API.
func (a *API) getModelInfo(r *api.SurfaceRequest) error {
	name := r.PathValue("model")
	for _, m := range a.modelInfos() {
		if m.ID == name {
			return answer(r, m)
		}
	}
	return unknownModel(name)
}
