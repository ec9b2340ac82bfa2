package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/fairqueue"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

// However many jobs of the highest priority keep coming, those behind them have their share of
// what is delivered, long before they have aged. Each flow is first come, first served.
func TestReservedShare(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		low   []int // priorities
		class int   // of those of the low priorities; of the others 1
		max   int   // jobs that a claim wants
	}{
		"one at a time":      {low: []int{0}, class: 1, max: 1},
		"many at a time":     {low: []int{0}, class: 1, max: 40},
		"of another class":   {low: []int{2}, class: 2, max: 5},
		"of several levels":  {low: []int{0, 3, 5}, class: 1, max: 8},
		"of several classes": {low: []int{0, 5}, class: 3, max: 16},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stores, queueID int64) {
				const total, waiting = 400, 200
				tenant, serial := tenantNamed(t, s, "a"), 0
				submit := func(n, priority, class int) {
					jobs := make([]NewJob, n)
					for i := range jobs {
						serial++
						jobs[i] = NewJob{ID: fmt.Sprintf("%d-%06d", priority, serial), Tenant: tenant, Queue: queueID, Task: "t", Priority: priority, Class: class}
					}
					submitAll(t, s, jobs...)
				}
				for _, priority := range test.low {
					submit(waiting, priority, test.class)
					<-time.After(time.Millisecond)
				}
				submit(waiting, forebay.MaxPriority, 1)
				last, got := map[byte]string{}, map[byte]int{}
				for n := 0; n < total; {
					deliveries, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: test.max, MaxBytes: 1 << 20, Lock: time.Hour})
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range deliveries {
						n++
						priority := d.ID[0]
						if got[priority]++; d.ID <= last[priority] {
							t.Fatalf("%s was claimed after %s", d.ID, last[priority])
						}
						last[priority] = d.ID
					}
					submit(len(deliveries), forebay.MaxPriority, 1)
				}
				low := 0
				for _, priority := range test.low {
					low += got['0'+byte(priority)]
				}
				if low < total/fairqueue.Reserved-test.max || low > total/fairqueue.Reserved+test.max {
					t.Errorf("of %d jobs %v had each priority", total, got)
				}
			})
		})
	}
}

// The only job of the first level is given up, as one that was delivered too often. Its scan found
// as many jobs as it asked for. The reserved turn that comes next is for the job behind "first",
// which is now of the first level.
func TestReservedTurnAfterTheLastOfALevel(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stores, queueID int64) {
		tenant, subqueue := tenantNamed(t, s, "a"), queue.SubqueueOf(queueID, queue.SubqueueMain)
		submit := func(id string, priority int) {
			submitAll(t, s, NewJob{ID: id, Tenant: tenant, Queue: queueID, Task: "t", Priority: priority})
			<-time.After(time.Millisecond)
		}
		claim := func(lock time.Duration) string {
			got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: subqueue, Max: 1, MaxBytes: 1 << 20, Lock: lock, MaxDeliveries: 1,
				FailureSubqueue: queue.SubqueueDeadLetter})
			mustDo(t, err)
			return got[0].ID
		}
		submit("given up", forebay.MaxPriority)
		claim(time.Second)
		for i := range fairqueue.Reserved - 3 {
			submit(fmt.Sprint("before ", i), forebay.MaxPriority)
			claim(time.Hour)
		}
		submit("first", 5)
		submit("behind", 0)
		<-time.After(time.Second)
		if one, two := claim(time.Hour), claim(time.Hour); one != "behind" || two != "first" {
			t.Errorf("%q was delivered, then %q", one, two)
		}
	})
}

// What one class calls may be all that is scarce. Then its own jobs behind the first level have
// the share.
func TestReservedShareOfAClass(t *testing.T) {
	at := time.UnixMilli(1e12)
	job := func(seq int64, class, priority int) candidate {
		return candidate{LockedJob: LockedJob{Tenant: 1, ScheduledAt: at, Lock: queue.Lock{Seq: seq}}, flow: flows.ID(1, class, priority)}
	}
	l := flows.NewSet()
	for range fairqueue.Reserved - 1 {
		l.Shares.Charge(1, 1, false, 0)
		l.Shares.Charge(1, 3, true, 0) // the turn of the classes together is over
	}
	ordered, _ := orderBy(&l.Shares, []candidate{job(1, 1, 9), job(2, 1, 3), job(3, 2, 3)}, nil, nil, (*candidate).roughly, 1e12)
	if ordered[0].Seq != 2 || ordered[1].Seq != 1 {
		t.Errorf("in this order: %+v", ordered)
	}
}
