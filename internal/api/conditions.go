package api

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// takesConditions marks an operation in its metadata.
const takesConditions = "conditions"

// conditional lets an operation take If-Match, and If-None-Match if it may create something
// (RFC 9110, section 13.1). The transition that it leads to must check the condition of its
// context.
func conditional(op huma.Operation, creates bool) huma.Operation {
	op.Metadata = map[string]any{takesConditions: creates}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: "If-Match", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "entity tags, as `etag` or the header ETag tell them, or `*`: nothing is changed unless the present state has one of them",
	})
	if creates {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "If-None-Match", In: "header", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{forebay.AnyETag}},
			Description: "`*`: nothing is changed if there is one already",
		})
	}
	return op
}

// documentConditions describes the refusal of a conditional operation.
func documentConditions(op *huma.Operation, content map[string]*huma.MediaType) {
	if _, ok := op.Metadata[takesConditions]; ok {
		op.Responses[strconv.Itoa(http.StatusPreconditionFailed)] = &huma.Response{
			Description: "`" + string(forebay.CodePreconditionFailed) + "`: what If-Match or If-None-Match demands is not so. Nothing was changed.", Content: content,
		}
	}
}

// conditioned returns a context with the condition of a request. A condition that the operation
// cannot check is refused: the client relies on it.
func (c *call) conditioned(ctx context.Context, op huma.Operation) (context.Context, error) {
	if op.Method == http.MethodGet { // a page of this process may have one in its context
		return forebay.WithCondition(ctx, forebay.Condition{}), nil
	}
	ifMatch, ifNoneMatch := c.r.Header.Values("If-Match"), c.r.Header.Values("If-None-Match")
	creates, takes := op.Metadata[takesConditions].(bool)
	switch {
	case !takes && len(ifMatch) > 0:
		return ctx, errCondition("If-Match")
	case !creates && len(ifNoneMatch) > 0:
		return ctx, errCondition("If-None-Match")
	}
	condition, err := forebay.ParseCondition(ifMatch, ifNoneMatch)
	return forebay.WithCondition(ctx, condition), err
}

func errCondition(field string) error {
	return &forebay.Error{Code: forebay.CodeNotSupported, Field: field, Message: "this request takes no such condition; nothing was changed"}
}

// entityTagged is what has an entity tag.
type entityTagged interface{ EntityTag() string }

func (a *answer[T]) entity() any    { return a.Body }
func (a *putOutput[T]) entity() any { return a.Body }

// tag sends the entity tag of what an answer tells.
func (c *call) tag(answer any) {
	told, ok := answer.(interface{ entity() any })
	if !ok {
		return
	}
	if tagged, ok := told.entity().(entityTagged); ok && tagged.EntityTag() != "" {
		c.w.Header().Set("ETag", tagged.EntityTag())
	}
}

// documentTag describes the header ETag of a registered operation whose answer has one.
func (a *API) documentTag(op huma.Operation, output reflect.Type) {
	body, ok := output.FieldByName("Body")
	if !ok || !body.Type.Implements(reflect.TypeFor[entityTagged]()) || !reflect.PointerTo(output).Implements(reflect.TypeFor[interface{ entity() any }]()) {
		return
	}
	for status, response := range a.registered(op).Responses {
		if strings.HasPrefix(status, "2") {
			if response.Headers == nil {
				response.Headers = map[string]*huma.Param{}
			}
			response.Headers["ETag"] = &huma.Param{Description: "entity tag of its settings, for If-Match", Schema: &huma.Schema{Type: huma.TypeString}}
		}
	}
}

// registered returns the description of a registered operation.
func (a *API) registered(op huma.Operation) *huma.Operation {
	item := a.huma.OpenAPI().Paths[op.Path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
	}[op.Method]
}
