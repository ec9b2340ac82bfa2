package feed

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// Bounds of what processes tell each other.
const (
	// wantEvery is how often a process with listeners says what they want. Others believe it for
	// wantFor.
	wantEvery = 10 * time.Second
	wantFor   = 30 * time.Second
	// maxOthers is how many other processes may have listeners.
	maxOthers = 64
	// maxInterests is how many filters one process names. Those of more become one that wants
	// everything.
	maxInterests = 16
	// maxSumInterests is of how many tenants one process asks for sums: their numbers fit a signal.
	maxSumInterests = 256
	// signalBytes is how much JSON one signal has, and signalsPerRound how many have events.
	signalBytes     = 7000
	signalsPerRound = 8
	// maxOutgoing is how many events wait to be sent.
	maxOutgoing = 1024
)

// signalPrefix marks the signals of feeds.
const signalPrefix = "feed "

// signal is what processes tell each other. Lists of an interest may be empty: then nobody listens
// any more.
type signal struct {
	Origin string    `json:"o"`
	Ask    bool      `json:"a,omitempty"` // all others are to say what they want
	Want   *interest `json:"w,omitempty"`
	// Number counts the signals with events of a process, from 1.
	Number int64 `json:"n,omitempty"`
	// Lost is how many events were not sent since the one before, and LostOf of which tenants they
	// were. Without the second they may be anybody's.
	Lost    int64           `json:"l,omitempty"`
	LostOf  map[int64]int64 `json:"lt,omitempty"`
	Jobs    []*Job          `json:"j,omitempty"`
	Objects []*Object       `json:"b,omitempty"`
	Sums    []sumSignal     `json:"s,omitempty"`
}

// sumSignal is a sum and its count.
type sumSignal struct {
	Tenant int64             `json:"t,omitempty"`
	Queue  int64             `json:"q"`
	Type   forebay.EventType `json:"y"`
	Count  int64             `json:"c"`
}

// interest is what the listeners of a process want.
type interest struct {
	Filters []Filter `json:"f,omitempty"`
	Sums    []int64  `json:"s,omitempty"` // of these tenants; 0: of all together
}

func (i *interest) wants(item any) bool {
	return slices.ContainsFunc(i.Filters, func(f Filter) bool { return f.wants(item) })
}

// other is another process.
type other struct {
	interest
	until time.Time // when its interest ends
}

// outgoing is what waits to be sent to others.
type outgoing struct {
	waiting
	lost   int64
	lostOf map[int64]int64 // by tenant; anybody: whose they are is not known
	number int64
}

// anybody stands for tenants that are not known, and maxLostOf is of how many a signal tells.
const (
	anybody   = -1
	maxLostOf = 16
)

// lose notes that events of a tenant were not sent.
func (o *outgoing) lose(tenant, n int64) {
	if o.lost += n; o.lostOf == nil {
		o.lostOf = map[int64]int64{}
	}
	if _, known := o.lostOf[tenant]; !known && len(o.lostOf) >= maxLostOf {
		tenant = anybody
	}
	o.lostOf[tenant] += n
}

func (o *outgoing) add(item any) {
	if dropped := o.waiting.add(item, maxOutgoing); dropped != nil {
		o.lose(tenantOf(dropped), 1)
	}
}

func (h *Hub) send(s signal) bool {
	if !h.db.Shared() {
		return false
	}
	s.Origin = h.origin
	encoded, err := forebay.EncodeJSON(s)
	return err == nil && h.db.Signal(signalPrefix+string(encoded))
}

// ask has the others say what they want: this process has just begun.
func (h *Hub) ask() { h.send(signal{Ask: true}) }

// sendInterest says what is wanted here, if that is due. The rounds bound how often: who comes and
// goes in a loop must not fill the signals of everybody. The caller holds mu.
func (h *Hub) sendInterest() {
	if !h.interestDue {
		return
	}
	want := h.interest()
	h.interestDue = h.db.Shared() && !h.send(signal{Want: &want})
}

// interest is what is wanted here. The caller holds mu, here and below.
func (h *Hub) interest() (want interest) {
	for l := range h.listeners {
		if l.Sums {
			want.Sums = append(want.Sums, l.Tenant)
		} else {
			want.Filters = append(want.Filters, l.Filter)
		}
	}
	slices.Sort(want.Sums)
	want.Sums = slices.Compact(want.Sums)
	encoded, err := forebay.EncodeJSON(want)
	want.Sums = want.Sums[:min(len(want.Sums), maxSumInterests)]
	if len(want.Filters) > 0 && (len(want.Filters) > maxInterests || err != nil || len(encoded) > signalBytes) {
		want.Filters = []Filter{{}}
	}
	return want
}

// announce says again what is wanted here, and forgets those who have gone.
func (h *Hub) announce(now time.Time) {
	h.mu.Lock()
	for origin, o := range h.others {
		if now.After(o.until) {
			delete(h.others, origin)
		}
	}
	h.changed()
	if len(h.listeners) > 0 {
		h.interestDue = true
		h.sendInterest()
	}
	h.mu.Unlock()
}

// Receive takes a signal of another process. It reports whether it was one of a feed.
func (h *Hub) Receive(text string) bool {
	encoded, ours := strings.CutPrefix(text, signalPrefix)
	var s signal
	if !ours || json.Unmarshal([]byte(encoded), &s) != nil || s.Origin == "" || s.Origin == h.origin {
		return ours
	}
	h.mu.Lock()
	anybody := len(h.listeners) > 0
	if s.Want != nil {
		h.learn(s.Origin, *s.Want)
	}
	if anybody {
		h.hear(&s)
	}
	h.interestDue = h.interestDue || s.Ask && anybody
	h.mu.Unlock()
	h.kicked()
	return true
}

// learn notes what another process wants.
func (h *Hub) learn(origin string, want interest) {
	o := h.others[origin]
	switch {
	case len(want.Filters) == 0 && len(want.Sums) == 0:
		delete(h.others, origin)
	case o != nil:
		o.interest, o.until = want, time.Now().Add(wantFor)
	case len(h.others) < maxOthers:
		h.others[origin] = &other{interest: want, until: time.Now().Add(wantFor)}
	}
	h.changed()
}

// hear takes what another process says of what happened there.
func (h *Hub) hear(s *signal) {
	for _, of := range s.Sums {
		if h.sums[of.Tenant] {
			addTo(h.there, sum{of.Tenant, of.Queue, of.Type}, of.Count)
		}
	}
	if s.Number == 0 {
		return
	}
	lost := s.LostOf
	if len(lost) == 0 {
		lost = map[int64]int64{anybody: s.Lost}
	}
	missed := lost[anybody]
	if before := h.numbers[s.Origin]; before > 0 && s.Number > before+1 {
		missed += s.Number - before - 1 // each had an event at least
	}
	if _, known := h.numbers[s.Origin]; known || len(h.numbers) < maxOthers {
		h.numbers[s.Origin] = s.Number
	}
	for l := range h.listeners {
		of := missed
		for tenant, n := range lost {
			if tenant != anybody && (l.Tenant == 0 || l.Tenant == tenant || tenant == 0) {
				of += n
			}
		}
		if of > 0 && !l.Sums {
			l.drop(of)
		}
	}
	for _, job := range s.Jobs {
		if job != nil {
			h.keep(job)
		}
	}
	for _, object := range s.Objects {
		if object != nil {
			h.keep(object)
		}
	}
}

// sendEvents sends the next events that others want.
func (h *Hub) sendEvents() {
	o := &h.outgoing
	if len(h.others) == 0 {
		o.waiting, o.lost, o.lostOf = waiting{}, 0, nil
		return
	}
	for range signalsPerRound {
		if len(o.items) == 0 {
			break
		}
		s, n := o.next()
		if o.take(n); h.send(s) {
			o.lost, o.lostOf = 0, nil
		} else { // the number shows that one is missing
			o.lose(anybody, int64(n)-1)
		}
	}
	if len(o.items) > 0 {
		h.kicked()
	}
}

// next makes a signal of as many events as it has room for, and says how many.
func (o *outgoing) next() (s signal, n int) {
	o.number++
	s.Number, s.Lost, s.LostOf = o.number, o.lost, o.lostOf
	size := 0
	for _, item := range o.items {
		encoded, err := forebay.EncodeJSON(item)
		if size += len(encoded) + 1; err != nil || size > signalBytes-200 && n > 0 {
			break
		}
		n++
		switch item := item.(type) {
		case *Job:
			s.Jobs = append(s.Jobs, item)
		case *Object:
			s.Objects = append(s.Objects, item)
		}
	}
	return s, max(n, 1)
}

// sumsPerSignal is how many sums one signal has.
const sumsPerSignal = 80

// sendSums sends the sums of this process that others want.
func (h *Hub) sendSums() {
	var sums []sumSignal
	for s, n := range h.here {
		for _, o := range h.others {
			if slices.Contains(o.Sums, s.tenant) {
				sums = append(sums, sumSignal{s.tenant, s.queue, s.kind, n})
				break
			}
		}
	}
	for range signalsPerRound {
		if len(sums) == 0 {
			return
		}
		n := min(len(sums), sumsPerSignal)
		h.send(signal{Sums: sums[:n]})
		sums = sums[n:]
	}
}
