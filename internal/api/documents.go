package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/documents"
)

// Documents is what the API needs of [documents.Service].
type Documents interface {
	Add(ctx context.Context, tenant string, n forebay.NewDocument, content io.Reader, then func(*forebay.NewDocument) error) (d forebay.Document, existing bool, err error)
	AddURL(ctx context.Context, tenant string, n forebay.DocumentByURL) (d forebay.Document, existing bool, err error)
	DocumentReader
	DocumentOperator
}

// DocumentReader reads and searches a tenant's documents.
type DocumentReader interface {
	Document(ctx context.Context, tenant, id string) (forebay.Document, error)
	Documents(ctx context.Context, tenant string, f forebay.DocumentFilter) (forebay.Page[forebay.Document], error)
	Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Document, error)
	Search(ctx context.Context, tenant string, req forebay.SearchRequest) (forebay.SearchResults, error)
}

// DocumentOperator changes documents.
type DocumentOperator interface {
	Delete(ctx context.Context, tenant, id string) error
	Retry(ctx context.Context, tenant, id string) (forebay.Document, error)
}

var _ Documents = (*documents.Service)(nil)

// DocumentPath names a document.
type DocumentPath struct {
	Document string `path:"document" doc:"id of the document"`
}

type addDocumentInput struct {
	ID       string   `query:"id" maxLength:"128" doc:"default: made from the content"`
	Name     string   `query:"name" maxLength:"255" doc:"of the file; its extension says what it is if the content type does not"`
	Metadata []string `query:"metadata,explode" doc:"key=value, once for each entry"`
}

type addDocumentOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     forebay.Document
}

type getDocumentInput struct {
	DocumentPath
	Wait string `query:"wait" doc:"how long to wait for the end of its pipeline, such as 30s; at most 60s"`
}

type listDocumentsInput struct {
	CreatedInput
	PageInput
}

func documentOperation(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"documents"}, Summary: summary}
}

// routeDocuments registers documents and the search over them.
func (a *API) routeDocuments() {
	if a.documents == nil {
		return
	}
	a.routeAddDocument()
	route(a, forebay.ScopeRead, documentOperation("list-documents", http.MethodGet, "/v1/documents", "List documents, newest first"),
		func(ctx context.Context, c *call, in *listDocumentsInput) (*answer[forebay.Page[forebay.Document]], error) {
			f := forebay.DocumentFilter{Limit: in.Limit, Cursor: in.Cursor}
			f.CreatedAfter, f.CreatedBefore = in.bounds()
			return pageAnswer(a.documents.Documents(ctx, c.caller.Tenant, f))
		})
	route(a, forebay.ScopeRead, documentOperation("get-document", http.MethodGet, "/v1/documents/{document}", "Get a document"),
		func(ctx context.Context, c *call, in *getDocumentInput) (*answer[forebay.Document], error) {
			wait, err := forebay.ParseWait(in.Wait)
			if err != nil {
				return nil, err
			}
			if wait == 0 {
				return answerOf(a.documents.Document(ctx, c.caller.Tenant, in.Document))
			}
			waiting, leave, err := a.waiting(ctx, c)
			if err != nil {
				return nil, err
			}
			defer leave()
			return answerOf(a.documents.Wait(waiting, c.caller.Tenant, in.Document, wait))
		})
	remove := conditions.Take(documentOperation("delete-document", http.MethodDelete, "/v1/documents/{document}", "Delete a document, with all that was made of it"), false)
	remove.DefaultStatus = http.StatusNoContent
	route(a, forebay.ScopeOperate, remove, func(ctx context.Context, c *call, in *DocumentPath) (*none, error) {
		return &none{}, a.documents.Delete(ctx, c.caller.Tenant, in.Document)
	})
	retry := documentOperation("retry-document", http.MethodPost, "/v1/documents/{document}/retry", "Do again what failed of a document's pipeline")
	retry.DefaultStatus = http.StatusAccepted
	routeNoBody(a, forebay.ScopeSubmit, retry, func(ctx context.Context, c *call, in *DocumentPath) (*answer[forebay.Document], error) {
		return answerOf(a.documents.Retry(ctx, c.caller.Tenant, in.Document))
	})
	search := documentOperation("search", http.MethodPost, "/v1/search", "Search the documents that are ready")
	search.Description = "A search by meaning embeds the query, which is a job of its own and needs the scope `submit` as well, unless it brings a vector."
	routeBody(a, forebay.ScopeRead, search, smallBody, func(ctx context.Context, c *call, _ *none, req forebay.SearchRequest) (*answer[forebay.SearchResults], error) {
		if req.Mode != forebay.SearchKeyword && len(req.Vector) == 0 && !c.caller.May(forebay.ScopeSubmit) {
			return nil, forebay.Errorf(forebay.CodeForbidden, "embedding the query needs a key with the scope %q", forebay.ScopeSubmit)
		}
		err := c.needOpen()
		if err == nil {
			err = c.opens(ctx, "documents")
		}
		if err != nil {
			return nil, err
		}
		return answerOf(a.documents.Search(ctx, c.caller.Tenant, req))
	})
}

func (a *API) routeAddDocument() {
	op := documentOperation("add-document", http.MethodPost, "/v1/documents", "Add a document, or give it other content")
	op.Description = "The body is the document itself; or a multipart/form-data with a part `file` and fields `id`, `name` and `metadata` (JSON); " +
		"or JSON with the `url` of an object in a configured blob storage. The same content under the same id is stored once. " +
		"Other content under an id replaces what is there as soon as it is ready."
	op.DefaultStatus = http.StatusAccepted
	route(a, forebay.ScopeSubmit, op, func(ctx context.Context, c *call, in *addDocumentInput) (*addDocumentOutput, error) {
		d, existing, err := a.addDocument(ctx, c, in)
		if err != nil {
			return nil, err
		}
		out := &addDocumentOutput{Status: http.StatusAccepted, Location: d.Links.Self, Body: d}
		if existing {
			out.Status = http.StatusOK
		}
		return out, nil
	})
	a.documentBody(op, "application/json", a.schema(reflect.TypeFor[forebay.DocumentByURL]()))
	content := a.huma.OpenAPI().Paths[op.Path].Post.RequestBody.Content
	for _, mediaType := range []string{"text/plain", "text/markdown", "text/html", "application/pdf", "multipart/form-data"} {
		content[mediaType] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
	}
}

func (a *API) addDocument(ctx context.Context, c *call, in *addDocumentInput) (d forebay.Document, existing bool, err error) {
	n := forebay.NewDocument{ID: in.ID, Name: in.Name, ContentType: c.r.Header.Get("Content-Type")}
	if n.Metadata, err = pairs(in.Metadata); err != nil {
		return d, false, err
	}
	mediaType, params, _ := mime.ParseMediaType(n.ContentType)
	switch mediaType {
	case "application/json":
		data, release, err := a.readBody(c, smallBody)
		if err != nil {
			return d, false, err
		}
		defer release()
		byURL, err := decode.Object[forebay.DocumentByURL](data)
		if err != nil {
			return d, false, err
		}
		if in.ID != "" || in.Name != "" || in.Metadata != nil {
			return d, false, forebay.Invalid("query", "takes nothing beside a JSON body")
		}
		return a.documents.AddURL(ctx, c.caller.Tenant, byURL)
	case "multipart/form-data":
		return a.addForm(ctx, c, n, params["boundary"])
	}
	body, err := a.openUpload(c, a.maxDocument)
	if err != nil {
		return d, false, err
	}
	defer body.Close()
	d, existing, err = a.documents.Add(ctx, c.caller.Tenant, n, body, nil)
	return d, existing, body.Problem(err)
}

// addForm adds the document of a form. Fields may come before or after the file.
func (a *API) addForm(ctx context.Context, c *call, n forebay.NewDocument, boundary string) (d forebay.Document, existing bool, err error) {
	if boundary == "" {
		return d, false, forebay.Invalid("body", "is a form without a boundary in its content type")
	}
	body, err := a.openUpload(c, a.maxDocument+smallBody)
	if err != nil {
		return d, false, err
	}
	defer body.Close()
	form := multipart.NewReader(body, boundary)
	file, err := readFields(form, &n)
	switch {
	case err != nil:
		return d, false, body.Problem(err)
	case file == nil:
		return d, false, forebay.Invalid("file", "is required: a part with the document")
	}
	n.ContentType = file.Header.Get("Content-Type")
	d, existing, err = a.documents.Add(ctx, c.caller.Tenant, n, formPart{file}, func(n *forebay.NewDocument) error {
		second, err := readFields(form, n)
		if err == nil && second != nil {
			err = forebay.Invalid("file", "is there twice; a form holds one document")
		}
		n.Name = cmp.Or(n.Name, file.FileName())
		return err
	})
	return d, existing, body.Problem(err)
}

// pairs reads metadata from a query.
func pairs(list []string) (map[string]string, error) {
	var metadata map[string]string
	for _, entry := range list {
		key, value, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, forebay.Invalid("metadata", "must be key=value")
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[key] = value
	}
	return metadata, nil
}

var errForm = forebay.Invalid("body", "is no form that can be read")

// formPart is a part of a form. Its errors are fit for callers.
type formPart struct{ r io.Reader }

func (p formPart) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errForm
	}
	return n, err
}

// readFields reads fields in any order, up to a file or the end of the form.
func readFields(form *multipart.Reader, n *forebay.NewDocument) (file *multipart.Part, err error) {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, errForm
		}
		name := part.FormName()
		if name == "file" {
			return part, nil
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		switch {
		case err != nil:
			return nil, errForm
		case len(value) > maxField:
			return nil, transfer.TooLarge(decode.Shorten(name), maxField)
		}
		switch name {
		case "id":
			n.ID = string(value)
		case "name":
			n.Name = string(value)
		case "metadata":
			metadata, err := decode.Object[struct {
				Metadata map[string]string `json:"metadata"`
			}](append(append([]byte(`{"metadata":`), value...), '}'))
			if err != nil {
				return nil, err
			}
			n.Metadata = metadata.Metadata
		default:
			return nil, &forebay.Error{Code: forebay.CodeUnknownField, Field: decode.Shorten(name), Message: "is not a known field; known are file, id, metadata, name"}
		}
	}
}

// maxField is the maximum size of a form field.
const maxField = 128 << 10
