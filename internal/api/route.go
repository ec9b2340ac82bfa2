package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/turns"
)

// newHuma returns the registrar of routes and of their documentation. huma's own pages are off,
// because its documentation page loads scripts from a third party.
func newHuma(a *API) huma.API {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	// Money is an integer in Go and a decimal number in JSON.
	registry.RegisterTypeAlias(reflect.TypeFor[forebay.Money](), reflect.TypeFor[float64]())
	return humago.New(a.mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Forebay", Version: a.version, Description: description},
			Servers: []*huma.Server{{URL: "/"}}, // the one that the document was read from
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key": {Type: "http", Scheme: "bearer", Description: "An API key, fb_…"},
				},
			},
		},
		Formats: map[string]huma.Format{
			"application/json": {Marshal: writeJSON, Unmarshal: huma.DefaultJSONFormat.Unmarshal},
			"json":             {Marshal: writeJSON, Unmarshal: huma.DefaultJSONFormat.Unmarshal},
		},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{transform},
	})
}

// none is the input of a route without parameters, or the output of one without a body.
type none struct{}

// answer is an output with only a body.
type answer[T any] struct {
	Body T
}

func answerOf[T any](v T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{v}, nil
}

// stream is an output that writes itself.
type stream struct {
	Body func(huma.Context)
}

const tooManyDescription = "`" + string(forebay.CodeRateLimited) + "`: requests come faster than the tenant's limits allow. `" +
	string(forebay.CodeTenantLimit) + "`: the tenant has as much as it may have; with Retry-After if there will be room by itself. " +
	"The detail names the limit. Nothing was changed."

// route registers a handler for callers with the scope. What operators read is open to
// forebay.ScopeView as well, see scopesOf. Any error it returns becomes a problem.
func route[I, O any](a *API, scope forebay.Scope, op huma.Operation, handle func(context.Context, *call, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	content := map[string]*huma.MediaType{problemType: {Schema: a.schema(reflect.TypeFor[problem]())}}
	op.Responses["default"] = &huma.Response{Description: "A problem (RFC 9457)", Content: content}
	op.Responses[strconv.Itoa(http.StatusTooManyRequests)] = &huma.Response{
		Description: tooManyDescription, Content: content,
		Headers: map[string]*huma.Param{"Retry-After": {Description: "in seconds", Schema: &huma.Schema{Type: huma.TypeInteger}}},
	}
	conditions.Document(&op, content)
	scopes := scopesOf(op.Method, scope)
	if scope != open {
		op.Security = []map[string][]string{{"key": {}}}
		if isDurable(op.Path) {
			a.documentKeys(&op)
		}
		op.Description += "\n\nScope: " + scopes.documented() + "."
		documentTenant(&op)
	}
	op.RejectUnknownQueryParameters = op.RejectUnknownQueryParameters || !isDurable(op.Path)
	op.Middlewares = append(op.Middlewares, a.admit(op.Method+" "+op.Path, scopes))
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		c := callFrom(ctx)
		condition, err := conditions.Read(op, c.r.Header)
		if err != nil {
			return nil, a.problem(ctx, c, err)
		}
		out, err := handle(c.acting(forebay.WithCondition(ctx, condition)), c, in)
		if ended := keyEnded(ctx); ended != nil && (err != nil || c.waited) {
			err = ended
		}
		if err != nil {
			return nil, a.problem(ctx, c, err)
		}
		if told, ok := any(out).(interface{ body() any }); ok {
			conditions.SendTag(c.w.Header(), told.body())
		}
		return out, nil
	})
	if body, ok := reflect.TypeFor[O]().FieldByName("Body"); ok && !op.Hidden {
		conditions.DocumentTag(registered(a.huma, op), body.Type)
	}
}

func (a *answer[T]) body() any    { return a.Body }
func (p *putOutput[T]) body() any { return p.Body }

// registered returns the description of a registered operation.
func registered(api huma.API, op huma.Operation) *huma.Operation {
	item := api.OpenAPI().Paths[op.Path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
	}[op.Method]
}

// maxNoBody is how much of an unexpected body is read, to see whether it is empty or {}.
const maxNoBody = 1 << 10

// routeNoBody registers a handler without a body, for a method that usually has one. A body with
// content is refused rather than ignored.
func routeNoBody[I, O any](a *API, scope forebay.Scope, op huma.Operation, handle func(context.Context, *call, *I) (*O, error)) {
	route(a, scope, op, func(ctx context.Context, c *call, in *I) (*O, error) {
		if err := a.noBody(c); err != nil {
			return nil, err
		}
		return handle(ctx, c, in)
	})
}

func (a *API) noBody(c *call) error {
	if c.r.ContentLength == 0 {
		return nil
	}
	body := a.openBody(c, transfer.FreeBytes)
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxNoBody+1))
	if err != nil {
		return body.Problem(err)
	}
	if len(data) <= maxNoBody {
		if data = bytes.TrimSpace(data); len(data) == 0 {
			return nil
		}
		if inner, ok := bytes.CutPrefix(data, []byte("{")); ok && string(bytes.TrimSpace(inner)) == "}" {
			return nil
		}
	}
	return forebay.Invalid("body", "is not taken here; send none, or {}")
}

// routeBody registers a handler that takes a JSON object of at most limit bytes as its body.
func routeBody[I, B, O any](a *API, scope forebay.Scope, op huma.Operation, limit int64, handle func(context.Context, *call, *I, B) (*O, error)) {
	route(a, scope, op, func(ctx context.Context, c *call, in *I) (*O, error) {
		data, release, err := a.readBody(c, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		var body B
		if stopped := turns.Parse(ctx, len(data), func() { body, err = decode.Object[B](data) }); stopped != nil {
			return nil, stopped
		}
		if err != nil {
			return nil, err
		}
		return handle(ctx, c, in, body)
	})
	a.documentBody(op, transfer.JSON[0], a.schema(reflect.TypeFor[B]()))
}

func (a *API) schema(t reflect.Type) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// documentBody describes the body of a registered operation. huma learns of it afterwards, because
// it would otherwise read and validate the body itself.
func (a *API) documentBody(op huma.Operation, mediaType string, schema *huma.Schema) {
	registered(a.huma, op).RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{mediaType: {Schema: schema}},
	}
}

// page wraps a complete list as a page.
func page[T any](items []T) forebay.Page[T] {
	if items == nil {
		items = []T{}
	}
	return forebay.Page[T]{Items: items}
}
