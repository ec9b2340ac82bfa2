// Package feed passes on what happens to jobs and other things as it is committed, to those who
// listen. It is a live feed: it begins when somebody listens, and nothing of it is stored.
//
// Transactions tell what happens only while a [Hub] wants to hear (db.Tx.Tell). The hub compares
// each event with what its listeners asked for, by what the event says itself: tenant, queue,
// type, status and job. Only then it reads what else belongs to the event, such as the job's id
// and task. It does so outside of transactions, for at most [describedPerRound] events in a tenth
// of a second.
// What is more is dropped, and so is what a slow listener does not take. A listener is told how
// much was dropped, and reads the lists again.
//
// Somebody who only wants to know how much happens asks for sums. These are counted from the
// events themselves and cost no read.
//
// # Other processes
//
// Processes that share a database tell each other by signals what their listeners want. Others
// believe it for [wantFor]. Only meanwhile they send events that match, and sums, within a bound
// for all listeners together. Signals may be lost. Those with events are numbered, so that a gap
// is noticed and told.
package feed

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

const (
	// roundPause is between two rounds in which events are described and passed on.
	roundPause = 100 * time.Millisecond
	// lastRound bounds the round in which a process that stops tells what happened last.
	lastRound = time.Second
	// describedPerRound bounds the events of a round whose jobs are read.
	describedPerRound = 256
	// maxPending bounds the items that wait to be described, and maxIntake those that wait for the
	// next round as they were told.
	maxPending = 4 * describedPerRound
	maxIntake  = 1 << 16
	// sumsEvery is the interval of sums.
	sumsEvery = 500 * time.Millisecond
	// maxSums bounds the different counts of an interval.
	maxSums = 4096
	// keptItems is how many items wait for a slow listener.
	keptItems = 1024
)

// Job is an event of a job, as the transaction tells it that makes it.
type Job struct {
	Seq        int64              `json:"s"`
	Tenant     int64              `json:"t"`
	Queue      int64              `json:"q"`
	Number     int64              `json:"n"`
	Type       forebay.EventType  `json:"y"`
	Status     forebay.Status     `json:"u"`
	Generation int                `json:"g"`
	Attempt    int                `json:"a,omitempty"`
	Class      forebay.ErrorClass `json:"c,omitempty"`
	Code       string             `json:"e,omitempty"`
	Delay      int64              `json:"d,omitempty"` // milliseconds before the next attempt
	At         int64              `json:"i"`           // set by the hub
}

// Object is a change of something else. Tenant 0 is nobody's.
type Object struct {
	Tenant int64            `json:"t,omitempty"`
	Kind   forebay.FeedKind `json:"k"`
	ID     string           `json:"o"`
	Type   string           `json:"y"`
	Reason string           `json:"r,omitempty"`
	Until  int64            `json:"l,omitempty"`
	At     int64            `json:"i"` // set by the hub
}

// Tell tells whoever listens that something has another status. The transaction changes it.
func Tell[S ~string](t *db.Tx, kind forebay.FeedKind, tenant int64, id string, status S) {
	if t.Heard() {
		t.Tell(&Object{Tenant: tenant, Kind: kind, ID: id, Type: string(status)})
	}
}

// Database is what the hub needs of one.
type Database interface {
	Read(ctx context.Context, f func(driver.Conn) error) error
	// Hear turns on what transactions tell.
	Hear(on bool)
	// Signal tells the other processes a text, and is false if that was dropped.
	Signal(text string) bool
	// Shared reports whether there may be other processes.
	Shared() bool
	Now() time.Time
}

var _ Database = (*db.DB)(nil)

// Hub connects what happens with those who listen.
type Hub struct {
	db     Database
	origin string // names this hub in signals
	kick   chan struct{}

	telling sync.Mutex // guards the next two
	intake  []any      // *Job and *Object, as they were told
	refused int64      // items for which the intake had no room

	mu          sync.Mutex
	interestDue bool // others are to hear what is wanted here
	listeners   map[*Listener]bool
	others      map[string]*other // with listeners, by origin
	numbers     map[string]int64  // of the latest signals with events, by origin
	sums        map[int64]bool    // tenants whose sums somebody wants; 0: all together
	pending     waiting           // what somebody here wants, and is to be described
	outgoing    outgoing
	here        map[sum]int64 // events of this process in this interval
	there       map[sum]int64 // events of other processes
	began       time.Time     // when the interval did
}

// sum is what is counted. Tenant 0 stands for all together.
type sum struct {
	tenant, queue int64
	kind          forebay.EventType
}

// NewHub returns a hub. The origin differs from those of other processes. Run carries out its
// rounds.
func NewHub(database Database, origin string) *Hub {
	return &Hub{db: database, origin: origin, kick: make(chan struct{}, 1), listeners: map[*Listener]bool{}, others: map[string]*other{}, numbers: map[string]int64{},
		sums: map[int64]bool{}, here: map[sum]int64{}, there: map[sum]int64{}}
}

// Tell takes what a transaction of this process has told. It is quick, because it runs on the
// goroutine of the writer.
func (h *Hub) Tell(told db.Told) {
	for _, what := range told.What {
		switch what := what.(type) {
		case *Job:
			what.At = told.At
		case *Object:
			what.At = told.At
		}
	}
	h.take(told.What...)
}

// TellObject tells what was not told by a transaction.
func (h *Hub) TellObject(o Object) {
	o.At = h.db.Now().UnixMilli()
	h.take(&o)
}

func (h *Hub) take(items ...any) {
	h.telling.Lock()
	if room := maxIntake - len(h.intake); len(items) > room {
		h.refused += int64(len(items) - room)
		items = items[:room]
	}
	h.intake = append(h.intake, items...)
	h.telling.Unlock()
	h.kicked()
}

func (h *Hub) kicked() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// sort counts what was told, and keeps what somebody wants to hear. The caller holds mu.
func (h *Hub) sort() {
	h.telling.Lock()
	items, refused := h.intake, h.refused
	h.intake, h.refused = nil, 0
	h.telling.Unlock()
	for _, item := range items {
		if job, ok := item.(*Job); ok {
			h.count(h.here, job.Tenant, job.Queue, job.Type)
		}
		h.keep(item)
		for _, o := range h.others {
			if o.wants(item) {
				h.outgoing.add(item)
				break
			}
		}
	}
	if refused > 0 {
		for l := range h.listeners {
			l.drop(refused)
		}
		h.outgoing.lose(anybody, refused)
	}
}

// keep keeps an item for those who listen here.
func (h *Hub) keep(item any) {
	wanted := false
	for l := range h.listeners {
		wanted = wanted || l.wants(item)
	}
	if !wanted {
		return
	}
	if dropped := h.pending.add(item, maxPending); dropped != nil {
		for l := range h.listeners {
			if l.wants(dropped) {
				l.drop(1)
			}
		}
	}
}

// count adds an event to the sums that somebody wants.
func (h *Hub) count(counts map[sum]int64, tenant, queue int64, kind forebay.EventType) {
	for _, of := range []int64{0, tenant} {
		if h.sums[of] {
			addTo(counts, sum{of, queue, kind}, 1)
		}
	}
}

func addTo(counts map[sum]int64, s sum, n int64) {
	if _, known := counts[s]; known || len(counts) < maxSums {
		counts[s] += n
	}
}

// Run passes on what happens until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	want := time.NewTicker(wantEvery)
	defer want.Stop()
	interval := time.NewTicker(sumsEvery)
	interval.Stop() // until somebody wants sums
	defer interval.Stop()
	summing := false
	h.ask()
	defer func() { // what happened last is told too
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRound)
		defer cancel()
		h.Round(last)
		if summing {
			h.PassSums(last)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-want.C:
			h.announce(time.Now())
		case <-interval.C:
			h.PassSums(ctx)
		case <-h.kick:
			h.Round(ctx)
			timer := time.NewTimer(roundPause)
			select {
			case <-timer.C:
			case <-interval.C:
				timer.Stop()
				h.PassSums(ctx)
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		if wanted := h.summing(); wanted != summing {
			if summing = wanted; summing {
				interval.Reset(sumsEvery)
			} else {
				interval.Stop()
			}
		}
	}
}

// summing reports whether somebody wants sums.
func (h *Hub) summing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sums) > 0
}

// Round passes on what was told. Run does it; tests may call it instead.
func (h *Hub) Round(ctx context.Context) {
	h.mu.Lock()
	h.sendInterest()
	h.sort()
	h.sendEvents()
	batch := h.pending.take(describedPerRound)
	if len(h.pending.items) > 0 {
		h.kicked()
	}
	h.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	described, err := h.describe(ctx, batch)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, item := range batch {
		for l := range h.listeners {
			switch {
			case !l.wants(item):
			case err != nil || described[i].Kind == "": // its job is gone
				l.drop(1)
			case l.takes(&described[i]):
				l.put(described[i])
			}
		}
	}
}

// PassSums ends an interval of sums. Run does it; tests may call it instead.
func (h *Hub) PassSums(ctx context.Context) {
	names, err := h.queueNames(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sort()
	if len(h.pending.items) > 0 || len(h.outgoing.items) > 0 {
		h.kicked()
	}
	now, seconds := h.db.Now().UTC(), sumsEvery.Seconds()
	if since := now.Sub(h.began).Seconds(); since < 10*seconds { // else nobody listened meanwhile
		seconds = since
	}
	h.began = now
	h.sendSums()
	for l := range h.listeners {
		if !l.Sums {
			continue
		}
		if err != nil { // nobody can say what the queues are called
			l.drop(1)
			continue
		}
		counts := forebay.FeedCounts{At: now, Seconds: seconds, Counts: l.sumsOf(names, h.here, h.there)}
		l.put(forebay.FeedItem{Kind: forebay.FeedSums, Sums: &counts})
	}
	clear(h.here)
	clear(h.there)
}

// sumsOf returns what the listener wants of some sums.
func (l *Listener) sumsOf(names map[int64]string, from ...map[sum]int64) []forebay.FeedCount {
	total := map[sum]int64{}
	for _, sums := range from {
		for s, n := range sums {
			if s.tenant == l.Tenant && (l.Queue == 0 || s.queue == l.Queue) && among(l.Types, s.kind) {
				total[s] += n
			}
		}
	}
	counts := make([]forebay.FeedCount, 0, len(total))
	for s, n := range total {
		counts = append(counts, forebay.FeedCount{Queue: names[s.queue], Type: s.kind, Count: n})
	}
	slices.SortFunc(counts, func(a, b forebay.FeedCount) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type))
	})
	return counts
}
