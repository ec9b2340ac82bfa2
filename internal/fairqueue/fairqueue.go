// Package fairqueue decides which job goes next, without I/O. Each tenant is a flow. The flow
// is chosen first, by start-time fair queueing (Goyal, Vin, Cheng 1996): the one with the
// earliest virtual start time goes next. A job moves its flow's virtual time on by its tokens,
// divided by the flow's weight. A flow that was idle begins at the virtual time of the others,
// so it has neither credit nor debt.
//
// Within the flow the priority decides. A job gains a level for each 30 seconds that it waits.
// One job in eight of a flow comes from behind its first level, so that no priority starves.
// That share is reserved in the flow, and also in each class of what its jobs call. What one
// class calls may be all that is scarce.
package fairqueue

import (
	"cmp"
	"container/heap"
	"math"
)

const (
	// Classes is how many classes there are, by what jobs call. That of those that call nothing is 0.
	Classes = 64
	// Ageing is how long, in milliseconds, a job waits for one level of priority.
	Ageing = 30_000
	// Reserved is in how many jobs of a flow one is reserved for those behind its first level.
	Reserved = 8
)

// Level returns a job's place, by its rank and by how long it has been ready. Rank 0 is the
// highest priority. 0 goes first.
func Level(rank, ready, now int64) int64 { return max(0, rank-max(0, now-ready)/Ageing) }

// Queue is the state of the flows that share one lane. The zero value is ready.
type Queue struct {
	virtual float64 // the start time of the job that went last
	flows   map[int64]*flow
}

// flow is the state of one flow.
type flow struct {
	finish float64 // the virtual time at which its last job ends
	turns  turns
	waits  bool // see Wait
}

// turns counts a flow's jobs since one from behind its first level went, in all and by class.
// They stop when one is due, so that there is never more than one in arrears.
type turns struct {
	all     uint8
	classes [Classes]uint8
}

func (t *turns) count(class int, behind bool) {
	if behind {
		t.all, t.classes[class] = 0, 0
		return
	}
	t.all, t.classes[class] = min(t.all+1, Reserved-1), min(t.classes[class]+1, Reserved-1)
}

// Start returns the virtual time at which the next job of a flow starts.
func (q *Queue) Start(id int64) float64 {
	switch f := q.flows[id]; {
	case f == nil:
		return q.virtual
	case f.waits:
		return f.finish
	default:
		return max(f.finish, q.virtual)
	}
}

// Wait says which flows have jobs that wait. Until a flow is left out, it keeps its place
// though others go ahead of it. So a flow whose next job needs more than there is now loses
// nothing to those whose jobs need less.
func (q *Queue) Wait(waits map[int64]bool) {
	for id, f := range q.flows {
		if f.waits = f.waits && waits[id]; !f.waits && !waits[id] && f.finish <= q.virtual {
			delete(q.flows, id)
		}
	}
	for id := range waits {
		f := q.flow(id)
		f.finish, f.waits = q.Start(id), true
	}
}

// BehindDue reports whether one of the next n jobs of a flow comes from behind its first level.
func (q *Queue) BehindDue(id, n int64) bool {
	f := q.flows[id]
	if f == nil {
		return n >= Reserved
	}
	most := f.turns.all
	for _, n := range f.turns.classes {
		most = max(most, n)
	}
	return int64(most)+n >= Reserved
}

// Charge notes that a job went. cost is its tokens, divided by the flow's weight; behind tells
// that it went before a job of a lower level.
func (q *Queue) Charge(id int64, class int, behind bool, cost float64) {
	f := q.flow(id)
	start := q.Start(id)
	q.virtual = max(q.virtual, start)
	f.finish = start + cost
	f.turns.count(class, behind)
}

func (q *Queue) flow(id int64) *flow {
	f := q.flows[id]
	if f == nil {
		if q.flows == nil {
			q.flows = map[int64]*flow{}
		}
		f = &flow{finish: math.Inf(-1)}
		q.flows[id] = f
	}
	return f
}

// Forget drops the flows that hold no job and owe nothing.
func (q *Queue) Forget(holds func(id int64) bool) {
	for id, f := range q.flows {
		if f.finish <= q.virtual && !holds(id) {
			delete(q.flows, id)
		}
	}
}

// Line is jobs of one flow that have one priority and call the same, in their order: first
// come, first served.
type Line struct {
	Flow  int64
	Class int
	Rank  int64 // of its priority; 0 is the highest
	Jobs  []Job
	Cut   bool // there may be more than these, of which nothing is known
}

// Job is a job that may go.
type Job struct {
	Ready int64 // since when, in milliseconds
	Seq   int64
}

// Pick is one job in the order of all.
type Pick struct {
	Line, Job int  // indexes
	Behind    bool // see [Queue.Charge]
}

// Horizon is how far the order goes where the jobs of some flows are not known.
type Horizon struct {
	Starts [Classes]float64 // the earliest start time of such a flow that has jobs of the class; infinite: there is none
	// Jobs is how many are wanted: the known flows may be ahead of the others by as much virtual
	// time as these take.
	Jobs int
}

// slack is how much virtual time the jobs take that are wanted.
func (h *Horizon) slack(flows []*flowState, cost func(line, job int) float64) float64 {
	rate := 0.0 // in jobs
	for _, f := range flows {
		if c := cost(f.next.no, f.next.gone); c > 0 {
			rate += 1 / c
		}
	}
	if rate == 0 {
		return 0
	}
	return float64(h.Jobs) / rate
}

// Order returns the jobs of the lines in the order in which they go. cost says what each counts
// for, see [Queue.Charge]. The order ends, for the jobs of a class, where one that is not known
// might go next; more tells that it does. Jobs of other classes go on, for they may be able to
// go while those of one class are not.
func (q *Queue) Order(lines []Line, horizon *Horizon, now int64, cost func(line, job int) float64) (picks []Pick, more bool) {
	o := ordering{lines: make([]lineState, len(lines)), now: now}
	at := map[int64]*flowState{}
	total := 0
	for i := range lines {
		l := &lines[i]
		o.lines[i] = lineState{Line: l, no: i}
		more, total = more || l.Cut, total+len(l.Jobs)
		if len(l.Jobs) == 0 {
			continue
		}
		f := at[l.Flow]
		if f == nil {
			f = &flowState{start: q.Start(l.Flow)}
			if known := q.flows[l.Flow]; known != nil {
				f.turns = known.turns
			}
			at[l.Flow] = f
			o.flows = append(o.flows, f)
		}
		f.lines = append(f.lines, &o.lines[i])
	}
	o.restore()
	slack := 0.0
	if horizon != nil {
		slack = horizon.slack(o.flows, cost)
	}
	picks = make([]Pick, 0, total)
	for len(o.flows) > 0 {
		f := o.flows[0]
		l, behind := f.next, f.behind
		if l.unknown() || horizon != nil && f.start > horizon.Starts[l.Class]+slack {
			o.drop(l.Class)
			more = true
			continue
		}
		picks = append(picks, Pick{Line: l.no, Job: l.gone, Behind: behind})
		f.start += cost(l.no, l.gone)
		f.turns.count(l.Class, behind)
		l.gone++
		if f.choose(now); f.next == nil {
			heap.Pop(&o)
		} else {
			heap.Fix(&o, 0)
		}
	}
	return picks, more
}

// ordering is the work of Order: a heap of flows by start time.
type ordering struct {
	lines []lineState
	flows []*flowState
	now   int64
}

// lineState is a line of which some jobs have gone.
type lineState struct {
	*Line
	no, gone int
	dropped  bool
}

// unknown reports whether the line's next job is not known. It became ready no sooner than the
// last that is.
func (l *lineState) unknown() bool { return l.gone == len(l.Jobs) }

// over reports whether no job of the line can go.
func (l *lineState) over() bool { return l.dropped || l.unknown() && !l.Cut }

func (l *lineState) head() Job { return l.Jobs[min(l.gone, len(l.Jobs)-1)] }

// flowState is a flow some of whose jobs have gone.
type flowState struct {
	start  float64
	turns  turns
	lines  []*lineState
	next   *lineState // whose job is next; nil: none
	behind bool
}

// choose sets which line's job is next: that of the first level, or, when it is its turn, the
// oldest of those behind it. A first line whose next job is not known is not passed over. It may
// have none. Then a job behind it is of the first level, to which no reserved turn may go.
func (f *flowState) choose(now int64) {
	f.next, f.behind = nil, false
	var first int64
	for _, l := range f.lines {
		if l.over() {
			continue
		}
		level := Level(l.Rank, l.head().Ready, now)
		if f.next == nil || level < first || level == first && older(l.head(), f.next.head()) {
			f.next, first = l, level
		}
	}
	if f.next == nil || f.next.unknown() {
		return
	}
	all, same := f.turns.all == Reserved-1, f.turns.classes[f.next.Class] == Reserved-1
	if !all && !same {
		return
	}
	var other *lineState
	for _, l := range f.lines {
		if !l.over() && (all || l.Class == f.next.Class) && Level(l.Rank, l.head().Ready, now) > first && (other == nil || older(l.head(), other.head())) {
			other = l
		}
	}
	if other != nil {
		f.next, f.behind = other, true
	}
}

func older(a, b Job) bool {
	return cmp.Or(cmp.Compare(a.Ready, b.Ready), cmp.Compare(a.Seq, b.Seq)) < 0
}

// drop leaves out the jobs of a class.
func (o *ordering) drop(class int) {
	for i := range o.lines {
		if o.lines[i].Class == class {
			o.lines[i].dropped = true
		}
	}
	o.restore()
}

// restore has each flow choose anew.
func (o *ordering) restore() {
	kept := o.flows[:0]
	for _, f := range o.flows {
		if f.choose(o.now); f.next != nil {
			kept = append(kept, f)
		}
	}
	o.flows = kept
	heap.Init(o)
}

// Len is part of heap.Interface, as are the methods below.
func (o *ordering) Len() int { return len(o.flows) }
func (o *ordering) Less(i, j int) bool {
	a, b := o.flows[i], o.flows[j]
	switch {
	case a.start != b.start:
		return a.start < b.start
	case a.next.unknown() != b.next.unknown(): // the unknown job may be older
		return a.next.unknown()
	}
	return older(a.next.head(), b.next.head())
}
func (o *ordering) Swap(i, j int) { o.flows[i], o.flows[j] = o.flows[j], o.flows[i] }
func (o *ordering) Push(any)      {}
func (o *ordering) Pop() any {
	last := o.flows[len(o.flows)-1]
	o.flows = o.flows[:len(o.flows)-1]
	return last
}
