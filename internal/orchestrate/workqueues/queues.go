// Package workqueues knows the queues of work items, and when each may have one that is ready. To
// find what is due takes one look at each tenant that has something due, and none at its other
// queues: a tenant may have used any number of names. No I/O.
package workqueues

import "github.com/forebayhq/forebay/internal/orchestrate/inbox"

// Kind is a kind of work item.
type Kind int

const (
	Orchestrations Kind = iota
	Activities
	// SkipsCode are orchestration items that run no code: their instance is suspended or
	// terminated. Whoever takes orchestrations takes them.
	SkipsCode
)

// ID identifies a queue.
type ID struct {
	Tenant int64
	Kind   Kind
	Name   string
}

// Queue is where the work items of one tenant, kind and name wait.
type Queue struct {
	No int64
	ID
	due  int64 // when an item may be ready
	turn int64 // orders queues that are due at the same time
}

// DueBy reports whether an item may be ready at that time.
func (q *Queue) DueBy(at int64) bool { return q.due <= at }

func (q *Queue) before(other *Queue) bool {
	return q.due < other.due || q.due == other.due && q.turn < other.turn
}

// Set is all queues that are known. The zero value is empty.
type Set struct {
	byNo    map[int64]*Queue
	byID    map[ID]*Queue
	tenants map[Kind]map[int64]bool // that have a queue, by kind
	views   map[By]*view
	turn    int64
}

// Add adds a queue, which is due. It changes nothing if the queue is known.
func (s *Set) Add(no int64, id ID) {
	if s.byNo[no] != nil {
		return
	}
	if s.byNo == nil {
		s.byNo, s.byID, s.tenants = map[int64]*Queue{}, map[ID]*Queue{}, map[Kind]map[int64]bool{}
	}
	q := &Queue{No: no, ID: id, due: inbox.Never}
	s.byNo[no], s.byID[id] = q, q
	if s.tenants[id.Kind] == nil {
		s.tenants[id.Kind] = map[int64]bool{}
	}
	s.tenants[id.Kind][id.Tenant] = true
	s.SetDue(q, 0)
}

// Len is how many queues are known.
func (s *Set) Len() int { return len(s.byNo) }

// Find returns the queue with that number; nil: it is not known.
func (s *Set) Find(no int64) *Queue { return s.byNo[no] }

// FindID returns the queue with that ID; nil: it is not known.
func (s *Set) FindID(id ID) *Queue { return s.byID[id] }

// Tenants is how many tenants have had items of a kind.
func (s *Set) Tenants(kind Kind) int { return len(s.tenants[kind]) }

// SetDue sets when an item of the queue may be ready; inbox.Never: none is known.
func (s *Set) SetDue(q *Queue, at int64) {
	s.turn++
	q.due, q.turn = at, s.turn
	for _, v := range s.views {
		v.update(q)
	}
}

// Sooner notes that an item of the queue may be ready at that time.
func (s *Set) Sooner(q *Queue, at int64) {
	if at < q.due {
		s.SetDue(q, at)
	}
}

// SetAllDue marks every queue as due at that time.
func (s *Set) SetAllDue(at int64) {
	for _, q := range s.byNo {
		s.SetDue(q, at)
	}
}
