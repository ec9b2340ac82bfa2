package bus

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/leftovers"
	"pgregory.net/rapid"
)

func (d *postDriver) acceptNext(t *rapid.T) {
	q := d.sessionQueue(t)
	available := map[string]bool{}
	for _, m := range d.messagesIn(q, false) {
		s := d.session(m)
		if s != nil && !m.scheduled && !m.deferred && (s.closed || s.until <= d.now()) {
			available[m.session] = true
		}
	}
	got, err := d.to.Sessions.AcceptNext(background, d.queues[q], len(available) > 0)
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	if got == nil {
		if len(available) > 0 {
			t.Fatalf("no session accepted of %v", available)
		}
		return
	}
	if !available[got.ID] {
		t.Fatalf("accepted %q of %v", got.ID, available)
	}
	d.noteAccepted(t, q, *got)
}

func (d *postDriver) acceptNamed(t *rapid.T) {
	q := d.sessionQueue(t)
	id := rapid.SampledFrom([]string{"x", "y", "z", "other"}).Draw(t, "session")
	before := d.sessions[sessionKey{q, id}]
	got, err := d.to.Sessions.Accept(background, d.queues[q], id)
	if before != nil && !before.closed && before.until > d.now() {
		if !errors.Is(err, forebay.ErrSessionLocked) {
			t.Fatalf("a held session was accepted: %v", err)
		}
		return
	}
	if err != nil || got.ID != id {
		t.Fatalf("accept: %+v, %v", got, err)
	}
	d.noteAccepted(t, q, got)
}

func (d *postDriver) sessionQueue(t *rapid.T) int {
	if !slices.ContainsFunc(d.focus, func(q int) bool {
		return d.queues[q].RequiresSession || strings.HasSuffix(d.queues[q].ForwardTo, "/sessions")
	}) {
		t.Skip("not about sessions")
	}
	return slices.IndexFunc(d.queues, func(q MessageQueue) bool { return q.RequiresSession })
}

func (d *postDriver) noteAccepted(t *rapid.T, q int, got Session) {
	key := sessionKey{q, got.ID}
	s := d.sessions[key]
	if s == nil {
		s = &modelSession{}
		d.sessions[key] = s
	}
	if !bytes.Equal(s.state, got.State) {
		t.Fatalf("session %s has the state %q, expected %q", got.ID, got.State, s.state)
	}
	s.epoch++
	s.lock, s.until, s.closed = got.SessionLock, d.now()+testLock.Milliseconds(), false
	if got.LockedUntil.UnixMilli() != s.until {
		t.Fatalf("session locked until %v", got.LockedUntil)
	}
	d.accepted = append(d.accepted, heldSession{key, s.epoch, got.SessionLock})
}

// useSession does something under a session's lock, which may have ended.
func (d *postDriver) useSession(t *rapid.T) {
	if len(d.accepted) == 0 {
		t.Skip("no session accepted")
	}
	h := d.accepted[rapid.IntRange(max(0, len(d.accepted)-3), len(d.accepted)-1).Draw(t, "session")]
	s, queue := d.sessions[h.key], d.queues[h.key.queue]
	current := s.epoch == h.epoch && !s.closed && s.until > d.now()
	if d.to.Client && !current {
		t.Skip("a client accepts the session again by itself")
	}
	if !d.to.Client && rapid.IntRange(0, 19).Draw(t, "wrong") == 0 {
		current, queue = false, d.queues[0]
	}
	req := ReceiveRequest{Queue: queue, Session: &h.lock, Max: rapid.IntRange(1, 4).Draw(t, "max"), MaxBytes: 1 << 20}
	var err error
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		err = d.to.Sessions.Close(background, queue, h.lock)
		if err == nil && current {
			for _, m := range d.messagesIn(h.key.queue, false) {
				if d.session(m) == s && d.lockedUntil(m) > 0 {
					d.giveBack(m, false)
				}
			}
			s.closed = true
		}
	case 1:
		var until time.Time
		until, err = d.to.Sessions.Renew(background, queue, h.lock)
		if err == nil && current {
			if s.until = d.now() + testLock.Milliseconds(); until.UnixMilli() != s.until {
				t.Fatalf("session renewed until %v", until)
			}
		}
	case 2:
		state := rapid.SampledFrom([][]byte{nil, {}, {1}, {2, 3}}).Draw(t, "state")
		err = d.to.Sessions.SetState(background, queue, h.lock, state)
		if d.to.Client && len(state) == 0 {
			state = nil // to the SDK this is the same
		}
		if err == nil && current {
			s.state = state
		}
	case 3:
		var state []byte
		state, err = d.to.Sessions.State(background, queue, h.lock)
		if err == nil && current && (!bytes.Equal(state, s.state) || (state == nil) != (s.state == nil)) {
			t.Fatalf("session has the state %v, expected %v", state, s.state)
		}
	case 4:
		seqs, expected := d.chooseDeferred(t, h.key.queue, false, h.key.id, current)
		var got []Message
		got, err = d.to.Messages.ReceiveDeferred(background, req, seqs)
		if err == nil && current {
			d.compare(t, got, expected, req, s.until)
		}
	default:
		req.Wait = rapid.Bool().Draw(t, "wait")
		var got []Message
		var expected []*modelMessage
		if current {
			expected = d.take(d.ready(h.key.queue, false, h.key.id), req.Max)
		}
		if d.to.Client && len(expected) == 0 {
			t.Skip("its link would go on to wait")
		}
		got, err = d.to.Messages.Receive(background, req, len(expected))
		if err == nil && current {
			d.compare(t, got, expected, req, s.until)
		}
	}
	if (err == nil) != current || err != nil && !errors.Is(err, forebay.ErrSessionLockLost) {
		t.Fatalf("under a lock that holds=%t: %v", current, err)
	}
}

// forgetSessions removes the rows of sessions that are empty, which nobody sees.
func (d *postDriver) forgetSessions(t *rapid.T) {
	if err := leftovers.ForgetSessions(background, d.store.s.DB); err != nil {
		t.Fatal(err)
	}
}
