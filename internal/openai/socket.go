package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// WebSocket mode of responses: GET /responses, upgraded. Each text message of the client is an
// event, of which there is one type: response.create. The events of its response come back as text
// messages. Responses are made one after the other.

// Limits of a connection.
const (
	socketLife = time.Hour
	// socketQueue is how many messages wait while a response is made.
	socketQueue = 16
	// pings find clients that have gone without a word.
	socketPing     = 30 * time.Second
	socketPingWait = 20 * time.Second
)

// maxCloseReason is the longest reason of a close (RFC 6455, section 5.5).
const maxCloseReason = 123

// socket is a client's connection.
type socket struct {
	*API
	conn     *websocket.Conn
	line     context.Context // of what is read and written: errors are told after the end of a key
	upgraded *api.SurfaceRequest
	cut      context.CancelCauseFunc // ends the connection and what it does
	hangUp   func()                  // ends it without a word
	draining <-chan struct{}         // closed once the server stops
	messages chan message
	latest   *conversation // up to the latest response, if that is not stored; nil: there is none
	writing  sync.Mutex
	pace     transfer.Pace

	// How many messages were begun and ended to be read, and parts to be written. While one is under
	// way its number is odd.
	reads, parts atomic.Int64
}

// message is a message of the client.
type message struct {
	*api.SurfaceRequest
	body    []byte
	release func()
	refused error // why it is not acted on; nil: it is
}

var (
	errSlowClient = errors.New("the client is too slow")
	errLeft       = errors.New("the client has left")
)

// socket serves a connection until its client leaves, its time is over or the server stops.
func (a *API) socket(r *api.SurfaceRequest) error {
	if !r.Caller.May(forebay.ScopeSubmit) {
		return forebay.Errorf(forebay.CodeForbidden, "this needs a key with the scope %q", forebay.ScopeSubmit)
	}
	s := &socket{API: a, upgraded: r, draining: r.Draining(), messages: make(chan message, socketQueue), pace: transfer.NewPace(transfer.WriteBytesPerSecond)}
	leave, err := r.Upgrade(func(raw http.ResponseWriter) (err error) { // pages of other origins are refused there
		w := &handshake{ResponseWriter: raw}
		if s.conn, err = websocket.Accept(w, r.Request, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}); err != nil {
			return &failure{status: max(w.refused, http.StatusBadRequest), kind: typeInvalid, code: "invalid_handshake", message: err.Error()}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer leave()
	s.conn.SetReadLimit(-1) // read has a limit, and says so
	line, hangUp := context.WithCancel(context.WithoutCancel(r.Context()))
	ctx, cut := context.WithCancelCause(r.Context())
	s.line, s.cut, s.hangUp = line, cut, hangUp
	// Whoever is told of the end has little time to read it.
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(transfer.DrainTimeout, hangUp) })()
	var reading sync.WaitGroup
	defer func() { // also after a panic
		cut(errLeft)
		hangUp()
		_ = s.conn.CloseNow()
		reading.Wait()
		close(s.messages)
		for m := range s.messages {
			m.release()
		}
		s.conversations.take(s.latest)
	}()
	reading.Go(func() { cut(s.read(ctx)) })
	reading.Go(s.ping)
	reading.Go(s.hurry)
	status, reason := s.serve(ctx)
	cut(errLeft)
	_ = s.conn.Close(status, reason) // it gives the client a moment
	return nil
}

// serve answers messages, and returns why the connection is to be closed.
func (s *socket) serve(ctx context.Context) (websocket.StatusCode, string) {
	life := time.NewTimer(socketLife)
	defer life.Stop()
	for {
		select { // who waits for several of them hears of the end first
		case <-ctx.Done():
			return s.ended(ctx)
		case <-s.draining:
			return websocket.StatusGoingAway, errStopping.Message
		default:
		}
		select {
		case m := <-s.messages:
			s.answer(m)
		case <-life.C:
			s.refuse("", &failure{status: http.StatusBadRequest, kind: typeInvalid, code: "websocket_connection_limit_reached",
				message: "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."})
			return websocket.StatusNormalClosure, "the connection has lived for 60 minutes"
		case <-s.draining:
			return websocket.StatusGoingAway, errStopping.Message
		case <-ctx.Done():
			return s.ended(ctx)
		}
	}
}

// ended tells a client whose key has ended so. It returns why the connection is to be closed.
func (s *socket) ended(ctx context.Context) (websocket.StatusCode, string) {
	if err := context.Cause(s.upgraded.Context()); forebay.CodeOf(err) == forebay.CodeUnauthorized {
		f := refusalOf(s.upgraded.Refusal(err))
		s.refuse("", f)
		return websocket.StatusPolicyViolation, cut(f.message, maxCloseReason)
	}
	if s.upgraded.Context().Err() != nil {
		return websocket.StatusGoingAway, errStopping.Message
	}
	cause, status := context.Cause(ctx), websocket.StatusPolicyViolation
	if f, ok := errors.AsType[*failure](cause); ok {
		status = websocket.StatusTryAgainLater
		if f.status == http.StatusRequestEntityTooLarge {
			status = websocket.StatusMessageTooBig
		}
	}
	return status, cut(cause.Error(), maxCloseReason)
}

// answer makes the response that a message asks for.
func (s *socket) answer(m message) {
	defer m.release()
	err := m.refused
	if err == nil {
		err = m.Renew()
	}
	if err == nil {
		err = s.create(m)
	}
	if err == nil || m.Context().Err() != nil {
		return
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = refusalOf(m.Refusal(err))
	}
	f.write(m.Writer)
}

// create makes a response.
func (s *socket) create(m message) error {
	body, warm, err := createBody(m.body)
	if err != nil {
		return err
	}
	req, err := parse(body, m.PathValue("deployment"))
	if err != nil {
		return err
	}
	asked, err := bridge.Parse(body, req.model)
	if err != nil {
		return refused(err)
	}
	if known, _ := s.Serves(req.model, forebay.CallEstimate{}); !known {
		return unknownModel(req.model)
	}
	of := responding{asked: asked, body: body, id: ids.New(bridge.IDPrefix), created: time.Now(), socket: true}
	given, known := slices.Clone(asked.Input), false
	if before := s.latest; before != nil && before.response == asked.Previous { // a turn that fails ends the chain
		if asked.Known, known = s.conversations.take(before); known {
			asked.Previous = "" // it cannot be found later
		}
	}
	if err := memory.Grow(m.Context(), sizeOf(asked.Known)); err != nil {
		return err
	}
	said := append(slices.Clone(asked.Known), asked.InputItems(of.id)...)
	if err := s.Responses.Complete(m.Context(), m.Caller.Tenant, asked); err != nil {
		return refused(err)
	}
	if known && asked.Store {
		if err := memory.Grow(m.Context(), sizeOf(asked.Known)+int64(len(body))); err != nil {
			return err
		}
		of.body = asked.Whole(given)
	}
	if of.need, err = s.needOf(asked); err != nil {
		return err
	}
	next := func(object json.RawMessage) {
		s.conversations.take(s.latest)
		if s.latest = nil; asked.Store {
			return
		}
		for _, item := range gjson.GetBytes(object, "output").Array() {
			said = append(said, json.RawMessage(item.Raw))
		}
		s.latest = s.conversations.keep(m.Caller.Tenant, of.id, said)
	}
	if warm {
		asked.Store = false // it goes with the connection
		events, object := asked.Prepared(of.id, of.created)
		next(object)
		_, err := m.Writer.Write(frames(events...))
		return err
	}
	of.ended = func(_ context.Context, end bridge.End) { next(end.Object) }
	return s.respond(m.SurfaceRequest, req, of)
}

// createBody returns the body of the request that an event stands for. warm says that no model is
// to be called for it.
func createBody(event []byte) (body []byte, warm bool, err error) {
	var members bridge.Object
	if json.Unmarshal(event, &members) != nil || members == nil {
		return nil, false, badRequest("", "", "We could not parse the event: expected a JSON object.")
	}
	var kind, lane string
	var background bool
	generate := true
	for name, to := range map[string]any{"type": &kind, "stream_id": &lane, "background": &background, "generate": &generate} {
		if raw, given := members[name]; given && json.Unmarshal(raw, to) != nil {
			return nil, false, badRequest(name, "invalid_type", "Invalid type for '"+name+"': 'type' and 'stream_id' are strings, 'background' and 'generate' booleans.")
		}
	}
	_, named := members["stream_id"]
	switch {
	case kind != "response.create":
		return nil, false, badRequest("type", "invalid_value", "Invalid value for 'type': this server takes events of the type 'response.create'.")
	case background:
		return nil, false, badRequest("background", "unsupported_parameter", "'background' is not supported over a WebSocket.")
	case named && string(members["stream_id"]) != "null" && !laneName.MatchString(lane):
		return nil, false, badRequest("stream_id", "invalid_value", "Invalid 'stream_id': it has 1 to 256 letters, digits, '_', '.' and '-'.")
	}
	for _, name := range []string{"type", "stream_id", "generate", "background"} {
		delete(members, name)
	}
	members["stream"] = json.RawMessage("true")
	body, err = forebay.EncodeJSON(members)
	return body, !generate, err
}
