package servicebus

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/messaging"
)

// sessionsPage is how many sessions one answer lists at most.
const sessionsPage = 100

// listsAll is the year from which a last-updated-time asks for sessions with messages or a state.
// The SDKs for Go, .NET and JavaScript document that as their default. That of .NET is the last
// moment of its calendar in the local zone. Other times ask for sessions with a state.
const listsAll = 9999

// ownSession returns the session that a request is about: the one it names, or the one of the link
// that it names. A link of its connection must hold it.
func (m *managed) ownSession() (*heldSession, error) {
	if id := m.text("session-id"); id != "" {
		return m.heldSession(m.entity.Path, id)
	}
	link, _ := textOf(m.property("associated-link-name"))
	if h := m.sessionOfLink(m.entity.Path, link); h != nil {
		return h, nil
	}
	return nil, badArgument("The field session-id is missing.")
}

// peekedSession is the id of the session whose messages a peek is to see; "": those of all.
func (m *managed) peekedSession() string {
	if id := m.text("session-id"); id != "" || !m.entity.RequiresSession {
		return id
	}
	link, _ := textOf(m.property("associated-link-name"))
	if h := m.sessionOfLink(m.entity.Path, link); h != nil {
		return h.id
	}
	return ""
}

func renewSession(ctx context.Context, m *managed) (wire.Map, error) {
	h, err := m.ownSession()
	if err != nil {
		return nil, err
	}
	until, err := h.renew(ctx)
	if err != nil {
		return nil, err
	}
	return wire.Map{{Key: "expiration", Value: until}}, nil
}

func sessionState(ctx context.Context, m *managed) (wire.Map, error) {
	h, err := m.ownSession()
	if err != nil {
		return nil, err
	}
	s, err := m.messages.Sessions.State(ctx, h.tenant, h.path, h.token)
	if err != nil {
		return nil, err
	}
	var state any // null: none
	if s.State != nil {
		state = s.State
	}
	return wire.Map{{Key: "session-state", Value: state}}, nil
}

func setSessionState(ctx context.Context, m *managed) (wire.Map, error) {
	h, err := m.ownSession()
	if err != nil {
		return nil, err
	}
	state, ok := m.field("session-state").([]byte)
	if !ok && m.field("session-state") != nil {
		return nil, badArgument("The field session-state must be binary or null.")
	}
	if len(state) == 0 {
		state = nil // the SDK for Go says "none" by an empty value
	}
	if m.transaction != nil {
		return wire.Map{}, m.add(ctx, messaging.Step{Kind: bus.StepState, Path: h.path, Token: h.token, State: state})
	}
	return wire.Map{}, m.messages.Sessions.SetState(ctx, h.tenant, h.path, h.token, forebay.SessionState{State: state})
}

// listSessions lists sessions by their ids. A client asks for page after page by how many it has.
func listSessions(ctx context.Context, m *managed) (wire.Map, error) {
	if !m.entity.RequiresSession {
		return nil, errNoSessions
	}
	skip, err := m.integer("skip", 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	top, err := m.integer("top", sessionsPage, 1<<31-1)
	if err != nil {
		return nil, err
	}
	since, given := m.field("last-updated-time").(time.Time)
	byState := given && since.UTC().Year() < listsAll
	ids := []any{}
	seen := int64(0)
	for cursor := ""; int64(len(ids)) < min(top, sessionsPage); {
		page, err := m.messages.Sessions.List(ctx, m.tenant, m.entity.Path, cursor, forebay.MaxPageSize)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Items {
			if s.StateBytes == 0 && (byState || !s.HasMessages) {
				continue
			}
			if seen++; seen > skip && int64(len(ids)) < min(top, sessionsPage) {
				ids = append(ids, s.SessionID)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return wire.Map{{Key: "skip", Value: int32(skip + int64(len(ids)))}, {Key: "sessions-ids", Value: wire.ArrayOf(wire.ConstructorString32, ids...)}}, nil
}
