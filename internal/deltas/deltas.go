// Package deltas passes on what running calls have written so far, to those who follow the events
// of their jobs.
//
// A [Hub] knows the calls of this process and its listeners. Nothing is stored and nothing is
// queued. A call keeps the text that it has so far, as its provider does anyway. Each listener
// reads on from where it is. A slow listener delays nobody and costs no memory. It misses what an
// attempt wrote when the next attempt begins.
//
// Processes that share a database exchange signals by a [Relay]. A process with listeners says
// every few seconds which jobs they follow. Only then does the process with the call send parts of
// the text, many at a time and within a bound for all calls together. Signals may be lost. Offsets
// show what is missing, and the stored result decides.
package deltas

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
)

// Bounds of what is exchanged between processes.
const (
	// pause is between two rounds of signals.
	pause = 100 * time.Millisecond
	// signalsPerRound is how many signals with text one round sends. A signal has at most
	// signalBytes of JSON.
	signalsPerRound = 16
	signalsPerCall  = 4
	signalBytes     = 7000
	// caughtUpBytes is how much of a text is sent to another process that begins to listen.
	caughtUpBytes = 16 << 10
	// keptBytes is how much of a text that comes from another process is kept.
	keptBytes = 256 << 10
	// wantEvery is how often a process says what its listeners follow. Others believe it for
	// wantFor.
	wantEvery = 10 * time.Second
	wantFor   = 30 * time.Second
	// maxWanted is how many jobs other processes may follow here, and wantedPerSignal how many one
	// signal names.
	maxWanted       = 1 << 14
	wantedPerSignal = 128
	// maxEventBytes is how much text one event has.
	maxEventBytes = 32 << 10
)

// Relay sends a signal to the other processes. It is false if the signal was dropped. A nil Relay
// has no others.
type Relay func(signal string) bool

// Hub connects running calls with their listeners.
type Hub struct {
	relay    Relay
	followed atomic.Int64 // jobs that somebody follows, here or elsewhere

	mu        sync.Mutex
	calls     map[string]*text // by job: the latest attempt here, or what another process sent
	listeners map[string]map[*Listener]bool
	wanted    map[string]time.Time // by job: until when another process follows it
	behind    map[string]*outgoing // calls with text to send
	kick      chan struct{}
}

// outgoing is a call whose text is sent to other processes.
type outgoing struct {
	of    *text
	sent  int  // bytes
	again bool // another process begins to listen; guarded by the hub's mu
}

// begin is where the part begins that another process gets which begins to listen.
func (o *outgoing) begin() int { return max(0, len(o.of.latest.Load().text)-caughtUpBytes) }

// NewHub returns a hub. Run sends its signals.
func NewHub(relay Relay) *Hub {
	return &Hub{relay: relay, calls: map[string]*text{}, listeners: map[string]map[*Listener]bool{},
		wanted: map[string]time.Time{}, behind: map[string]*outgoing{}, kick: make(chan struct{}, 1)}
}

// text is what an attempt has written so far.
type text struct {
	job                 string
	generation, attempt int
	here                bool // the call is one of this process

	latest atomic.Pointer[part]
}

// part is a text from an offset on.
type part struct {
	offset int
	text   string
}

var noText = &part{} // a part never changes

func (p *part) end() int { return p.offset + len(p.text) }

// newer reports whether t is of a later attempt than other, or the same.
func (t *text) newer(other *text) bool {
	return t.generation > other.generation || t.generation == other.generation && t.attempt >= other.attempt
}

// Begin begins an attempt. The call passes all that it has written so far to write, and calls end
// when it is over.
func (h *Hub) Begin(call *forebay.TaskCall) (write func(all string), end func()) {
	t := &text{job: call.JobID, generation: call.Generation, attempt: call.Number, here: true}
	t.latest.Store(noText)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[t.job] = t
	h.follow(t)
	return func(all string) {
			t.latest.Store(&part{text: all})
			if h.followed.Load() > 0 {
				h.grown(t)
			}
		}, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.calls[t.job] == t {
				delete(h.calls, t.job)
			}
		}
}

// follow has the listeners of a job read another text, and sends it to other processes that follow
// it.
func (h *Hub) follow(t *text) {
	for l := range h.listeners[t.job] {
		l.of, l.read = t, 0
	}
	if _, ok := h.wanted[t.job]; ok && t.here {
		h.behind[t.job] = &outgoing{of: t}
	}
}

// grown wakes those who follow a text.
func (h *Hub) grown(t *text) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners[t.job] {
		l.wake()
	}
	if _, ok := h.wanted[t.job]; ok && t.here {
		if h.behind[t.job] == nil || h.behind[t.job].of != t {
			h.behind[t.job] = &outgoing{of: t}
		}
		h.kicked()
	}
}

func (h *Hub) kicked() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// Listener follows the calls of one job.
type Listener struct {
	// Grown has a value when there may be more to read.
	Grown <-chan struct{}

	hub   *Hub
	grown chan struct{}
	job   string
	of    *text // what it reads; nil: nothing has begun
	read  int   // bytes of it
}

func (l *Listener) wake() {
	select {
	case l.grown <- struct{}{}:
	default:
	}
}

// Listen follows the calls of a job until Close.
func (h *Hub) Listen(job string) *Listener {
	l := &Listener{hub: h, job: job, grown: make(chan struct{}, 1)}
	l.Grown = l.grown
	h.mu.Lock()
	begins := h.listeners[job] == nil
	if begins {
		h.listeners[job] = map[*Listener]bool{}
	}
	h.listeners[job][l] = true
	h.count()
	if l.of = h.calls[job]; l.of != nil {
		l.wake()
	}
	h.mu.Unlock()
	h.send(signal{Want: []string{job}, Begins: begins})
	return l
}

// Close ends the listening.
func (l *Listener) Close() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners[l.job], l)
	if len(h.listeners[l.job]) == 0 {
		delete(h.listeners, l.job)
		if t := h.calls[l.job]; t != nil && !t.here {
			delete(h.calls, l.job)
		}
	}
	h.count()
}

// count counts the jobs that somebody follows. The caller holds mu.
func (h *Hub) count() { h.followed.Store(int64(len(h.listeners) + len(h.wanted))) }

// Next returns the next delta, or false if there is none yet.
func (l *Listener) Next() (forebay.Delta, bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.of == nil {
		return forebay.Delta{}, false
	}
	p := l.of.latest.Load()
	l.read = max(l.read, p.offset)
	if l.read >= p.end() {
		return forebay.Delta{}, false
	}
	d := forebay.Delta{JobID: l.job, Generation: l.of.generation, Attempt: l.of.attempt, Offset: l.read, Text: cut(p.text[l.read-p.offset:], maxEventBytes)}
	l.read += len(d.Text)
	return d, true
}

// cut returns at most so many bytes of a text. It cuts no character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// signal is what processes tell each other: what they follow, or a part of a text.
type signal struct {
	Want   []string       `json:"want,omitempty"`
	Begins bool           `json:"begins,omitempty"` // the process has nothing of these yet
	Delta  *forebay.Delta `json:"delta,omitempty"`
}

func (h *Hub) send(s signal) bool {
	if h.relay == nil {
		return false
	}
	encoded, err := forebay.EncodeJSON(s)
	return err == nil && h.relay(string(encoded))
}

// Receive takes a signal of another process.
func (h *Hub) Receive(encoded string) {
	var s signal
	if json.Unmarshal([]byte(encoded), &s) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, job := range s.Want {
		h.want(job, s.Begins, time.Now())
	}
	if s.Delta != nil && len(h.listeners[s.Delta.JobID]) > 0 {
		h.take(s.Delta)
	}
}

// want notes that another process follows a job, or begins to.
func (h *Hub) want(job string, begins bool, now time.Time) {
	_, known := h.wanted[job]
	if !known && len(h.wanted) >= maxWanted {
		return
	}
	h.wanted[job] = now.Add(wantFor)
	h.count()
	t := h.calls[job]
	if known && !begins || t == nil || !t.here {
		return
	}
	if o := h.behind[job]; o != nil && o.of == t { // a round may be sending it
		o.again = true
	} else {
		o = &outgoing{of: t}
		o.sent = o.begin()
		h.behind[job] = o
	}
	h.kicked()
}

// take takes a part of a text of another process. A part that does not follow begins the text
// anew, at its offset.
func (h *Hub) take(d *forebay.Delta) {
	from := &text{job: d.JobID, generation: d.Generation, attempt: d.Attempt}
	t := h.calls[d.JobID]
	switch {
	case t == nil || !t.newer(from):
		t = from
		t.latest.Store(&part{offset: d.Offset})
		h.calls[d.JobID] = t
		h.follow(t)
	case t.here || !from.newer(t):
		return
	}
	p := *t.latest.Load()
	if d.Offset > p.end() || d.Offset < p.offset {
		p = part{offset: d.Offset}
	}
	if more := p.end() - d.Offset; more < len(d.Text) {
		p.text += d.Text[more:]
	}
	if over := len(p.text) - keptBytes; over > keptBytes {
		for !utf8.RuneStart(p.text[over]) {
			over++
		}
		p.offset, p.text = p.offset+over, p.text[over:]
	}
	t.latest.Store(&p)
	for l := range h.listeners[d.JobID] {
		l.wake()
	}
}

// Run sends signals until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	if h.relay == nil {
		<-ctx.Done()
		return
	}
	want := time.NewTicker(wantEvery)
	defer want.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-want.C:
			h.announce(time.Now())
		case <-h.kick:
			if h.round() {
				h.kicked()
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

// announce says which jobs are followed here, and forgets what others no longer follow.
func (h *Hub) announce(now time.Time) {
	h.mu.Lock()
	var jobs []string
	for job := range h.listeners {
		jobs = append(jobs, job)
	}
	for job, until := range h.wanted {
		if now.After(until) {
			delete(h.wanted, job)
			delete(h.behind, job)
		}
	}
	h.count()
	h.mu.Unlock()
	for len(jobs) > 0 {
		n := min(len(jobs), wantedPerSignal)
		if !h.send(signal{Want: jobs[:n]}) {
			return // the next round says it again
		}
		jobs = jobs[n:]
	}
}

// round sends the next parts of the texts that other processes follow. It reports whether there is
// more. Which texts it begins with is left to chance.
func (h *Hub) round() (more bool) {
	h.mu.Lock()
	behind := make([]*outgoing, 0, len(h.behind))
	for _, o := range h.behind {
		if o.again {
			o.again, o.sent = false, min(o.sent, o.begin())
		}
		behind = append(behind, o)
	}
	h.mu.Unlock()
	left := signalsPerRound
	for _, o := range behind {
		for range signalsPerCall {
			if left == 0 {
				return true
			}
			d, ok := o.next()
			if !ok {
				break
			}
			left--
			if !h.send(signal{Delta: &d}) {
				return true
			}
			o.sent = d.Offset + len(d.Text)
		}
		more = h.settle(o) || more
	}
	return more
}

// next returns the next part to send. What is too far behind is left out.
func (o *outgoing) next() (forebay.Delta, bool) {
	all := o.of.latest.Load().text
	if len(all)-o.sent > keptBytes {
		o.sent = len(all) - caughtUpBytes
	}
	for o.sent > 0 && o.sent < len(all) && !utf8.RuneStart(all[o.sent]) {
		o.sent++
	}
	if o.sent >= len(all) {
		return forebay.Delta{}, false
	}
	d := forebay.Delta{JobID: o.of.job, Generation: o.of.generation, Attempt: o.of.attempt, Offset: o.sent}
	for size := signalBytes; ; size /= 2 { // escapes make it longer
		d.Text = cut(all[o.sent:], size)
		if encoded, err := forebay.EncodeJSON(d); err == nil && len(encoded) <= signalBytes || size < utf8.UTFMax*2 {
			return d, true
		}
	}
}

// settle forgets a text that was sent. It reports whether there is more.
func (h *Hub) settle(o *outgoing) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.again || o.sent < len(o.of.latest.Load().text) {
		return true
	}
	if h.behind[o.of.job] == o && h.calls[o.of.job] != o.of { // the call is over
		delete(h.behind, o.of.job)
	}
	return false
}
