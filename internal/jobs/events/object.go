package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
)

// PublishObject tells the subscribers of a tenant that one of its batches or responses has ended.
// A kind is told once of an object.
func PublishObject(t *db.Tx, tenant int64, kind forebay.EventType, id string) error {
	topics := &bus.Key.Of(t).Topics
	f, err := topics.Followed()
	if err != nil || f.Topics[tenant] == "" {
		return err
	}
	e := forebay.ObjectEvent{ID: objectEventID(kind, id), Object: "event", CreatedAt: t.Now / 1000, Type: kind, Data: forebay.ObjectEventData{ID: id}}
	return topics.Publish(f.Topics[tenant], func() (m bus.MessageContent, err error) {
		m = bus.MessageContent{MessageID: e.ID, CorrelationID: id, Subject: string(kind), ContentType: "application/json", Text: true}
		if m.Body, err = json.Marshal(e); err != nil {
			return m, err
		}
		m.Properties, err = json.Marshal(forebay.Properties{"object_id": id})
		return m, err
	})
}

// objectEventID is the same however often the event is told.
func objectEventID(kind forebay.EventType, id string) string {
	sum := sha256.Sum256([]byte(string(kind) + " " + id))
	return "evt_" + hex.EncodeToString(sum[:16])
}
