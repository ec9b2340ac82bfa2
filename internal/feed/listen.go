package feed

import (
	"slices"

	"github.com/forebayhq/forebay"
)

// Filter is what a listener wants. Zero fields want everything. Its JSON is what other processes
// are told of it.
type Filter struct {
	Tenant   int64               `json:"t,omitempty"` // 0: all
	Kinds    []forebay.FeedKind  `json:"k,omitempty"`
	Queue    int64               `json:"q,omitempty"`
	Types    []forebay.EventType `json:"y,omitempty"`
	Statuses []forebay.Status    `json:"u,omitempty"`
	Seqs     []int64             `json:"s,omitempty"` // of jobs

	Sums          bool   `json:"-"` // only sums
	Task          string `json:"-"` // these two are known once a job was read
	CorrelationID string `json:"-"`
}

// wants reports whether an item may be wanted, as far as it says itself.
func (f *Filter) wants(item any) bool {
	if f.Sums {
		return false
	}
	switch item := item.(type) {
	case *Job:
		return (f.Tenant == 0 || f.Tenant == item.Tenant) && (f.Queue == 0 || f.Queue == item.Queue) && among(f.Types, item.Type) &&
			among(f.Statuses, item.Status) && among(f.Seqs, item.Seq) && among(f.Kinds, forebay.FeedJob)
	case *Object:
		return (f.Tenant == 0 || f.Tenant == item.Tenant || item.Tenant == 0) && among(f.Kinds, item.Kind)
	}
	return false
}

// takes reports whether an item that wants has let pass is wanted.
func (f *Filter) takes(item *forebay.FeedItem) bool {
	return item.Job == nil || (f.Task == "" || f.Task == item.Job.Task) && (f.CorrelationID == "" || f.CorrelationID == item.Job.CorrelationID)
}

// among reports whether a list has the value, or wants every one.
func among[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// Listener is somebody who listens.
type Listener struct {
	// Ready has a value when there may be items.
	Ready <-chan struct{}

	Filter
	hub   *Hub
	owner string
	ready chan struct{}
	items []forebay.FeedItem // these three are guarded by the hub's mu
	lost  int64
}

// Bounds of listeners, of all tenants and of one. Each is compared with each event.
const (
	maxListeners       = 512
	maxTenantListeners = 64
)

var errTooManyListeners = forebay.Errorf(forebay.CodeTooManyRequests, "too many clients follow events already; try again")

// Listen begins to listen for a client of the tenant, until Close.
func (h *Hub) Listen(tenant string, f Filter) (*Listener, error) {
	l := &Listener{Filter: f, hub: h, ready: make(chan struct{}, 1), owner: tenant}
	l.Ready = l.ready
	h.mu.Lock()
	same := 0
	for other := range h.listeners {
		if other.owner == tenant {
			same++
		}
	}
	if len(h.listeners) >= maxListeners || same >= maxTenantListeners {
		h.mu.Unlock()
		return nil, errTooManyListeners
	}
	h.listeners[l] = true
	h.changed()
	h.interestDue = true
	h.mu.Unlock()
	h.kicked() // which begins sums
	return l, nil
}

// Close ends the listening.
func (l *Listener) Close() {
	h := l.hub
	h.mu.Lock()
	delete(h.listeners, l)
	h.changed()
	h.interestDue = true
	h.mu.Unlock()
	h.kicked()
}

// changed is for a change of who wants what. The caller holds mu.
func (h *Hub) changed() {
	sums := map[int64]bool{}
	for l := range h.listeners {
		if l.Sums {
			sums[l.Tenant] = true
		}
	}
	for _, o := range h.others {
		for _, tenant := range o.Sums {
			sums[tenant] = true
		}
	}
	if h.sums = sums; len(sums) == 0 {
		clear(h.here)
		clear(h.there)
	}
	if len(h.listeners) == 0 {
		clear(h.numbers) // what comes meanwhile is not missed
	}
	h.db.Hear(len(h.listeners)+len(h.others) > 0)
}

// put gives an item to the listener. The caller holds the hub's mu, here and below.
func (l *Listener) put(item forebay.FeedItem) {
	if len(l.items) >= keptItems {
		l.drop(1)
		return
	}
	l.items = append(l.items, item)
	l.wake()
}

// drop notes that the listener has missed items.
func (l *Listener) drop(n int64) {
	l.lost += n
	l.wake()
}

func (l *Listener) wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Take returns the items that there are, in their order. What was dropped is told last.
func (l *Listener) Take() []forebay.FeedItem {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	items := l.items
	if l.lost > 0 {
		items = append(items, forebay.FeedItem{Kind: forebay.FeedLost, Lost: &forebay.FeedLoss{Count: l.lost}})
	}
	l.items, l.lost = nil, 0
	return items
}
