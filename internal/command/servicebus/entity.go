package servicebus

import (
	"fmt"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servicebus/atom"
)

// The kinds of entities.
const (
	queue        = "queue"
	topic        = "topic"
	subscription = "subscription"
)

// entity is a queue, a topic or a subscription of the source.
type entity struct {
	kind, topic, name string
	settings          forebay.SubscriptionSettings
	notes             []string // what Forebay cannot keep
}

// path is how Forebay addresses it.
func (e *entity) path() string {
	if e.kind == subscription {
		return forebay.SubscriptionPath(e.topic, e.name)
	}
	return e.name
}

func (e *entity) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// duration reads a duration of a property. One that cannot be read is noted.
func (e *entity) duration(property, text string) float64 {
	if text == "" {
		return 0
	}
	s, err := atom.Seconds(text)
	if err != nil {
		e.note("%s %q is no duration", property, text)
	}
	return s
}

// target reads where an entity forwards to. Another namespace is out of reach.
func (e *entity) target(property, written, host string) string {
	name := atom.TargetName(written)
	if scheme, rest, absolute := strings.Cut(written, "://"); absolute && host != "" {
		if to, _, _ := strings.Cut(rest, "/"); !strings.EqualFold(to, host) {
			e.note("%s is in another namespace: %s://%s", property, scheme, rest)
			return ""
		}
	}
	return name
}

// window sets the window of duplicate detection, which only entities that detect duplicates have.
func (e *entity) window(text string) {
	if e.settings.DetectsDuplicates != nil && *e.settings.DetectsDuplicates {
		e.settings.DuplicateWindowSeconds = e.duration("DuplicateDetectionHistoryTimeWindow", text)
	}
}
