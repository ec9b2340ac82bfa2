package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/feed"
)

type callsInput struct {
	TenantsInput
	Deployment string `query:"deployment" maxLength:"256"`
	Task       string `query:"task" maxLength:"256"`
	Limit      int    `query:"limit" minimum:"1" maximum:"500" doc:"default 50"`
}

type jobSessionsInput struct {
	TenantsInput
	PageInput
	Queue     string `query:"queue" maxLength:"256" doc:"default: every queue"`
	SessionID string `query:"session_id" maxLength:"256" doc:"only sessions of this id"`
}

type feedInput struct {
	TenantsInput
	Sums          bool     `query:"sums" doc:"only how many events of jobs there are, by queue and type, twice a second"`
	Kinds         []string `query:"kinds" doc:"job, deployment (needs the scope view), batch, response, orchestration, separated by commas; default: all that the key may see, or only jobs if something below selects among them"`
	Queue         string   `query:"queue" maxLength:"256"`
	Task          string   `query:"task" maxLength:"256"`
	Types         []string `query:"types" doc:"types of events of jobs, separated by commas"`
	Status        []string `query:"status" doc:"statuses of jobs after the event, separated by commas"`
	CorrelationID string   `query:"correlation_id" maxLength:"256"`
	Jobs          []string `query:"job,explode" maxItems:"100" doc:"ids of jobs; repeated or separated by commas"`
}

func (a liveRoutes) routeLive() {
	if a.live == nil {
		return
	}
	tags := []string{"live"}
	route(a.API, forebay.ScopeView, huma.Operation{
		OperationID: "list-processes", Method: http.MethodGet, Path: "/v1/processes", Tags: tags, Summary: "List the processes that share the database",
		Description: "Each says every ten seconds that it lives. One that was killed is listed as gone for an hour.",
	}, func(ctx context.Context, _ *call, _ *none) (*answer[forebay.Page[forebay.Process]], error) {
		list, err := a.live.List(ctx)
		return pageAnswer(page(list), err)
	})
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-calls", Method: http.MethodGet, Path: "/v1/calls", Tags: tags, Summary: "List the calls under way, the longest first",
		Description: "A call counts until its job is settled, or its lock ends.",
	}, func(ctx context.Context, c *call, in *callsInput) (*answer[forebay.RunningCalls], error) {
		if err := in.check(c); err != nil {
			return nil, err
		}
		return answerOf(a.live.Calls(ctx, c.caller.Tenant, forebay.CallFilter{AllTenants: in.AllTenants, Deployment: in.Deployment, Task: in.Task, Limit: in.Limit}))
	})
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "get-backlog", Method: http.MethodGet, Path: "/v1/backlog", Tags: tags, Summary: "Get what waits, what it waits for, and when it is done",
		Description: "Estimates follow from the limits of deployments and the latest calls. Where nothing tells, they are null, and `unknown` says why.",
	}, func(ctx context.Context, c *call, in *TenantsInput) (*answer[forebay.Backlog], error) {
		if err := in.check(c); err != nil {
			return nil, err
		}
		return answerOf(a.live.Backlog(ctx, c.caller.Tenant, in.AllTenants))
	})
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "list-job-sessions", Method: http.MethodGet, Path: "/v1/job-sessions", Tags: tags, Summary: "List the sessions of jobs that have jobs to run",
		Description: "By queue and id: those with jobs that are not over. Jobs of a session run one after the other; `first` is the one whose turn it is, and says what " +
			"holds it up. A page may hold few or none and have a next_cursor all the same.",
	}, func(ctx context.Context, c *call, in *jobSessionsInput) (*answer[forebay.Page[forebay.JobSession]], error) {
		if err := in.check(c); err != nil {
			return nil, err
		}
		return pageAnswer(a.live.JobSessions(ctx, c.caller.Tenant, forebay.JobSessionFilter{Queue: in.Queue, SessionID: in.SessionID, AllTenants: in.AllTenants, Limit: in.Limit, Cursor: in.Cursor}))
	})
	responses := streamed("200", "Server-sent events: event is the kind, data depends on it", "text/event-stream", &huma.Schema{OneOf: []*huma.Schema{
		a.schema(reflect.TypeFor[forebay.FeedJobEvent]()), a.schema(reflect.TypeFor[forebay.FeedObject]()),
		a.schema(reflect.TypeFor[forebay.FeedCounts]()), a.schema(reflect.TypeFor[forebay.FeedLoss]()),
	}})
	route(a.API, forebay.ScopeRead, huma.Operation{
		OperationID: "follow-events", Method: http.MethodGet, Path: "/v1/events", Tags: tags, Summary: "Follow what happens to many jobs, and more",
		Responses: responses,
		Description: "A live feed: it begins now, and keeps nothing. An event `job` has an event of a job. The events `batch`, `response`, " +
			"`orchestration` and `deployment` have a change of such a thing. What a reader, or the server, is too slow for is dropped; an event `lost` " +
			"says how much. Then read the lists again. At thousands of jobs a second ask for `sums`.",
	}, a.followFeed)
}

func (a liveRoutes) followFeed(ctx context.Context, c *call, in *feedInput) (*stream, error) {
	if err := in.check(c); err != nil {
		return nil, err
	}
	f := forebay.FeedFilter{
		AllTenants: in.AllTenants, Sums: in.Sums, Queue: in.Queue, Task: in.Task, CorrelationID: in.CorrelationID, Jobs: splitAll(in.Jobs),
		Kinds: listOf[forebay.FeedKind](in.Kinds), Types: listOf[forebay.EventType](in.Types), Statuses: listOf[forebay.Status](in.Status),
	}
	leave, err := a.waiters.Enter(c.home)
	if err != nil {
		return nil, err
	}
	listener, err := a.live.Listen(ctx, c.caller.Tenant, c.caller.May(forebay.ScopeView), f)
	if err != nil {
		leave()
		return nil, err
	}
	return &stream{func(huma.Context) {
		defer leave()
		defer listener.Close()
		c.w.Header().Set("Content-Type", "text/event-stream")
		c.w.Header().Set("X-Accel-Buffering", "no")
		c.w.WriteHeader(http.StatusOK)
		if c.r.Method != http.MethodHead {
			a.passFeed(ctx, c, listener)
		}
	}}, nil
}

// passFeed writes what comes, until the client or the server goes, or until the caller's key ends.
func (a liveRoutes) passFeed(ctx context.Context, c *call, listener *feed.Listener) {
	ctx, cancel := a.untilDrain(ctx)
	defer cancel()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	c.w.untilDrain()
	out := &eventStream{call: c}
	if out.hello() != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if out.comment("heartbeat") != nil {
				return
			}
		case <-listener.Ready:
			var b []byte
			for _, item := range listener.Take() {
				data, err := json.Marshal(valueOf(&item))
				if err != nil {
					a.logFailure(ctx, c, err, nil)
					return
				}
				b = fmt.Appendf(b, "event: %s\ndata: %s\n\n", item.Kind, data)
			}
			if len(b) > 0 && out.send(b) != nil {
				return
			}
		}
	}
}

// valueOf is what the data of an item's event is.
func valueOf(item *forebay.FeedItem) any {
	switch item.Kind {
	case forebay.FeedJob:
		return item.Job
	case forebay.FeedSums:
		return item.Sums
	case forebay.FeedLost:
		return item.Lost
	}
	return item.Object
}

// listOf reads a list whose values are separated by commas.
func listOf[T ~string](values []string) (list []T) {
	for _, value := range splitAll(values) {
		list = append(list, T(value))
	}
	return list
}

// splitAll splits values at commas, and leaves out empty ones.
func splitAll(values []string) (all []string) {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			if part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}
