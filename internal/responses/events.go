package responses

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Events that tell of the response as a whole are stored as their type alone. Each status of an
// unfinished response is named like the event that tells of it.
const (
	typeCreated    = "response.created"
	typeQueued     = "response.queued"
	typeInProgress = "response.in_progress"
)

var statusOf = map[string]string{typeCreated: bridge.StatusQueued, typeQueued: bridge.StatusQueued, typeInProgress: bridge.StatusInProgress}

func marker(kind string) []byte { return []byte(`{"type":"` + kind + "\"}\n") }

// firstEvents are those of a background response that nobody works on yet.
var firstEvents = append(marker(typeCreated), marker(typeQueued)...)

func encode(v any) json.RawMessage {
	b, err := forebay.EncodeJSON(v)
	if err != nil {
		panic(err) // JSON that was read: cannot happen
	}
	return b
}

// eventRows is how many groups of events are read at once.
const eventRows = 16

// Events returns events of a background response whose numbers are above after, oldest first. over
// says that they are the last. Whoever has seen them all watches the response before asking again.
func (s *Service) Events(ctx context.Context, tenant, id string, after int64) (events []bridge.Event, over bool, err error) {
	// The response comes first: one that has ended now has all its events written.
	row, err := s.Response(ctx, tenant, id)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.Store.Events(ctx, row, after+1, eventRows)
	if err != nil {
		return nil, false, err
	}
	var req *bridge.Request
	for _, group := range rows {
		number := group.First
		for line := range bytes.Lines(group.Data) {
			e := bridge.Event{Data: bytes.TrimSuffix(line, []byte("\n"))}
			e.Type = gjson.GetBytes(e.Data, "type").Str
			if number > after {
				if status := statusOf[e.Type]; status != "" {
					if req == nil {
						if req, err = s.request(ctx, row); err != nil {
							return nil, false, err
						}
					}
					e = bridge.Lifecycle(number, e.Type[len("response."):], encode(req.Base(row.ID, row.CreatedAt, status)))
				}
				events = append(events, e)
			}
			number++
		}
	}
	if !row.Over() || len(rows) == eventRows {
		return events, false, nil
	}
	if row.State.Sequence <= after {
		return events, true, nil
	}
	object, err := s.Object(ctx, row)
	if err != nil {
		return nil, false, err
	}
	if last, ok := bridge.Last(row.State.Sequence, row.Status, object); ok {
		events = append(events, last)
	}
	return events, true, nil
}

// Watch returns a channel that gets a value after changes of a background response, until stop is
// called. Register before reading events, so that no change is missed.
func (s *Service) Watch(row Row) (changes <-chan struct{}, stop func()) {
	return s.Store.Watch(row.Seq)
}
