package openai

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// translation stands between a client and a provider that get different things. It serves one
// attempt.
type translation interface {
	// choose returns what a provider of the dialect is asked for.
	choose(d model.Dialect) (path string, body []byte, err error)
	// write returns what the client gets for a part of the provider's answer.
	write(part []byte) ([]byte, error)
	// end returns the rest of what the client gets, once the provider's answer is complete.
	end(ctx context.Context, resp model.ForwardResponse) ([]byte, error)
	// fail returns the end of a stream that has begun and broken.
	fail(f *failure) []byte
}

// translated makes a call through a translation. Until the client has a byte, it can be made
// again.
func (p *pending) translated(ctx context.Context, req *model.ForwardRequest, resp *model.ForwardResponse, forward func() error) error {
	x := p.translate()
	p.mu.Lock()
	p.latest = x
	p.mu.Unlock()
	var broken error // of the translation
	req.Choose, req.WantUsage, req.Again = x.choose, true, true
	kind := "application/json"
	if p.stream {
		kind = "text/event-stream; charset=utf-8"
	}
	req.Begin = func(_ int, header http.Header) error {
		header = header.Clone()
		header.Set("Content-Type", kind)
		return p.answer(http.StatusOK, header)
	}
	req.Write = func(part []byte) error {
		out, err := x.write(part)
		if err != nil {
			broken = err
			return err
		}
		return p.writeSome(out)
	}
	req.Flush = func() error {
		if _, begun, _, _, _ := p.state(); !begun || !p.stream {
			return nil
		}
		return p.send()
	}
	err := forward()
	if broken == nil && err == nil {
		var rest []byte
		if rest, broken = x.end(ctx, *resp); broken == nil {
			err = p.writeSome(rest)
		}
	}
	if broken != nil {
		err = translationError(broken)
	}
	if _, begun, _, _, _ := p.state(); begun && err != nil {
		t := *forebay.AsTaskError(err)
		t.Class, t.RetryAfter = forebay.ClassPermanent, 0
		return &t
	}
	return err
}

// writeSome is write for what may be empty.
func (p *pending) writeSome(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return p.write(b)
}

// translationError is the error of a call whose answer cannot be translated.
func translationError(err error) error {
	switch {
	case errors.Is(err, bridge.ErrNoSummary): // it was paid for, and would hardly end otherwise
		return forebay.Permanent("no_summary", err.Error())
	case errors.Is(err, bridge.ErrMalformed):
		return &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeMalformedResponse, Message: err.Error()}
	}
	return err
}

// asResponse is the translation of a call for a response.
type asResponse struct {
	*bridge.Exchange
	stream bool
	socket bool // each turn has one last event, so that nobody takes another for one of the next turn
	// keep stores the response; nil: it is not stored.
	keep func(context.Context, bridge.End) error
}

func (x *asResponse) choose(d model.Dialect) (path string, body []byte, err error) {
	return x.Choose(bridge.Dialect(d))
}

func (x *asResponse) write(part []byte) ([]byte, error) {
	events, err := x.Write(part)
	if err != nil || !x.stream {
		return nil, err
	}
	return frames(events...), nil
}

func (x *asResponse) end(ctx context.Context, resp model.ForwardResponse) ([]byte, error) {
	end, err := x.End(resp.Usage, time.Now())
	if err != nil {
		return nil, err
	}
	if x.keep != nil { // before the client learns of it
		if err := x.keep(ctx, end); err != nil {
			return nil, notKept(err)
		}
	}
	if !x.stream {
		return append(end.Object, '\n'), nil
	}
	last, _ := bridge.Last(x.State().Sequence, end.Status, end.Object)
	return append(frames(append(end.Events, last)...), streamEnd...), nil
}

func (x *asResponse) fail(f *failure) []byte {
	return append(frames(x.Fail(bridge.Failure{Code: responses.FailureCode(f.code), Message: f.message}, !x.socket)...), streamEnd...)
}

// notKept is the error of a call whose answer cannot be stored. The call is paid for, so it is not
// made again.
func notKept(err error) error {
	t := forebay.Permanent("not_stored", "the response could not be stored")
	t.Err = err
	return t
}

// streamEnd ends each stream.
const streamEnd = "data: [DONE]\n\n"

// frames writes events as server-sent events.
func frames(events ...bridge.Event) []byte {
	var b bytes.Buffer
	for _, e := range events {
		b.WriteString("event: " + e.Type + "\ndata: ")
		b.Write(e.Data)
		b.WriteString("\n\n")
	}
	return b.Bytes()
}
