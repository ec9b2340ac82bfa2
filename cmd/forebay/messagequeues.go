package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// anyQueue is a queue for jobs or one of messages.
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

func (q anyQueue) info() forebay.QueueInfo {
	if q.jobs != nil {
		return *q.jobs
	}
	m := q.messages
	return forebay.QueueInfo{Name: m.Name, Active: m.Active, Locked: m.Locked, Scheduled: m.Scheduled, DeadLetter: m.DeadLetter, CountsCapped: m.CountsCapped, OldestAgeSeconds: m.OldestAgeSeconds}
}

// allQueues are those for jobs, then those of messages.
func allQueues(ctx context.Context, api *client.Client) (queues []anyQueue, err error) {
	jobs, err := api.Queues(ctx)
	if err != nil {
		return nil, err
	}
	messages, err := api.MessageQueues(ctx)
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

var anyQueueColumns = []column[anyQueue]{
	{"QUEUE", func(q anyQueue) string { return q.info().Name }},
	{"KIND", func(q anyQueue) string {
		if q.messages != nil {
			return forebay.KindMessages
		}
		return "jobs"
	}},
	{"STATE", func(q anyQueue) string { return queueState(q.info()) }},
	{"ACTIVE", func(q anyQueue) string { return counted(q.info().Active, q.info().CountsCapped) }},
	{"LOCKED", func(q anyQueue) string { return counted(q.info().Locked, q.info().CountsCapped) }},
	{"SCHEDULED", func(q anyQueue) string { return counted(q.info().Scheduled, q.info().CountsCapped) }},
	{"RETRYING", func(q anyQueue) string { return ofJobs(q, func(j *forebay.QueueInfo) int64 { return j.Retrying }) }},
	{"DEAD-LETTER", func(q anyQueue) string { return counted(q.info().DeadLetter, q.info().CountsCapped) }},
	{"QUARANTINE", func(q anyQueue) string { return ofJobs(q, func(j *forebay.QueueInfo) int64 { return j.Quarantine }) }},
	{"OLDEST", func(q anyQueue) string { return seconds(q.info().OldestAgeSeconds) }},
}

func ofJobs(q anyQueue, number func(*forebay.QueueInfo) int64) string {
	if q.jobs == nil {
		return ""
	}
	return counted(number(q.jobs), q.jobs.CountsCapped)
}

func (a *app) queueCreate() *cobra.Command {
	var s forebay.MessageQueueSettings
	var lock, ttl, window, idle time.Duration
	var session, unique bool
	c := &cobra.Command{
		Use: "create QUEUE", Short: "Make a queue of plain messages, or change its settings",
		Long: `Make a queue of plain messages, or give one that exists these settings: what is left out gets its
default. Whether a queue requires sessions, and whether it detects duplicates, stays as it was made.
Queues for jobs are made by the server's configuration.`,
		Example: `  forebay queues create mail --lock 30s --max-deliveries 5
  forebay queues create steps --require-session
  forebay queues create orders --detect-duplicates --ttl 24h --dead-letter-expired`,
		Args: arguments(1, "QUEUE"),
	}
	flags := c.Flags()
	flags.DurationVar(&lock, "lock", forebay.DefaultLockDuration, "how long a receiver holds a message or a session: 1s to 5m")
	flags.IntVar(&s.MaxDeliveryCount, "max-deliveries", forebay.DefaultMaxDeliveryCount, "deliveries after which a message is dead-lettered")
	flags.DurationVar(&ttl, "ttl", 0, "longest time to live of a message (default: unlimited)")
	flags.BoolVar(&s.DeadLetterOnExpiration, "dead-letter-expired", false, "dead-letter expired messages instead of dropping them")
	flags.BoolVar(&unique, "detect-duplicates", false, "drop a message that repeats the id of another")
	flags.DurationVar(&window, "duplicate-window", 0, "how long message ids are remembered: 20s to 168h (default 10m)")
	flags.BoolVar(&session, "require-session", false, "messages have a session id and are received session by session")
	flags.StringVar(&s.ForwardTo, "forward-to", "", "another queue, to which all that arrives goes on")
	flags.StringVar(&s.ForwardDeadLettersTo, "forward-dead-letters-to", "", "another queue, to which dead-lettered messages go")
	flags.DurationVar(&idle, "delete-when-idle", 0, "delete the queue after so long without use: at least 5m (default: never)")
	c.RunE = func(c *cobra.Command, args []string) error {
		s.LockSeconds, s.DefaultTTLSeconds, s.DuplicateWindowSeconds, s.AutoDeleteOnIdleSeconds = lock.Seconds(), ttl.Seconds(), window.Seconds(), idle.Seconds()
		if c.Flags().Changed("require-session") {
			s.RequiresSession = &session
		}
		if c.Flags().Changed("detect-duplicates") {
			s.DetectsDuplicates = &unique
		}
		api, err := a.client()
		if err != nil {
			return err
		}
		q, err := api.PutMessageQueue(c.Context(), args[0], s)
		if err != nil {
			return err
		}
		return a.printMessageQueue(q)
	}
	return c
}

func (a *app) printMessageQueue(q forebay.MessageQueue) error {
	return a.printOne(q, [][2]string{
		{"queue", q.Name},
		{"kind", q.Kind},
		{"active", counted(q.Active, q.CountsCapped)},
		{"locked", counted(q.Locked, q.CountsCapped)},
		{"scheduled", counted(q.Scheduled, q.CountsCapped)},
		{"deferred", counted(q.Deferred, q.CountsCapped)},
		{"dead-letter", counted(q.DeadLetter, q.CountsCapped)},
		{"oldest", seconds(q.OldestAgeSeconds)},
		{"lock", fmt.Sprintf("%gs", q.LockSeconds)},
		{"max deliveries", strconv.Itoa(q.MaxDeliveryCount)},
		{"time to live", seconds(q.DefaultTTLSeconds)},
		{"expired are", yes(q.DeadLetterOnExpiration, "dead-lettered")},
		{"duplicate window", seconds(q.DuplicateWindowSeconds)},
		{"sessions", yes(q.RequiresSession, "required")},
		{"forwards to", q.ForwardTo},
		{"forwards dead letters to", q.ForwardDeadLettersTo},
		{"deleted when idle for", seconds(q.AutoDeleteOnIdleSeconds)},
		{"created", a.when(q.CreatedAt)},
	})
}

func yes(is bool, word string) string {
	if is {
		return word
	}
	return ""
}
