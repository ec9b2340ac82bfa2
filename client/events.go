package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// maxEventBytes limits one server-sent event.
const maxEventBytes = 1 << 20

// Events yields the events of a job as they happen, from the event after the given number (0: from
// the first) to the last. It resumes a broken stream. The sequence ends when the job has ended, or
// with an error.
func (c *jobs) Events(ctx context.Context, id string, after int64) iter.Seq2[forebay.Event, error] {
	return c.EventsAndDeltas(ctx, id, after, nil)
}

// EventsAndDeltas is Events, and calls delta with what the running call of the job writes, between
// two events. Deltas are not stored. Some may be missing, which their offsets show, and some come
// again after the stream broke. The result of the job decides. delta may be nil.
func (c *jobs) EventsAndDeltas(ctx context.Context, id string, after int64, delta func(forebay.Delta)) iter.Seq2[forebay.Event, error] {
	return func(yield func(forebay.Event, error) bool) {
		if err := checkID("job id", id); err != nil {
			yield(forebay.Event{}, err)
			return
		}
		f := follower{server: c.endpoint, id: id, last: after, delta: delta, yield: yield}
		retry := c.newRetry()
		for {
			before := f.last
			end, err := f.stream(ctx)
			if end {
				return
			}
			if f.last != before {
				retry = c.newRetry()
			}
			if err == nil {
				// The server closed the stream although the job has not ended, as it does when it
				// stops.
				err = &transportError{err: forebay.Errorf(forebay.CodeUnavailable, "the server ended the event stream")}
			}
			if e, ok := errors.AsType[*transportError](err); ok {
				e.err.RetryAfter = max(e.err.RetryAfter, f.reconnect)
			}
			if !retry.wait(ctx, err) {
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				yield(forebay.Event{}, err)
				return
			}
		}
	}
}

// follower is the state of one Events sequence across its connections.
type follower struct {
	server    *endpoint
	id        string
	last      int64 // number of the last event seen
	terminal  bool  // that event left the job in a terminal status
	reconnect time.Duration
	delta     func(forebay.Delta) // nil: deltas are not asked for
	yield     func(forebay.Event, error) bool
}

// stream reads one connection. end reports that the sequence is over: the job has ended or the
// caller has stopped.
func (f *follower) stream(ctx context.Context) (end bool, err error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if f.last > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(f.last, 10))
	}
	req := request{method: http.MethodGet, path: path("jobs", f.id, "events"), header: header}
	if f.delta != nil {
		req.query = url.Values{"deltas": {"true"}}
	}
	resp, err := f.server.try(ctx, req, nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent { // the protocol's "do not reconnect"
		return true, nil
	}

	end, err = readEvents(resp.Body, func(kind string, data []byte) (bool, error) {
		if f.delta != nil && kind == "delta" {
			f.passDelta(data)
			return false, nil
		}
		return f.event(data)
	}, &f.reconnect)
	switch {
	case end:
		return true, err
	case errors.Is(err, errBrokenStream):
		return false, f.server.unreachable(ctx, errors.Unwrap(err))
	case err != nil:
		return false, err
	}
	return f.terminal, nil
}

// errBrokenStream is wrapped around the error of a connection that broke.
var errBrokenStream = errors.New("the stream broke")

// brokenStream is an errBrokenStream with its cause.
type brokenStream struct{ cause error }

func (e brokenStream) Error() string        { return e.cause.Error() }
func (e brokenStream) Unwrap() error        { return e.cause }
func (e brokenStream) Is(target error) bool { return target == errBrokenStream }

// readEvents reads server-sent events until event says that it is enough, or the stream ends. It
// notes after what time to reconnect.
func readEvents(stream io.Reader, event func(kind string, data []byte) (end bool, err error), reconnect *time.Duration) (end bool, err error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 16<<10), maxEventBytes)
	lines.Split(eventLines)
	var data []byte
	kind := ""
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if len(data) > 0 {
				if end, err := event(kind, data); end || err != nil {
					return end, err
				}
			}
			data, kind = data[:0], ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if len(data)+len(value) > maxEventBytes {
				return false, errEventTooLarge
			}
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "event":
			kind = string(value)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 16); err == nil {
				*reconnect = time.Duration(ms) * time.Millisecond
			}
		}
		// Else the field id repeats what the data says. A comment has an empty name.
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return false, errEventTooLarge
	case err != nil:
		return false, brokenStream{err}
	}
	return false, nil
}

var errEventTooLarge = forebay.Errorf(forebay.CodePayloadTooLarge, "an event has more than %d bytes", maxEventBytes)

// passDelta passes a delta on. One that cannot be read is missing.
func (f *follower) passDelta(data []byte) {
	var d forebay.Delta
	if json.Unmarshal(data, &d) == nil {
		f.delta(d)
	}
}

// event yields an event, unless it was yielded before.
func (f *follower) event(data []byte) (end bool, err error) {
	var e forebay.Event
	if err := json.Unmarshal(data, &e); err != nil || e.Number <= 0 {
		return false, errNotForebay
	}
	if e.Number <= f.last {
		return false, nil
	}
	f.last, f.terminal = e.Number, e.Status.Terminal()
	return !f.yield(e, nil), nil
}

// eventLines splits at CR LF, LF or CR, as the format allows. It drops an unfinished last line,
// whose event is incomplete.
func eventLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexAny(data, "\r\n")
	switch {
	case i < 0 && atEOF:
		return len(data), nil, io.EOF
	case i < 0:
		return 0, nil, nil
	case data[i] == '\n':
		return i + 1, data[:i], nil
	case i+1 < len(data) && data[i+1] == '\n':
		return i + 2, data[:i], nil
	case i+1 < len(data) || atEOF:
		return i + 1, data[:i], nil
	}
	return 0, nil, nil // an LF may follow
}

// EventsSoFar returns the events of a job with a number above after, oldest first, at most 1,000.
func (c *jobs) EventsSoFar(ctx context.Context, id string, after int64) ([]forebay.Event, error) {
	if err := checkID("job id", id); err != nil {
		return nil, err
	}
	var page forebay.Page[forebay.Event]
	err := c.call(ctx, request{method: http.MethodGet, path: path("jobs", id, "history"), query: url.Values{"after": {strconv.FormatInt(after, 10)}}}, &page)
	return page.Items, err
}
