package openai

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses"
)

// Jobs is what the API needs of jobs.
type Jobs interface {
	SubmitWatched(ctx context.Context, tenant string, req forebay.SubmitRequest) (job forebay.Job, changes <-chan struct{}, stop func(), err error)
	Get(ctx context.Context, tenant, id string) (forebay.Job, error)
	Cancel(ctx context.Context, tenant, id string) (forebay.Job, error)
}

// Options makes an API.
type Options struct {
	Jobs      Jobs
	Calls     *Calls
	Responses *responses.Service
	// Models returns the models of the configuration in force, by name.
	Models func() []Model
	// Serves reports whether there is a model of that name, and whether a deployment of it can be
	// called for that need.
	Serves func(model string, need forebay.CallEstimate) (known, can bool)
	// ServesMessages reports whether there is a model of that name, and whether a deployment of it
	// takes Anthropic's requests as they are.
	ServesMessages func(model string) (known, forwards bool)
	// CountTokens has a deployment of a model count the tokens of a request of Anthropic's API. The
	// body of the response is that of any answer. An error without a call is a
	// *forebay.TaskError, which says what holds back all deployments.
	CountTokens func(ctx context.Context, model string, body []byte, header http.Header) (model.ForwardResponse, error)
	// Spent returns for how long the budgets of a waiting job surely have no room for it. 0: they
	// may have at any time.
	Spent func(ctx context.Context, job string) (time.Duration, error)
	// Queue is where synchronous calls wait. No other process takes jobs of it.
	Queue   string
	MaxBody int64 // bytes of a request
	// MemoryBytes is what payloads may take. Conversations on WebSockets have half as much besides.
	MemoryBytes int64
	// KeepBodies is up to how many bytes the request and the answer of a synchronous call are kept as
	// the result of its job. 0: they are not.
	KeepBodies int64

	Files        Files
	Batches      Batches
	MaxFileBytes int64 // of one file
}

// Model is a logical model of the configuration.
type Model struct {
	Name    string
	OwnedBy string    // the providers that serve it
	Created time.Time // since when this server knows it
}

// API is the interface of OpenAI's API. It implements [api.Surface].
type API struct {
	Options
	conversations *conversations
}

// New returns the interface.
func New(o Options) *API { return &API{o, newConversations(o.MemoryBytes)} }

// roots are the addresses under which all routes are: OpenAI's, and those of Azure's v1 API and
// older API. The query of the last has an api-version.
var roots = []string{"/v1/", "/openai/v1/", "/openai/"}

// owned are the first parts of paths below /v1/ that are OpenAI's. Forebay's own are others.
var owned = map[string]bool{
	"assistants": true, "audio": true, "batches": true, "chat": true, "chatkit": true, "completions": true,
	"containers": true, "content_provenance_checks": true, "conversations": true, "embeddings": true, "evals": true,
	"files": true, "fine_tuning": true, "images": true, "models": true, "moderations": true, "organization": true,
	"projects": true, "realtime": true, "responses": true, "skills": true, "threads": true, "uploads": true,
	"vector_stores": true, "videos": true,
}

// Owns implements [api.Surface].
func (a *API) Owns(path string) bool {
	if strings.HasPrefix(path, "/openai/") {
		return true
	}
	rest, ok := strings.CutPrefix(path, "/v1/")
	first, _, _ := strings.Cut(rest, "/")
	return ok && owned[first]
}

// Key implements [api.Surface]. A key comes as Authorization: Bearer, or as api-key.
func (a *API) Key(r *http.Request) (string, error) {
	if ofAnthropic(r) {
		return messagesKey(r)
	}
	if key := apiKey(r.Header); key != "" {
		return key, nil
	}
	return api.Bearer(r.Header)
}

// apiKey returns the header api-key. Where clients of Azure.AI.Inference for .NET share options,
// each adds its key once more, and HTTP joins them by commas.
func apiKey(h http.Header) string {
	said := strings.Join(h.Values("Api-Key"), ",")
	key, _, _ := strings.Cut(said, ",")
	for again := range strings.SplitSeq(said, ",") {
		if strings.TrimSpace(again) != strings.TrimSpace(key) {
			return said
		}
	}
	return strings.TrimSpace(key)
}

// endpoints are the synchronous endpoints, relative to the root. What of them works depends on the
// provider.
var endpoints = []string{"chat/completions", "completions", "embeddings", "moderations"}

// endpointResponses is the endpoint whose calls are translated where a provider does not know it.
const endpointResponses = "responses"

// Routes implements [api.Surface].
func (a *API) Routes() []api.SurfaceRoute {
	var routes []api.SurfaceRoute
	add := func(scope forebay.Scope, method, path string, handle func(*api.SurfaceRequest) error) {
		routes = append(routes, api.SurfaceRoute{Method: method, Path: path, Scope: scope, Handle: a.orAnthropic(path, handle)})
	}
	for _, root := range roots {
		for _, endpoint := range endpoints {
			call := func(r *api.SurfaceRequest) error { return a.call(r, endpoint) }
			add(forebay.ScopeSubmit, http.MethodPost, root+endpoint, call)
			if root != "/v1/" {
				add(forebay.ScopeSubmit, http.MethodPost, root+"deployments/{deployment}/"+endpoint, call)
			}
		}
		a.responseRoutes(root, add)
		routes = append(routes, api.SurfaceRoute{Method: http.MethodGet, Path: root + "responses", Scope: forebay.ScopeRead, Or: forebay.ScopeSubmit, Handle: answering(a.listResponses, (*failure).write)})
		add(forebay.ScopeSubmit, http.MethodPost, root+"files", a.createFile)
		add(forebay.ScopeRead, http.MethodGet, root+"files", a.listFiles)
		add(forebay.ScopeRead, http.MethodGet, root+"files/{file}", a.getFile)
		add(forebay.ScopeRead, http.MethodGet, root+"files/{file}/content", a.fileContent)
		add(forebay.ScopeSubmit, http.MethodDelete, root+"files/{file}", a.deleteFile)
		add(forebay.ScopeSubmit, http.MethodPost, root+"batches", a.createBatch)
		add(forebay.ScopeRead, http.MethodGet, root+"batches", a.listBatches)
		add(forebay.ScopeRead, http.MethodGet, root+"batches/{batch}", a.getBatch)
		add(forebay.ScopeSubmit, http.MethodPost, root+"batches/{batch}/cancel", a.cancelBatch)
		if root != "/v1/" { // Azure's client for Node.js creates batches here if it was given a deployment
			add(forebay.ScopeSubmit, http.MethodPost, root+"deployments/{deployment}/batches", a.createBatch)
		}
		add(forebay.ScopeRead, http.MethodGet, root+"models", a.listModels)
		add(forebay.ScopeRead, http.MethodGet, root+"models/{model...}", a.getModel)
	}
	return routes
}

// answering answers with the failures that a handler returns.
func answering(handle func(*api.SurfaceRequest) error, write func(*failure, http.ResponseWriter)) func(*api.SurfaceRequest) error {
	return func(r *api.SurfaceRequest) error {
		err := handle(r)
		if f, ok := err.(*failure); ok { //nolint:errorlint // handlers return it as it is
			write(f, r.Writer)
			return nil
		}
		return err
	}
}
