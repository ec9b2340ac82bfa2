package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

// MessageQueue is a queue of plain messages that the configuration declares. It is made at start-up, or
// brought to this.
type MessageQueue struct {
	Tenant                 string        `koanf:"tenant"`                            // default: default
	LockDuration           time.Duration `koanf:"lock_duration"`                     // default 1 min
	MaxDeliveryCount       int           `koanf:"max_delivery_count"`                // default 10
	DefaultMessageTTL      time.Duration `koanf:"default_message_ttl"`               // default: unlimited
	DeadLetterOnExpiration bool          `koanf:"dead_letter_on_expiration"`         //
	DuplicateDetection     time.Duration `koanf:"duplicate_detection_window"`        // default: duplicates are not detected; whether they are stays as the queue was made
	RequiresSession        *bool         `koanf:"requires_session"`                  // default false; stays as the queue was made
	ForwardTo              string        `koanf:"forward_to"`                        // a queue of messages or a topic
	ForwardDeadLettersTo   string        `koanf:"forward_dead_lettered_messages_to"` // the same
	AutoDeleteOnIdle       time.Duration `koanf:"auto_delete_on_idle"`               // default: never
}

func (q MessageQueue) settings() forebay.MessageQueueSettings {
	s := forebay.MessageQueueSettings{
		LockSeconds: q.LockDuration.Seconds(), MaxDeliveryCount: q.MaxDeliveryCount, DefaultTTLSeconds: q.DefaultMessageTTL.Seconds(),
		DeadLetterOnExpiration: q.DeadLetterOnExpiration, DuplicateWindowSeconds: q.DuplicateDetection.Seconds(), RequiresSession: q.RequiresSession,
		ForwardTo: q.ForwardTo, ForwardDeadLettersTo: q.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: q.AutoDeleteOnIdle.Seconds()}
	if q.DuplicateDetection != 0 {
		s.DetectsDuplicates = new(true)
	}
	return s
}

// validateMessageQueues checks what can be known without the database.
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
		if errors.As(inOption(at, bus.CheckQueue(or(q.Tenant, forebay.DefaultTenant), name, q.settings())), &e) {
			bad(e.Field, "%s", e.Message)
		}
	}
}

// declare makes what the configuration declares, or brings it to that, in an order in which whatever is
// forwarded to is there.
func (s *Server) declare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.makeForwarding, s.declareTopics, s.declareMessageQueues, s.declareSubscriptions} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeForwarding makes the missing queues of messages without what they forward to, for that may be
// any of the others.
func (s *Server) makeForwarding(ctx context.Context) error {
	return s.eachMessageQueue(func(tenant, name string, settings forebay.MessageQueueSettings) error {
		_, err := s.bus.Queue(ctx, tenant, name)
		if forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			return nil // what else is wrong shows when it is declared
		}
		settings.ForwardTo, settings.ForwardDeadLettersTo = "", ""
		_, _, err = s.bus.PutQueue(ctx, tenant, name, settings)
		return err
	})
}

// declareMessageQueues brings queues of messages to what stands in the configuration. The store leaves
// alone what is as it should be, so that restarts change nothing.
func (s *Server) declareMessageQueues(ctx context.Context) error {
	return s.eachMessageQueue(func(tenant, name string, settings forebay.MessageQueueSettings) error {
		_, _, err := s.bus.PutQueue(ctx, tenant, name, settings)
		return err
	})
}

func (s *Server) eachMessageQueue(f func(tenant, name string, settings forebay.MessageQueueSettings) error) error {
	for _, name := range slices.Sorted(maps.Keys(s.options.MessageQueues)) {
		q := s.options.MessageQueues[name]
		if err := f(or(q.Tenant, forebay.DefaultTenant), name, q.settings()); err != nil {
			return inOption("message_queues."+name, err)
		}
	}
	return nil
}
