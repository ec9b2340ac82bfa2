package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

// messageFlags are what a plain message is made of.
type messageFlags struct {
	m           forebay.NewMessage
	body, file  string
	properties  []string
	scheduledAt string
	ttl         time.Duration
	command     *cobra.Command
}

func (f *messageFlags) register(c *cobra.Command) {
	f.command = c
	flags := c.Flags()
	flags.StringVar(&f.body, "body", "", "the text of the message")
	flags.StringVar(&f.file, "file", "", "file with the body; - is standard input")
	flags.StringVar(&f.m.MessageID, "message-id", "", "id of yours (default: a new one)")
	flags.StringVar(&f.m.SessionID, "session-id", "", "session the message belongs to")
	flags.StringVar(&f.m.CorrelationID, "correlation-id", "", "id of what the message is about")
	flags.StringVar(&f.m.Subject, "subject", "", "subject")
	flags.StringVar(&f.m.To, "to", "", "address, kept as it is")
	flags.StringVar(&f.m.ReplyTo, "reply-to", "", "address for an answer")
	flags.StringVar(&f.m.ReplyToSessionID, "reply-to-session-id", "", "session in which an answer is awaited")
	flags.StringVar(&f.m.ContentType, "content-type", "", "type of the body")
	flags.DurationVar(&f.ttl, "ttl", 0, "time to live (default: the queue's)")
	flags.StringVar(&f.scheduledAt, "scheduled-at", "", "become active at this time, or after this long")
	flags.StringArrayVar(&f.properties, "property", nil, "name=value of an application property: a number, true, false, or text; may be repeated")
}

func (f *messageFlags) message(ctx context.Context, a *app) (m forebay.NewMessage, err error) {
	m = f.m
	m.TimeToLiveSeconds = f.ttl.Seconds()
	if f.command.Flags().Changed("body") {
		if f.file != "" {
			return m, usagef("give the body once: by --body or --file")
		}
		m.Body = &f.body
	} else if f.file != "" {
		data, err := a.readFile(ctx, f.file, maxInputBytes)
		if err != nil {
			return m, err
		}
		if text := string(data); utf8.Valid(data) {
			m.Body = &text
		} else {
			m.BodyBase64 = data
		}
	}
	if m.ScheduledTime, err = a.parseTime("scheduled-at", f.scheduledAt, false); err != nil {
		return m, err
	}
	m.Properties, err = parseProperties(f.properties)
	return m, err
}

// sent prints what became of one message.
func (a *app) sent(sent []forebay.SentMessage, err error) error {
	if err != nil {
		return ofQueue(err)
	}
	if len(sent) != 1 {
		return failf("the server did not say what became of the message")
	}
	return a.printOne(sent[0], [][2]string{{"sequence number", count(sent[0].SequenceNumber)}, {"message id", sent[0].MessageID}})
}

// parseProperties reads name=value pairs. A value is what it would be in JSON, else text.
func parseProperties(pairs []string) (forebay.Properties, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	properties := forebay.Properties{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--property must be name=value, not %q", pair)
		}
		var one forebay.Properties
		if json.Unmarshal([]byte(`{"v":`+value+`}`), &one) == nil && len(one) == 1 && one["v"] != nil {
			properties[name] = one["v"]
		} else {
			properties[name] = value
		}
	}
	return properties, properties.Check()
}
