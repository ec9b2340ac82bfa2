package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/forebayhq/forebay"
)

// AddDocument stores a document, or gives it other content; its pipeline goes on by itself. existing tells
// that the document had this very content already.
func (c *Client) AddDocument(ctx context.Context, n forebay.NewDocument, content []byte) (d forebay.Document, existing bool, err error) {
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

// AddDocumentByURL is AddDocument for an object in a blob storage that the server's configuration names.
func (c *Client) AddDocumentByURL(ctx context.Context, n forebay.DocumentByURL) (d forebay.Document, existing bool, err error) {
	return c.addDocument(ctx, request{method: http.MethodPost, path: path("documents"), body: n})
}

func (c *Client) addDocument(ctx context.Context, r request) (d forebay.Document, existing bool, err error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return d, false, err
	}
	err = c.decode(ctx, resp, &d)
	return d, resp.StatusCode == http.StatusOK, err
}

// Document returns a document.
func (c *Client) Document(ctx context.Context, id string) (forebay.Document, error) {
	return c.document(ctx, http.MethodGet, id, "", nil)
}

// WaitDocument returns the document once it is no longer being processed. It waits for as long as ctx lives;
// when that ends it returns the document as last seen and the context's error.
func (c *Client) WaitDocument(ctx context.Context, id string) (forebay.Document, error) {
	return waitUntil(ctx, func() (forebay.Document, bool, error) {
		d, err := c.document(ctx, http.MethodGet, id, "", url.Values{"wait": {longPoll.String()}})
		return d, d.Status != forebay.DocumentProcessing, err
	})
}

// RetryDocument has what failed of a document's pipeline done again. One of which nothing has failed is
// CodeConflict.
func (c *Client) RetryDocument(ctx context.Context, id string) (forebay.Document, error) {
	return c.document(ctx, http.MethodPost, id, "retry", nil)
}

// DeleteDocument removes a document with all that was made of it.
func (c *Client) DeleteDocument(ctx context.Context, id string) error {
	if err := checkID("document", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("documents", id)}, nil)
}

// Documents returns the documents the filter selects, newest first, reading page after page as they are asked for.
// f.Limit is the size of a page.
func (c *Client) Documents(ctx context.Context, f forebay.DocumentFilter) iter.Seq2[forebay.Document, error] {
	query := url.Values{}
	setPage(query, f.CreatedAfter, f.CreatedBefore, f.Limit, f.Cursor)
	return pages[forebay.Document](ctx, c, path("documents"), query)
}

// Search returns the chunks that fit best, of documents that are ready.
func (c *Client) Search(ctx context.Context, req forebay.SearchRequest) (results forebay.SearchResults, err error) {
	return results, c.call(ctx, request{method: http.MethodPost, path: path("search"), body: req}, &results)
}

func (c *Client) document(ctx context.Context, method, id, action string, query url.Values) (d forebay.Document, err error) {
	if err := checkID("document", id); err != nil {
		return d, err
	}
	parts := []string{"documents", id}
	if action != "" {
		parts = append(parts, action)
	}
	return d, c.call(ctx, request{method: method, path: path(parts...), query: query}, &d)
}
