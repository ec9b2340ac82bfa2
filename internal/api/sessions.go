package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/transfer"
)

// SessionPath names one lock on a session.
type SessionPath struct {
	QueuePath
	SessionToken string `path:"session_token" doc:"session_token of the session as accepted"`
}

type listSessionsInput struct {
	QueuePath
	PageInput
}

type acceptOutput struct {
	Status int
	Body   *forebay.Session
}

// maxStateBody bounds a body with a session's state in base64.
const maxStateBody = forebay.MaxSessionStateBytes*4/3 + envelopeBytes

const sessionBase = "/v1/queues/{queue}/sessions/{session_token}/"

const sessionLost = "Answers 409 with the code session_lock_lost, and changes nothing, once the session's lock has ended."

// routeSessions registers the sessions of queues that require them. A session is accepted first.
// Its token is then part of the paths, as a lock token is in the paths of one message.
func (a queueRoutes) routeSessions() {
	routeOptionalBody(a.API, forebay.ScopeListen, huma.Operation{
		OperationID: "accept-session", Method: http.MethodPost, Path: "/v1/queues/{queue}/sessions/accept", Tags: messageTags,
		Summary: "Accept a session: have its messages to oneself",
		Description: "The session with that id, or the one that has waited longest for a receiver; 204 when none has messages. " +
			"The lock lasts the queue's lock duration; renew it before that. While another receiver has the session asked for, the answer is 409 with the code session_locked.",
		Responses: map[string]*huma.Response{
			"200": {Description: "OK", Content: map[string]*huma.MediaType{transfer.JSON[0]: {Schema: a.schema(reflect.TypeFor[forebay.Session]())}}},
			"204": {Description: "No session has messages"},
		},
	}, smallBody, a.acceptSession)
	route(a.API, toPeek, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/v1/queues/{queue}/sessions", Tags: messageTags,
		Summary: "List the sessions of the queue", Description: "By id: those that have messages, a state or a receiver.",
	}, func(ctx context.Context, c *call, in *listSessionsInput) (*answer[forebay.Page[forebay.SessionInfo]], error) {
		return pageAnswer(a.messages.Sessions.List(ctx, c.caller.Tenant, in.Queue, in.Cursor, in.Limit))
	})
	routeBody(a.API, forebay.ScopeManage, noContent(huma.Operation{
		OperationID: "release-session", Method: http.MethodPost, Path: "/v1/queues/{queue}/sessions/release", Tags: messageTags,
		Summary: "Take a session from its receiver", Description: "As closing it, for a receiver that does not. Answers 409 when no receiver has it.",
	}), smallBody, func(ctx context.Context, c *call, in *QueuePath, req forebay.ReleaseSessionRequest) (*none, error) {
		return &none{}, a.messages.Sessions.Release(ctx, c.caller.Tenant, in.Queue, req.SessionID)
	})
	routeOptionalBody(a.API, forebay.ScopeListen, sessionOperation("receive-session-messages", http.MethodPost, "receive", "Receive the next messages of a session"), smallBody,
		func(ctx context.Context, c *call, in *SessionPath, req forebay.ReceiveRequest) (*answer[receiveAnswer], error) {
			if err := c.opens(ctx, in.Queue+"/messages"); err != nil {
				return nil, err
			}
			messages, err := patiently(ctx, a.API, c, req.Wait != "" || req.WaitSeconds > 0, func(ctx context.Context) ([]forebay.Message, error) {
				return a.messages.Messages.ReceiveSession(ctx, c.caller.Tenant, in.Queue, in.SessionToken, req)
			})
			return &answer[receiveAnswer]{receiveAnswer{notNil(messages)}}, err
		})
	routeNoBody(a.API, forebay.ScopeListen, sessionOperation("renew-session", http.MethodPost, "renew", "Hold a session for another lock duration, from now on"),
		func(ctx context.Context, c *call, in *SessionPath) (*answer[renewAnswer], error) {
			until, err := a.messages.Sessions.Renew(ctx, c.caller.Tenant, in.Queue, in.SessionToken)
			return &answer[renewAnswer]{renewAnswer{until}}, err
		})
	routeNoBody(a.API, forebay.ScopeListen, noContent(sessionOperation("close-session", http.MethodPost, "close", "Give a session back, and the messages of it that are not settled")),
		func(ctx context.Context, c *call, in *SessionPath) (*none, error) {
			return &none{}, a.messages.Sessions.Close(ctx, c.caller.Tenant, in.Queue, in.SessionToken)
		})
	route(a.API, forebay.ScopeListen, sessionOperation("get-session-state", http.MethodGet, "state", "Get the state of a session"),
		func(ctx context.Context, c *call, in *SessionPath) (*answer[forebay.SessionState], error) {
			err := c.needOpen()
			if err == nil {
				err = c.opens(ctx, in.Queue+"/sessions")
			}
			if err != nil {
				return nil, err
			}
			state, err := a.messages.Sessions.State(ctx, c.caller.Tenant, in.Queue, in.SessionToken)
			return &answer[forebay.SessionState]{state}, err
		})
	routeBody(a.API, forebay.ScopeListen, noContent(sessionOperation("set-session-state", http.MethodPut, "state", "Set the state of a session, which outlives its messages")), maxStateBody,
		func(ctx context.Context, c *call, in *SessionPath, state forebay.SessionState) (*none, error) {
			return &none{}, a.messages.Sessions.SetState(ctx, c.caller.Tenant, in.Queue, in.SessionToken, state)
		})
}

func sessionOperation(id, method, verb, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: sessionBase + verb, Tags: messageTags, Summary: summary, Description: sessionLost}
}

func noContent(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusNoContent
	return op
}

func (a queueRoutes) acceptSession(ctx context.Context, c *call, in *QueuePath, req forebay.AcceptSessionRequest) (*acceptOutput, error) {
	session, err := patiently(ctx, a.API, c, req.Wait != "" || req.WaitSeconds > 0, func(ctx context.Context) (*forebay.Session, error) {
		session, found, err := a.messages.Sessions.Accept(ctx, c.caller.Tenant, in.Queue, req)
		if err != nil || !found {
			return nil, err
		}
		return &session, nil
	})
	if err != nil {
		return nil, err
	}
	if session == nil {
		return &acceptOutput{Status: http.StatusNoContent}, nil
	}
	return &acceptOutput{Status: http.StatusOK, Body: session}, nil
}
