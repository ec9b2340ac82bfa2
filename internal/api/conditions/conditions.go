// Package conditions says which operations of the API take conditions (RFC 9110, section 13.1). It
// reads these from requests, and describes them and the entity tags of answers. Transitions check
// them: see [forebay.Condition].
package conditions

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// taken marks an operation in its metadata.
const taken = "conditions"

// Take lets an operation take If-Match, and If-None-Match if it may create something. The
// transition that it leads to must check the condition of its context.
func Take(op huma.Operation, creates bool) huma.Operation {
	op.Metadata = map[string]any{taken: creates}
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

// Document describes the refusal of an operation that takes conditions.
func Document(op *huma.Operation, content map[string]*huma.MediaType) {
	if _, ok := op.Metadata[taken]; ok {
		op.Responses[strconv.Itoa(http.StatusPreconditionFailed)] = &huma.Response{
			Description: "`" + string(forebay.CodePreconditionFailed) + "`: what If-Match or If-None-Match demands is not so. Nothing was changed.", Content: content,
		}
	}
}

// Read returns the condition of a request. One that the operation cannot check is refused: the
// client relies on it.
func Read(op huma.Operation, header http.Header) (condition forebay.Condition, err error) {
	if op.Method == http.MethodGet {
		return condition, nil
	}
	ifMatch, ifNoneMatch := header.Values("If-Match"), header.Values("If-None-Match")
	creates, takes := op.Metadata[taken].(bool)
	switch {
	case !takes && len(ifMatch) > 0:
		return condition, refused("If-Match")
	case !creates && len(ifNoneMatch) > 0:
		return condition, refused("If-None-Match")
	}
	return forebay.ParseCondition(ifMatch, ifNoneMatch)
}

func refused(field string) error {
	return &forebay.Error{Code: forebay.CodeNotSupported, Field: field, Message: "this request takes no such condition; nothing was changed"}
}

// tagged is what has an entity tag.
type tagged interface{ EntityTag() string }

// SendTag sets the header ETag of an answer with that body.
func SendTag(header http.Header, body any) {
	if told, ok := body.(tagged); ok && told.EntityTag() != "" {
		header.Set("ETag", told.EntityTag())
	}
}

// DocumentTag describes the header ETag of a registered operation, if bodies of that type have
// entity tags.
func DocumentTag(registered *huma.Operation, body reflect.Type) {
	if !body.Implements(reflect.TypeFor[tagged]()) {
		return
	}
	for status, response := range registered.Responses {
		if strings.HasPrefix(status, "2") {
			if response.Headers == nil {
				response.Headers = map[string]*huma.Param{}
			}
			response.Headers["ETag"] = &huma.Param{Description: "entity tag of its settings, for If-Match", Schema: &huma.Schema{Type: huma.TypeString}}
		}
	}
}
