package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/memory"
)

// What goes over a connection: messages, pings, events.

// ping finds out whether the client is still there. A pong cannot come before the end of a
// message, nor a ping go out. Their pace says how long these may take.
func (s *socket) ping() {
	for tick := time.NewTicker(socketPing); ; {
		select {
		case <-tick.C:
			reads, parts := s.reads.Load(), s.parts.Load()
			if reads%2 == 1 || parts%2 == 1 {
				continue
			}
			wait, cancel := context.WithTimeout(s.line, socketPingWait)
			err := s.conn.Ping(wait)
			cancel()
			if err != nil && s.reads.Load() == reads && s.parts.Load() == parts {
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
		if err = s.readAll(&m, r); err != nil {
			m.release()
			if f, ok := errors.AsType[*failure](err); ok {
				s.refuse("", f)
			}
			return err
		}
		w.lane = laneOf(m.body)
		if m.refused = m.Count(); m.refused == nil && kind != websocket.MessageText {
			m.refused = badRequest("", "invalid_type", "An event must be a text message.")
		}
		if len(s.messages) == cap(s.messages) {
			m.release()
			s.refuse(w.lane, &failure{status: http.StatusTooManyRequests, kind: typeRateLimit, code: "rate_limit_exceeded", message: "Too many events wait on this connection."})
			continue
		}
		if m.refused != nil { // the client is told in its turn
			m.body = nil
			m.release()
		}
		s.messages <- m // there is room: nobody else adds any
	}
}

// readAll reads a message. What is large of it claims memory as it arrives.
func (s *socket) readAll(m *message, r io.Reader) error {
	s.reads.Add(1)
	defer s.reads.Add(1)
	pace := transfer.NewPace(transfer.ReadBytesPerSecond)
	slow := time.AfterFunc(pace.Left(), func() { s.cut(errSlowClient) })
	defer slow.Stop()
	for buffer := make([]byte, 32<<10); ; slow.Reset(pace.Left()) {
		began := time.Now()
		n, err := r.Read(buffer)
		pace.Moved(n, time.Since(began))
		m.body = append(m.body, buffer[:n]...)
		size := int64(len(m.body))
		switch {
		case size > s.MaxBody:
			return refusalOf(m.Refusal(transfer.TooLarge("event", s.MaxBody)))
		case errors.Is(err, io.EOF):
			memory.Expect(m.Context(), size)
			return nil
		case err != nil:
			return errLeft
		}
		if size > transfer.FreeBytes {
			slow.Stop() // the client does not see to the server's memory
			memory.Expect(m.Context(), s.MaxBody)
			if err := memory.Grow(m.Context(), int64(n)); err != nil {
				return refusalOf(m.Refusal(err))
			}
		}
	}
}

// laneName is what a stream_id may be.
var laneName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)

// laneOf returns the stream_id of an event, which the events of its response repeat.
func laneOf(body []byte) string {
	if lane := gjson.GetBytes(body, "stream_id").Str; laneName.MatchString(lane) {
		return lane
	}
	return ""
}

// refuse tells the client of an error that may have nothing to do with a response.
func (s *socket) refuse(lane string, f *failure) {
	f.write(&frameWriter{socket: s, ctx: s.line, lane: lane})
}

// socketPart is how much of an event is written under one deadline.
const socketPart = 32 << 10

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
	slow := time.AfterFunc(s.pace.Left(), s.hangUp)
	defer slow.Stop()
	part := func(b []byte, write func([]byte) error) error {
		s.parts.Add(1)
		defer s.parts.Add(1)
		select {
		case <-s.draining:
			s.pace.Hurry()
		default:
		}
		slow.Reset(s.pace.Left())
		began := time.Now()
		err := write(b)
		s.pace.Moved(len(b), time.Since(began))
		return err
	}
	err := s.sendParts(event, part)
	if err != nil {
		s.cut(errSlowClient)
		s.hangUp()
	}
	return err
}

// sendParts writes an event in one piece, or in several if it is large.
func (s *socket) sendParts(event []byte, part func([]byte, func([]byte) error) error) error {
	if len(event) <= socketPart {
		return part(event, func(b []byte) error { return s.conn.Write(s.line, websocket.MessageText, b) })
	}
	w, err := s.conn.Writer(s.line, websocket.MessageText)
	if err != nil {
		return err
	}
	for b := range slices.Chunk(event, socketPart) {
		err := part(b, func(b []byte) error { _, err := w.Write(b); return err })
		if err != nil {
			return err
		}
	}
	return part(nil, func([]byte) error { return w.Close() })
}

// hurry leaves little time for what is being written when the server stops. What is written later
// sees to it itself.
func (s *socket) hurry() {
	select {
	case <-s.draining:
	case <-s.line.Done():
		return
	}
	part := s.parts.Load()
	if part%2 == 0 {
		return
	}
	select {
	case <-time.After(transfer.DrainTimeout):
	case <-s.line.Done():
	}
	if s.parts.Load() == part {
		s.hangUp()
	}
}
