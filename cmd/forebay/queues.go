package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
)

// anyQueue is a queue of jobs or a queue of messages.
type anyQueue struct {
	jobs     *forebay.QueueInfo
	messages *forebay.MessageQueue
}

// MarshalJSON writes the queue as the server does.
func (q anyQueue) MarshalJSON() ([]byte, error) {
	if q.messages != nil {
		return json.Marshal(q.messages)
	}
	return json.Marshal(q.jobs)
}

// queueCommands are the commands about queues of jobs and queues of messages.
type queueCommands struct{ *command.App }

func (a queueCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{Use: "queues", Short: "See queues, pause and resume them, make queues of plain messages"},
		a.list(),
		a.show(),
		a.create(),
		a.set(),
		command.Conditional(aboutQueue(a.APICommand(&cobra.Command{Use: "delete QUEUE", Short: "Delete a queue of plain messages, with all its messages"},
			func(c *command.Call) error { return c.API.DeleteMessageQueue(c.Ctx, c.Args[0]) })), false),
		a.verb("pause", "Let no further job of a queue start; calls in flight finish", (*client.Client).PauseQueue),
		a.verb("resume", "Let a paused queue go on", (*client.Client).ResumeQueue),
	)
}

// verb is a command that changes a queue and shows it.
func (a queueCommands) verb(verb, short string, change func(*client.Client, context.Context, string) error) *cobra.Command {
	return aboutQueue(command.Show(a.App, &cobra.Command{
		Use: verb + " QUEUE", Short: short, Example: "  forebay queues " + verb + " default",
	}, func(c *command.Call) (q anyQueue, err error) {
		if err := change(c.API, c.Ctx, c.Args[0]); err != nil {
			return q, err
		}
		q.jobs, q.messages, err = c.API.FindQueue(c.Ctx, c.Args[0])
		return q, err
	}, a.fields))
}

func (a queueCommands) list() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List queues with what stands in them",
		Long: `List queues with what stands in them. With --all-tenants these are the queues of jobs,
since a queue of plain messages belongs to one tenant.`,
	}
	var all bool
	command.AllTenantsFlag(c.Flags(), &all)
	return command.List(a.App, c, func(c *command.Call) ([]anyQueue, error) {
		if !all {
			return ownQueues(c)
		}
		jobs, err := c.API.AllQueues(c.Ctx)
		queues := make([]anyQueue, len(jobs))
		for i := range jobs {
			queues[i].jobs = &jobs[i]
		}
		return queues, err
	}, queueColumns)
}

func (a queueCommands) show() *cobra.Command {
	c := &cobra.Command{Use: "show QUEUE", Short: "Show a queue", Example: "  forebay queues show default"}
	var all bool
	command.AllTenantsFlag(c.Flags(), &all)
	return aboutQueue(command.Show(a.App, c, func(c *command.Call) (q anyQueue, err error) {
		if all {
			jobs, err := c.API.AnyQueue(c.Ctx, c.Args[0])
			return anyQueue{jobs: &jobs}, err
		}
		q.jobs, q.messages, err = c.API.FindQueue(c.Ctx, c.Args[0])
		return q, err
	}, a.fields))
}

// ownQueues returns the queues of jobs, then the queues of messages.
func ownQueues(c *command.Call) (queues []anyQueue, err error) {
	jobs, err := c.API.Queues(c.Ctx)
	if err != nil {
		return nil, err
	}
	messages, err := c.API.MessageQueues(c.Ctx)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		queues = append(queues, anyQueue{jobs: &jobs[i]})
	}
	for i := range messages {
		queues = append(queues, anyQueue{messages: &messages[i]})
	}
	return queues, nil
}

func queueColumns(q anyQueue) []command.Field {
	kind, info, retrying, quarantine := "jobs", forebay.QueueInfo{}, "", ""
	if q.jobs != nil {
		info = *q.jobs
		retrying, quarantine = command.Counted(info.Retrying, info.CountsCapped), command.Counted(info.Quarantine, info.CountsCapped)
	}
	if m := q.messages; m != nil {
		kind = forebay.KindMessages
		info = forebay.QueueInfo{
			Name: m.Name, Active: m.Active, Locked: m.Locked, Scheduled: m.Scheduled, DeadLetter: m.DeadLetter,
			CountsCapped: m.CountsCapped, OldestAgeSeconds: m.OldestAgeSeconds,
		}
	}
	return []command.Field{
		{"QUEUE", info.Name}, {"KIND", kind}, {"STATE", queueState(info)},
		{"ACTIVE", command.Counted(info.Active, info.CountsCapped)},
		{"LOCKED", command.Counted(info.Locked, info.CountsCapped)},
		{"SCHEDULED", command.Counted(info.Scheduled, info.CountsCapped)}, {"RETRYING", retrying},
		{"DEAD-LETTER", command.Counted(info.DeadLetter, info.CountsCapped)}, {"QUARANTINE", quarantine},
		{"OLDEST", command.Seconds(info.OldestAgeSeconds)},
	}
}

func queueState(q forebay.QueueInfo) string {
	if q.Paused {
		return "paused"
	}
	return "running"
}

func (a queueCommands) fields(q anyQueue) []command.Field {
	if q.messages != nil {
		return a.messageQueueFields(*q.messages)
	}
	j := *q.jobs
	return []command.Field{
		{"queue", j.Name},
		{"state", queueState(j)},
		{"active", command.Counted(j.Active, j.CountsCapped)},
		{"locked", command.Counted(j.Locked, j.CountsCapped)},
		{"scheduled", command.Counted(j.Scheduled, j.CountsCapped)},
		{"retrying", command.Counted(j.Retrying, j.CountsCapped)},
		{"dead-letter", command.Counted(j.DeadLetter, j.CountsCapped)},
		{"quarantine", command.Counted(j.Quarantine, j.CountsCapped)},
		{"oldest", command.Seconds(j.OldestAgeSeconds)},
		{"concurrency", fmt.Sprintf("%d, retries %d", j.Concurrency, j.RetryConcurrency)},
		{"lock", fmt.Sprintf("%gs", j.LockSeconds)},
		{"max deliveries", strconv.Itoa(j.MaxDeliveryCount)},
	}
}

func (a queueCommands) messageQueueFields(q forebay.MessageQueue) []command.Field {
	return []command.Field{
		{"queue", q.Name},
		{"kind", q.Kind},
		{"active", command.Counted(q.Active, q.CountsCapped)},
		{"locked", command.Counted(q.Locked, q.CountsCapped)},
		{"scheduled", command.Counted(q.Scheduled, q.CountsCapped)},
		{"deferred", command.Counted(q.Deferred, q.CountsCapped)},
		{"dead-letter", command.Counted(q.DeadLetter, q.CountsCapped)},
		{"oldest", command.Seconds(q.OldestAgeSeconds)},
		{"lock", fmt.Sprintf("%gs", q.LockSeconds)},
		{"max deliveries", strconv.Itoa(q.MaxDeliveryCount)},
		{"time to live", command.Seconds(q.DefaultTTLSeconds)},
		{"expired are", command.IfTrue(q.DeadLetterOnExpiration, "dead-lettered")},
		{"duplicate window", command.Seconds(q.DuplicateWindowSeconds)},
		{"sessions", command.IfTrue(q.RequiresSession, "required")},
		{"forwards to", q.ForwardTo},
		{"forwards dead letters to", q.ForwardDeadLettersTo},
		{"deleted when idle for", command.Seconds(q.AutoDeleteOnIdleSeconds)},
		{"largest message", largest(q.MaxMessageBytes)},
		{"size", atLeastBytes(q.SizeBytes, q.CountsCapped)},
		{"status", string(q.Status)},
		{"note", q.UserMetadata},
		{"created", a.When(q.CreatedAt)},
		{"changed", a.When(q.UpdatedAt)},
		{"used", a.WhenPtr(q.AccessedAt)},
	}
}

func (a queueCommands) create() *cobra.Command {
	var s forebay.MessageQueueSettings
	c := command.Show(a.App, &cobra.Command{
		Use: "create QUEUE", Short: "Make a queue of plain messages, or change its settings",
		Long: `Make a queue of plain messages, or give one that exists these settings. A setting without a flag
gets its default, but its status and its note stay. Whether a queue requires sessions, and whether
it detects duplicates, stays as it was made. The server's configuration makes queues for jobs.`,
		Example: `  forebay queues create mail --lock 30s --max-deliveries 5
  forebay queues create steps --require-session
  forebay queues create orders --detect-duplicates --ttl 24h --dead-letter-expired`,
	}, func(c *command.Call) (forebay.MessageQueue, error) {
		s.DetectsDuplicates = impliedDuplicates(s.DetectsDuplicates, s.DuplicateWindowSeconds)
		return c.API.PutMessageQueue(c.Ctx, c.Args[0], s)
	}, a.messageQueueFields)
	receiverFlags(c.Flags(), &s, "queue")
	duplicateFlags(c.Flags(), &s.DetectsDuplicates, &s.DuplicateWindowSeconds, "queue")
	largestFlag(c.Flags(), &s.MaxMessageBytes)
	return command.Conditional(c, true)
}

func (a queueCommands) set() *cobra.Command {
	var change forebay.EntityChange
	c := aboutQueue(command.Show(a.App, &cobra.Command{
		Use: "set QUEUE", Short: "Change the status or the note of a queue of plain messages", Long: setLong,
		Example: `  forebay queues set mail --entity-status receive_disabled
  forebay queues set mail --entity-status active --note "receivers are mended"`,
	}, func(c *command.Call) (forebay.MessageQueue, error) {
		return c.API.ChangeMessageQueue(c.Ctx, c.Args[0], change)
	}, a.messageQueueFields))
	entityFlags(c.Flags(), &change)
	return command.Conditional(c, false)
}

const setLong = `Change the status or the note, and nothing else. While nobody may receive, receives and completions
are refused, and messages stay. While nobody may send, sends are refused.`

// entityFlags adds what can be changed by itself.
func entityFlags(flags *pflag.FlagSet, change *forebay.EntityChange) {
	flags.StringVar((*string)(&change.Status), "entity-status", "", "active, disabled, send_disabled or receive_disabled")
	command.OptionalFlag(flags, &change.UserMetadata, "note", command.AnyText, "text to keep with it: at most 1,024 characters")
}

// largest shows a limit on messages.
func largest(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes", n)
}

// atLeastBytes shows a size that may be a lower bound.
func atLeastBytes(n int64, atLeast bool) string {
	if atLeast {
		return "at least " + fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d bytes", n)
}

// receiverFlags adds the settings that queues and subscriptions share.
func receiverFlags(flags *pflag.FlagSet, s *forebay.MessageQueueSettings, thing string) {
	command.SecondsFlag(flags, &s.LockSeconds, "lock", forebay.DefaultLockDuration, "how long a receiver holds a message or a session: 1s to 5m")
	flags.IntVar(&s.MaxDeliveryCount, "max-deliveries", forebay.DefaultMaxDeliveryCount, "deliveries after which a message is dead-lettered")
	ttlFlag(flags, &s.DefaultTTLSeconds)
	flags.BoolVar(&s.DeadLetterOnExpiration, "dead-letter-expired", false, "dead-letter expired messages instead of dropping them")
	command.OptionalBool(flags, &s.RequiresSession, "require-session", "receive session by session; only when the "+thing+" is made")
	flags.StringVar(&s.ForwardTo, "forward-to", "", "queue or topic to which all that arrives goes on")
	flags.StringVar(&s.ForwardDeadLettersTo, "forward-dead-letters-to", "", "queue or topic to which dead letters go on")
	idleFlag(flags, &s.AutoDeleteOnIdleSeconds, thing)
	entityFlags(flags, &s.EntityChange)
}

func largestFlag(flags *pflag.FlagSet, to *int64) {
	flags.Int64Var(to, "max-message-bytes", 0, "largest message that may be sent (default: what the server allows)")
}

// ttlFlag, idleFlag and duplicateFlags add settings that queues and topics share.
func ttlFlag(flags *pflag.FlagSet, to *float64) {
	command.SecondsFlag(flags, to, "ttl", 0, "default and longest time to live of a message (default: unlimited)")
}

func idleFlag(flags *pflag.FlagSet, to *float64, thing string) {
	command.SecondsFlag(flags, to, "auto-delete-on-idle", 0, "delete the "+thing+" after so long without use: at least 5m (default: never)")
}

func duplicateFlags(flags *pflag.FlagSet, detects **bool, window *float64, thing string) {
	command.OptionalBool(flags, detects, "detect-duplicates", "drop messages that repeat a message id; only when the "+thing+" is made")
	command.SecondsFlag(flags, window, "duplicate-window", 0, "how long to remember message ids: 20s to 7d; detects duplicates (default 10m)")
}

// impliedDuplicates turns duplicate detection on if its window is given.
func impliedDuplicates(detects *bool, window float64) *bool {
	if window > 0 {
		return new(true)
	}
	return detects
}
