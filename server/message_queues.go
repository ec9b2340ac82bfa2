package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/messaging"
)

// MessageQueue is a declared queue of plain messages. The server creates or updates it when it
// starts.
type MessageQueue struct {
	// Tenant owns the queue; default: default.
	Tenant           string        `koanf:"tenant"`
	LockDuration     time.Duration `koanf:"lock_duration" default:"1m"`      // default 1 min
	MaxDeliveryCount int           `koanf:"max_delivery_count" default:"10"` // default 10
	// DefaultMessageTTL is unlimited by default.
	DefaultMessageTTL      time.Duration `koanf:"default_message_ttl"`
	DeadLetterOnExpiration bool          `koanf:"dead_letter_on_expiration"`
	// DuplicateDetection is off by default. It cannot be switched on or off after the queue was
	// created.
	DuplicateDetection time.Duration `koanf:"duplicate_detection_window"`
	// RequiresSession is false by default. It cannot change after the queue was created.
	RequiresSession *bool `koanf:"requires_session"`
	// ForwardTo is a queue of messages or a topic.
	ForwardTo            string        `koanf:"forward_to"`
	ForwardDeadLettersTo string        `koanf:"forward_dead_lettered_messages_to"` // likewise
	AutoDeleteOnIdle     time.Duration `koanf:"auto_delete_on_idle"`               // default: never
	MaxMessageBytes      int64         `koanf:"max_message_bytes"`                 // default: limits.max_message_bytes
	// Status is who may use it; left out, it stays as it is.
	Status       string  `koanf:"status"`
	UserMetadata *string `koanf:"user_metadata"` // a note; left out, it stays as it is
}

func (q MessageQueue) settings() forebay.MessageQueueSettings {
	s := forebay.MessageQueueSettings{
		LockSeconds: q.LockDuration.Seconds(), MaxDeliveryCount: q.MaxDeliveryCount, DefaultTTLSeconds: q.DefaultMessageTTL.Seconds(),
		DeadLetterOnExpiration: q.DeadLetterOnExpiration, DuplicateWindowSeconds: q.DuplicateDetection.Seconds(), RequiresSession: q.RequiresSession,
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: q.AutoDeleteOnIdle.Seconds(),
		MaxMessageBytes: q.MaxMessageBytes, EntityChange: forebay.EntityChange{Status: forebay.EntityStatus(q.Status), UserMetadata: q.UserMetadata}}
	if q.DuplicateDetection != 0 {
		s.DetectsDuplicates = new(true)
	}
	return s
}

// validateMessageQueues checks what needs no database.
func (o Options) validateMessageQueues(bad func(field, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(o.MessageQueues)) {
		q, at := o.MessageQueues[name], "message_queues."+name
		if _, ok := o.Queues[name]; ok {
			bad(at, "is the name of a queue for jobs too")
		}
		if topic, ok := o.Topics[name]; ok && or(topic.Tenant, forebay.DefaultTenant) == or(q.Tenant, forebay.DefaultTenant) {
			bad(at, "is the name of a topic too")
		}
		if q.Tenant != "" && !forebay.ValidName(q.Tenant) {
			bad(at+".tenant", "is not a valid name")
		}
		var e *forebay.Error
		if errors.As(inOption(at, entity.CheckQueue(or(q.Tenant, forebay.DefaultTenant), name, q.settings())), &e) {
			bad(e.Field, "%s", e.Message)
		}
	}
}

// declaration creates the message queues, topics and subscriptions that the options declare, and
// brings those that exist to what the options say.
type declaration struct {
	options Options
	bus     *messaging.Service
}

// apply does so in an order in which every forwarding target exists.
func (d declaration) apply(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.makeForwarding, d.topics, d.messageQueues, d.subscriptions} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeForwarding creates missing message queues without their forwarding targets. A target may be
// any other of the queues.
func (d declaration) makeForwarding(ctx context.Context) error {
	return d.eachMessageQueue(func(tenant, name string, settings forebay.MessageQueueSettings) error {
		_, err := d.bus.Queues.Get(ctx, tenant, name)
		if forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			return nil // other errors appear when it is declared
		}
		settings.ForwardTo, settings.ForwardDeadLettersTo = "", ""
		_, _, err = d.bus.Queues.Put(ctx, tenant, name, settings)
		return err
	})
}

// messageQueues brings queues of messages to what the configuration says. The store changes only
// what differs, so that restarts change nothing.
func (d declaration) messageQueues(ctx context.Context) error {
	return d.eachMessageQueue(func(tenant, name string, settings forebay.MessageQueueSettings) error {
		_, _, err := d.bus.Queues.Put(ctx, tenant, name, settings)
		return err
	})
}

func (d declaration) eachMessageQueue(f func(tenant, name string, settings forebay.MessageQueueSettings) error) error {
	for _, name := range slices.Sorted(maps.Keys(d.options.MessageQueues)) {
		q := d.options.MessageQueues[name]
		if err := f(or(q.Tenant, forebay.DefaultTenant), name, q.settings()); err != nil {
			return inOption("message_queues."+name, err)
		}
	}
	return nil
}
