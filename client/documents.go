package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// documents is the part of Client about documents and search.
type documents struct{ *endpoint }

// AddDocument stores a document or replaces its content. The server then processes it. existing
// reports that the document already had this content.
func (c *documents) AddDocument(ctx context.Context, n forebay.NewDocument, content []byte) (d forebay.Document, existing bool, err error) {
	query := url.Values{}
	set(query, "id", n.ID)
	set(query, "name", n.Name)
	for key, value := range n.Metadata {
		query.Add("metadata", key+"="+value)
	}
	contentType := n.ContentType
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	if content == nil {
		content = []byte{}
	}
	return c.addDocument(ctx, request{method: http.MethodPost, path: path("documents"), query: query, raw: content, header: http.Header{"Content-Type": {contentType}}})
}

// AddDocumentByURL is AddDocument for an object in a blob storage that the server's configuration
// names.
func (c *documents) AddDocumentByURL(ctx context.Context, n forebay.DocumentByURL) (d forebay.Document, existing bool, err error) {
	return c.addDocument(ctx, request{method: http.MethodPost, path: path("documents"), body: n})
}

func (c *documents) addDocument(ctx context.Context, r request) (d forebay.Document, existing bool, err error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return d, false, err
	}
	err = c.decode(ctx, resp, &d)
	return d, resp.StatusCode == http.StatusOK, err
}

// Document returns a document.
func (c *documents) Document(ctx context.Context, id string) (forebay.Document, error) {
	return c.document(ctx, request{method: http.MethodGet}, id, "")
}

// WaitDocument returns the document when its processing is over. If ctx ends first, it returns the
// last known document and the context's error.
func (c *documents) WaitDocument(ctx context.Context, id string) (forebay.Document, error) {
	return waitUntil(ctx, func() (forebay.Document, bool, error) {
		d, err := c.document(ctx, request{method: http.MethodGet, query: url.Values{"wait": {longPoll.String()}}}, id, "")
		return d, d.Status != forebay.DocumentProcessing, err
	})
}

// RetryDocument repeats the failed parts of a document's processing. If nothing has failed, the
// error is CodeConflict.
func (c *documents) RetryDocument(ctx context.Context, id string) (forebay.Document, error) {
	return c.document(ctx, request{method: http.MethodPost, once: true}, id, "retry")
}

// DeleteDocument removes a document and everything that was made from it.
func (c *documents) DeleteDocument(ctx context.Context, id string) error {
	if err := checkID("document", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("documents", id), once: true}, nil)
}

// Documents returns the documents that the filter selects, newest first. It reads pages as they
// are needed. f.Limit is the page size.
func (c *documents) Documents(ctx context.Context, f forebay.DocumentFilter) iter.Seq2[forebay.Document, error] {
	query := url.Values{}
	setPage(query, f.CreatedAfter, f.CreatedBefore, f.Limit, f.Cursor)
	return pages[forebay.Document](ctx, c.endpoint, path("documents"), query)
}

// Search returns the best matching chunks of ready documents.
func (c *documents) Search(ctx context.Context, req forebay.SearchRequest) (results forebay.SearchResults, err error) {
	return results, c.call(ctx, request{method: http.MethodPost, path: path("search"), body: req}, &results)
}

func (c *documents) document(ctx context.Context, r request, id, action string) (d forebay.Document, err error) {
	if err := checkID("document", id); err != nil {
		return d, err
	}
	parts := []string{"documents", id}
	if action != "" {
		parts = append(parts, action)
	}
	r.path = path(parts...)
	return d, c.call(ctx, r, &d)
}
