package flows

import (
	"github.com/forebayhq/forebay/internal/fairqueue"
)

// Set is what a process remembers of the flows of a subqueue.
type Set struct {
	Known       bool            // Flows has all flows that there are
	Full        bool            // the latest scan got from each flow as many jobs as it asked for
	Found       int             // jobs by the latest scan
	Flows       map[int64]*Flow // by id
	SweptAt     int64           // when the latest full scan was
	Called      []string        // the deployments that the jobs of the latest scan could call
	Shares      fairqueue.Queue
	HeldClasses [Classes]bool // classes of which the latest scan found jobs that may not be called
	scarce      map[string]*Scarce
}

// NewSet returns a Set that knows no flow.
func NewSet() *Set { return &Set{Flows: map[int64]*Flow{}} }

// Flow is what a process remembers of a flow. Times are in milliseconds, as in the column
// "visible".
type Flow struct {
	// Floor is where a scan for ready jobs begins: all that became ready before was taken. So the
	// scan skips the index entries of taken jobs, which an old snapshot on the server keeps from
	// being removed. A job can still become ready before Floor if the clock is set back; a full
	// scan finds it.
	Floor int64
	// These say where a scan for jobs that are not ready begins, so that it skips the index
	// entries of finished jobs. Messages that the latest scan saw, locked ones included, become
	// visible at SeenNext or later. Newer ones become visible at NewNext or later, or by NewDue
	// if they were due already. A full scan finds locks of other processes, which are not
	// notified.
	SeenNext, NewNext, NewDue int64

	NextReady int64 // no job is ready before
	NewReady  int64 // no job that came since the latest scan is ready before
	AskedAt   int64 // the time of the latest scan that asked the flow
	Oldest    int64 // the first ready job became ready then, or later; 0: not known
	Backfill  Backfill
}

// Backfill is how far a flow was searched for jobs that may go before its first ones.
type Backfill struct {
	Next         int64 // not to be continued before
	Visible, Seq int64 // the search continues behind this message
	More         bool  // there is more behind it; else the next search starts again
	OthersHeld   bool  // jobs of other tasks were found, and held too
}

// Note records that a flow may have a job that is ready at that time.
func (s *Set) Note(flow, at, now int64) {
	f := s.Flows[flow]
	if f == nil {
		f = &Flow{NextReady: never, NewReady: never, SeenNext: never, NewNext: never, Oldest: at}
		s.Flows[flow] = f
	}
	f.NextReady, f.NewReady = min(f.NextReady, at), min(f.NewReady, at)
	if at > now {
		f.NewNext = min(f.NewNext, at)
	} else {
		f.NewDue = max(f.NewDue, at)
	}
	f.Oldest = min(f.Oldest, at)
	f.Floor = min(f.Floor, at) // another transaction may have taken later jobs already
}

// Listed records that these are all flows of the subqueue.
func (s *Set) Listed(ids []int64) {
	known, tenants := map[int64]*Flow{}, map[int64]bool{}
	for _, id := range ids {
		f := s.Flows[id]
		if f == nil {
			f = &Flow{}
		}
		f.NextReady, f.SeenNext = 0, 0
		known[id], tenants[TenantOf(id)] = f, true
	}
	s.Shares.Forget(func(tenant int64) bool { return tenants[tenant] })
	s.Known, s.Flows = true, known
}

// Forget makes the next scan list the flows, and scan them in full.
func (s *Set) Forget() { s.Known, s.SweptAt = false, 0 }

// Sweep makes the next scan a full one if the latest full one was at least every milliseconds ago.
func (s *Set) Sweep(now, every int64) (sweeps bool) {
	if since := now - s.SweptAt; since >= 0 && since < every {
		return false
	}
	s.SweptAt = now
	for _, f := range s.Flows {
		f.Floor, f.SeenNext = 0, 0
	}
	return true
}

// Served records that a job was taken which became ready at that time.
func (s *Set) Served(flow, ready int64) {
	if f := s.Flows[flow]; f != nil {
		f.Floor, f.Oldest = max(f.Floor, ready), max(f.Oldest, ready)
	}
}

// Left records that a job stays which became ready at that time.
func (s *Set) Left(flow, ready int64) {
	if f := s.Flows[flow]; f != nil {
		f.Floor, f.Oldest = min(f.Floor, ready), min(f.Oldest, ready)
	}
}

// Due makes a flow worth a scan at once.
func (s *Set) Due(flow int64) {
	if f := s.Flows[flow]; f != nil {
		f.NextReady = 0
	}
}

// NextReady returns the earliest time at which a flow may have a ready job, except flows that skip
// names; math.MaxInt64: never. Flows of a tenant that rests are not ready before restsUntil.
func (s *Set) NextReady(restsUntil func(tenant int64) int64, skip func(flow int64) bool) int64 {
	next := int64(never)
	for id, f := range s.Flows {
		if f.NextReady < next && !skip(id) {
			next = min(next, max(f.NextReady, restsUntil(TenantOf(id))))
		}
	}
	return next
}

// scarceFor is for how many milliseconds a deployment counts as scarce after jobs were held for
// it.
const scarceFor = 60_000

// Scarce is a deployment that does not take all the jobs that wait for it. Tenants share what it
// gives by virtual times of its own, in minutes of what is scarcest there.
type Scarce struct {
	Shares fairqueue.Queue
	until  int64
}

// NoteScarce records that jobs are held whose first choice is the deployment.
func (s *Set) NoteScarce(deployment string, now int64) {
	d := s.scarce[deployment]
	if d == nil {
		if s.scarce == nil {
			s.scarce = map[string]*Scarce{}
		}
		d = &Scarce{}
		s.scarce[deployment] = d
	}
	d.until = now + scarceFor
}

// Scarce returns the deployments that are scarce.
func (s *Set) Scarce(now int64) map[string]*Scarce {
	for name, d := range s.scarce {
		if now >= d.until || now < d.until-2*scarceFor {
			delete(s.scarce, name)
		}
	}
	return s.scarce
}

// ScarceOf returns a deployment if it is scarce, else nil.
func (s *Set) ScarceOf(deployment string) *Scarce { return s.scarce[deployment] }
