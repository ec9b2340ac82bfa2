package entity

import (
	"cmp"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
)

// Apply checks settings and sets them, with their defaults, on the queue.
func Apply(settings forebay.MessageQueueSettings, tenant string, q *Queue) (err error) {
	detects := q.DuplicateWindow > 0
	if settings.DetectsDuplicates != nil {
		detects = *settings.DetectsDuplicates
	}
	window := time.Duration(0)
	if detects {
		window = forebay.DefaultDuplicateWindow
	} else if settings.DuplicateWindowSeconds != 0 {
		return forebay.Invalid("duplicate_detection_window_seconds", "needs requires_duplicate_detection")
	}
	for _, d := range []struct {
		field     string
		given     float64
		byDefault time.Duration
		min, max  time.Duration
		set       *time.Duration
	}{
		{"lock_seconds", settings.LockSeconds, forebay.DefaultLockDuration, forebay.MinLockDuration, forebay.MaxLockDuration, &q.Lock},
		{"default_message_ttl_seconds", settings.DefaultTTLSeconds, 0, time.Millisecond, forebay.MaxTimeToLive, &q.DefaultTTL},
		{"duplicate_detection_window_seconds", settings.DuplicateWindowSeconds, window, forebay.MinDuplicateWindow, forebay.MaxDuplicateWindow, &q.DuplicateWindow},
		{"auto_delete_on_idle_seconds", settings.AutoDeleteOnIdleSeconds, 0, forebay.MinAutoDelete, forebay.MaxTimeToLive, &q.Idle},
	} {
		if *d.set = d.byDefault; d.given == 0 {
			continue
		}
		if !(d.given >= d.min.Seconds() && d.given <= d.max.Seconds()) {
			return forebay.Invalid(d.field, "goes from %g to %g", d.min.Seconds(), d.max.Seconds())
		}
		*d.set = message.Seconds(d.given)
	}
	if q.MaxMessage = settings.MaxMessageBytes; q.MaxMessage < 0 || q.MaxMessage > forebay.MaxEntityMessage {
		return forebay.Invalid("max_message_bytes", "goes from 1 to %d; left out, it is what the server allows", forebay.MaxEntityMessage)
	}
	q.MaxDeliveries = cmp.Or(settings.MaxDeliveryCount, forebay.DefaultMaxDeliveryCount)
	if q.MaxDeliveries < 1 || q.MaxDeliveries > forebay.MaxMaxDeliveryCount {
		return forebay.Invalid("max_delivery_count", "goes from 1 to %d", forebay.MaxMaxDeliveryCount)
	}
	if settings.RequiresSession != nil {
		q.RequiresSession = *settings.RequiresSession
	}
	q.DeadLetterExpired = settings.DeadLetterOnExpiration
	if q.ForwardTo, err = forwardTarget("forward_to", settings.ForwardTo, tenant, q); err != nil {
		return err
	}
	q.ForwardDeadLettersTo, err = forwardTarget("forward_dead_lettered_messages_to", settings.ForwardDeadLettersTo, tenant, q)
	return err
}

// forwardTarget returns the stored name of a queue to forward to.
func forwardTarget(field, name, tenant string, from *Queue) (string, error) {
	switch {
	case name == "":
		return "", nil
	case !forebay.ValidEntityName(name):
		return "", forebay.Invalid(field, "is not the name of a queue")
	case OnlyForebayPublishes(StoredName(tenant, name)):
		return "", forebay.Invalid(field, "cannot be %s: only Forebay publishes to that topic", name)
	case from.RequiresSession:
		return "", forebay.Invalid(field, "a queue that requires sessions cannot forward")
	case from.Name == StoredName(tenant, name):
		return "", forebay.Invalid(field, "must not be the queue itself")
	}
	return StoredName(tenant, name), nil
}

// TopicSettings returns a topic's settings as those of a queue: the store keeps a topic as a
// queue.
func TopicSettings(t forebay.TopicSettings) forebay.MessageQueueSettings {
	return forebay.MessageQueueSettings{DefaultTTLSeconds: t.DefaultTTLSeconds, DetectsDuplicates: t.DetectsDuplicates,
		DuplicateWindowSeconds: t.DuplicateWindowSeconds, AutoDeleteOnIdleSeconds: t.AutoDeleteOnIdleSeconds,
		MaxMessageBytes: t.MaxMessageBytes, EntityChange: t.EntityChange}
}

// CheckSubscriptionSettings refuses settings that a subscription shares with its topic.
func CheckSubscriptionSettings(settings forebay.SubscriptionSettings) error {
	if settings.DuplicateWindowSeconds != 0 || settings.DetectsDuplicates != nil && *settings.DetectsDuplicates {
		return forebay.Invalid("requires_duplicate_detection", "is a setting of the topic")
	}
	if settings.MaxMessageBytes != 0 {
		return forebay.Invalid("max_message_bytes", "is a setting of the topic")
	}
	return nil
}

// CheckTopic reports what is wrong with the declaration of a topic. It does not look at existing
// entities.
func CheckTopic(tenant, name string, settings forebay.TopicSettings) error {
	if err := CheckName("topic", name); err != nil {
		return err
	}
	return check(TopicSettings(settings), Queue{Name: StoredName(tenant, name), IsTopic: true}, tenant)
}

// CheckQueue does the same for a tenant's queue.
func CheckQueue(tenant, name string, settings forebay.MessageQueueSettings) error {
	if err := CheckName("queue", name); err != nil {
		return err
	}
	return check(settings, Queue{Name: StoredName(tenant, name)}, tenant)
}

func check(settings forebay.MessageQueueSettings, q Queue, tenant string) error {
	if err := Apply(settings, tenant, &q); err != nil {
		return err
	}
	_, err := ApplyChange(settings.EntityChange, &q)
	return err
}

// CheckSubscription does the same for a subscription of a tenant's topic, but for its rules.
func CheckSubscription(tenant, name string, settings forebay.SubscriptionSettings) error {
	if err := rules.CheckName("subscription", name); err != nil {
		return err
	}
	if err := CheckSubscriptionSettings(settings); err != nil {
		return err
	}
	return check(settings.MessageQueueSettings, Queue{Name: SubscriptionName("", name)}, tenant)
}
