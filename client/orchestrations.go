package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// continuation is the header by which lists of instances go on.
const continuation = "x-ms-continuation-token"

// instancePath joins escaped segments below the address of instances.
func instancePath(segments ...string) string {
	return "/runtime/webhooks/durabletask/instances" + strings.TrimPrefix(path(segments...), "/v1")
}

// StartOrchestration starts an instance of an orchestrator and returns its id; it is on disk then. An empty id has the
// server make one. An instance that has the id already and is not over is CodeConflict; one that is over is
// purged. A nil input is none.
func (c *Client) StartOrchestration(ctx context.Context, name, id string, input json.RawMessage) (string, error) {
	if err := checkID("orchestrator", name); err != nil {
		return "", err
	}
	at := "/runtime/webhooks/durabletask/orchestrators/" + url.PathEscape(name)
	if id != "" {
		if err := checkID("instance id", id); err != nil {
			return "", err
		}
		at += "/" + url.PathEscape(id)
	}
	return c.started(ctx, request{method: http.MethodPost, path: at, body: orNil(input), once: true})
}

func (c *Client) started(ctx context.Context, r request) (string, error) {
	var uris struct {
		ID string `json:"id"`
	}
	err := c.call(ctx, r, &uris)
	return uris.ID, err
}

// orNil makes no JSON no body.
func orNil(v json.RawMessage) any {
	if v == nil {
		return nil
	}
	return v
}

// Orchestration returns an instance.
func (c *Client) Orchestration(ctx context.Context, id string) (forebay.Orchestration, error) {
	return ofInstance[forebay.Orchestration](ctx, c, id, "", nil)
}

// PollOrchestration returns an instance once it is over, at the latest after wait: up to a minute. A server that stops answers early.
func (c *Client) PollOrchestration(ctx context.Context, id string, wait time.Duration) (forebay.Orchestration, error) {
	return ofInstance[forebay.Orchestration](ctx, c, id, "", url.Values{"timeout": {strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)}})
}

// WaitOrchestration returns an instance once it is over. It waits for as long as ctx lives; when that ends it returns the instance as
// last seen and the context's error.
func (c *Client) WaitOrchestration(ctx context.Context, id string) (forebay.Orchestration, error) {
	return waitUntil(ctx, func() (forebay.Orchestration, bool, error) {
		o, err := c.PollOrchestration(ctx, id, longPoll)
		return o, o.Status.Terminal(), err
	})
}

// OrchestrationHistory returns what has happened in an instance's current execution: what was called is told by the event
// that ended it, once there is one.
func (c *Client) OrchestrationHistory(ctx context.Context, id string) ([]forebay.OrchestrationEvent, error) {
	shown, err := ofInstance[struct{ HistoryEvents []forebay.OrchestrationEvent }](ctx, c, id, "",
		url.Values{"showHistory": {"true"}, "showHistoryOutput": {"true"}, "showInput": {"false"}})
	return shown.HistoryEvents, err
}

// ActivityAttempts returns the attempts of an instance's activities, by run, activity and number.
func (c *Client) ActivityAttempts(ctx context.Context, id string) ([]forebay.ActivityAttempt, error) {
	return ofInstance[[]forebay.ActivityAttempt](ctx, c, id, "attempts", nil)
}

// RaiseEvent sends an instance an event. One that it does not wait for yet is kept until it does. An instance that is over is CodeGone.
func (c *Client) RaiseEvent(ctx context.Context, id, event string, data json.RawMessage) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	if err := checkID("event", event); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPost, path: instancePath(id, "raiseEvent", event), body: orNil(data), once: true}, nil)
}

// SuspendOrchestration keeps an instance from going on until it is resumed. This and the following ask for something that is done
// soon after; an instance that is over is CodeGone.
func (c *Client) SuspendOrchestration(ctx context.Context, id, reason string) error {
	return c.tell(ctx, id, "suspend", reason)
}

// ResumeOrchestration lets a suspended instance go on.
func (c *Client) ResumeOrchestration(ctx context.Context, id, reason string) error {
	return c.tell(ctx, id, "resume", reason)
}

// TerminateOrchestration ends an instance, and those that it has called.
func (c *Client) TerminateOrchestration(ctx context.Context, id, reason string) error {
	return c.tell(ctx, id, "terminate", reason)
}

// RewindOrchestration lets an instance that has failed go on: what failed in it is done again. Any other is CodeConflict.
func (c *Client) RewindOrchestration(ctx context.Context, id, reason string) error {
	return c.tell(ctx, id, "rewind", reason)
}

func (c *Client) tell(ctx context.Context, id, verb, reason string) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	query := url.Values{}
	set(query, "reason", reason)
	return c.call(ctx, request{method: http.MethodPost, path: instancePath(id, verb), query: query, once: true}, nil)
}

// RestartOrchestration starts an instance anew with its input: under a new id, or under its own, which it has to be over for. It
// returns the id.
func (c *Client) RestartOrchestration(ctx context.Context, id string, newID bool) (string, error) {
	if err := checkID("instance id", id); err != nil {
		return "", err
	}
	return c.started(ctx, request{method: http.MethodPost, path: instancePath(id, "restart"),
		query: url.Values{"restartWithNewInstanceId": {strconv.FormatBool(newID)}}, once: true})
}

// PurgeOrchestration deletes an instance with its history. One that is not over is CodeConflict.
func (c *Client) PurgeOrchestration(ctx context.Context, id string) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: instancePath(id), once: true}, nil)
}

// OrchestrationFilter selects instances.
type OrchestrationFilter struct {
	Prefix   string                        // of their ids
	Name     string                        // of their orchestrator; a purge does not take it
	Statuses []forebay.OrchestrationStatus // none: all
	From     time.Time                     // not made before
	Until    time.Time                     // not made after; zero: no bound
	Limit    int                           // size of a page; 0 leaves it to the server
}

func (f OrchestrationFilter) query() url.Values {
	query := url.Values{}
	set(query, "instanceIdPrefix", f.Prefix)
	set(query, "name", f.Name)
	for _, s := range f.Statuses {
		query.Add("runtimeStatus", string(s))
	}
	setTime(query, "createdTimeFrom", f.From)
	setTime(query, "createdTimeTo", f.Until)
	return query
}

// Orchestrations returns the instances that the filter selects, newest first, reading page after page as they are asked for.
// The sequence ends after an error.
func (c *Client) Orchestrations(ctx context.Context, f OrchestrationFilter) iter.Seq2[forebay.Orchestration, error] {
	query := f.query()
	if f.Limit > 0 {
		query.Set("top", strconv.Itoa(f.Limit))
	}
	return func(yield func(forebay.Orchestration, error) bool) {
		for token := ""; ; {
			page, next, err := c.instances(ctx, query, token)
			if err == nil && next != "" && next == token {
				err = errNotForebay
			}
			if err != nil {
				yield(forebay.Orchestration{}, err)
				return
			}
			for _, o := range page {
				if !yield(o, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

func (c *Client) instances(ctx context.Context, query url.Values, token string) (page []forebay.Orchestration, next string, err error) {
	header := http.Header{}
	if token != "" {
		header.Set(continuation, token)
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: instancePath(), query: query, header: header})
	if err != nil {
		return nil, "", err
	}
	err = c.decode(ctx, resp, &page)
	return page, resp.Header.Get(continuation), err
}

// PurgeOrchestrations deletes the instances that the filter selects and that are over, and returns how many those were.
func (c *Client) PurgeOrchestrations(ctx context.Context, f OrchestrationFilter) (int, error) {
	query := f.query()
	if f.From.IsZero() {
		setTime(query, "createdTimeFrom", time.Unix(0, 0)) // the server insists on one
	}
	var purged struct{ InstancesDeleted int }
	err := c.call(ctx, request{method: http.MethodDelete, path: instancePath(), query: query, once: true}, &purged)
	if err != nil && forebay.CodeOf(err) == forebay.CodeNotFound {
		return 0, nil // there are none
	}
	return purged.InstancesDeleted, err
}

func ofInstance[T any](ctx context.Context, c *Client, id, verb string, query url.Values) (T, error) {
	var answer T
	if err := checkID("instance id", id); err != nil {
		return answer, err
	}
	at := instancePath(id)
	if verb != "" {
		at = instancePath(id, verb)
	}
	err := c.call(ctx, request{method: http.MethodGet, path: at, query: query}, &answer)
	return answer, err
}
