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

// MessageQueue is a declared queue of plain messages. The server creates or updates it when it
// starts.
type MessageQueue struct {
	// Tenant owns the queue; default: default.
	Tenant           string        `koanf:"tenant"`
	LockDuration     time.Duration `koanf:"lock_duration"`      // default 1 min
	MaxDeliveryCount int           `koanf:"max_delivery_count"` // default 10
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
		if errors.As(inOption(at, bus.CheckQueue(or(q.Tenant, forebay.DefaultTenant), name, q.settings())), &e) {
			bad(e.Field, "%s", e.Message)
		}
	}
}

// declare creates or updates the declared entities. Targets of forwarding come first.
func (s *Server) declare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.makeForwarding, s.declareTopics, s.declareMessageQueues, s.declareSubscriptions} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeForwarding creates the missing queues without forwarding, because a target may be any of the
// others.
func (s *Server) makeForwarding(ctx context.Context) error {
	return s.eachMessageQueue(func(tenant, name string, settings forebay.MessageQueueSettings) error {
		_, err := s.bus.Queue(ctx, tenant, name)
		if forebay.CodeOf(err) != forebay.CodeUnknownQueue {
			return nil // other errors appear when it is declared
		}
		settings.ForwardTo, settings.ForwardDeadLettersTo = "", ""
		_, _, err = s.bus.PutQueue(ctx, tenant, name, settings)
		return err
	})
}

// declareMessageQueues updates the queues to the configuration. The store ignores unchanged
// settings, so a restart changes nothing.
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
