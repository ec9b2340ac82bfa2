package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/feed"
)

// ObjectEnd is the end of a tenant's batch or response.
type ObjectEnd struct {
	Tenant int64
	Kind   forebay.EventType
	ID     string // of the object
}

// PublishObjects tells the subscribers of tenants that batches or responses have ended. A kind is
// told once of an object.
func PublishObjects(t *db.Tx, ends []ObjectEnd) error {
	if len(ends) == 0 {
		return nil
	}
	for _, end := range ends {
		kind, status, _ := strings.Cut(string(end.Kind), ".")
		feed.Tell(t, forebay.FeedKind(kind), end.Tenant, end.ID, status)
	}
	topics := &bus.Key.Of(t).Topics
	f, err := topics.Followed()
	if err != nil {
		return err
	}
	var list []bus.Publication
	for _, end := range ends {
		if topic := f.Topics[end.Tenant]; topic != "" {
			list = append(list, bus.Publication{Topic: topic, Message: func() (bus.MessageContent, error) { return end.message(t.Now) }})
		}
	}
	return topics.PublishAll(list)
}

// message is the event as subscribers get it.
func (end *ObjectEnd) message(now int64) (m bus.MessageContent, err error) {
	e := forebay.ObjectEvent{ID: objectEventID(end.Kind, end.ID), Object: "event", CreatedAt: now / 1000, Type: end.Kind, Data: forebay.ObjectEventData{ID: end.ID}}
	m = bus.MessageContent{MessageID: e.ID, CorrelationID: end.ID, Subject: string(end.Kind), ContentType: "application/json", Text: true}
	if m.Body, err = json.Marshal(e); err != nil {
		return m, err
	}
	m.Properties, err = json.Marshal(forebay.Properties{"object_id": end.ID})
	return m, err
}

// objectEventID is the same however often the event is told.
func objectEventID(kind forebay.EventType, id string) string {
	sum := sha256.Sum256([]byte(string(kind) + " " + id))
	return "evt_" + hex.EncodeToString(sum[:16])
}
