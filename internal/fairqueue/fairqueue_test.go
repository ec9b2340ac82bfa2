package fairqueue

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lane is jobs of some flows, served one claim at a time as the store does, in simulated time.
type lane struct {
	Queue
	lines  map[[3]int64][]Job // by flow, class and rank
	keys   [][3]int64
	weight map[int64]float64
	tokens func(flow, seq int64) float64
	rests  map[int64]bool
	now    int64
	seq    int64
	served map[int64]float64 // tokens by flow
	jobs   map[int64]int
	waited map[int64]int64 // the longest, in milliseconds
}

func newLane() *lane {
	return &lane{lines: map[[3]int64][]Job{}, weight: map[int64]float64{}, tokens: func(int64, int64) float64 { return 1000 }, rests: map[int64]bool{},
		now: 1e12, served: map[int64]float64{}, jobs: map[int64]int{}, waited: map[int64]int64{}}
}

// add adds jobs that have waited for so many milliseconds.
func (l *lane) add(flow, class, rank int64, n int, waited int64) {
	at := [3]int64{flow, class, rank}
	if _, ok := l.lines[at]; !ok {
		l.keys = append(l.keys, at)
	}
	for range n {
		l.seq++
		l.lines[at] = append(l.lines[at], Job{Ready: l.now - waited, Seq: l.seq})
	}
}

// claim serves up to so many jobs. It knows the beginnings of lines only.
func (l *lane) claim(n int) (served int) {
	for served < n {
		var list []Line
		var keys [][3]int64
		for _, key := range l.keys {
			if jobs := l.lines[key]; len(jobs) > 0 && !l.rests[key[0]] {
				known := min(len(jobs), n/4+2)
				list = append(list, Line{Flow: key[0], Class: int(key[1]), Rank: key[2], Jobs: jobs[:known], Cut: known < len(jobs)})
				keys = append(keys, key)
			}
		}
		cost := func(line, job int) float64 {
			flow := list[line].Flow
			return l.tokens(flow, list[line].Jobs[job].Seq) / l.weight[flow]
		}
		picks, more := l.Order(list, nil, l.now, cost)
		for _, p := range picks[:min(len(picks), n-served)] {
			line, job := list[p.Line], list[p.Line].Jobs[p.Job]
			l.Charge(line.Flow, line.Class, p.Behind, cost(p.Line, p.Job))
			l.served[line.Flow] += l.tokens(line.Flow, job.Seq)
			l.jobs[line.Flow]++
			l.waited[line.Flow] = max(l.waited[line.Flow], l.now-job.Ready)
			l.lines[keys[p.Line]] = l.lines[keys[p.Line]][1:]
			served++
		}
		if len(picks) == 0 && !more {
			return served
		}
	}
	return served
}

// shares fails unless each flow was served what its weight says, within a tenth.
func (l *lane) shares(t testing.TB, what string, flows ...int64) {
	t.Helper()
	tokens, weights := 0.0, 0.0
	for _, f := range flows {
		tokens, weights = tokens+l.served[f], weights+l.weight[f]
	}
	for _, f := range flows {
		if got, want := l.served[f]/tokens, l.weight[f]/weights; math.Abs(got-want) > want/10 {
			t.Errorf("%s: flow %d of weight %g got %.2f %% instead of %.2f %%", what, f, l.weight[f], 100*got, 100*want)
		}
	}
}

// However old another flow's backlog is, and whatever its priority, each flow has its share by
// weight.
func TestSharesAreByWeight(t *testing.T) {
	for _, age := range []int64{0, 30_000, 300_000, 1_800_000} {
		for flood := range int64(10) {
			for _, max := range []int{5, 64} {
				l := newLane()
				l.weight = map[int64]float64{1: 6, 2: 4, 3: 3, 4: 0.5}
				l.add(1, 0, flood, 3000, age)
				l.add(2, 0, 5, 2000, 0)
				l.add(3, 0, 9, 2000, 0)
				l.add(4, 0, 0, 2000, age/2)
				for range 1600 / max {
					l.claim(max)
					l.now += 50
				}
				l.shares(t, fmt.Sprintf("a flood of rank %d that has waited for %d s, %d at a time", flood, age/1000, max), 1, 2, 3, 4)
			}
		}
	}
}

// What counts is tokens, of whatever models, and weights may be a million times as large as
// others.
func TestSharesOfUnequalJobs(t *testing.T) {
	l := newLane()
	l.weight = map[int64]float64{1: 1000, 2: 300, 3: 50, 4: 0.001}
	l.tokens = func(flow, seq int64) float64 {
		switch flow {
		case 1:
			return 100
		case 2:
			return 10 + float64(seq*seq%50_000)
		}
		return 5000
	}
	for class := range int64(3) {
		l.add(1, class, 2, 40_000, 60_000)
	}
	l.add(2, 0, 7, 20_000, 0)
	l.add(3, 1, 0, 5000, 0)
	l.add(4, 2, 0, 1000, 3_600_000)
	for range 1000 {
		l.claim(64)
	}
	l.shares(t, "classes and sizes", 1, 2, 3)
	if l.jobs[4] != 1 {
		t.Errorf("%d jobs of the flow of weight 0.001 went, instead of its first", l.jobs[4])
	}
}

// A flow that was idle has its share from then on, and no more; the others have theirs.
func TestReturningFlowHasNoCredit(t *testing.T) {
	for _, why := range []string{"idle", "resting"} {
		l := newLane()
		l.weight = map[int64]float64{1: 2, 2: 1, 3: 1}
		l.add(1, 0, 0, 50_000, 600_000)
		l.add(3, 0, 0, 50_000, 600_000)
		if why == "resting" { // it has jobs, and as many calls at once as it may
			l.add(2, 0, 5, 20_000, 0)
		}
		l.claim(40)
		for range 5 {
			l.rests[2] = true
			l.claim(2000)
			l.rests[2] = false
			if why == "idle" {
				l.add(2, 0, 5, 300, 0)
			}
			clear(l.served)
			for range 100 {
				l.claim(8)
				l.now += 100
			}
			l.shares(t, why, 1, 2, 3)
			if why == "idle" { // what is left is cancelled
				l.lines[[3]int64{2, 0, 5}] = nil
			}
		}
	}
}

// A flow that has one job now and then does not wait for others' backlogs.
func TestSparseFlowGoesSoon(t *testing.T) {
	l := newLane()
	l.weight = map[int64]float64{1: 100, 2: 1}
	l.add(1, 0, 0, 100_000, 3_600_000)
	for range 100 {
		l.add(2, 0, 9, 1, 0)
		for range 200 {
			l.claim(1)
			l.now += 10
		}
	}
	if l.jobs[2] != 100 || l.waited[2] > 1500 {
		t.Errorf("%d of 100 went, one after %d ms", l.jobs[2], l.waited[2])
	}
}

// Within a flow a lower priority has one job in eight, however many come with a higher one.
func TestReservedShareWithinAFlow(t *testing.T) {
	for _, others := range []int64{0, 3} {
		l := newLane()
		l.weight[1] = 1
		for f := range others {
			l.weight[10+f] = 1
			l.add(10+f, 0, 0, 5000, 0)
		}
		l.add(1, 0, 0, 5000, 0)
		l.add(1, 0, 9, 5000, 0)
		for range 200 {
			l.claim(5)
		}
		mine := l.jobs[1]
		if low := 5000 - len(l.lines[[3]int64{1, 0, 9}]); low < mine/Reserved-2 || low > mine/Reserved+2 {
			t.Errorf("beside %d others: of %d jobs %d had the lowest priority", others, mine, low)
		}
	}
}

// Of jobs that all call the same the order is as if all were known, as far as it goes, and it
// goes on somewhere.
func TestOrderOfBeginnings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var whole, cut []Line
		seq := int64(0)
		for flow := range rapid.Int64Range(1, 5).Draw(t, "flows") {
			for range rapid.IntRange(0, 9).Draw(t, "charges") {
				q.Charge(flow, 0, rapid.Bool().Draw(t, "behind"), rapid.Float64Range(0, 100).Draw(t, "cost"))
			}
			for rank := range int64(3) {
				n := rapid.IntRange(0, 9).Draw(t, "jobs")
				jobs, at := make([]Job, n), rapid.Int64Range(0, 100_000).Draw(t, "ready")
				for i := range jobs {
					seq, at = seq+1, at+rapid.Int64Range(0, 20_000).Draw(t, "later")
					jobs[i] = Job{Ready: at, Seq: seq}
				}
				if n > 0 {
					known := rapid.IntRange(1, n).Draw(t, "known")
					whole = append(whole, Line{Flow: flow, Rank: 3 * rank, Jobs: jobs})
					// A scan that found as many as it asked for cannot tell.
					seemsCut := rapid.Bool().Draw(t, "seems cut")
					cut = append(cut, Line{Flow: flow, Rank: 3 * rank, Jobs: jobs[:known], Cut: known < n || seemsCut})
				}
			}
		}
		const now = 150_000
		cost := func(line, job int) float64 { return float64(1 + whole[line].Jobs[job].Seq*7%13) }
		all, more := q.Order(whole, nil, now, cost)
		if more || int64(len(all)) != seq {
			t.Fatalf("%d of %d jobs, more: %t", len(all), seq, more)
		}
		some, more := q.Order(cut, nil, now, cost)
		if len(some) < len(all) && !more || len(some) == 0 && seq > 0 || !slices.Equal(some, all[:len(some)]) {
			t.Fatalf("%+v (more: %t) is not how %+v begins", some, more, all)
		}
	})
}

// A line may seem to be cut and have no more jobs. Then those behind it are of the first level,
// and the reserved turn is for the level after.
func TestReservedTurnWaitsForTheFirstLevel(t *testing.T) {
	var q Queue
	for range Reserved - 2 {
		q.Charge(1, 0, false, 0)
	}
	free := func(int, int) float64 { return 0 }
	lines := []Line{{Flow: 1, Rank: 1, Jobs: []Job{{Ready: 3, Seq: 3}}, Cut: true},
		{Flow: 1, Rank: 6, Jobs: []Job{{Ready: 1, Seq: 1}}}, {Flow: 1, Rank: 8, Jobs: []Job{{Ready: 2, Seq: 2}}}}
	if picks, more := q.Order(lines, nil, 3, free); !slices.Equal(picks, []Pick{{Line: 0}}) || !more {
		t.Errorf("while nobody knows what is first: %+v, more: %t", picks, more)
	}
	q.Charge(1, 0, false, 0)
	if picks, _ := q.Order(lines[1:], nil, 3, free); !slices.Equal(picks, []Pick{{Line: 1, Behind: true}, {Line: 0}}) {
		t.Errorf("once it is known: %+v", picks)
	}
}

// Where jobs of one class are not all known the others go on, each flow's in their order.
func TestOrderGoesOnForOtherClasses(t *testing.T) {
	var q Queue
	jobs := func(from, n int64) (list []Job) {
		for i := range n {
			list = append(list, Job{Ready: 1, Seq: from + i})
		}
		return list
	}
	lines := []Line{{Flow: 1, Class: 1, Jobs: jobs(1, 2), Cut: true}, {Flow: 1, Class: 2, Jobs: jobs(10, 3)}, {Flow: 2, Class: 1, Jobs: jobs(20, 9)}, {Flow: 2, Class: 2, Jobs: jobs(30, 3)}}
	picks, more := q.Order(lines, nil, 1, func(int, int) float64 { return 1 })
	counts := map[int]int{}
	for _, p := range picks {
		counts[p.Line]++
	}
	if !more || counts[0] != 2 || counts[1] != 3 || counts[3] != 3 || counts[2] > 3 {
		t.Errorf("of each line %v went, more: %t", counts, more)
	}
}

// Where flows are not known the order ends about where their turns begin, so that none is
// passed by more than one claim.
func TestOrderEndsAtTheHorizon(t *testing.T) {
	var q Queue
	q.Charge(1, 0, false, 1000)
	q.Charge(2, 0, false, 0)
	h := Horizon{Jobs: 4}
	for i := range h.Starts {
		h.Starts[i] = math.Inf(1)
	}
	h.Starts[0] = q.Start(2)
	lines := []Line{{Flow: 1, Jobs: []Job{{1, 1}}}, {Flow: 2, Jobs: make([]Job, 50)}, {Flow: 1, Class: 1, Jobs: []Job{{1, 2}}}}
	picks, more := q.Order(lines, &h, 1, func(int, int) float64 { return 1 })
	counts := map[int]int{}
	for _, p := range picks {
		counts[p.Line]++
	}
	if !more || counts[0] != 0 || counts[1] > 5 || counts[1] < 2 || counts[2] != 1 {
		t.Errorf("of each line %v went, more: %t", counts, more)
	}
}

// A flow whose job is held keeps its place while others go ahead of it, and one that had no
// jobs meanwhile gains nothing.
func TestHeldFlowKeepsItsPlace(t *testing.T) {
	var q Queue
	q.Wait(map[int64]bool{1: true, 2: true})
	for range 10 {
		q.Charge(2, 0, false, 5) // it goes ahead
	}
	q.Wait(map[int64]bool{1: true, 2: true})
	if held, ahead, fresh := q.Start(1), q.Start(2), q.Start(3); held != 0 || ahead != 50 || fresh != 45 {
		t.Errorf("they start at %g, %g and %g", held, ahead, fresh)
	}
	q.Wait(map[int64]bool{2: true})
	if idle := q.Start(1); idle != 45 {
		t.Errorf("one that was idle starts at %g", idle)
	}
}
