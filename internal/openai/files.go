package openai

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/files"
)

// Files is what the API needs of [files.Service].
type Files interface {
	Create(ctx context.Context, tenant string, u *files.Upload, content io.Reader, rest func() error) (f files.File, existing bool, err error)
	File(ctx context.Context, tenant, id string) (files.File, error)
	Files(ctx context.Context, tenant string, q files.Query) (list []files.File, more bool, err error)
	Content(ctx context.Context, tenant, id string) (io.ReadCloser, files.File, error)
	Delete(ctx context.Context, tenant, id string) error
}

// fileObject is the schema OpenAIFile of OpenAI's OpenAPI file.
type fileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt int64  `json:"expires_at,omitempty"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
}

func fileView(f files.File) fileObject {
	o := fileObject{ID: f.ID, Object: "file", Bytes: f.Size, CreatedAt: f.CreatedAt.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
	if f.ExpiresAt != nil {
		o.ExpiresAt = f.ExpiresAt.Unix()
	}
	return o
}

// listObject is a page of a list. The next one comes after its last id.
type listObject[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

// deleted is the answer of a deletion.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// repeated reports whether an SDK says that it has sent the request before.
func repeated(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0
}

// Bounds of a form beside its file.
const (
	formBytes = 1 << 20 // all fields, the headers and boundaries
	maxField  = 4 << 10
	maxParts  = 100
)

// createFile stores the file of a form. Fields may come before or after the file.
func (a *API) createFile(r *api.SurfaceRequest) error {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return badRequest("", "", "The body must be a form of the type multipart/form-data with a boundary.")
	}
	key, err := transfer.IdempotencyKey(r.Header)
	if err != nil {
		return err
	}
	body, err := r.Upload(a.MaxFileBytes + formBytes)
	if err != nil {
		return err
	}
	defer body.Close()
	u := files.Upload{Key: key, Again: repeated(r.Header)}
	form := newFileForm(body, params["boundary"], &u)
	file, err := form.next()
	switch {
	case err != nil:
		return body.Problem(err)
	case file == nil:
		return badRequest("file", "", "'file' is a required property")
	}
	u.Name = file.FileName()
	f, _, err := a.Files.Create(r.Context(), r.Caller.Tenant, &u, formPart{file, form}, func() error {
		second, err := form.next()
		if err == nil && second != nil {
			err = badRequest("file", "", "There is more than one file. A request stores one.")
		}
		return err
	})
	if err != nil {
		return body.Problem(err)
	}
	return answer(r, fileView(f))
}

// fileForm reads the form of an upload.
type fileForm struct {
	form   *multipart.Reader
	body   io.Reader
	left   int64 // bytes that may be read beside the file
	upload *files.Upload
	parts  int
}

func newFileForm(body io.Reader, boundary string, u *files.Upload) *fileForm {
	f := &fileForm{body: body, left: formBytes, upload: u}
	f.form = multipart.NewReader(f, boundary)
	return f
}

// Read reads the body. Else a form could have headers of many megabytes, which are held in memory.
func (f *fileForm) Read(b []byte) (int, error) {
	if f.left <= 0 {
		return 0, errForm
	}
	n, err := f.body.Read(b)
	f.left -= int64(n)
	return n, err
}

var errForm = badRequest("", "", "The form of the request cannot be read.")

// formPart is the file of a form. Its errors are fit for clients.
type formPart struct {
	r    io.Reader
	form *fileForm
}

func (p formPart) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.form.left += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errForm
	}
	return n, err
}

// next reads fields up to a file or the end of the form.
func (f *fileForm) next() (file *multipart.Part, err error) {
	for {
		part, err := f.form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if f.parts++; err != nil || f.parts > maxParts {
			return nil, errForm
		}
		name := part.FormName()
		if name == "file" {
			return part, nil
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		if err != nil {
			return nil, errForm
		}
		if len(value) > maxField {
			return nil, badRequest(cut(name, 100), "", "The value of a field is too long.")
		}
		f.field(name, string(value))
	}
}

// field takes a field. Clients of other servers send fields that mean nothing here.
func (f *fileForm) field(name, value string) {
	switch name {
	case "purpose":
		f.upload.Purpose = value
	case "expires_after[anchor]", "expires_after.anchor":
		f.upload.Anchor = value
	case "expires_after[seconds]", "expires_after.seconds":
		f.upload.Seconds = value
	case "expires_after":
		o := gjson.Parse(value)
		f.upload.Anchor, f.upload.Seconds = cmp.Or(o.Get("anchor").String(), "?"), o.Get("seconds").Raw
	}
}

func (a *API) getFile(r *api.SurfaceRequest) error {
	f, err := a.Files.File(r.Context(), r.Caller.Tenant, r.PathValue("file"))
	if err != nil {
		return noSuch(err, "file", r.PathValue("file"))
	}
	return answer(r, fileView(f))
}

func (a *API) listFiles(r *api.SurfaceRequest) error {
	p, err := pageOf(r, files.MaxPage, files.MaxPage)
	if err != nil {
		return err
	}
	list, more, err := a.Files.Files(r.Context(), r.Caller.Tenant, files.Query{
		Purpose: r.URL.Query().Get("purpose"), After: p.after, Oldest: p.oldest, Limit: p.limit,
	})
	if err != nil {
		return err
	}
	o := listObject[fileObject]{Object: "list", Data: make([]fileObject, len(list)), HasMore: more}
	for i, f := range list {
		o.Data[i] = fileView(f)
	}
	if len(list) > 0 {
		o.FirstID, o.LastID = list[0].ID, list[len(list)-1].ID
	}
	return answer(r, o)
}

func (a *API) deleteFile(r *api.SurfaceRequest) error {
	id := r.PathValue("file")
	if err := a.Files.Delete(r.Context(), r.Caller.Tenant, id); err != nil {
		return noSuch(err, "file", id)
	}
	return answer(r, deleted{ID: id, Object: "file", Deleted: true})
}

// fileContent answers with the bytes of a file as they were uploaded.
func (a *API) fileContent(r *api.SurfaceRequest) error {
	id := r.PathValue("file")
	content, f, err := a.Files.Content(r.Context(), r.Caller.Tenant, id)
	if err != nil {
		return noSuch(err, "file", id)
	}
	defer content.Close()
	if err := r.Open(id); err != nil {
		return err
	}
	h := r.Writer.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	r.Writer.WriteHeader(http.StatusOK)
	_, err = io.CopyN(r.Writer, content, f.Size)
	return err
}

// noSuch is the error for a thing that the tenant does not have.
func noSuch(err error, what, id string) error {
	if forebay.CodeOf(err) != forebay.CodeNotFound {
		return err
	}
	return &failure{status: http.StatusNotFound, kind: typeInvalid, param: "id", message: "No such " + what + " object: " + cut(id, 100)}
}

// page is what the query of a list asks for.
type page struct {
	after  string
	limit  int
	oldest bool
}

// pageOf reads the query of a list.
func pageOf(r *api.SurfaceRequest, standard, most int) (p page, err error) {
	q := r.URL.Query()
	p = page{after: q.Get("after"), limit: standard}
	if text := q.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > most {
			return p, badRequest("limit", "invalid_value", "Invalid 'limit': expected an integer from 1 to "+strconv.Itoa(most)+".")
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		p.oldest = true
	default:
		return p, badRequest("order", "invalid_value", "Invalid 'order': expected 'asc' or 'desc'.")
	}
	return p, nil
}
