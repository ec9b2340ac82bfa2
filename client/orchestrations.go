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

// orchestrations is the part of Client about durable orchestrations.
type orchestrations struct{ *endpoint }

// continuation is the header for the next page of a list of instances.
const continuation = "x-ms-continuation-token"

// instancePath joins escaped segments below the address of instances.
func instancePath(segments ...string) string {
	return "/runtime/webhooks/durabletask/instances" + strings.TrimPrefix(path(segments...), "/v1")
}

// StartOrchestration starts an instance of an orchestrator and returns its id. The instance is
// then on disk. The server makes an id if id is empty. If an instance with the id is running, the
// error is CodeConflict. One that is over is purged. input may be nil.
func (c *orchestrations) StartOrchestration(ctx context.Context, name, id string, input json.RawMessage) (string, error) {
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

func (c *orchestrations) started(ctx context.Context, r request) (string, error) {
	var uris struct {
		ID string `json:"id"`
	}
	err := c.call(ctx, r, &uris)
	return uris.ID, err
}

// orNil turns absent JSON into an absent body.
func orNil(v json.RawMessage) any {
	if v == nil {
		return nil
	}
	return v
}

// Orchestration returns an instance.
func (c *orchestrations) Orchestration(ctx context.Context, id string) (forebay.Orchestration, error) {
	return ofInstance[forebay.Orchestration](ctx, c.endpoint, id, "", nil)
}

// PollOrchestration returns an instance when it is over, or after wait, which is a minute at most.
// A server that is stopping answers early.
func (c *orchestrations) PollOrchestration(ctx context.Context, id string, wait time.Duration) (forebay.Orchestration, error) {
	return ofInstance[forebay.Orchestration](ctx, c.endpoint, id, "", url.Values{"timeout": {strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)}})
}

// WaitOrchestration returns an instance when it is over. If ctx ends first, it returns the last
// known instance and the context's error.
func (c *orchestrations) WaitOrchestration(ctx context.Context, id string) (forebay.Orchestration, error) {
	return waitUntil(ctx, func() (forebay.Orchestration, bool, error) {
		o, err := c.PollOrchestration(ctx, id, longPoll)
		return o, o.Status.Terminal(), err
	})
}

// OrchestrationHistory returns the history of an instance's current execution. The event that
// ended a call stands for the call, once there is one.
func (c *orchestrations) OrchestrationHistory(ctx context.Context, id string) ([]forebay.OrchestrationEvent, error) {
	shown, err := ofInstance[struct{ HistoryEvents []forebay.OrchestrationEvent }](ctx, c.endpoint, id, "",
		url.Values{"showHistory": {"true"}, "showHistoryOutput": {"true"}, "showInput": {"false"}})
	return shown.HistoryEvents, err
}

// ActivityAttempts returns the attempts of an instance's activities, by run, activity and number.
func (c *orchestrations) ActivityAttempts(ctx context.Context, id string) ([]forebay.ActivityAttempt, error) {
	return ofInstance[[]forebay.ActivityAttempt](ctx, c.endpoint, id, "attempts", nil)
}

// RaiseEvent sends an event to an instance. The event is kept until the instance waits for it. An
// instance that is over is CodeGone.
func (c *orchestrations) RaiseEvent(ctx context.Context, id, event string, data json.RawMessage) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	if err := checkID("event", event); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPost, path: instancePath(id, "raiseEvent", event), body: orNil(data), once: true}, nil)
}

// SuspendOrchestration suspends an instance until it is resumed. This and the methods below
// request a change that happens soon after. An instance that is over is CodeGone.
func (c *orchestrations) SuspendOrchestration(ctx context.Context, id, reason string) error {
	return c.control(ctx, id, "suspend", reason)
}

// ResumeOrchestration resumes a suspended instance.
func (c *orchestrations) ResumeOrchestration(ctx context.Context, id, reason string) error {
	return c.control(ctx, id, "resume", reason)
}

// TerminateOrchestration ends an instance and its sub-orchestrations.
func (c *orchestrations) TerminateOrchestration(ctx context.Context, id, reason string) error {
	return c.control(ctx, id, "terminate", reason)
}

// RewindOrchestration continues a failed instance and repeats what failed in it. Any other
// instance is CodeConflict.
func (c *orchestrations) RewindOrchestration(ctx context.Context, id, reason string) error {
	return c.control(ctx, id, "rewind", reason)
}

// control sends a request that changes the course of an instance.
func (c *orchestrations) control(ctx context.Context, id, verb, reason string) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	query := url.Values{}
	set(query, "reason", reason)
	return c.call(ctx, request{method: http.MethodPost, path: instancePath(id, verb), query: query, once: true}, nil)
}

// RestartOrchestration starts an instance again with its input and returns the id. The id is new,
// or the same one. To keep its id the instance must be over.
func (c *orchestrations) RestartOrchestration(ctx context.Context, id string, newID bool) (string, error) {
	if err := checkID("instance id", id); err != nil {
		return "", err
	}
	return c.started(ctx, request{method: http.MethodPost, path: instancePath(id, "restart"),
		query: url.Values{"restartWithNewInstanceId": {strconv.FormatBool(newID)}}, once: true})
}

// PurgeOrchestration deletes an instance with its history. An instance that is not over is
// CodeConflict.
func (c *orchestrations) PurgeOrchestration(ctx context.Context, id string) error {
	if err := checkID("instance id", id); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: instancePath(id), once: true}, nil)
}

// OrchestrationFilter selects instances.
type OrchestrationFilter struct {
	Prefix   string                        // prefix of their ids
	Name     string                        // of their orchestrator; a purge does not take it
	Statuses []forebay.OrchestrationStatus // none: all
	From     time.Time                     // created at this time or later
	Until    time.Time                     // created at this time or earlier; zero: no bound
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

// Orchestrations returns the instances that the filter selects, newest first. It reads pages as
// they are needed. The sequence ends after an error.
func (c *orchestrations) Orchestrations(ctx context.Context, f OrchestrationFilter) iter.Seq2[forebay.Orchestration, error] {
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

// OrchestrationPage returns a page of the instances that the filter selects, newest first and
// without their inputs. token is "" for the first page. next is "" after the last.
func (c *orchestrations) OrchestrationPage(ctx context.Context, f OrchestrationFilter, token string) (page []forebay.Orchestration, next string, err error) {
	query := f.query()
	query.Set("showInput", "false")
	if f.Limit > 0 {
		query.Set("top", strconv.Itoa(f.Limit))
	}
	return c.instances(ctx, query, token)
}

func (c *orchestrations) instances(ctx context.Context, query url.Values, token string) (page []forebay.Orchestration, next string, err error) {
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

// PurgeOrchestrations deletes the instances that the filter selects and that are over. It returns
// their number.
func (c *orchestrations) PurgeOrchestrations(ctx context.Context, f OrchestrationFilter) (int, error) {
	query := f.query()
	if f.From.IsZero() {
		setTime(query, "createdTimeFrom", time.Unix(0, 0)) // the server requires this parameter
	}
	var purged struct{ InstancesDeleted int }
	err := c.call(ctx, request{method: http.MethodDelete, path: instancePath(), query: query, once: true}, &purged)
	if err != nil && forebay.CodeOf(err) == forebay.CodeNotFound {
		return 0, nil // there are none
	}
	return purged.InstancesDeleted, err
}

func ofInstance[T any](ctx context.Context, e *endpoint, id, verb string, query url.Values) (T, error) {
	var answer T
	if err := checkID("instance id", id); err != nil {
		return answer, err
	}
	at := instancePath(id)
	if verb != "" {
		at = instancePath(id, verb)
	}
	err := e.call(ctx, request{method: http.MethodGet, path: at, query: query}, &answer)
	return answer, err
}
