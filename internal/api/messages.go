package api

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
	"github.com/forebayhq/forebay/internal/api/decode"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/messaging"
)

// LockPath names one delivery of a message.
type LockPath struct {
	QueuePath
	LockToken string `path:"lock_token" doc:"lock_token of the message as received"`
}

type messagePath struct {
	QueuePath
	SequenceNumber int64 `path:"sequence_number" minimum:"1" doc:"as sending the message returned it"`
}

type peekInput struct {
	QueuePath
	Peek string `query:"peek" doc:"says that nothing is received; may be left out"`
	From int64  `query:"from_sequence_number" minimum:"0" doc:"default: the first; next_cursor of the page before"`
	// This is a sequence number too, under the name that all other lists use.
	Cursor string `query:"cursor" maxLength:"20" doc:"next_cursor of the page before; instead of from_sequence_number"`
	// The limit is that of messages, not that of a page of jobs.
	Limit  int    `query:"limit" minimum:"1" maximum:"100" doc:"default 50"`
	Bodies bool   `query:"bodies" default:"true" doc:"false: leave the bodies out"`
	Reason string `query:"reason" maxLength:"4096" doc:"only dead letters with this dead_letter_reason; a page may have fewer although more follow"`
}

// from returns the sequence number to begin with.
func (in *peekInput) from() (int64, error) {
	if in.Cursor == "" {
		return in.From, nil
	}
	if in.From != 0 {
		return 0, forebay.Invalid("cursor", "must not be given beside from_sequence_number")
	}
	from, err := strconv.ParseInt(in.Cursor, 10, 64)
	if err != nil || from < 0 {
		return 0, &forebay.Error{Code: forebay.CodeInvalidCursor, Field: "cursor", Message: "is not a next_cursor of this list"}
	}
	return from, nil
}

// sendRequest is one message, or several.
type sendRequest struct {
	forebay.NewMessage
	Messages []forebay.NewMessage `json:"messages,omitempty" maxItems:"100" doc:"several messages, stored all or none, instead of the other fields"`
}

func (r sendRequest) messages() ([]forebay.NewMessage, error) {
	switch {
	case r.Messages == nil:
		return []forebay.NewMessage{r.NewMessage}, nil
	case !reflect.ValueOf(r.NewMessage).IsZero():
		return nil, forebay.Invalid("messages", "must stand alone: each of them has its own fields")
	}
	return r.Messages, nil
}

type sendAnswer struct {
	Messages []forebay.SentMessage `json:"messages"`
}

type receiveAnswer struct {
	Messages []forebay.Message `json:"messages"`
}

type renewAnswer struct {
	LockedUntil time.Time `json:"locked_until"`
}

// abandonRequest is a forebay.Settlement without a reason and a description.
type abandonRequest struct {
	Properties forebay.Properties `json:"application_properties,omitempty" doc:"added to the message's, or replacing those of the same name"`
}

func (r abandonRequest) settlement() forebay.Settlement {
	return forebay.Settlement{Properties: r.Properties}
}

const statusDescription = "What is left out stays. Where nobody may send, a send is answered with 409 and the code `entity_disabled`; messages that come due or were copied still arrive. " +
	"Where nobody may receive, so are receives, those that wait, and settlements other than abandon, release and return. Peeks, redrives and purges work."

var messageTags = []string{"messages"}

// routeMessages registers queues of plain messages, which workers in any language receive from.
func (a queueRoutes) routeMessages() {
	if a.messages == nil {
		return
	}
	routeOptionalBody(a.API, forebay.ScopeManage, conditions.Take(huma.Operation{
		OperationID: "put-queue", Method: http.MethodPut, Path: "/v1/queues/{queue}", Tags: messageTags,
		Summary:     "Make a queue of plain messages, or change its settings",
		Description: "Answers 201 when it made the queue. What is left out gets its default. A queue for jobs is made by the server's configuration only.",
		Responses:   map[string]*huma.Response{"201": {Description: "Created", Content: map[string]*huma.MediaType{transfer.JSON[0]: {Schema: a.schema(reflect.TypeFor[forebay.MessageQueue]())}}}},
	}, true), smallBody, func(ctx context.Context, c *call, in *QueuePath, settings forebay.MessageQueueSettings) (*putOutput[forebay.MessageQueue], error) {
		if err := c.forwards(settings.ForwardTo, settings.ForwardDeadLettersTo); err != nil {
			return nil, err
		}
		return putAnswer(a.messages.Queues.Put(ctx, c.caller.Tenant, in.Queue, settings))
	})
	routeBody(a.API, forebay.ScopeManage, conditions.Take(huma.Operation{
		OperationID: "change-queue", Method: http.MethodPut, Path: "/v1/queues/{queue}/status", Tags: []string{"queues"}, // subscriptions have a route of their own
		Summary: "Change the status or the metadata of a queue of plain messages", Description: statusDescription,
	}, false), smallBody, func(ctx context.Context, c *call, in *QueuePath, change forebay.EntityChange) (*answer[forebay.MessageQueue], error) {
		return answerOf(a.messages.Queues.Change(ctx, c.caller.Tenant, in.Queue, change))
	})
	route(a.API, forebay.ScopeManage, conditions.Take(huma.Operation{
		OperationID: "delete-queue", Method: http.MethodDelete, Path: "/v1/queues/{queue}", Tags: messageTags,
		Summary: "Delete a queue of plain messages, with all its messages", DefaultStatus: http.StatusNoContent,
	}, false), func(ctx context.Context, c *call, in *QueuePath) (*none, error) {
		return &none{}, a.messages.Queues.Delete(ctx, c.caller.Tenant, in.Queue)
	})
	send := huma.Operation{
		OperationID: "send-messages", Method: http.MethodPost, Path: "/v1/queues/{queue}/messages", Tags: messageTags,
		Summary: "Send a message, or up to 100", Description: "The messages are on disk when the answer comes.", DefaultStatus: http.StatusCreated,
	}
	// Base64 takes four bytes for three. Text in JSON may take six bytes a character, but hardly
	// ever does.
	routeBody(a.API, forebay.ScopeSend, send, 4*a.messages.Messages.MaxBytes()+envelopeBytes, a.send)
	routeNoBody(a.API, forebay.ScopeSend, huma.Operation{
		OperationID: "cancel-scheduled-message", Method: http.MethodPost, Path: "/v1/queues/{queue}/messages/{sequence_number}/cancel", Tags: messageTags,
		Summary: "Cancel a scheduled message", Description: "By the sequence number that sending it returned, until it is active. Answers 404 after that.",
		DefaultStatus: http.StatusNoContent,
	}, func(ctx context.Context, c *call, in *messagePath) (*none, error) {
		return &none{}, a.messages.Messages.CancelScheduled(ctx, c.caller.Tenant, in.Queue, in.SequenceNumber)
	})
	route(a.API, toPeek, huma.Operation{
		OperationID: "count-all-dead-letter-messages", Method: http.MethodGet, Path: "/v1/dead-letter-messages/groups", Tags: messageTags,
		Summary:     "Count the dead-lettered messages of all queues and subscriptions by reason",
		Description: "The newest 1,000 of each are looked at, 20,000 in all. complete says whether these were all.",
	}, func(ctx context.Context, c *call, _ *none) (*answer[forebay.DeadMessageGroups], error) {
		return answerOf(a.messages.DeadLetters.GroupsOfAll(ctx, c.caller.Tenant))
	})
	a.routeSessions()
	a.routeReceiving("/v1/queues/{queue}", "", "")
	a.routeReceiving("/v1/queues/{queue}/"+forebay.SubqueueDeadLetter, "-dead-letter", "/"+forebay.SubqueueDeadLetter)
}

// routeReceiving registers what a queue and its dead-letter subqueue have in common. infix tells
// their operations apart, sub is the subqueue's path below the queue.
func (a queueRoutes) routeReceiving(base, infix, sub string) {
	where := "the queue"
	if sub != "" {
		where = "the dead-letter subqueue"
	}
	entity := func(queue string) string { return queue + sub }
	routeOptionalBody(a.API, forebay.ScopeListen, huma.Operation{
		OperationID: "receive" + infix + "-messages", Method: http.MethodPost, Path: base + "/messages/receive", Tags: messageTags,
		Summary: "Receive messages from " + where,
		Description: "Under peek-lock, the default, each message is held for the queue's lock duration; settle it with its lock_token before that, or renew the lock. " +
			"An answer holds about 2 MiB at most, and always one message if there is one.",
	}, smallBody, func(ctx context.Context, c *call, in *QueuePath, req forebay.ReceiveRequest) (*answer[receiveAnswer], error) {
		messages, err := a.receive(ctx, c, entity(in.Queue), req)
		return &answer[receiveAnswer]{receiveAnswer{messages}}, err
	})
	route(a.API, toPeek, huma.Operation{
		OperationID: "peek" + infix + "-messages", Method: http.MethodGet, Path: base + "/messages", Tags: messageTags,
		Summary: "Look at the messages in " + where + " without receiving them", Description: "In the order of their sequence numbers, whatever their state.",
	}, func(ctx context.Context, c *call, in *peekInput) (*answer[forebay.Page[forebay.Message]], error) {
		from, err := in.from()
		if err != nil {
			return nil, err
		}
		messages, next, err := a.messages.Messages.Peek(ctx, c.caller.Tenant, entity(in.Queue), messaging.PeekFilter{From: from, Reason: in.Reason, Limit: in.Limit})
		if !in.Bodies {
			withoutBodies(messages)
		} else if err == nil {
			err = c.showMessages(ctx, entity(in.Queue), messages)
		}
		p := page(messages)
		if next > 0 {
			p.NextCursor = strconv.FormatInt(next, 10)
		}
		return pageAnswer(p, err)
	})
	routeBody(a.API, forebay.ScopeListen, huma.Operation{
		OperationID: "delete" + infix + "-messages", Method: http.MethodPost, Path: base + "/messages/delete", Tags: messageTags,
		Summary: "Remove the oldest messages from " + where, Description: "Up to 4,000 active messages that were enqueued before a time. Locked, deferred and scheduled ones stay.",
	}, smallBody, func(ctx context.Context, c *call, in *QueuePath, req forebay.DeleteMessagesRequest) (*answer[forebay.DeletedMessages], error) {
		deleted, err := a.messages.Messages.DeleteBefore(ctx, c.caller.Tenant, entity(in.Queue), req)
		return &answer[forebay.DeletedMessages]{forebay.DeletedMessages{Deleted: deleted}}, err
	})
	route(a.API, toPeek, huma.Operation{
		OperationID: "get" + infix + "-message", Method: http.MethodGet, Path: base + "/messages/{sequence_number}", Tags: messageTags,
		Summary: "Look at one message in " + where + " without receiving it", Description: "Whatever its state.",
	}, func(ctx context.Context, c *call, in *messagePath) (*answer[forebay.Message], error) {
		message, err := a.messages.Messages.Get(ctx, c.caller.Tenant, entity(in.Queue), in.SequenceNumber)
		if err != nil {
			return nil, err
		}
		one := []forebay.Message{message}
		err = c.showMessages(ctx, entity(in.Queue), one)
		return answerOf(one[0], err)
	})
	a.routeSettling(base+"/locks/{lock_token}/", infix, entity)
	if sub != "" {
		a.routeDeadMessages(base, infix, entity)
	}
	if sub == "" {
		routeOptionalBody(a.API, forebay.ScopeListen, settling(base+"/locks/{lock_token}/", "dead-letter", "", "Move a message to the dead-letter subqueue"), smallBody,
			func(ctx context.Context, c *call, in *LockPath, how forebay.Settlement) (*none, error) {
				return &none{}, a.messages.Messages.DeadLetter(ctx, c.caller.Tenant, in.Queue, in.LockToken, how)
			})
	}
}

// routeDeadMessages registers what operators do with messages that were dead-lettered.
func (a queueRoutes) routeDeadMessages(base, infix string, entity func(string) string) {
	route(a.API, toPeek, huma.Operation{
		OperationID: "count" + infix + "-messages", Method: http.MethodGet, Path: base + "/messages/groups", Tags: messageTags,
		Summary:     "Count dead-lettered messages by reason",
		Description: "The newest 20,000 are looked at, locked and deferred ones too. complete says whether these were all.",
	}, func(ctx context.Context, c *call, in *QueuePath) (*answer[forebay.DeadMessageGroups], error) {
		return answerOf(a.messages.DeadLetters.Groups(ctx, c.caller.Tenant, entity(in.Queue)))
	})
	routeBody(a.API, forebay.ScopeManage, conditions.Take(huma.Operation{
		OperationID: "redrive" + infix + "-messages", Method: http.MethodPost, Path: base + "/messages/redrive", Tags: messageTags,
		Summary: "Send dead-lettered messages back to where they came from",
		Description: "Selected by number, by reason, or all. Each gets a new sequence number, is delivered as if never before, and lives as long as a new message. " +
			"A single one may be edited. With a rate each is a scheduled message until its time comes. Locked and deferred ones stay. " +
			"Repeat the call while the answer says more, with its up_to and next_at.",
	}, false), 4*a.messages.Messages.MaxBytes()+envelopeBytes, func(ctx context.Context, c *call, in *QueuePath, req forebay.RedriveMessagesRequest) (*answer[forebay.RedrivenMessages], error) {
		return answerOf(a.messages.DeadLetters.Redrive(ctx, c.caller.Tenant, entity(in.Queue), req))
	})
	routeBody(a.API, forebay.ScopeManage, huma.Operation{
		OperationID: "purge" + infix + "-messages", Method: http.MethodPost, Path: base + "/messages/purge", Tags: messageTags,
		Summary:     "Remove dead-lettered messages for good",
		Description: "Selected by number, by reason, or all. Locked and deferred ones stay. Repeat the call while the answer says more.",
	}, smallBody, func(ctx context.Context, c *call, in *QueuePath, req forebay.DeadMessageFilter) (*answer[forebay.PurgedMessages], error) {
		return answerOf(a.messages.DeadLetters.Purge(ctx, c.caller.Tenant, entity(in.Queue), req))
	})
}

func settling(base, verb, infix, summary string) huma.Operation {
	return huma.Operation{
		OperationID: verb + infix + "-message", Method: http.MethodPost, Path: base + verb, Tags: messageTags, Summary: summary,
		Description: "Answers 409 with the code lock_lost, and changes nothing, once the lock has ended.", DefaultStatus: http.StatusNoContent,
	}
}

func (a queueRoutes) routeSettling(base, infix string, entity func(string) string) {
	routeNoBody(a.API, forebay.ScopeListen, settling(base, "complete", infix, "Remove a message that has been dealt with"),
		func(ctx context.Context, c *call, in *LockPath) (*none, error) {
			return &none{}, a.messages.Messages.Complete(ctx, c.caller.Tenant, entity(in.Queue), in.LockToken)
		})
	routeOptionalBody(a.API, forebay.ScopeListen, settling(base, "abandon", infix, "Give a message back at once"), smallBody,
		func(ctx context.Context, c *call, in *LockPath, how abandonRequest) (*none, error) {
			return &none{}, a.messages.Messages.Abandon(ctx, c.caller.Tenant, entity(in.Queue), in.LockToken, how.settlement())
		})
	routeNoBody(a.API, forebay.ScopeListen, settling(base, "release", infix, "Give a message back at once, as if it had not been delivered"),
		func(ctx context.Context, c *call, in *LockPath) (*none, error) {
			return &none{}, a.messages.Messages.Release(ctx, c.caller.Tenant, entity(in.Queue), in.LockToken)
		})
	routeOptionalBody(a.API, forebay.ScopeListen, settling(base, "defer", infix, "Keep a message for receiving by its sequence number only"), smallBody,
		func(ctx context.Context, c *call, in *LockPath, how abandonRequest) (*none, error) {
			return &none{}, a.messages.Messages.Defer(ctx, c.caller.Tenant, entity(in.Queue), in.LockToken, how.settlement())
		})
	renew := settling(base, "renew", infix, "Hold a message for another lock duration, from now on")
	renew.DefaultStatus = http.StatusOK
	routeNoBody(a.API, forebay.ScopeListen, renew, func(ctx context.Context, c *call, in *LockPath) (*answer[renewAnswer], error) {
		until, err := a.messages.Messages.Renew(ctx, c.caller.Tenant, entity(in.Queue), in.LockToken)
		return &answer[renewAnswer]{renewAnswer{until}}, err
	})
}

func (a queueRoutes) receive(ctx context.Context, c *call, entity string, req forebay.ReceiveRequest) ([]forebay.Message, error) {
	if err := c.opens(ctx, entity+"/messages"); err != nil {
		return nil, err
	}
	messages, err := patiently(ctx, a.API, c, req.Wait != "" || req.WaitSeconds > 0, func(ctx context.Context) ([]forebay.Message, error) {
		return a.messages.Messages.Receive(ctx, c.caller.Tenant, entity, req)
	})
	return notNil(messages), err
}

// notNil turns nil into an empty list, which is an empty array in JSON.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// patiently runs a long-polling call and counts it as one of the tenant's waiting requests. If the
// server stops first, the answer says that nothing was received.
func patiently[T any](ctx context.Context, a *API, c *call, waits bool, receive func(context.Context) (T, error)) (T, error) {
	var nothing T
	if !waits {
		return receive(ctx)
	}
	waiting, leave, err := a.waiting(ctx, c)
	if err != nil {
		return nothing, err
	}
	defer leave()
	got, err := receive(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nothing, nil
	}
	return got, err
}

func (a queueRoutes) send(ctx context.Context, c *call, in *QueuePath, req sendRequest) (*answer[sendAnswer], error) {
	messages, err := req.messages()
	if err != nil {
		return nil, err
	}
	sent, err := a.messages.Messages.Send(ctx, c.caller.Tenant, in.Queue, messages)
	return &answer[sendAnswer]{sendAnswer{sent}}, err
}

// routeOptionalBody is routeBody for a body that may be absent because all its fields have
// defaults.
func routeOptionalBody[I, B, O any](a *API, scope forebay.Scope, op huma.Operation, limit int64, handle func(context.Context, *call, *I, B) (*O, error)) {
	route(a, scope, op, func(ctx context.Context, c *call, in *I) (*O, error) {
		data, release, err := a.readBody(c, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		var body B
		if len(bytes.TrimSpace(data)) > 0 {
			if body, err = decode.Object[B](data); err != nil {
				return nil, err
			}
		}
		return handle(ctx, c, in, body)
	})
	a.documentBody(op, transfer.JSON[0], a.schema(reflect.TypeFor[B]()))
	registered(a.huma, op).RequestBody.Required = false
}

// eitherQueue documents an answer that is about a queue for jobs or about one of messages.
func (a queueRoutes) eitherQueue(jobs, messages reflect.Type) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: "OK",
		Content: map[string]*huma.MediaType{transfer.JSON[0]: {
			Schema: &huma.Schema{OneOf: []*huma.Schema{a.schema(jobs), a.schema(messages)}},
		}},
	}}
}

type getQueueInput struct {
	QueuePath
	TenantsInput
}

// anyQueue answers with a queue for jobs, or else with one of messages, which says so in its kind.
func (a queueRoutes) anyQueue(ctx context.Context, c *call, in *getQueueInput) (*answer[any], error) {
	if err := in.check(c); err != nil {
		return nil, err
	}
	ofJobs := c.caller.May(forebay.ScopeRead)
	if in.AllTenants {
		queue, err := a.jobs.AnyQueue(ctx, in.Queue)
		return &answer[any]{queue}, err
	}
	if !ofJobs && a.messages == nil {
		return nil, forebay.Errorf(forebay.CodeForbidden, "queues of jobs need a key with the scope %q", forebay.ScopeRead)
	}
	if ofJobs && (a.messages == nil || forebay.ValidName(in.Queue) || !forebay.ValidEntityName(in.Queue)) { // else it is no name of a queue of jobs
		queue, err := a.jobs.Queue(ctx, c.caller.Tenant, in.Queue)
		if err == nil || a.messages == nil || forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			return &answer[any]{queue}, err
		}
	}
	messages, err := a.messages.Queues.Get(ctx, c.caller.Tenant, in.Queue)
	if !ofJobs && forebay.CodeOf(err) == forebay.CodeUnknownQueue && forebay.ValidName(in.Queue) { // it may be one of jobs
		err = forebay.Errorf(forebay.CodeForbidden, "there is no such queue of messages, and queues of jobs need a key with the scope %q", forebay.ScopeRead)
	}
	return &answer[any]{messages}, err
}

type listQueuesInput struct {
	Kind string `query:"kind" enum:"jobs,messages" doc:"default jobs"`
	TenantsInput
}

func (a queueRoutes) listQueues(ctx context.Context, c *call, in *listQueuesInput) (*answer[any], error) {
	if err := in.check(c); err != nil {
		return nil, err
	}
	if in.Kind == forebay.KindMessages && a.messages != nil {
		if in.AllTenants {
			return nil, forebay.Invalid("all_tenants", "is for queues of jobs: a queue of messages belongs to one tenant")
		}
		queues, err := a.messages.Queues.List(ctx, c.caller.Tenant)
		return &answer[any]{page(queues)}, err
	}
	if !c.caller.May(forebay.ScopeRead) {
		return nil, forebay.Errorf(forebay.CodeForbidden, "queues of jobs need a key with the scope %q; kind=messages lists those of messages", forebay.ScopeRead)
	}
	if in.AllTenants {
		queues, err := a.jobs.AllQueues(ctx)
		return &answer[any]{page(queues)}, err
	}
	queues, err := a.jobs.Queues(ctx, c.caller.Tenant)
	return &answer[any]{page(queues)}, err
}
