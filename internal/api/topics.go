package api

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/conditions"
	"github.com/forebayhq/forebay/internal/api/transfer"
)

// TopicPath names the topic a request is about.
type TopicPath struct {
	Topic string `path:"topic" doc:"name of the topic"`
}

// SubscriptionPath names a subscription.
type SubscriptionPath struct {
	TopicPath
	Subscription string `path:"subscription" doc:"name of the subscription"`
}

// RulePath names a rule.
type RulePath struct {
	SubscriptionPath
	Rule string `path:"rule" doc:"name of the rule"`
}

type topicMessagePath struct {
	TopicPath
	SequenceNumber int64 `path:"sequence_number" doc:"as the answer to the send said"`
}

// putOutput is the answer to a PUT that may create something.
type putOutput[T any] struct {
	Status int
	Body   T
}

func putAnswer[T any](v T, created bool, err error) (*putOutput[T], error) {
	if created {
		return &putOutput[T]{http.StatusCreated, v}, err
	}
	return &putOutput[T]{http.StatusOK, v}, err
}

var topicTags = []string{"topics"}

// putOperation describes a PUT that answers with a T.
func putOperation[T any](a *API, id, path, summary, description string) huma.Operation {
	return conditions.Take(huma.Operation{
		OperationID: id, Method: http.MethodPut, Path: path, Tags: topicTags, Summary: summary, Description: description,
		Responses: map[string]*huma.Response{"201": {Description: "Created", Content: map[string]*huma.MediaType{transfer.JSON[0]: {Schema: a.schema(reflect.TypeFor[T]())}}}},
	}, true)
}

func topicOperation(method, id, path, summary string) huma.Operation {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Tags: topicTags, Summary: summary}
	switch method {
	case http.MethodDelete:
		op.DefaultStatus = http.StatusNoContent
		return conditions.Take(op, false)
	case http.MethodPut:
		return conditions.Take(op, false)
	}
	return op
}

const (
	topicPath        = "/v1/topics/{topic}"
	subscriptionPath = topicPath + "/subscriptions/{subscription}"
	rulePath         = subscriptionPath + "/rules/{rule}"
)

// routeTopics registers topics, subscriptions and rules. It comes after routeMessages, because
// subscriptions have the routes of queues as well.
func (a queueRoutes) routeTopics() {
	if a.messages == nil {
		return
	}
	routeOptionalBody(a.API, forebay.ScopeManage, putOperation[forebay.Topic](a.API, "put-topic", topicPath, "Make a topic, or change its settings",
		"Answers 201 when it made the topic. What is left out gets its default."), smallBody,
		func(ctx context.Context, c *call, in *TopicPath, settings forebay.TopicSettings) (*putOutput[forebay.Topic], error) {
			return putAnswer(a.messages.Topics.Put(ctx, c.caller.Tenant, in.Topic, settings))
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "list-topics", "/v1/topics", "List topics"),
		func(ctx context.Context, c *call, _ *none) (*answer[forebay.Page[forebay.Topic]], error) {
			topics, err := a.messages.Topics.List(ctx, c.caller.Tenant)
			return pageAnswer(page(topics), err)
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "get-topic", topicPath, "Get a topic"),
		func(ctx context.Context, c *call, in *TopicPath) (*answer[forebay.Topic], error) {
			topic, err := a.messages.Topics.Get(ctx, c.caller.Tenant, in.Topic)
			return &answer[forebay.Topic]{topic}, err
		})
	change := topicOperation(http.MethodPut, "change-topic", topicPath+"/status", "Change the status or the metadata of a topic")
	change.Description = statusDescription
	routeBody(a.API, forebay.ScopeManage, change, smallBody, func(ctx context.Context, c *call, in *TopicPath, change forebay.EntityChange) (*answer[forebay.Topic], error) {
		return answerOf(a.messages.Topics.Change(ctx, c.caller.Tenant, in.Topic, change))
	})
	route(a.API, forebay.ScopeManage, topicOperation(http.MethodDelete, "delete-topic", topicPath, "Delete a topic with its subscriptions and their messages"),
		func(ctx context.Context, c *call, in *TopicPath) (*none, error) {
			return &none{}, a.messages.Topics.Delete(ctx, c.caller.Tenant, in.Topic)
		})
	send := topicOperation(http.MethodPost, "publish-messages", topicPath+"/messages", "Send a message, or up to 100, to the subscriptions of a topic")
	send.DefaultStatus = http.StatusCreated
	send.Description = "Each subscription gets the copies that its rules select, all or none of them, and they are on disk when the answer comes. " +
		"The sequence number of the answer is the enqueued_sequence_number of the copies."
	routeBody(a.API, forebay.ScopeSend, send, 4*a.messages.Messages.MaxBytes()+envelopeBytes, a.publishMessages)
	cancel := topicOperation(http.MethodPost, "cancel-scheduled-published-message", topicPath+"/messages/{sequence_number}/cancel", "Remove a scheduled message before it becomes active")
	cancel.DefaultStatus = http.StatusNoContent
	routeNoBody(a.API, forebay.ScopeSend, cancel, func(ctx context.Context, c *call, in *topicMessagePath) (*none, error) {
		return &none{}, a.messages.Messages.CancelPublished(ctx, c.caller.Tenant, in.Topic, in.SequenceNumber)
	})
	test := topicOperation(http.MethodPost, "test-rules", topicPath+"/test", "Show which rules of a topic select a message")
	test.Description = "The message is not sent. Says why a rule does not select it, and what the actions make of it."
	routeBody(a.API, toDescribe, test, 4*a.messages.Messages.MaxBytes()+envelopeBytes, func(ctx context.Context, c *call, in *TopicPath, req forebay.RuleTestRequest) (*answer[forebay.RuleTest], error) {
		return answerOf(a.messages.Rules.Test(ctx, c.caller.Tenant, in.Topic, req))
	})
	a.routeSubscriptions()
	a.routeRules()
	a.routeSubscriptionMessages()
}

func (a queueRoutes) publishMessages(ctx context.Context, c *call, in *TopicPath, req sendRequest) (*answer[sendAnswer], error) {
	messages, err := req.messages()
	if err != nil {
		return nil, err
	}
	sent, err := a.messages.Messages.Publish(ctx, c.caller.Tenant, in.Topic, messages)
	return &answer[sendAnswer]{sendAnswer{sent}}, err
}

func (a queueRoutes) routeSubscriptions() {
	routeOptionalBody(a.API, forebay.ScopeManage, putOperation[forebay.Subscription](a.API, "put-subscription", subscriptionPath, "Make a subscription, or change its settings",
		"Answers 201 when it made the subscription, with one rule, $Default, which selects all messages, or with the rules given. An existing subscription keeps its rules."), smallBody,
		func(ctx context.Context, c *call, in *SubscriptionPath, settings forebay.SubscriptionSettings) (*putOutput[forebay.Subscription], error) {
			if err := c.forwards(settings.ForwardTo, settings.ForwardDeadLettersTo); err != nil {
				return nil, err
			}
			return putAnswer(a.messages.Subscriptions.Put(ctx, c.caller.Tenant, in.Topic, in.Subscription, settings))
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "list-subscriptions", topicPath+"/subscriptions", "List a topic's subscriptions"),
		func(ctx context.Context, c *call, in *TopicPath) (*answer[forebay.Page[forebay.Subscription]], error) {
			subs, err := a.messages.Subscriptions.List(ctx, c.caller.Tenant, in.Topic)
			return pageAnswer(page(subs), err)
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "get-subscription", subscriptionPath, "Get a subscription and what stands in it"),
		func(ctx context.Context, c *call, in *SubscriptionPath) (*answer[forebay.Subscription], error) {
			sub, err := a.messages.Subscriptions.Get(ctx, c.caller.Tenant, in.Topic, in.Subscription)
			return &answer[forebay.Subscription]{sub}, err
		})
	change := topicOperation(http.MethodPut, "change-subscription", subscriptionPath+"/status", "Change the status or the metadata of a subscription")
	change.Description = statusDescription
	routeBody(a.API, forebay.ScopeManage, change, smallBody, func(ctx context.Context, c *call, in *SubscriptionPath, change forebay.EntityChange) (*answer[forebay.Subscription], error) {
		return answerOf(a.messages.Subscriptions.Change(ctx, c.caller.Tenant, in.Topic, in.Subscription, change))
	})
	route(a.API, forebay.ScopeManage, topicOperation(http.MethodDelete, "delete-subscription", subscriptionPath, "Delete a subscription with its messages"),
		func(ctx context.Context, c *call, in *SubscriptionPath) (*none, error) {
			return &none{}, a.messages.Subscriptions.Delete(ctx, c.caller.Tenant, in.Topic, in.Subscription)
		})
}

func (a queueRoutes) routeRules() {
	routeOptionalBody(a.API, forebay.ScopeManage, putOperation[forebay.Rule](a.API, "put-rule", rulePath, "Add a rule to a subscription, or replace it",
		"Rules without an action make one copy together of each message that one of them selects. Each rule with an action makes a copy of its own."), smallBody,
		func(ctx context.Context, c *call, in *RulePath, settings forebay.RuleSettings) (*putOutput[forebay.Rule], error) {
			return putAnswer(a.messages.Rules.Put(ctx, c.caller.Tenant, in.Topic, in.Subscription, in.Rule, settings))
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "list-rules", subscriptionPath+"/rules", "List a subscription's rules"),
		func(ctx context.Context, c *call, in *SubscriptionPath) (*answer[forebay.Page[forebay.Rule]], error) {
			rules, err := a.messages.Rules.List(ctx, c.caller.Tenant, in.Topic, in.Subscription)
			return pageAnswer(page(rules), err)
		})
	route(a.API, toDescribe, topicOperation(http.MethodGet, "get-rule", rulePath, "Get a rule"),
		func(ctx context.Context, c *call, in *RulePath) (*answer[forebay.Rule], error) {
			rule, err := a.messages.Rules.Get(ctx, c.caller.Tenant, in.Topic, in.Subscription, in.Rule)
			return &answer[forebay.Rule]{rule}, err
		})
	route(a.API, forebay.ScopeManage, topicOperation(http.MethodDelete, "delete-rule", rulePath, "Delete a rule"),
		func(ctx context.Context, c *call, in *RulePath) (*none, error) {
			return &none{}, a.messages.Rules.Delete(ctx, c.caller.Tenant, in.Topic, in.Subscription, in.Rule)
		})
}

const queuePath = "/v1/queues/{queue}"

// routeSubscriptionMessages lets subscriptions be received from by the routes that queues have.
// A request to a subscription's path goes on to the queue of that name.
func (a queueRoutes) routeSubscriptionMessages() {
	paths := a.huma.OpenAPI().Paths
	for path, item := range maps.Clone(paths) {
		below, ok := strings.CutPrefix(path, queuePath+"/")
		if !ok || !forMessages(item) {
			continue
		}
		a.mux.HandleFunc(subscriptionPath+"/"+below, func(w http.ResponseWriter, r *http.Request) {
			c := callFrom(r.Context())
			c.r = asQueue(r, below)
			a.mux.ServeHTTP(w, c.r)
		})
		documented := &huma.PathItem{Get: subscriptionOperation(item.Get), Post: subscriptionOperation(item.Post), Put: subscriptionOperation(item.Put), Delete: subscriptionOperation(item.Delete)}
		if below == "messages" || strings.HasSuffix(below, "/cancel") { // only for topics
			if documented.Post = nil; documented.Get == nil {
				continue
			}
		}
		paths[subscriptionPath+"/"+below] = documented
	}
}

// forMessages reports whether a path is about queues of messages.
func forMessages(item *huma.PathItem) bool {
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
		if op != nil {
			return op.Tags[0] == messageTags[0]
		}
	}
	return false
}

// subscriptionOperation turns the description of a queue operation into one about subscriptions.
func subscriptionOperation(op *huma.Operation) *huma.Operation {
	if op == nil {
		return nil
	}
	described := *op
	described.OperationID = "subscription-" + op.OperationID
	described.Path = strings.Replace(op.Path, queuePath, subscriptionPath, 1)
	described.Tags = topicTags
	described.Summary = strings.Replace(op.Summary, "the queue", "the subscription", 1)
	described.Parameters = nil
	for _, p := range op.Parameters {
		if p.In != "path" || p.Name != "queue" {
			described.Parameters = append(described.Parameters, p)
			continue
		}
		for _, name := range []string{"topic", "subscription"} {
			named := *p
			named.Name, named.Description = name, "name of the "+name
			described.Parameters = append(described.Parameters, &named)
		}
	}
	return &described
}

// asQueue returns the request with the subscription as a queue, whose name is the subscription's
// path. below is the rest of the route.
func asQueue(r *http.Request, below string) *http.Request {
	name := forebay.SubscriptionPath(r.PathValue("topic"), r.PathValue("subscription"))
	segments := []string{"", "v1", "queues", url.PathEscape(name)}
	plain := []string{"", "v1", "queues", name}
	for _, segment := range strings.Split(below, "/") {
		if variable, ok := strings.CutPrefix(segment, "{"); ok {
			segment = r.PathValue(strings.TrimSuffix(variable, "}"))
		}
		segments, plain = append(segments, url.PathEscape(segment)), append(plain, segment)
	}
	u := *r.URL
	u.Path, u.RawPath = strings.Join(plain, "/"), strings.Join(segments, "/")
	as := r.Clone(r.Context())
	as.URL = &u
	return as
}
