package transfer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// What the server reads of a body that it has already answered. Some clients, such as those of
// .NET, send everything before they read. They lose the answer if the connection closes before.
const (
	restBytes   = 64 << 20
	restTimeout = 10 * time.Second
	restPause   = 2 * time.Second // between two parts
)

// Incoming is the body of a request. It knows whether it was read to its end. A nil *Incoming is
// no body.
type Incoming struct {
	io.ReadCloser
	left    int64 // -1: not known
	over    bool
	failed  bool // it cannot be read any more
	waits   bool // the client sends it once it is asked to
	streams bool // the protocol ends it alone
}

// NewIncoming returns the body of a request that has one.
func NewIncoming(r *http.Request) *Incoming {
	return &Incoming{ReadCloser: r.Body, left: r.ContentLength, waits: r.Header.Get("Expect") != "", streams: r.ProtoMajor != 1}
}

func (b *Incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	b.over = b.over || errors.Is(err, io.EOF) || b.left == 0
	b.failed = b.failed || err != nil
	return n, err
}

// Over reports whether nothing is left to read.
func (b *Incoming) Over() bool { return b == nil || b.over }

// ReadRest sends the answer and reads what is left of the body, within bounds. It does not when
// the server stops, which the context says.
func (b *Incoming) ReadRest(draining context.Context, control *http.ResponseController) {
	if b.Over() || b.streams {
		return
	}
	control.SetReadDeadline(time.Now().Add(restPause))
	if b.failed || b.waits || b.left > restBytes || control.Flush() != nil {
		return
	}
	defer context.AfterFunc(draining, func() { control.SetReadDeadline(time.Now()) })()
	buffer := make([]byte, 32<<10)
	end := time.Now().Add(restTimeout)
	for read := 0; read < restBytes && draining.Err() == nil && time.Now().Before(end); {
		control.SetReadDeadline(time.Now().Add(restPause))
		n, err := b.Read(buffer)
		if err != nil {
			return
		}
		read += n
	}
}
