package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// deadLettersOf returns the messages of the dead-letter subqueue of the queue that the command names, or names itself.
func (a *app) deadLettersOf(entity string) (client.Messages, error) {
	name, subscription, subqueue := forebay.CutEntityPath(entity)
	if subqueue == "" {
		if entity = name; subscription != "" {
			entity += "/subscriptions/" + subscription
		}
		entity += "/" + forebay.SubqueueDeadLetter
	}
	return a.messagesOf(entity)
}

func (a *app) messagesShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE SEQUENCE_NUMBER", Short: "Show one message without receiving it", Args: arguments(2, "QUEUE", "SEQUENCE_NUMBER"),
		Example: "  forebay messages show 'mail/$deadletterqueue' 4711",
		RunE: func(c *cobra.Command, args []string) error {
			number, err := sequenceNumber(args[1])
			if err != nil {
				return err
			}
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			m, err := queue.Get(c.Context(), number)
			if err != nil {
				return ofQueue(err)
			}
			return a.printMessage(m)
		},
	}
}

func (a *app) printMessage(m forebay.Message) error {
	body := base64.StdEncoding.EncodeToString(m.BodyBase64)
	if m.Body != nil {
		body = *m.Body
	}
	rows := [][2]string{
		{"sequence number", count(m.SequenceNumber)},
		{"state", string(m.State)},
		{"message id", m.MessageID},
		{"session id", m.SessionID},
		{"correlation id", m.CorrelationID},
		{"subject", m.Subject},
		{"deliveries", strconv.Itoa(m.DeliveryCount)},
		{"enqueued", a.when(m.EnqueuedTime)},
		{"reason", m.DeadLetterReason},
		{"description", m.DeadLetterDescription},
		{"from", m.DeadLetterSource},
	}
	if m.LockedUntil != nil {
		rows = append(rows, [2]string{"locked until", a.when(*m.LockedUntil)})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		rows = append(rows, [2]string{"property " + name, shorten(fmt.Sprint(m.Properties[name]), 200)})
	}
	rows = append(rows, [2]string{"body", shorten(body, 400)})
	return a.printOne(m, slices.DeleteFunc(rows, func(row [2]string) bool { return row[1] == "" }))
}

// deadFlags select dead-lettered messages.
type deadFlags struct {
	filter forebay.DeadMessageFilter
	most   int
	more   bool // a dry run did not count all
}

func (f *deadFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.filter.Reason, "reason", "", "all with this reason, such as MaxDeliveryCountExceeded")
	c.Flags().BoolVar(&f.filter.All, "all", false, "all that there are")
	c.Flags().BoolVar(&f.filter.DryRun, "dry-run", false, "only count them")
	c.Flags().IntVar(&f.most, "max", 0, "at most this many (default: as many as there are)")
}

// selection reads the numbers that were named. One way to select is needed.
func (f *deadFlags) selection(numbers []string) error {
	for _, text := range numbers {
		number, err := sequenceNumber(text)
		if err != nil {
			return err
		}
		f.filter.SequenceNumbers = append(f.filter.SequenceNumbers, number)
	}
	ways := 0
	for _, chosen := range []bool{len(numbers) > 0, f.filter.Reason != "", f.filter.All} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways == 0:
		return usagef("name messages by their sequence numbers, select them by --reason, or say --all")
	case ways > 1:
		return usagef("sequence numbers, --reason and --all exclude each other")
	case f.most < 0:
		return usagef("--max must be at least 1")
	}
	return nil
}

// each repeats a call, which takes only so many messages at once. upTo, if not 0, says that there may be more.
// What was sent back and died again has a higher number, and is not taken again.
func (f *deadFlags) each(call func(forebay.DeadMessageFilter) (done int, upTo int64, err error)) (total int, err error) {
	var upTo int64
	for {
		filter := f.filter
		filter.UpTo = upTo
		filter.MaxMessages = forebay.MaxDeadMessagesPerCall
		if f.most > 0 {
			filter.MaxMessages = min(filter.MaxMessages, f.most-total)
		}
		done, next, err := call(filter)
		total, upTo = total+done, next
		f.more = filter.DryRun && upTo > 0 && f.most == 0
		if err != nil || upTo == 0 || done == 0 || filter.DryRun || f.most > 0 && total >= f.most {
			return total, err
		}
	}
}

// done says what was counted, and how many there were.
func (f *deadFlags) done(verb string, n int) [][2]string {
	number := strconv.Itoa(n)
	if f.more {
		number += " or more"
	}
	if f.filter.DryRun {
		verb = "would be " + verb
	}
	return [][2]string{{verb, number}}
}

// none is the error when messages were named and not one of them was there.
func (f *deadFlags) none(queue string) error {
	return &failure{exitNotFound, fmt.Sprintf("none of the named messages is a dead letter of %s that is not locked", queue)}
}

func (a *app) messagesRedrive() *cobra.Command {
	var f deadFlags
	var body, bodyFile string
	var properties []string
	c := &cobra.Command{
		Use: "redrive QUEUE [SEQUENCE_NUMBER...]", Short: "Send dead-lettered messages back to their queue",
		Args: cobra.MinimumNArgs(1),
		Long: `Send dead-lettered messages back to their queue, or to their subscription, as new messages. Name them by their
sequence numbers, select them by --reason, or say --all. With exactly one its body or its properties may be changed.`,
		Example: `  forebay messages redrive mail --reason MaxDeliveryCountExceeded --dry-run
  forebay messages redrive mail --all
  forebay messages redrive mail 4711 --set-body-file corrected.json
  forebay messages redrive orders/subscriptions/eu 4711 --set-property region=eu`,
	}
	f.add(c)
	c.Flags().StringVar(&body, "set-body", "", "this text instead of the body")
	c.Flags().StringVar(&bodyFile, "set-body-file", "", "what this file holds instead of the body")
	c.Flags().StringArrayVar(&properties, "set-property", nil, "name=value; all given ones replace the message's properties")
	c.MarkFlagsMutuallyExclusive("set-body", "set-body-file")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.selection(args[1:]); err != nil {
			return err
		}
		edit, err := messageEdit(c, body, bodyFile, properties)
		if err != nil {
			return err
		}
		if edit != nil && len(f.filter.SequenceNumbers) != 1 {
			return usagef("only one message at a time can be changed: name it by its sequence number")
		}
		queue, err := a.deadLettersOf(args[0])
		if err != nil {
			return err
		}
		redriven, err := f.each(func(filter forebay.DeadMessageFilter) (int, int64, error) {
			report, err := queue.Redrive(c.Context(), forebay.RedriveMessagesRequest{DeadMessageFilter: filter, Edit: edit})
			return report.Redriven, report.UpTo, err
		})
		switch {
		case err != nil:
			return ofQueue(err)
		case redriven == 0 && len(args) > 1:
			return f.none(args[0])
		}
		return a.printOne(forebay.RedrivenMessages{Redriven: redriven, More: f.more}, f.done("redriven", redriven))
	}
	return c
}

// messageEdit is what the flags change of a message; nil: nothing.
func messageEdit(c *cobra.Command, body, file string, properties []string) (*forebay.MessageEdit, error) {
	var edit forebay.MessageEdit
	switch {
	case c.Flags().Changed("set-body"):
		edit.Body = &body
	case file != "":
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("%s cannot be read: %s", file, cause(err))
		}
		if utf8.Valid(content) {
			text := string(content)
			edit.Body = &text
		} else {
			edit.BodyBase64 = content
		}
	}
	for _, p := range properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, usagef("--set-property %q is not name=value", p)
		}
		if edit.Properties == nil {
			edit.Properties = forebay.Properties{}
		}
		edit.Properties[name] = value
	}
	if edit.Body == nil && edit.BodyBase64 == nil && edit.Properties == nil {
		return nil, nil
	}
	return &edit, nil
}

func (a *app) messagesPurge() *cobra.Command {
	var f deadFlags
	c := &cobra.Command{
		Use: "purge QUEUE [SEQUENCE_NUMBER...]", Short: "Remove dead-lettered messages for good",
		Args: cobra.MinimumNArgs(1),
		Long: `Remove dead-lettered messages of a queue or a subscription for good. Name them by their sequence numbers, select
them by --reason, or say --all. --dry-run only counts.`,
		Example: "  forebay messages purge mail 4711 4712\n  forebay messages purge mail --reason TTLExpiredException\n  forebay messages purge orders/subscriptions/eu --all",
	}
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.selection(args[1:]); err != nil {
			return err
		}
		queue, err := a.deadLettersOf(args[0])
		if err != nil {
			return err
		}
		purged, err := f.each(func(filter forebay.DeadMessageFilter) (int, int64, error) {
			report, err := queue.PurgeDead(c.Context(), filter)
			return report.Purged, report.UpTo, err
		})
		switch {
		case err != nil:
			return ofQueue(err)
		case purged == 0 && len(args) > 1:
			return f.none(args[0])
		}
		return a.printOne(forebay.PurgedMessages{Purged: purged, More: f.more}, f.done("purged", purged))
	}
	return c
}

func sequenceNumber(text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 1 {
		return 0, usagef("%q is no sequence number", text)
	}
	return number, nil
}
