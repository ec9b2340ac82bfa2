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
	// Takes is asked when a queue becomes due. It must be quick.
	Takes func(name string) Condition
	// Connected reports whether a worker of the tenant is connected. It must be quick. nil: none
	// is, ever.
	Connected func(tenant int64) bool
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
	groups  map[group]*entries
}

// group is the queues of a tenant that a taker takes from under one condition.
type group struct {
	tenant int64
	Condition
}

// entry is a queue in a view.
type entry struct {
	*Queue
	group group
	index int // in its group
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
		v = &view{By: by, entries: map[*Queue]*entry{}, groups: map[group]*entries{}}
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
		heap.Fix(v.groups[e.group], e.index)
	case q.due != inbox.Never:
		c := v.condition(q)
		if c == Never {
			return
		}
		e = &entry{Queue: q, group: group{q.Tenant, c}}
		if v.groups[e.group] == nil {
			v.groups[e.group] = &entries{}
		}
		heap.Push(v.groups[e.group], e)
		v.entries[q] = e
	}
}

func (v *view) remove(e *entry) {
	heap.Remove(v.groups[e.group], e.index)
	delete(v.entries, e.Queue)
	if len(*v.groups[e.group]) == 0 {
		delete(v.groups, e.group)
	}
}

// NextDue is when the taker may find an item; inbox.Never: nothing is known to become ready. room
// is how many items of a tenant it has room for.
func (s *Set) NextDue(by By, room func(tenant int64) int) int64 {
	next := int64(inbox.Never)
	for g, queues := range s.view(by).groups {
		if first := (*queues)[0].due; first < next && by.meets(g.Condition, g.tenant) && room(g.tenant) > 0 {
			next = first
		}
	}
	return next
}

// Share is how many items are asked of a queue.
type Share struct {
	*Queue
	Most int // at least 1
	// later is in which of four passes it goes behind all others that are due: after those of
	// whose group, or of which among its group, one less is asked.
	later int
}

// Due says how many items to ask of which queues that are due, for most items in all. The groups
// share that equally, as far as there is room for their tenants, and so do the queues of a group.
// Whoever is left out, or asked for less, goes first the next time.
func (s *Set) Due(by By, now int64, most int, room func(tenant int64) int) (shares []Share) {
	v := s.view(by)
	var due []*entry // the first of each group
	for g, queues := range v.groups {
		if first := (*queues)[0]; first.due <= now && by.meets(g.Condition, g.tenant) && room(g.tenant) > 0 {
			due = append(due, first)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.turn, b.turn)) })
	due = due[:min(len(due), most)]
	for i, first := range due {
		ofGroup, more := part(most, len(due), i)
		ofGroup = min(ofGroup, room(first.group.tenant))
		queues := v.firstOf(first.group, now, ofGroup)
		for k, q := range queues {
			n, later := part(ofGroup, len(queues), k)
			shares = append(shares, Share{q, n, 2*more + later})
		}
	}
	for pass := range 4 {
		for _, share := range shares {
			if share.later == pass {
				s.SetDue(share.Queue, now)
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

// firstOf takes up to so many queues that are due out of a group, the first ones first.
func (v *view) firstOf(g group, now int64, most int) (queues []*Queue) {
	for len(queues) < most && v.groups[g] != nil && (*v.groups[g])[0].due <= now {
		first := (*v.groups[g])[0]
		v.remove(first)
		queues = append(queues, first.Queue)
	}
	return queues
}
