package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
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
	messages chan message
	latest   *unstored
	writing  sync.Mutex
	pace     transfer.Pace
}

// unstored is the latest response of a connection, if it is not stored. The next one can go on
// from it.
type unstored struct {
	id      string
	items   []json.RawMessage // input and output, with all that went before
	release func()            // the memory that it holds
}

// message is a message of the client.
type message struct {
	*api.SurfaceRequest
	body    []byte
	release func()
	refused *failure // why it was not read
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
	s := &socket{API: a, upgraded: r, messages: make(chan message, socketQueue), pace: transfer.NewPace(transfer.WriteBytesPerSecond)}
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
	s.line, s.cut = line, cut
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
		s.keep(nil)
	}()
	reading.Go(func() { cut(s.read(ctx)) })
	reading.Go(s.ping)
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
		case <-s.upgraded.Draining():
			return websocket.StatusGoingAway, errStopping.Message
		default:
		}
		select {
		case m := <-s.messages:
			s.answer(m)
		case <-life.C:
			s.fail("", &failure{status: http.StatusBadRequest, kind: typeInvalid, code: "websocket_connection_limit_reached",
				message: "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."})
			return websocket.StatusNormalClosure, "the connection has lived for 60 minutes"
		case <-s.upgraded.Draining():
			return websocket.StatusGoingAway, errStopping.Message
		case <-ctx.Done():
			return s.ended(ctx)
		}
	}
}

// ended tells a client whose key has ended so. It returns why the connection is to be closed.
func (s *socket) ended(ctx context.Context) (websocket.StatusCode, string) {
	if s.upgraded.Context().Err() == nil {
		return websocket.StatusPolicyViolation, context.Cause(ctx).Error()
	}
	f := refusalOf(s.upgraded.Refusal(context.Cause(ctx)))
	s.fail("", f)
	return websocket.StatusPolicyViolation, cut(f.message, maxCloseReason)
}

// ping finds out whether the client is still there.
func (s *socket) ping() {
	for tick := time.NewTicker(socketPing); ; {
		select {
		case <-tick.C:
			wait, cancel := context.WithTimeout(s.line, socketPingWait)
			err := s.conn.Ping(wait)
			cancel()
			if err != nil {
				s.cut(errLeft)
			}
		case <-s.line.Done():
			tick.Stop()
			return
		}
	}
}

// read reads messages until the connection ends, and returns why it did.
func (s *socket) read(ctx context.Context) error {
	for {
		kind, r, err := s.conn.Reader(s.line)
		if err != nil {
			return errLeft
		}
		w := &frameWriter{socket: s, ctx: ctx}
		m := message{}
		m.SurfaceRequest, m.release = s.upgraded.Message(ctx, w)
		if m.body, err = s.readAll(m.Context(), r); err != nil {
			m.release()
			if f, ok := errors.AsType[*failure](err); ok {
				s.fail("", f)
			}
			return err
		}
		w.lane = laneOf(m.body)
		switch {
		case len(s.messages) == cap(s.messages):
			m.release()
			s.fail(w.lane, &failure{status: http.StatusTooManyRequests, kind: typeRateLimit, code: "rate_limit_exceeded", message: "Too many events wait on this connection."})
			continue
		case kind != websocket.MessageText:
			m.refused = badRequest("", "invalid_type", "An event must be a text message.")
		}
		s.messages <- m // there is room: nobody else adds any
	}
}

// readAll reads a message. What is large of it claims memory as it arrives.
func (s *socket) readAll(claims context.Context, r io.Reader) (body []byte, err error) {
	pace := transfer.NewPace(transfer.ReadBytesPerSecond)
	slow := time.AfterFunc(pace.Left(), func() { s.cut(errSlowClient) })
	defer slow.Stop()
	for buffer := make([]byte, 32<<10); ; {
		began := time.Now()
		n, err := r.Read(buffer)
		pace.Moved(n, time.Since(began))
		slow.Reset(pace.Left())
		body = append(body, buffer[:n]...)
		if int64(len(body)) > s.MaxBody {
			return nil, refusalOf(s.upgraded.Refusal(transfer.TooLarge("event", s.MaxBody)))
		}
		if err == nil && len(body) > transfer.FreeBytes {
			if err := memory.Grow(claims, int64(n)); err != nil {
				return nil, refusalOf(s.upgraded.Refusal(err))
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, errLeft
		}
	}
}

// maxLane bounds a stream_id.
const maxLane = 256

// laneOf returns the stream_id of an event, which the events of its response repeat.
func laneOf(body []byte) string {
	if lane := gjson.GetBytes(body, "stream_id").Str; len(lane) <= maxLane {
		return lane
	}
	return ""
}

// answer makes the response that a message asks for.
func (s *socket) answer(m message) {
	kept := false // the memory is another's by now
	defer func() {
		if !kept {
			m.release()
		}
	}()
	err := error(m.refused)
	if m.refused == nil {
		if err = m.Count(); err == nil {
			err = m.Renew()
		}
		if err == nil {
			kept, err = s.create(m)
		}
	}
	if err == nil || m.Context().Err() != nil {
		return
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = refusalOf(m.Refusal(err))
	}
	s.fail(m.Writer.(*frameWriter).lane, f)
}

// create makes a response. kept says that the memory of the message is held for the next one.
func (s *socket) create(m message) (kept bool, err error) {
	body, warm, err := createBody(m.body)
	if err != nil {
		return false, err
	}
	req, err := parse(body, m.PathValue("deployment"))
	if err != nil {
		return false, err
	}
	asked, err := bridge.Parse(body, req.model)
	if err != nil {
		return false, refused(err)
	}
	if known, _ := s.Serves(req.model, forebay.CallEstimate{}); !known {
		return false, unknownModel(req.model)
	}
	of := responding{asked: asked, body: body, id: ids.New(bridge.IDPrefix), created: time.Now(), socket: true}
	before := s.latest
	if before != nil && before.id == asked.Previous {
		asked.Known = before.items
		if err := memory.Grow(m.Context(), sizeOf(asked.Known)); err != nil {
			return false, err
		}
		of.body, asked.Previous = asked.Whole(), "" // the one before cannot be found later
		defer func() {
			if err != nil || s.latest == before { // a turn that fails ends the chain
				s.keep(nil)
			}
		}()
	}
	said := slices.Concat(asked.Known, asked.InputItems(of.id))
	next := func(object json.RawMessage, store bool) {
		s.keep(nil)
		if store {
			return
		}
		for _, item := range gjson.GetBytes(object, "output").Array() {
			said = append(said, json.RawMessage(item.Raw))
		}
		if memory.Grow(m.Context(), sizeOf(said)) == nil {
			s.keep(&unstored{of.id, said, m.release})
			kept = true
		}
	}
	if err := s.Responses.Complete(m.Context(), m.Caller.Tenant, asked); err != nil {
		return false, refused(err)
	}
	if of.need, err = s.needOf(asked); err != nil {
		return false, err
	}
	if warm {
		events, object := asked.Prepared(of.id, of.created)
		next(object, false)
		_, err := m.Writer.Write(frames(events...))
		return kept, err
	}
	of.ended = func(_ context.Context, end bridge.End) { next(end.Object, asked.Store) }
	err = s.respond(m.SurfaceRequest, req, of)
	return kept, err
}

// keep remembers a response that is not stored, in place of the one before; nil: none.
func (s *socket) keep(u *unstored) {
	if s.latest != nil {
		s.latest.release()
	}
	s.latest = u
}

func sizeOf(items []json.RawMessage) (size int64) {
	for _, item := range items {
		size += int64(len(item))
	}
	return size
}

// createBody returns the body of the request that an event stands for. warm says that no model is
// to be called for it.
func createBody(event []byte) (body []byte, warm bool, err error) {
	var members bridge.Object
	if json.Unmarshal(event, &members) != nil || members == nil {
		return nil, false, badRequest("", "", "We could not parse the event: expected a JSON object.")
	}
	var flags struct {
		Type       string
		Background *bool
		Generate   *bool
		StreamID   *string `json:"stream_id"`
	}
	if err := json.Unmarshal(event, &flags); err != nil {
		return nil, false, badRequest("", "invalid_type", "Invalid type of a member of the event: 'type' and 'stream_id' are strings, 'background' and 'generate' booleans.")
	}
	switch {
	case flags.Type != "response.create":
		return nil, false, badRequest("type", "invalid_value", "Invalid value for 'type': this server takes events of the type 'response.create'.")
	case flags.Background != nil && *flags.Background:
		return nil, false, badRequest("background", "unsupported_parameter", "'background' is not supported over a WebSocket.")
	case flags.StreamID != nil && (*flags.StreamID == "" || len(*flags.StreamID) > maxLane):
		return nil, false, badRequest("stream_id", "invalid_value", "Invalid 'stream_id': it has 1 to 256 characters.")
	}
	for _, name := range []string{"type", "stream_id", "generate", "background"} {
		delete(members, name)
	}
	members["stream"] = json.RawMessage("true")
	body, err = forebay.EncodeJSON(members)
	return body, flags.Generate != nil && !*flags.Generate, err
}

// fail tells the client of an error.
func (s *socket) fail(lane string, f *failure) {
	event, err := json.Marshal(struct {
		Type   string          `json:"type"`
		Status int             `json:"status"`
		Error  json.RawMessage `json:"error"`
	}{"error", f.status, json.RawMessage(gjson.GetBytes(f.json(), "error").Raw)})
	if err != nil {
		panic(err) // a struct of strings: cannot happen
	}
	_ = s.send(lane, event)
}

// send sends an event. A client that does not read it is left.
func (s *socket) send(lane string, event []byte) error {
	if lane != "" {
		name, err := forebay.EncodeJSON(lane)
		if err != nil {
			return err
		}
		event = slices.Concat(event[:len(event)-1], []byte(`,"stream_id":`), name, []byte("}"))
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.line, s.pace.Left())
	defer cancel()
	err := s.conn.Write(ctx, websocket.MessageText, event)
	s.pace.Moved(len(event), time.Since(began))
	if err != nil {
		s.cut(errSlowClient)
	}
	return err
}
