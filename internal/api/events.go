package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/deltas"
)

const (
	// heartbeat keeps proxies from closing a silent stream, and detects clients that have gone.
	heartbeat = 15 * time.Second
	// reconnectMillis is how long a client waits before it reconnects to a broken stream.
	reconnectMillis = 2000
)

type eventsInput struct {
	JobPath
	LastEventID string `header:"Last-Event-ID" doc:"only later events; browsers send it when they reconnect"`
	After       string `query:"after" doc:"the same, for clients that cannot set the header" example:"3"`
	Deltas      bool   `query:"deltas" doc:"also what the running call writes, as events of the type delta without an id. None is stored, and some may be missing: the result decides"`
}

func (a jobRoutes) routeEvents() {
	responses := streamed("200", "Server-sent events: id is the event's number, event its type, data the event",
		"text/event-stream", a.schema(reflect.TypeFor[forebay.Event]()))
	responses["204"] = &huma.Response{Description: "The job is terminal and has no later events: do not reconnect"}
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "follow-job", Method: http.MethodGet, Path: "/v1/jobs/{id}/events", Tags: []string{"jobs"},
		Summary: "Follow a job's events", Responses: responses,
		Description: "The stream begins with the events so far and ends after the terminal one. With deltas, the data of an event delta has job_id, generation, attempt, offset (in bytes) and text. A new attempt begins at offset 0.",
	}, a.events)
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/jobs/{id}/history", Tags: []string{"jobs"},
		Summary: "List a job's events so far, oldest first", Description: "At most 1,000. The next ones are those after the number of the last.",
	}, a.history)
}

type historyInput struct {
	JobPath
	After int64 `query:"after" minimum:"0" doc:"only events with a higher number"`
}

func (a jobRoutes) history(ctx context.Context, c *call, in *historyInput) (*answer[forebay.Page[forebay.Event]], error) {
	events, _, err := a.jobs.Events(ctx, c.caller.Tenant, in.ID, in.After)
	if err != nil {
		return nil, err
	}
	for i := range events {
		switch {
		case events[i].Result == nil:
		case !c.mayOpen():
			events[i].Result = nil
		default:
			if err := c.opens(ctx, in.ID+"/events"); err != nil {
				return nil, err
			}
		}
	}
	return pageAnswer(page(events), nil)
}

func (a jobRoutes) events(ctx context.Context, c *call, in *eventsInput) (*stream, error) {
	after, err := lastEvent(in)
	if err == nil && in.Deltas {
		err = c.needOpen()
	}
	if err != nil {
		return nil, err
	}
	leave, err := a.waiters.Enter(c.home)
	if err != nil {
		return nil, err
	}
	// Watching begins before reading, so that no event between the two is missed.
	changes, stop, err := a.jobs.Watch(ctx, c.caller.Tenant, in.ID)
	if err != nil {
		leave()
		return nil, err
	}
	events, done, err := a.jobs.Events(ctx, c.caller.Tenant, in.ID, after)
	if err != nil {
		stop()
		leave()
		return nil, err
	}
	if c.mayOpen() {
		if err := c.opens(ctx, in.ID+"/events"); err != nil {
			stop()
			leave()
			return nil, err
		}
	}
	return &stream{func(huma.Context) {
		defer leave()
		defer stop()
		if done && len(events) == 0 {
			c.w.WriteHeader(http.StatusNoContent)
			return
		}
		c.w.Header().Set("Content-Type", "text/event-stream")
		c.w.Header().Set("X-Accel-Buffering", "no")
		c.w.WriteHeader(http.StatusOK)
		if c.r.Method == http.MethodHead {
			return
		}
		out := &eventStream{call: c, after: after}
		if in.Deltas && a.deltas != nil {
			out.live = a.deltas.Listen(in.ID)
			defer out.live.Close()
		}
		a.follow(ctx, c, in.ID, changes, out, events, done)
	}}, nil
}

// lastEvent returns the number of the last event the client has seen.
func lastEvent(in *eventsInput) (int64, error) {
	value, field := in.LastEventID, "Last-Event-ID"
	if value == "" {
		value, field = in.After, "after"
	}
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, forebay.Invalid(field, "must be the number of an event")
	}
	return n, nil
}

// follow writes the events given and then those that come. It ends with the last event, when the
// client or the server goes, or when the caller's key ends.
func (a jobRoutes) follow(ctx context.Context, c *call, id string, changes <-chan struct{}, out *eventStream, events []forebay.Event, done bool) {
	ctx, cancel := a.untilDrain(ctx)
	defer cancel()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	c.w.untilDrain()
	if out.hello() != nil {
		return
	}
	for {
		beaten := false
		if len(events) > 0 {
			if out.write(events) != nil {
				return
			}
			select {
			case <-beat.C: // frequent events may leave no other time for it
				beaten = true
			default:
			}
		} else {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			case <-out.grown():
				if out.deltas() != nil {
					return
				}
				continue
			case <-beat.C:
				beaten = true
			}
		}
		if done {
			return
		}
		var err error
		if events, done, err = a.jobs.Events(ctx, c.caller.Tenant, id, out.after); err != nil {
			a.brokenOff(ctx, c, err)
			return
		}
		if out.deltas() != nil || done && len(events) == 0 {
			return
		}
		if beaten && len(events) == 0 && out.comment("heartbeat") != nil {
			return
		}
	}
}

// brokenOff logs why a stream ends early; the client comes back for the rest.
func (a jobRoutes) brokenOff(ctx context.Context, c *call, err error) {
	if ctx.Err() == nil && forebay.CodeOf(err) != forebay.CodeNotFound {
		a.logFailure(ctx, c, err, nil)
	}
}

// eventStream writes text/event-stream (HTML standard, section 9.2.5).
type eventStream struct {
	call  *call
	after int64            // the number of the last event written
	live  *deltas.Listener // nil: deltas were not asked for
	over  bool             // the last event is written: deltas of other processes may come later
}

// grown has a value when there are deltas.
func (s *eventStream) grown() <-chan struct{} {
	if s.live == nil || s.over {
		return nil
	}
	return s.live.Grown
}

// deltas writes those that there are.
func (s *eventStream) deltas() error {
	for s.live != nil && !s.over {
		d, ok := s.live.Next()
		if !ok {
			break
		}
		data, err := json.Marshal(d)
		if err == nil {
			err = s.send(fmt.Appendf(nil, "event: delta\ndata: %s\n\n", data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *eventStream) hello() error {
	return s.send(fmt.Appendf(nil, "retry: %d\n\n", reconnectMillis))
}

func (s *eventStream) comment(text string) error { return s.send([]byte(": " + text + "\n\n")) }

func (s *eventStream) write(events []forebay.Event) error {
	var b bytes.Buffer
	for _, e := range events {
		if !s.call.mayOpen() {
			e.Result = nil
		}
		data, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("marshal event: %w", err)
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.Number, e.Type, data)
		s.after, s.over = e.Number, e.Status.Terminal()
		s.call.correlationID = e.CorrelationID
	}
	return s.send(b.Bytes())
}

func (s *eventStream) send(b []byte) error {
	if _, err := s.call.w.Write(b); err != nil {
		s.call.gone = true
		return err
	}
	return s.call.w.flush()
}
