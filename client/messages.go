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

// messageQueues is the part of Client about queues of plain messages.
type messageQueues struct{ *endpoint }

// MessageQueues returns all queues of plain messages.
func (c *messageQueues) MessageQueues(ctx context.Context) ([]forebay.MessageQueue, error) {
	var page forebay.Page[forebay.MessageQueue]
	err := c.call(ctx, request{method: http.MethodGet, path: path("queues"), query: url.Values{"kind": {forebay.KindMessages}}}, &page)
	return page.Items, err
}

// FindQueue returns the queue of that name: a queue of jobs or of plain messages.
func (c *messageQueues) FindQueue(ctx context.Context, name string) (jobs *forebay.QueueInfo, messages *forebay.MessageQueue, err error) {
	if err := checkID("queue", name); err != nil {
		return nil, nil, err
	}
	var answer json.RawMessage
	if err := c.call(ctx, request{method: http.MethodGet, path: path("queues", name)}, &answer); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(answer, &messages); err != nil {
		return nil, nil, errNotForebay.Caused(err)
	}
	if messages != nil && messages.Kind == forebay.KindMessages {
		return nil, messages, nil
	}
	if err := json.Unmarshal(answer, &jobs); err != nil || jobs == nil {
		return nil, nil, errNotForebay.Caused(err)
	}
	return jobs, nil, nil
}

// PutMessageQueue creates a queue of plain messages or replaces its settings.
func (c *messageQueues) PutMessageQueue(ctx context.Context, name string, settings forebay.MessageQueueSettings) (q forebay.MessageQueue, err error) {
	if err := checkID("queue", name); err != nil {
		return q, err
	}
	err = c.call(ctx, request{method: http.MethodPut, path: path("queues", name), body: settings}, &q)
	return q, err
}

// ChangeMessageQueue changes the status and the metadata of a queue of plain messages. What the
// change leaves out stays.
func (c *messageQueues) ChangeMessageQueue(ctx context.Context, name string, change forebay.EntityChange) (q forebay.MessageQueue, err error) {
	if err := checkID("queue", name); err != nil {
		return q, err
	}
	err = c.call(ctx, request{method: http.MethodPut, path: path("queues", name, "status"), body: change}, &q)
	return q, err
}

// DeleteMessageQueue removes a queue of plain messages with all its messages.
func (c *messageQueues) DeleteMessageQueue(ctx context.Context, name string) error {
	if err := checkID("queue", name); err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path("queues", name), once: true}, nil)
}

// Messages works on the messages of one queue or of its dead-letter subqueue. Requests that change
// something are sent only once. If the answer is lost, the outcome is unknown.
type Messages struct {
	server *endpoint
	parts  []string
}

// Messages returns the messages of an entity: "<queue>", "<topic>/subscriptions/<subscription>",
// or either followed by "/$deadletterqueue".
func (c *messageQueues) Messages(entity string) Messages {
	name, subscription, subqueue := forebay.CutEntityPath(entity)
	parts := []string{"queues", name}
	if subscription != "" {
		parts = []string{"topics", name, "subscriptions", subscription}
	}
	if strings.EqualFold(subqueue, forebay.SubqueueDeadLetter) {
		subqueue = forebay.SubqueueDeadLetter
	}
	if subqueue != "" {
		parts = append(parts, subqueue)
	}
	return Messages{server: c.endpoint, parts: parts}
}

func (m Messages) call(ctx context.Context, method string, body, out any, segments ...string) error {
	for _, part := range m.parts {
		if part == "" {
			return forebay.Invalid("queue", "is missing")
		}
	}
	for _, segment := range segments {
		if err := checkID("token", segment); err != nil {
			return err
		}
	}
	return m.server.call(ctx, request{method: method, path: m.path(segments...), body: body, once: method != http.MethodGet}, out)
}

func (m Messages) path(segments ...string) string {
	return path(append(append([]string{}, m.parts...), segments...)...)
}

type messageList struct {
	Messages []forebay.Message `json:"messages"`
}

// Send stores all of the messages or none of them.
func (m Messages) Send(ctx context.Context, messages ...forebay.NewMessage) ([]forebay.SentMessage, error) {
	var sent struct {
		Messages []forebay.SentMessage `json:"messages"`
	}
	err := m.call(ctx, http.MethodPost, map[string]any{"messages": messages}, &sent, "messages")
	return sent.Messages, err
}

// CancelScheduled cancels a scheduled message by the sequence number that Send returned.
func (m Messages) CancelScheduled(ctx context.Context, number int64) error {
	return m.call(ctx, http.MethodPost, nil, nil, "messages", strconv.FormatInt(number, 10), "cancel")
}

// Get returns one message by its sequence number, in any state, without receiving it.
func (m Messages) Get(ctx context.Context, number int64) (got forebay.Message, err error) {
	err = m.call(ctx, http.MethodGet, nil, &got, "messages", strconv.FormatInt(number, 10))
	return got, err
}

// Redrive sends messages of a dead-letter subqueue back to their queue or subscription.
func (m Messages) Redrive(ctx context.Context, req forebay.RedriveMessagesRequest) (report forebay.RedrivenMessages, err error) {
	err = m.call(ctx, http.MethodPost, req, &report, "messages", "redrive")
	return report, err
}

// DeadMessageGroups counts the dead letters of all queues and subscriptions by queue and reason.
func (c *messageQueues) DeadMessageGroups(ctx context.Context) (groups forebay.DeadMessageGroups, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: path("dead-letter-messages", "groups")}, &groups)
	return groups, err
}

// DeadGroups counts the messages of a dead-letter subqueue by reason.
func (m Messages) DeadGroups(ctx context.Context) (groups forebay.DeadMessageGroups, err error) {
	err = m.call(ctx, http.MethodGet, nil, &groups, "messages", "groups")
	return groups, err
}

// PurgeDead removes messages of a dead-letter subqueue for good.
func (m Messages) PurgeDead(ctx context.Context, filter forebay.DeadMessageFilter) (report forebay.PurgedMessages, err error) {
	err = m.call(ctx, http.MethodPost, filter, &report, "messages", "purge")
	return report, err
}

// Receive takes messages.
func (m Messages) Receive(ctx context.Context, req forebay.ReceiveRequest) ([]forebay.Message, error) {
	var got messageList
	err := m.call(ctx, http.MethodPost, req, &got, "messages", "receive")
	return got.Messages, err
}

// Peek yields messages from a sequence number on, in any state, without receiving them.
func (m Messages) Peek(ctx context.Context, from int64) iter.Seq2[forebay.Message, error] {
	return m.PeekReason(ctx, "", from)
}

// PeekReason is Peek for the messages of a dead-letter subqueue with this reason.
func (m Messages) PeekReason(ctx context.Context, reason string, from int64) iter.Seq2[forebay.Message, error] {
	query := url.Values{}
	if reason != "" {
		query.Set("reason", reason)
	}
	if from > 0 {
		query.Set("cursor", strconv.FormatInt(from, 10))
	}
	return pages[forebay.Message](ctx, m.server, m.path("messages"), query)
}

// DeleteBefore removes the oldest messages and returns how many.
func (m Messages) DeleteBefore(ctx context.Context, req forebay.DeleteMessagesRequest) (int, error) {
	var d forebay.DeletedMessages
	err := m.call(ctx, http.MethodPost, req, &d, "messages", "delete")
	return d.Deleted, err
}

// Complete removes a message that was processed.
func (m Messages) Complete(ctx context.Context, lockToken string) error {
	return m.call(ctx, http.MethodPost, nil, nil, "locks", lockToken, "complete")
}

// Abandon returns a message to the queue at once. The delivery counts.
func (m Messages) Abandon(ctx context.Context, lockToken string, how forebay.Settlement) error {
	return m.call(ctx, http.MethodPost, how, nil, "locks", lockToken, "abandon")
}

// Release returns a message to the queue at once. The delivery does not count.
func (m Messages) Release(ctx context.Context, lockToken string) error {
	return m.call(ctx, http.MethodPost, nil, nil, "locks", lockToken, "release")
}

// Defer sets a message aside. From then on it can only be received by its sequence number.
func (m Messages) Defer(ctx context.Context, lockToken string, how forebay.Settlement) error {
	return m.call(ctx, http.MethodPost, how, nil, "locks", lockToken, "defer")
}

// DeadLetter moves a message to the dead-letter subqueue.
func (m Messages) DeadLetter(ctx context.Context, lockToken string, how forebay.Settlement) error {
	return m.call(ctx, http.MethodPost, how, nil, "locks", lockToken, "dead-letter")
}

// Renew extends a lock by another lock duration and returns its new end.
func (m Messages) Renew(ctx context.Context, lockToken string) (time.Time, error) {
	return m.renew(ctx, "locks", lockToken, "renew")
}

func (m Messages) renew(ctx context.Context, segments ...string) (time.Time, error) {
	var renewed struct {
		LockedUntil time.Time `json:"locked_until"`
	}
	err := m.call(ctx, http.MethodPost, nil, &renewed, segments...)
	return renewed.LockedUntil, err
}
