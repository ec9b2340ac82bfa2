package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Topic is a declared topic. The server creates or updates it when it starts.
type Topic struct {
	// Tenant owns the topic; default: default.
	Tenant string `koanf:"tenant"`
	// DefaultMessageTTL is unlimited by default.
	DefaultMessageTTL time.Duration `koanf:"default_message_ttl"`
	// DuplicateDetection is off by default. It cannot be switched on or off after the topic was
	// created.
	DuplicateDetection time.Duration `koanf:"duplicate_detection_window"`
	AutoDeleteOnIdle   time.Duration `koanf:"auto_delete_on_idle"` // default: never
	MaxMessageBytes    int64         `koanf:"max_message_bytes"`   // default: limits.max_message_bytes
	// Status is who may use it; left out, it stays as it is.
	Status       string  `koanf:"status"`
	UserMetadata *string `koanf:"user_metadata"` // a note; left out, it stays as it is
	// Subscriptions are declared by name. Others stay as they are.
	Subscriptions map[string]Subscription `koanf:"subscriptions"`
}

// Subscription is a subscription of a declared topic.
type Subscription struct {
	// LockDuration is 1 min by default.
	LockDuration     time.Duration `koanf:"lock_duration" default:"1m"`
	MaxDeliveryCount int           `koanf:"max_delivery_count" default:"10"` // default 10
	// DefaultMessageTTL is that of the topic by default.
	DefaultMessageTTL      time.Duration `koanf:"default_message_ttl"`
	DeadLetterOnExpiration bool          `koanf:"dead_letter_on_expiration"`
	// DeadLetterOnFilterError is true by default.
	DeadLetterOnFilterError *bool `koanf:"dead_letter_on_filter_error"`
	// RequiresSession is false by default. It cannot change after the subscription was created.
	RequiresSession *bool `koanf:"requires_session"`
	// ForwardTo is a queue of messages or a topic.
	ForwardTo            string `koanf:"forward_to"`
	ForwardDeadLettersTo string `koanf:"forward_dead_lettered_messages_to"` // likewise
	// AutoDeleteOnIdle is off by default.
	AutoDeleteOnIdle time.Duration `koanf:"auto_delete_on_idle"`
	// Status is who may use it; left out, it stays as it is.
	Status       string  `koanf:"status"`
	UserMetadata *string `koanf:"user_metadata"` // a note; left out, it stays as it is
	// Rules are all rules of the subscription, by name. Without them a new subscription has
	// $Default, and an existing one keeps its rules.
	Rules map[string]Rule `koanf:"rules"`
}

// Rule is a rule of a declared subscription. Without a filter it selects all messages.
type Rule struct {
	SQLFilter         string             `koanf:"sql_filter"`
	CorrelationFilter *CorrelationFilter `koanf:"correlation_filter"`
	BooleanFilter     *bool              `koanf:"boolean_filter"`
	SQLAction         string             `koanf:"sql_action"`
}

// CorrelationFilter lists the values that properties must have.
type CorrelationFilter struct {
	CorrelationID    string `koanf:"correlation_id"`
	MessageID        string `koanf:"message_id"`
	SessionID        string `koanf:"session_id"`
	Subject          string `koanf:"subject"`
	To               string `koanf:"to"`
	ReplyTo          string `koanf:"reply_to"`
	ReplyToSessionID string `koanf:"reply_to_session_id"`
	ContentType      string `koanf:"content_type"`
	// Properties are texts. A SQL filter can compare other types.
	Properties map[string]string `koanf:"application_properties"`
}

func (t Topic) settings() forebay.TopicSettings {
	s := forebay.TopicSettings{DefaultTTLSeconds: t.DefaultMessageTTL.Seconds(), DuplicateWindowSeconds: t.DuplicateDetection.Seconds(), AutoDeleteOnIdleSeconds: t.AutoDeleteOnIdle.Seconds(),
		MaxMessageBytes: t.MaxMessageBytes, EntityChange: forebay.EntityChange{Status: forebay.EntityStatus(t.Status), UserMetadata: t.UserMetadata}}
	if t.DuplicateDetection > 0 {
		detects := true
		s.DetectsDuplicates = &detects
	}
	return s
}

func (s Subscription) settings() forebay.SubscriptionSettings {
	settings := forebay.SubscriptionSettings{
		MessageQueueSettings: forebay.MessageQueueSettings{
			LockSeconds: s.LockDuration.Seconds(), MaxDeliveryCount: s.MaxDeliveryCount, DefaultTTLSeconds: s.DefaultMessageTTL.Seconds(),
			DeadLetterOnExpiration: s.DeadLetterOnExpiration, RequiresSession: s.RequiresSession, ForwardTo: s.ForwardTo,
			ForwardDeadLettersTo: s.ForwardDeadLettersTo, AutoDeleteOnIdleSeconds: s.AutoDeleteOnIdle.Seconds(),
			EntityChange: forebay.EntityChange{Status: forebay.EntityStatus(s.Status), UserMetadata: s.UserMetadata}},
		DeadLetterOnFilterError: s.DeadLetterOnFilterError,
	}
	if s.Rules != nil {
		settings.Rules = []forebay.NewRule{}
		for _, name := range slices.Sorted(maps.Keys(s.Rules)) {
			settings.Rules = append(settings.Rules, forebay.NewRule{Name: name, RuleSettings: s.Rules[name].settings()})
		}
	}
	return settings
}

func (r Rule) settings() forebay.RuleSettings {
	s := forebay.RuleSettings{SQLFilter: r.SQLFilter, BooleanFilter: r.BooleanFilter, SQLAction: r.SQLAction}
	if f := r.CorrelationFilter; f != nil {
		s.CorrelationFilter = &forebay.CorrelationFilter{CorrelationID: f.CorrelationID, MessageID: f.MessageID, SessionID: f.SessionID, Subject: f.Subject,
			To: f.To, ReplyTo: f.ReplyTo, ReplyToSessionID: f.ReplyToSessionID, ContentType: f.ContentType}
		for name, value := range f.Properties {
			if s.CorrelationFilter.Properties == nil {
				s.CorrelationFilter.Properties = forebay.Properties{}
			}
			s.CorrelationFilter.Properties[name] = value
		}
	}
	return s
}

// validateTopics checks what needs no database.
func (o Options) validateTopics(bad func(field, format string, args ...any)) {
	reject := func(at string, err error) {
		var e *forebay.Error
		if errors.As(inOption(at, err), &e) {
			bad(e.Field, "%s", e.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Topics)) {
		topic, at := o.Topics[name], "topics."+name
		if _, ok := o.Queues[name]; ok {
			bad(at, "is the name of a queue for jobs too")
		}
		if topic.Tenant != "" && !forebay.ValidName(topic.Tenant) {
			bad(at+".tenant", "is not a valid name")
		}
		reject(at, entity.CheckTopic(or(topic.Tenant, forebay.DefaultTenant), name, topic.settings()))
		for _, name := range slices.Sorted(maps.Keys(topic.Subscriptions)) {
			sub, at := topic.Subscriptions[name], at+".subscriptions."+name
			settings := sub.settings()
			settings.Rules = nil // set separately, so that an error can name them
			reject(at, entity.CheckSubscription(or(topic.Tenant, forebay.DefaultTenant), name, settings))
			for _, name := range slices.Sorted(maps.Keys(sub.Rules)) {
				reject(at+".rules."+name, rules.Check(name, sub.Rules[name].settings()))
			}
		}
	}
}

// configKeys maps fields of the HTTP contract to options with another name.
var configKeys = map[string]string{
	"lock_seconds": "lock_duration", "default_message_ttl_seconds": "default_message_ttl",
	"duplicate_detection_window_seconds": "duplicate_detection_window", "requires_duplicate_detection": "duplicate_detection_window",
	"auto_delete_on_idle_seconds": "auto_delete_on_idle",
	// The path contains the names of these.
	"topic": "", "queue": "", "subscription": "", "name": "",
}

// inOption adds to an error which option of the configuration it is about.
func inOption(at string, err error) error {
	if err == nil {
		return nil
	}
	var e *forebay.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", at, err)
	}
	in := *e
	first, rest, _ := strings.Cut(e.Field, ".")
	if key, ok := configKeys[first]; ok {
		first = key
	}
	in.Field = strings.Join(slices.DeleteFunc([]string{at, first, rest}, func(s string) bool { return s == "" }), ".")
	return &in
}

// topics makes the topics of the configuration, or brings them to what stands there.
func (d declaration) topics(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(d.options.Topics)) {
		topic := d.options.Topics[name]
		if _, _, err := d.bus.Topics.Put(ctx, or(topic.Tenant, forebay.DefaultTenant), name, topic.settings()); err != nil {
			return inOption("topics."+name, err)
		}
	}
	return nil
}

// subscriptions does the same for their subscriptions, which may forward to any of them.
func (d declaration) subscriptions(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(d.options.Topics)) {
		topic := d.options.Topics[name]
		for _, sub := range slices.Sorted(maps.Keys(topic.Subscriptions)) {
			if err := d.subscription(ctx, or(topic.Tenant, forebay.DefaultTenant), name, sub, topic.Subscriptions[sub].settings()); err != nil {
				return inOption("topics."+name+".subscriptions."+sub, err)
			}
		}
	}
	return nil
}

// subscription changes only what differs, so that restarts change nothing.
func (d declaration) subscription(ctx context.Context, tenant, topic, name string, settings forebay.SubscriptionSettings) error {
	_, created, err := d.bus.Subscriptions.Put(ctx, tenant, topic, name, settings)
	if err != nil || created || settings.Rules == nil {
		return err
	}
	rules, err := d.bus.Rules.List(ctx, tenant, topic, name)
	if err != nil {
		return err
	}
	stored := map[string]forebay.RuleSettings{}
	for _, r := range rules {
		stored[r.Name] = r.RuleSettings
	}
	for _, r := range settings.Rules {
		before, found := stored[r.Name]
		delete(stored, r.Name)
		if found && reflect.DeepEqual(before, r.RuleSettings) {
			continue
		}
		if _, _, err := d.bus.Rules.Put(ctx, tenant, topic, name, r.Name, r.RuleSettings); err != nil {
			return inOption("rules."+r.Name, err)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(stored)) {
		if err := d.bus.Rules.Delete(ctx, tenant, topic, name, other); err != nil && forebay.CodeOf(err) != forebay.CodeNotFound {
			return err // a process that starts beside this one may have been faster
		}
	}
	return nil
}
