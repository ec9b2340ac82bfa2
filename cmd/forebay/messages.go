package main

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) messages() *cobra.Command {
	return a.group("messages", "Send, receive and settle plain messages",
		`Plain messages stand in queues of their own (forebay queues create). A received message is locked: settle
it with its lock token before the lock ends. QUEUE may also be a dead-letter subqueue, which a shell wants
in single quotes: 'mail/$deadletterqueue'.`,
		a.messagesSend(), a.messagesReceive(), a.messagesPeek(),
		a.messageSettle("complete", "Remove a message that has been dealt with", func(ctx context.Context, m client.Messages, token string, _ forebay.Settlement) error {
			return m.Complete(ctx, token)
		}),
		a.messageSettle("abandon", "Give a message back at once", func(ctx context.Context, m client.Messages, token string, how forebay.Settlement) error {
			return m.Abandon(ctx, token, how)
		}),
		a.messageSettle("release", "Give a message back at once, as if it had not been delivered", func(ctx context.Context, m client.Messages, token string, _ forebay.Settlement) error {
			return m.Release(ctx, token)
		}),
		a.messageSettle("defer", "Keep a message for receiving by its sequence number only", func(ctx context.Context, m client.Messages, token string, how forebay.Settlement) error {
			return m.Defer(ctx, token, how)
		}),
		a.messageSettle("dead-letter", "Move a message to the dead-letter subqueue", func(ctx context.Context, m client.Messages, token string, how forebay.Settlement) error {
			return m.DeadLetter(ctx, token, how)
		}),
		a.messageSettle("renew", "Hold a message for another lock duration", func(ctx context.Context, m client.Messages, token string, _ forebay.Settlement) error {
			until, err := m.Renew(ctx, token)
			if err != nil {
				return err
			}
			return a.printOne(map[string]time.Time{"locked_until": until}, [][2]string{{"locked until", a.when(until)}})
		}),
		a.messagesShow(), a.messagesRedrive(), a.messagesPurge(), a.messagesCancel(), a.messagesDelete(), a.sessionsList(), a.messagesAccept(),
		a.sessionRenew(), a.sessionState(), a.sessionSetState(), a.sessionClose(),
	)
}

// messagesOf returns the messages of the queue that the command names.
func (a *app) messagesOf(entity string) (client.Messages, error) {
	api, err := a.client()
	if err != nil {
		return client.Messages{}, err
	}
	return api.Messages(entity), nil
}

func (a *app) messagesSend() *cobra.Command {
	f := &messageFlags{}
	c := &cobra.Command{
		Use: "send QUEUE", Short: "Send a message", Args: arguments(1, "QUEUE"),
		Long: "Send a message. It is on disk when the command returns, which prints its sequence number.",
		Example: `  forebay messages send mail --body hello --property n=1
  forebay messages send steps --body '{"step":1}' --session-id order-7
  forebay messages send mail --file letter.pdf --scheduled-at 2h`,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := f.message(c.Context(), a)
			if err != nil {
				return err
			}
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			return a.sent(queue.Send(c.Context(), m))
		},
	}
	f.register(c)
	return c
}

func (a *app) messagesReceive() *cobra.Command {
	var req forebay.ReceiveRequest
	var wait time.Duration
	var remove bool
	var session string
	var numbers []int64
	c := &cobra.Command{
		Use: "receive QUEUE", Short: "Receive messages under a lock each", Args: arguments(1, "QUEUE"),
		Example: `  forebay messages receive mail --max 10 --wait 20s -o json
  forebay messages receive steps --session-token TOKEN
  forebay messages receive 'mail/$deadletterqueue' --delete`,
	}
	flags := c.Flags()
	flags.IntVar(&req.MaxMessages, "max", 1, "at most this many messages: 1 to 100")
	flags.DurationVar(&wait, "wait", 0, "wait for a first message, up to 1m")
	flags.BoolVar(&remove, "delete", false, "remove the messages at once instead of locking them")
	flags.StringVar(&session, "session-token", "", "of an accepted session, whose messages to receive")
	flags.Int64SliceVar(&numbers, "deferred", nil, "sequence numbers of deferred messages to receive instead")
	c.RunE = func(c *cobra.Command, args []string) error {
		req.WaitSeconds = wait.Seconds()
		if req.Mode = forebay.PeekLock; remove {
			req.Mode = forebay.ReceiveAndDelete
		}
		if req.DeferredSequenceNumbers = numbers; len(numbers) > 0 && !c.Flags().Changed("max") {
			req.MaxMessages = 0
		}
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		receive := queue.Receive
		if session != "" {
			receive = func(ctx context.Context, req forebay.ReceiveRequest) ([]forebay.Message, error) {
				return queue.ReceiveSession(ctx, session, req)
			}
		}
		got, err := receive(c.Context(), req)
		if err != nil {
			return ofQueue(err)
		}
		return printList(a, all(got), 0, slices.Concat(a.messageColumns(), []column[forebay.Message]{{"LOCK TOKEN", func(m forebay.Message) string { return m.LockToken }}}))
	}
	return c
}

func (a *app) messagesPeek() *cobra.Command {
	var limit int
	var from int64
	var reason string
	c := &cobra.Command{
		Use: "peek QUEUE", Short: "Look at messages without receiving them, whatever their state", Args: arguments(1, "QUEUE"),
		Example: `  forebay messages peek mail --limit 20
  forebay messages peek 'mail/$deadletterqueue' --reason MaxDeliveryCountExceeded`,
	}
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	c.Flags().Int64Var(&from, "from", 0, "sequence number to begin with")
	c.Flags().StringVar(&reason, "reason", "", "only dead letters with this reason")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		return ofQueue(printList(a, queue.PeekReason(c.Context(), reason, from), limit, a.messageColumns()))
	}
	return c
}

func (a *app) messageColumns() []column[forebay.Message] {
	return []column[forebay.Message]{
		{"NUMBER", func(m forebay.Message) string { return count(m.SequenceNumber) }},
		{"STATE", func(m forebay.Message) string { return string(m.State) }},
		{"MESSAGE ID", func(m forebay.Message) string { return m.MessageID }},
		{"SESSION", func(m forebay.Message) string { return m.SessionID }},
		{"DELIVERIES", func(m forebay.Message) string { return strconv.Itoa(m.DeliveryCount) }},
		{"ENQUEUED", func(m forebay.Message) string { return a.age(m.EnqueuedTime) }},
		{"REASON", func(m forebay.Message) string { return m.DeadLetterReason }},
		{"BODY", func(m forebay.Message) string {
			if m.Body != nil {
				return shorten(*m.Body, 60)
			}
			return shorten(base64.StdEncoding.EncodeToString(m.BodyBase64), 60)
		}},
	}
}

func (a *app) messageSettle(verb, short string, do func(context.Context, client.Messages, string, forebay.Settlement) error) *cobra.Command {
	var how forebay.Settlement
	var properties []string
	c := &cobra.Command{
		Use: verb + " QUEUE LOCK_TOKEN", Short: short, Args: arguments(2, "QUEUE", "LOCK_TOKEN"),
		Example: "  forebay messages " + verb + " mail AAAAAAAAAAFb2V0aGluZyBlbHNl",
	}
	switch verb {
	case "dead-letter":
		c.Flags().StringVar(&how.Reason, "reason", "", "why")
		c.Flags().StringVar(&how.Description, "description", "", "more about why")
		fallthrough
	case "abandon", "defer":
		c.Flags().StringArrayVar(&properties, "property", nil, "name=value of an application property to change; may be repeated")
	}
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if how.Properties, err = parseProperties(properties); err != nil {
			return err
		}
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		return ofQueue(do(c.Context(), queue, args[1], how))
	}
	return c
}

func (a *app) messagesCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel QUEUE NUMBER", Short: "Cancel a scheduled message", Args: arguments(2, "QUEUE", "NUMBER"),
		Example: "  forebay messages cancel mail 42",
		RunE: func(c *cobra.Command, args []string) error {
			number, err := strconv.ParseInt(strings.TrimSpace(args[1]), 10, 64)
			if err != nil || number < 1 {
				return usagef("%q is not a sequence number", args[1])
			}
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			return ofQueue(queue.CancelScheduled(c.Context(), number))
		},
	}
}

func (a *app) messagesDelete() *cobra.Command {
	var req forebay.DeleteMessagesRequest
	var before string
	var everything bool
	c := &cobra.Command{
		Use: "delete QUEUE", Short: "Remove the oldest messages without receiving them", Args: arguments(1, "QUEUE"),
		Long: `Remove the oldest active messages, those that were enqueued before a time or all of them, and print
how many. Locked, deferred and scheduled messages stay.`,
		Example: `  forebay messages delete mail --before 7d
  forebay messages delete 'mail/$deadletterqueue' --all
  forebay messages delete mail --all --max 100`,
	}
	c.Flags().StringVar(&before, "before", "", "only messages enqueued before this time, or longer ago than this")
	c.Flags().BoolVar(&everything, "all", false, "all messages")
	c.Flags().IntVar(&req.MaxMessages, "max", 0, "at most this many (default: as many as there are)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := oneFlag(c, "before", "all"); err != nil {
			return err
		}
		if c.Flags().Changed("max") && req.MaxMessages < 1 {
			return usagef("--max must be at least 1")
		}
		req.Before = a.now().Add(24 * time.Hour) // for the server's clock may be ahead
		if !everything {
			at, err := a.parseTime("before", before, true)
			if err != nil {
				return err
			}
			if at == nil {
				return usagef("--before needs a time or a duration")
			}
			req.Before = *at
		}
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		deleted, err := deleteBefore(c.Context(), queue, req)
		if err != nil {
			return ofQueue(err)
		}
		return a.printOne(forebay.DeletedMessages{Deleted: deleted}, [][2]string{{"deleted", strconv.Itoa(deleted)}})
	}
	return c
}

// deleteBefore repeats the request, which removes only so many messages at once; max 0 is all.
func deleteBefore(ctx context.Context, queue client.Messages, req forebay.DeleteMessagesRequest) (deleted int, err error) {
	limit := req.MaxMessages
	for limit == 0 || deleted < limit {
		if req.MaxMessages = forebay.MaxBatchDelete; limit > 0 {
			req.MaxMessages = min(limit-deleted, forebay.MaxBatchDelete)
		}
		n, err := queue.DeleteBefore(ctx, req)
		deleted += n
		if err != nil || n < req.MaxMessages {
			return deleted, err
		}
	}
	return deleted, nil
}

func (a *app) messagesAccept() *cobra.Command {
	var req forebay.AcceptSessionRequest
	var wait time.Duration
	c := &cobra.Command{
		Use: "accept-session QUEUE", Short: "Accept a session, to have its messages to oneself", Args: arguments(1, "QUEUE"),
		Example: "  forebay messages accept-session steps --wait 20s",
	}
	c.Flags().StringVar(&req.SessionID, "session-id", "", "this session (default: the one that has waited longest)")
	c.Flags().DurationVar(&wait, "wait", 0, "wait for a session with messages, up to 1m")
	c.RunE = func(c *cobra.Command, args []string) error {
		req.WaitSeconds = wait.Seconds()
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		session, found, err := queue.AcceptSession(c.Context(), req)
		if err != nil {
			return ofQueue(err)
		}
		if !found {
			return &failure{exitNotFound, "no session has messages"}
		}
		return a.printOne(session, [][2]string{
			{"session", session.SessionID}, {"session token", session.SessionToken}, {"locked until", a.when(session.LockedUntil)},
			{"state", yes(session.State != nil, strconv.Itoa(len(session.State))+" bytes")},
		})
	}
	return c
}
