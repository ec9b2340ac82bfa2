package flows

import "github.com/forebayhq/forebay/internal/fairqueue"

// Job is a job that is ready.
type Job struct {
	Flow  int64
	Ready int64 // since when
	Seq   int64
}

// Pick is a job in its place.
type Pick struct {
	Job    int  // its index
	Behind bool // it goes in the reserved share, before a job of the first level of its tenant
}

// Order puts n jobs into the order in which they are served. The jobs of each flow are in order
// already. cut has the flows of which there may be more jobs. cost says by how much a job moves
// its tenant's virtual time on. picks is nil if the jobs stay in their order. more tells that
// others may go next which are not among the jobs.
func Order(shares *fairqueue.Queue, n int, job func(i int) Job, cut map[int64]bool, horizon *fairqueue.Horizon, cost func(i int) float64, now int64) (picks []Pick, more bool) {
	if n == 0 {
		return nil, false
	}
	if first := job(0).Flow; horizon == nil && oneFlow(n, job) {
		return nil, cut[first]
	}
	var list []fairqueue.Line
	at := map[int64]int{}
	places := make([][]int, 0, 8) // of each flow, the indexes of its jobs
	for i := range n {
		j := job(i)
		f, ok := at[j.Flow]
		if !ok {
			f, at[j.Flow] = len(list), len(list)
			list = append(list, fairqueue.Line{Flow: TenantOf(j.Flow), Class: int(ClassOf(j.Flow)), Rank: RankOf(j.Flow), Cut: cut[j.Flow]})
			places = append(places, nil)
		}
		list[f].Jobs = append(list[f].Jobs, fairqueue.Job{Ready: j.Ready, Seq: j.Seq})
		places[f] = append(places[f], i)
	}
	order, more := shares.Order(list, horizon, now, func(flow, i int) float64 { return cost(places[flow][i]) })
	picks = make([]Pick, len(order))
	for i, p := range order {
		picks[i] = Pick{places[p.Line][p.Job], p.Behind}
	}
	return picks, more
}

func oneFlow(n int, job func(i int) Job) bool {
	first := job(0).Flow
	for i := 1; i < n; i++ {
		if job(i).Flow != first {
			return false
		}
	}
	return true
}
