package workqueues

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/forebayhq/forebay/internal/orchestrate/inbox"
)

// Condition is when a taker takes the items of a name.
type Condition int

const (
	Never Condition = iota
	Always
	IfConnected // while a worker of the tenant is connected
)

// Taker says of which names somebody takes items. There should be few takers, and they should
// last: a Set remembers for each what is due.
type Taker struct {
	// Takes must be quick, and always answer the same for a name.
	Takes func(name string) Condition
	// Connected reports whether a worker of the tenant is connected. It must be quick. nil: none
	// is, ever.
	Connected func(tenant int64) bool
}

// Known takes the names that somebody has always, and others while a worker of their tenant is
// connected, but none of some.
func Known(has func(name string) bool, connected func(tenant int64) bool, but ...string) *Taker {
	return &Taker{Connected: connected, Takes: func(name string) Condition {
		switch {
		case slices.Contains(but, name):
			return Never
		case has(name):
			return Always
		}
		return IfConnected
	}}
}

// Only takes one name.
func Only(name string) *Taker {
	return &Taker{Takes: func(other string) Condition {
		if other == name {
			return Always
		}
		return Never
	}}
}

// By is a taker of items of one kind: Orchestrations or Activities.
type By struct {
	Kind Kind
	*Taker
}

// condition is when items of a queue are taken.
func (b By) condition(q *Queue) Condition {
	switch {
	case q.Kind == b.Kind:
		return b.Takes(q.Name)
	case q.Kind == SkipsCode && b.Kind == Orchestrations:
		return Always
	}
	return Never
}

func (b By) meets(c Condition, tenant int64) bool {
	return c == Always || c == IfConnected && b.Connected != nil && b.Connected(tenant)
}

// TakesFrom reports whether items of a queue are taken now.
func (b By) TakesFrom(q *Queue) bool { return b.meets(b.condition(q), q.Tenant) }

// view is the queues from which a taker may take, without those of which no item is known to
// become ready.
type view struct {
	By
	entries map[*Queue]*entry
	tenants map[int64]*ofTenant // those that have a queue in the view
	asked   map[int64]int64     // by tenant: the turn in which a queue was asked last
}

// ofTenant is the queues of a tenant in a view.
type ofTenant struct {
	tenant            int64
	always, connected entries // by the condition under which they are taken from
}

// first is the queue that is due first of those that are taken from now; nil: there is none.
func (o *ofTenant) first(by By) (first *entry) {
	if len(o.always) > 0 {
		first = o.always[0]
	}
	if len(o.connected) > 0 && (first == nil || o.connected[0].before(first.Queue)) && by.meets(IfConnected, o.tenant) {
		first = o.connected[0]
	}
	return first
}

// entry is a queue in a view.
type entry struct {
	*Queue
	in    *entries
	index int
}

// entries is a heap: the queue that is due first comes first.
type entries []*entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].before(e[j].Queue) }
func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *entries) Push(x any) {
	added := x.(*entry)
	added.index = len(*e)
	*e = append(*e, added)
}

func (e *entries) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return popped
}

// view returns the view of a taker and a kind, and makes it if there is none.
func (s *Set) view(by By) *view {
	v := s.views[by]
	if v == nil {
		v = &view{By: by, entries: map[*Queue]*entry{}, tenants: map[int64]*ofTenant{}, asked: map[int64]int64{}}
		if s.views == nil {
			s.views = map[By]*view{}
		}
		s.views[by] = v
		for _, q := range s.byNo {
			v.update(q)
		}
	}
	return v
}

// update follows a change of when a queue is due.
func (v *view) update(q *Queue) {
	e := v.entries[q]
	switch {
	case e != nil && q.due == inbox.Never:
		v.remove(e)
	case e != nil:
		heap.Fix(e.in, e.index)
	case q.due != inbox.Never:
		c := v.condition(q)
		if c == Never {
			return
		}
		o := v.tenants[q.Tenant]
		if o == nil {
			o = &ofTenant{tenant: q.Tenant}
			v.tenants[q.Tenant] = o
		}
		e = &entry{Queue: q, in: &o.always}
		if c == IfConnected {
			e.in = &o.connected
		}
		heap.Push(e.in, e)
		v.entries[q] = e
	}
}

func (v *view) remove(e *entry) {
	heap.Remove(e.in, e.index)
	delete(v.entries, e.Queue)
	if o := v.tenants[e.Tenant]; len(o.always)+len(o.connected) == 0 {
		delete(v.tenants, e.Tenant)
	}
}

// NextDue is when the taker may find an item; inbox.Never: nothing is known to become ready. room
// is how many items of a tenant it has room for.
func (s *Set) NextDue(by By, room func(tenant int64) int) int64 {
	next := int64(inbox.Never)
	for tenant, o := range s.view(by).tenants {
		if first := o.first(by); first != nil && first.due < next && room(tenant) > 0 {
			next = first.due
		}
	}
	return next
}

// Share is how many items are asked of a queue.
type Share struct {
	*Queue
	Most int // at least 1
	// later is in which of four passes it goes behind all others that are due: after those of
	// whose tenant, or of which among its tenant's, one less is asked.
	later int
}

// Due says how many items to ask of which queues that are due, for most items in all. The tenants
// share that equally, as far as there is room for them, and so do the queues of a tenant. Whoever
// is left out, or asked for less, goes first the next time.
func (s *Set) Due(by By, now int64, most int, room func(tenant int64) int) (shares []Share) {
	v := s.view(by)
	var due []*ofTenant
	for tenant, o := range v.tenants {
		if first := o.first(by); first != nil && first.due <= now && room(tenant) > 0 {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *ofTenant) int {
		return cmp.Or(cmp.Compare(v.asked[a.tenant], v.asked[b.tenant]), cmp.Compare(a.tenant, b.tenant))
	})
	due = due[:min(len(due), most)]
	for i, o := range due {
		ofTenant, more := part(most, len(due), i)
		ofTenant = min(ofTenant, room(o.tenant))
		queues := v.take(o, now, ofTenant)
		for k, q := range queues {
			n, later := part(ofTenant, len(queues), k)
			shares = append(shares, Share{q, n, 2*more + later})
		}
	}
	for pass := range 4 {
		for _, share := range shares {
			if share.later == pass {
				s.SetDue(share.Queue, now)
				v.asked[share.Tenant] = s.turn
			}
		}
	}
	return shares
}

// part is what the one with that index gets of n, if it is divided equally. one is 1 if others get
// one less.
func part(n, among, index int) (of, one int) {
	if index < n%among {
		one = 1
	}
	return n/among + one, one
}

// take removes up to so many queues of a tenant that are due, the first ones first.
func (v *view) take(o *ofTenant, now int64, most int) (queues []*Queue) {
	for len(queues) < most {
		first := o.first(v.By)
		if first == nil || first.due > now {
			break
		}
		v.remove(first)
		queues = append(queues, first.Queue)
	}
	return queues
}
