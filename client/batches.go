package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forebayhq/forebay"
)

// batches is the part of Client about batches of OpenAI's API and their files.
type batches struct{ *endpoint }

// UploadBatchFile stores lines for a batch, as they come from r, and returns the id of the file.
// It is not repeated when it fails.
func (c *batches) UploadBatchFile(ctx context.Context, name string, r io.Reader) (id string, err error) {
	body, w := io.Pipe()
	defer body.Close()
	form := multipart.NewWriter(w)
	go func() {
		part, err := form.CreateFormFile("file", name)
		if err == nil {
			_, err = io.Copy(part, r)
		}
		if err == nil {
			err = form.WriteField("purpose", "batch")
		}
		if err == nil {
			err = form.Close()
		}
		w.CloseWithError(err)
	}()
	resp, err := c.try(ctx, request{method: http.MethodPost, path: path("files"), header: http.Header{"Content-Type": {form.FormDataContentType()}}}, body)
	if err != nil {
		return "", err
	}
	var file struct {
		ID string `json:"id"`
	}
	err = c.decode(ctx, resp, &file)
	return file.ID, err
}

// CreateBatch makes a batch of an uploaded file. Its lines are checked later.
func (c *batches) CreateBatch(ctx context.Context, n forebay.NewBatch) (b forebay.Batch, err error) {
	r := request{method: http.MethodPost, path: path("batches"), body: n, header: http.Header{"Idempotency-Key": {rand.Text()}}}
	err = c.call(ctx, r, &b)
	return b, err
}

// Batch returns a batch.
func (c *batches) Batch(ctx context.Context, id string) (forebay.Batch, error) {
	return c.batch(ctx, http.MethodGet, id)
}

// CancelBatch begins to cancel a batch. What was answered stays. For a batch that has ended
// otherwise the error is CodeConflict.
func (c *batches) CancelBatch(ctx context.Context, id string) (forebay.Batch, error) {
	return c.batch(ctx, http.MethodPost, id, "cancel")
}

func (c *batches) batch(ctx context.Context, method, id string, verb ...string) (b forebay.Batch, err error) {
	if err := checkID("batch", id); err != nil {
		return b, err
	}
	err = c.call(ctx, request{method: method, path: path(append([]string{"batches", id}, verb...)...)}, &b)
	return b, err
}

// WaitBatch returns the batch once it is over. If ctx ends first, it returns the last known state
// and the context's error.
func (c *batches) WaitBatch(ctx context.Context, id string) (forebay.Batch, error) {
	return waitUntil(ctx, func() (forebay.Batch, bool, error) {
		b, err := c.Batch(ctx, id)
		return b, b.Status.Terminal(), err
	})
}

// Batches returns all batches, newest first. It reads pages as they are needed.
func (c *batches) Batches(ctx context.Context, pageSize int) iter.Seq2[forebay.Batch, error] {
	return func(yield func(forebay.Batch, error) bool) {
		query := url.Values{"limit": {strconv.Itoa(min(max(pageSize, 1), maxBatchPage))}}
		for {
			var page struct {
				Data    []forebay.Batch `json:"data"`
				HasMore bool            `json:"has_more"`
			}
			if err := c.call(ctx, request{method: http.MethodGet, path: path("batches"), query: query}, &page); err != nil {
				yield(forebay.Batch{}, err)
				return
			}
			for _, b := range page.Data {
				if !yield(b, nil) {
					return
				}
				query.Set("after", b.ID)
			}
			if !page.HasMore || len(page.Data) == 0 {
				return
			}
		}
	}
}

// maxBatchPage is how many batches a page has at most.
const maxBatchPage = 100

// FileContent opens the content of a file, such as the output of a batch. The caller must close
// it.
func (c *batches) FileContent(ctx context.Context, id string) (io.ReadCloser, error) {
	if err := checkID("file", id); err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: path("files", id, "content"), header: http.Header{"Accept": {"*/*"}}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// openAIProblem takes over what an error in OpenAI's shape says.
func openAIProblem(data []byte, e *forebay.Error) {
	var p struct {
		Error *struct {
			Message string  `json:"message"`
			Param   *string `json:"param"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &p) != nil || p.Error == nil || p.Error.Message == "" {
		return
	}
	e.Message = p.Error.Message
	if p.Error.Param != nil {
		e.Field = *p.Error.Param
	}
}
