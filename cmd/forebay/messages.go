package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// messageCommands are the commands about plain messages, dead-lettered ones too.
type messageCommands struct{ *command.App }

func (a messageCommands) group() *cobra.Command {
	c := command.Group(&cobra.Command{
		Use: "messages", Short: "Send, receive and settle plain messages",
		Long: `Plain messages stand in queues of their own (forebay queues create). A received message is
locked. Settle it with its lock token before the lock ends.

QUEUE is a queue, a subscription such as orders/subscriptions/large, or the dead-letter subqueue
of either. A shell wants that in single quotes: 'mail/$deadletterqueue'.`,
	})
	command.AddSection(c, "Send, receive and look",
		a.send(), a.receive(), a.peek(), a.show(), a.cancel(), a.delete())
	command.AddSection(c, "Settle what was received", settlements(a.App)...)
	command.AddSection(c, "Dead letters", a.groups(), a.redrive(), a.purge())
	command.AddSection(c, "Sessions", sessionCommands(a).all()...)
	return c
}

// messagesOf returns the client of the queue that the command names.
func messagesOf(c *command.Call) client.Messages { return c.API.Messages(c.Args[0]) }

func (a messageCommands) send() *cobra.Command {
	var m messageFlags
	c := command.Show(a.App, &cobra.Command{
		Use: "send QUEUE", Short: "Send a message",
		Long: "Send a message. It is on disk when the command returns, which prints its sequence number.",
		Example: `  forebay messages send mail --body hello --property n=1
  forebay messages send steps --body '{"step":1}' --session-id order-7
  forebay messages send mail --file letter.pdf --scheduled-at 2h`,
	}, m.send(func(c *command.Call, m forebay.NewMessage) ([]forebay.SentMessage, error) {
		return messagesOf(c).Send(c.Ctx, m)
	}), sentFields)
	m.add(a.App, c.Flags())
	return aboutQueue(c)
}

func (a messageCommands) receive() *cobra.Command {
	var req forebay.ReceiveRequest
	var remove bool
	var session string
	c := command.List(a.App, &cobra.Command{
		Use: "receive QUEUE", Short: "Receive messages under a lock each",
		Example: `  forebay messages receive mail --max 10 --wait 20s -o json
  forebay messages receive steps --session-token TOKEN
  forebay messages receive 'mail/$deadletterqueue' --delete`,
	}, func(c *command.Call) ([]forebay.Message, error) {
		if req.Mode = forebay.PeekLock; remove {
			req.Mode = forebay.ReceiveAndDelete
		}
		if c.Flags.Changed("max") && req.MaxMessages < 1 {
			return nil, command.Usagef("--max goes from 1 to 100")
		}
		if len(req.DeferredSequenceNumbers) > 0 && !c.Flags.Changed("max") {
			req.MaxMessages = 0
		}
		if session != "" {
			return messagesOf(c).ReceiveSession(c.Ctx, session, req)
		}
		return messagesOf(c).Receive(c.Ctx, req)
	}, func(m forebay.Message) []command.Field {
		return append(a.columns(m), command.Field{"LOCK TOKEN", m.LockToken})
	})
	flags := c.Flags()
	flags.IntVar(&req.MaxMessages, "max", 1, "at most this many: 1 to 100")
	command.WaitFlag(flags, &req.Wait, "wait for a first message, up to 1m")
	flags.BoolVar(&remove, "delete", false, "remove the messages at once instead of locking them")
	flags.StringVar(&session, "session-token", "", "of an accepted session, whose messages to receive")
	flags.Int64SliceVar(&req.DeferredSequenceNumbers, "deferred", nil, "sequence numbers of deferred messages to receive instead")
	return aboutQueue(c)
}

func (a messageCommands) peek() *cobra.Command {
	var from int64
	var reason string
	c := command.Page(a.App, &cobra.Command{
		Use: "peek QUEUE", Aliases: []string{"list"}, Short: "List messages without receiving them, whatever their state",
		Example: `  forebay messages peek mail --limit 20
  forebay messages peek 'mail/$deadletterqueue' --reason MaxDeliveryCountExceeded`,
	}, func(c *command.Call, _ int) iter.Seq2[forebay.Message, error] {
		return messagesOf(c).PeekReason(c.Ctx, reason, from)
	}, a.columns)
	c.Flags().Int64Var(&from, "from", 0, "sequence number to begin with")
	c.Flags().StringVar(&reason, "reason", "", "only dead letters with this reason, such as MaxDeliveryCountExceeded")
	return aboutQueue(c)
}

func (a messageCommands) columns(m forebay.Message) []command.Field {
	return []command.Field{
		{"NUMBER", command.Count(m.SequenceNumber)}, {"STATE", string(m.State)}, {"MESSAGE ID", m.MessageID},
		{"SESSION", m.SessionID}, {"DELIVERIES", strconv.Itoa(m.DeliveryCount)},
		{"ENQUEUED", a.Age(m.EnqueuedTime)}, {"REASON", m.DeadLetterReason},
		{"BODY", command.Shorten(bodyText(m), 60)},
	}
}

// bodyText writes the body of a message. A binary body is in base64.
func bodyText(m forebay.Message) string {
	if m.Body != nil {
		return *m.Body
	}
	return base64.StdEncoding.EncodeToString(m.BodyBase64)
}

func (a messageCommands) show() *cobra.Command {
	return aboutQueue(command.Show(a.App, &cobra.Command{
		Use: "show QUEUE SEQUENCE_NUMBER", Short: "Show a message without receiving it",
		Example: "  forebay messages show 'mail/$deadletterqueue' 4711",
	}, func(c *command.Call) (m forebay.Message, err error) {
		number, err := sequenceNumber(c.Args[1])
		if err != nil {
			return m, err
		}
		return messagesOf(c).Get(c.Ctx, number)
	}, a.fields))
}

func (a messageCommands) fields(m forebay.Message) []command.Field {
	return slices.Concat([]command.Field{
		{"sequence number", command.Count(m.SequenceNumber)},
		{"state", string(m.State)},
		{"message id", m.MessageID},
		{"session id", m.SessionID},
		{"correlation id", m.CorrelationID},
		{"subject", m.Subject},
		{"deliveries", strconv.Itoa(m.DeliveryCount)},
		{"enqueued", a.When(m.EnqueuedTime)},
		{"reason", m.DeadLetterReason},
		{"description", m.DeadLetterDescription},
		{"from", m.DeadLetterSource},
		{"locked until", a.WhenPtr(m.LockedUntil)},
	}, command.MapFields("property", m.Properties), []command.Field{{"body", command.Shorten(bodyText(m), 400)}})
}

func sequenceNumber(text string) (int64, error) {
	number, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || number < 1 {
		return 0, command.Usagef("%q is not a sequence number", text)
	}
	return number, nil
}

func sequenceNumbers(texts []string) (numbers []int64, err error) {
	for _, text := range texts {
		number, err := sequenceNumber(text)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

func (a messageCommands) cancel() *cobra.Command {
	cancel := &cobra.Command{Use: "cancel QUEUE SEQUENCE_NUMBER", Short: "Cancel a scheduled message"}
	return aboutQueue(a.APICommand(cancel, func(c *command.Call) error {
		number, err := sequenceNumber(c.Args[1])
		if err != nil {
			return err
		}
		return messagesOf(c).CancelScheduled(c.Ctx, number)
	}))
}

func (a messageCommands) delete() *cobra.Command {
	var before *time.Time
	var everything bool
	var limit int
	c := command.Show(a.App, &cobra.Command{
		Use: "delete QUEUE", Short: "Remove the oldest messages without receiving them",
		Long: `Remove the oldest active messages, those that were enqueued before a time or all of them, and
print how many. Locked, deferred and scheduled messages stay.`,
		Example: `  forebay messages delete mail --before 7d
  forebay messages delete 'mail/$deadletterqueue' --all
  forebay messages delete mail --all --max 100`,
	}, func(c *command.Call) (report forebay.DeletedMessages, err error) {
		const one = "give one of --before, --all"
		if err := command.ExactlyOne(one, one, c.Flags.Changed("before"), everything); err != nil {
			return report, err
		}
		if before == nil && !everything {
			return report, command.Usagef("--before needs a time or a duration")
		}
		if c.Flags.Changed("max") && limit < 1 {
			return report, command.Usagef("--max must be at least 1")
		}
		// The clock of the server may be ahead.
		req := forebay.DeleteMessagesRequest{Before: c.Now().Add(24 * time.Hour)}
		if before != nil {
			req.Before = *before
		}
		report.Deleted, err = deleteBefore(c.Ctx, messagesOf(c), req, limit)
		return report, err
	}, func(r forebay.DeletedMessages) []command.Field {
		return []command.Field{{"deleted", strconv.Itoa(r.Deleted)}}
	})
	beforeFlag(a.App, c.Flags(), &before, "messages enqueued")
	allFlag(c.Flags(), &everything, "messages")
	maxFlag(c.Flags(), &limit)
	return aboutQueue(c)
}

// deleteBefore repeats the request, which removes a limited number of messages. Limit 0 removes
// all.
func deleteBefore(ctx context.Context, queue client.Messages, req forebay.DeleteMessagesRequest, limit int) (int, error) {
	deleted := 0
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

// messageFlags are the flags that describe a plain message.
type messageFlags struct {
	m    forebay.NewMessage
	body command.Content
}

func (f *messageFlags) add(a *command.App, flags *pflag.FlagSet) {
	f.body.Add(flags, "body", "body", "file", "the text of the message")
	flags.StringVar(&f.m.MessageID, "message-id", "", "id of yours (default: a new one)")
	flags.StringVar(&f.m.SessionID, "session-id", "", "session that the message belongs to")
	flags.StringVar(&f.m.CorrelationID, "correlation-id", "", "id of what the message is about")
	flags.StringVar(&f.m.Subject, "subject", "", "subject")
	flags.StringVar(&f.m.To, "to", "", "address, kept as it is")
	flags.StringVar(&f.m.ReplyTo, "reply-to", "", "address for an answer")
	flags.StringVar(&f.m.ReplyToSessionID, "reply-to-session-id", "", "session in which an answer is awaited")
	flags.StringVar(&f.m.ContentType, "content-type", "", "type of the body")
	command.SecondsFlag(flags, &f.m.TimeToLiveSeconds, "ttl", 0, "time to live (default: the queue's)")
	a.TimeFlag(flags, &f.m.ScheduledTime, "scheduled-at", "become active at this time, or after this long")
	propertyFlag(flags, &f.m.Properties, ", an application property")
}

// message returns the message with its body.
func (f *messageFlags) message(c *command.Call) (m forebay.NewMessage, err error) {
	m = f.m
	m.Body, m.BodyBase64, err = readBody(&f.body, c)
	return m, err
}

// send builds the message, sends it and returns the result.
func (f *messageFlags) send(
	send func(*command.Call, forebay.NewMessage) ([]forebay.SentMessage, error),
) func(*command.Call) (forebay.SentMessage, error) {
	return func(c *command.Call) (none forebay.SentMessage, err error) {
		m, err := f.message(c)
		if err != nil {
			return none, err
		}
		sent, err := send(c, m)
		if err != nil {
			return none, err
		}
		if len(sent) != 1 {
			return none, command.Failf("the server did not say what became of the message")
		}
		return sent[0], nil
	}
}

func sentFields(m forebay.SentMessage) []command.Field {
	return []command.Field{{"sequence number", command.Count(m.SequenceNumber)}, {"message id", m.MessageID}}
}

// propertyFlag adds --property. A value is parsed as JSON, and is a text if it is not JSON.
func propertyFlag(flags *pflag.FlagSet, to *forebay.Properties, help string) {
	command.PairsFlag(flags, "property", "name=value", help+": a number, true, false or text", func(name, value string) error {
		if *to == nil {
			*to = forebay.Properties{}
		}
		var one forebay.Properties
		if json.Unmarshal([]byte(`{"v":`+value+`}`), &one) == nil && len(one) == 1 && one["v"] != nil {
			(*to)[name] = one["v"]
		} else {
			(*to)[name] = value
		}
		return to.Check()
	})
}
