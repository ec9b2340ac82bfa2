package api

import (
	"github.com/forebayhq/forebay/internal/api/transfer"
)

// smallBody is the limit of bodies without a job's input.
const smallBody = 1 << 20

// readBody reads a JSON body of at most limit bytes. A large body claims part of the memory that
// tenants share. release gives it back, and the body must not be kept after that.
func (a *API) readBody(c *call, limit int64) (data []byte, release func(), err error) {
	if err := transfer.CheckContentType(c.r.Header, transfer.JSON); err != nil {
		return nil, nil, err
	}
	return a.readAll(c, limit)
}

// readAll is readBody for a body of any type.
func (a *API) readAll(c *call, limit int64) (data []byte, release func(), err error) {
	if c.r.ContentLength > limit {
		return nil, nil, transfer.TooLarge("body", limit) // before anything of it is read
	}
	body := a.openBody(c, limit)
	defer body.Close()
	return body.All(c.r.Context(), a.memory, c.home, c.r.ContentLength)
}

// openUpload begins to read a body of any type.
func (a *API) openUpload(c *call, limit int64) (*transfer.Body, error) {
	if err := transfer.CheckEncoding(c.r.Header); err != nil {
		return nil, err
	}
	if c.r.ContentLength > limit {
		return nil, transfer.TooLarge("body", limit)
	}
	return a.openBody(c, limit), nil
}

// openBody begins to read a body. The caller must call Close at the end.
func (a *API) openBody(c *call, limit int64) *transfer.Body {
	return transfer.Open(a.draining, c.w.ResponseWriter, c.r, limit)
}
