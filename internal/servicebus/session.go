package servicebus

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// filterSession is the name of the filter by which a link asks for a session. The SDK for Go
// describes its value, others send a plain string or null. The answer is of the same kind.
const filterSession = "com.microsoft:session-filter"

// The filter by which the SDK for .NET asks for a lock of a session that several links share. The
// descriptor of its list is known. The name is taken from that, so either is enough.
const (
	filterShared            = "com.microsoft:non-exclusive-session-filter"
	descriptorShared uint64 = 0x137000000E
)

// The filter by which clients of JMS and others have a link select messages. Its value is
// described by either of these.
const (
	filterSelector            = "apache.org:selector-filter:string"
	descriptorSelector uint64 = 0x0000468C00000004
)

const (
	// sessionWait is how long a link waits for a session if its client does not say.
	sessionWait = 65 * time.Second
	// acceptStep is the longest wait that package messaging allows.
	acceptStep = time.Minute
	// endTime is how long the end of a session's lock may take.
	endTime = 10 * time.Second
)

// sessionFilter is the filter of a link.
type sessionFilter struct {
	asked   bool
	share   bool   // the lock is to be shared
	selects bool   // only some messages are to come
	id      string // "": the next session that is free
	at      int    // of its entry in the source's filters
}

func sessionFilterOf(s *wire.Source) (f sessionFilter) {
	if s == nil {
		return f
	}
	for i, p := range s.Filter {
		name, _ := textOf(p.Key)
		value := p.Value
		if d, ok := value.(wire.Described); ok {
			value = d.Value
			f.share = f.share || d.Descriptor == descriptorShared
			f.selects = f.selects || d.Descriptor == wire.Symbol(filterSelector) || d.Descriptor == descriptorSelector
		}
		f.share = f.share || name == filterShared
		f.selects = f.selects || name == filterSelector
		if name == filterSession {
			f.asked, f.at = true, i
			f.id, _ = textOf(value)
		}
	}
	return f
}

// answered returns the source as the link's answer repeats it. Its filters are those in force, by
// which clients see that another one is not (AMQP 1.0, 3.5.3). So only that for a session is left,
// with the session's id.
func (f sessionFilter) answered(s *wire.Source) *wire.Source {
	if len(s.Filter) == 0 {
		return s
	}
	told := *s
	told.Filter = nil
	if f.asked {
		asked, value := s.Filter[f.at], any(f.id)
		if d, ok := asked.Value.(wire.Described); ok {
			value = wire.Described{Descriptor: d.Descriptor, Value: f.id}
		}
		told.Filter = wire.Map{{Key: asked.Key, Value: value}}
	}
	return &told
}

type sessionKey struct{ path, id string }

// heldSession is a session whose lock a link of the connection holds.
type heldSession struct {
	client *client
	key    sessionKey
	tenant string
	path   string
	id     string
	token  string
	link   *amqp.Outgoing
	gone   chan struct{} // closed once the session is given back

	mu    sync.Mutex
	until time.Time
	timer *time.Timer // looks after the lock when it should have ended
	ended bool
}

// acceptSession locks the session that a link asks for. filter gets its id.
func (c *client) acceptSession(r *receiver, filter *sessionFilter) (*heldSession, error) {
	session, err := c.awaitSession(r, filter.id)
	if err != nil {
		return nil, err
	}
	filter.id = session.SessionID
	h := &heldSession{client: c, tenant: r.grant.tenant(), path: r.entity.Path, id: session.SessionID, token: session.SessionToken, link: r.link, gone: make(chan struct{}),
		key: sessionKey{strings.ToLower(r.entity.Path), session.SessionID}, until: session.LockedUntil}
	h.timer = time.AfterFunc(time.Until(h.until), h.look)
	c.held.Store(h.everywhere(), h)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[h.key] = h
	return h, nil
}

// awaitSession accepts the session of that id at once, or waits for the next one that is free.
func (c *client) awaitSession(r *receiver, id string) (forebay.Session, error) {
	ctx := r.link.Context()
	until := time.Now().Add(timeoutOf(r.link.Attach(), sessionWait))
	for {
		req := forebay.AcceptSessionRequest{SessionID: id}
		if id == "" {
			wait := min(time.Until(until), acceptStep)
			if wait <= 0 { // it has waited: another try without waiting would only be repeated
				return forebay.Session{}, errNoSessionFree
			}
			req.WaitSeconds = wait.Seconds()
		}
		holder := c.holder(heldKey{r.grant.tenant(), r.entity.Path, id})
		session, found, err := c.messages.Sessions.Accept(ctx, r.grant.tenant(), r.entity.Path, req)
		if errors.Is(err, forebay.ErrSessionLocked) && holder.leaving(ctx) {
			continue
		}
		if err != nil || found {
			return session, err
		}
	}
}

// heldKey names a session among those of all connections.
type heldKey struct{ tenant, path, id string }

func (h *heldSession) everywhere() heldKey { return heldKey{h.tenant, h.path, h.id} }

// holder is who has that session, among the links of this process; nil: none of them.
func (e *Endpoint) holder(key heldKey) *heldSession {
	v, _ := e.held.Load(key)
	h, _ := v.(*heldSession)
	return h
}

// leaving waits until a link that has ended gives its session back. It reports false if the link
// lives. A client that closes a session may ask for it again at once.
func (h *heldSession) leaving(ctx context.Context) bool {
	if h == nil || h.link.Context().Err() == nil {
		return false
	}
	select {
	case <-h.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// heldSession returns the session of that id, if a link of this connection holds it.
func (c *client) heldSession(path, id string) (*heldSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.sessions[sessionKey{strings.ToLower(path), id}]
	if h == nil {
		return nil, forebay.ErrSessionLockLost
	}
	return h, nil
}

// sessionOfLink returns the session that the link of that name on an entity holds, or nil. Some
// clients name their link in a request, and no session.
func (c *client) sessionOfLink(path, link string) *heldSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.sessions {
		if h.link.Name() == link && strings.EqualFold(h.path, path) {
			return h
		}
	}
	return nil
}

func (h *heldSession) lockedUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// renew extends the lock.
func (h *heldSession) renew(ctx context.Context) (time.Time, error) {
	until, err := h.client.messages.Sessions.Renew(ctx, h.tenant, h.path, h.token)
	if err != nil {
		return until, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
	if !h.ended {
		h.timer.Reset(time.Until(until))
	}
	return until, nil
}

// look ends the link when the lock has ended. Somebody else may have renewed it meanwhile.
func (h *heldSession) look() {
	const again = time.Second
	ctx, cancel := context.WithTimeout(h.link.Context(), endTime)
	defer cancel()
	_, err := h.client.messages.Sessions.State(ctx, h.tenant, h.path, h.token)
	if err != nil && !temporary(err) && ctx.Err() == nil {
		h.link.Detach(h.client.failure(err, h.path).wire())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.timer.Reset(max(again, time.Until(h.until)))
	}
}

// end gives the session back. The messages that the client has and did not settle are free again,
// as if never delivered.
func (h *heldSession) end() {
	h.mu.Lock()
	h.ended = true
	h.timer.Stop()
	h.mu.Unlock()
	h.client.mu.Lock()
	if h.client.sessions[h.key] == h {
		delete(h.client.sessions, h.key)
	}
	h.client.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.link.Context()), endTime)
	defer cancel()
	err := h.client.messages.Sessions.Close(ctx, h.tenant, h.path, h.token)
	h.client.held.CompareAndDelete(h.everywhere(), h)
	close(h.gone)
	if err != nil && !errors.Is(err, forebay.ErrSessionLockLost) && forebay.CodeOf(err) != forebay.CodeUnknownQueue {
		h.client.log.Warn("a session of a Service Bus client stays locked until its lock ends", slog.String("entity", h.path), slog.Any("error", err))
	}
}
