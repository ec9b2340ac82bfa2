package workqueues

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/orchestrate/inbox"
)

// takes takes the names given always, and others while a worker is connected.
func takes(connected *[]int64, names ...string) *Taker {
	return Known(func(name string) bool { return slices.Contains(names, name) }, func(tenant int64) bool { return slices.Contains(*connected, tenant) })
}

func plenty(int64) int { return 1000 }

// addAll adds queues of activities with those names, which are due.
func (s *Set) addAll(tenant int64, names ...string) {
	for _, name := range names {
		s.Add(int64(len(s.byNo)+1), ID{tenant, Activities, name})
	}
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	return names
}

// asked is how many items each queue is asked for, by tenant and name.
func asked(shares []Share) map[string]int {
	of := map[string]int{}
	for _, share := range shares {
		of[fmt.Sprint(share.Tenant, "/", share.Name)] += share.Most
	}
	return of
}

// Names that nobody takes cost those nothing who look for work.
func TestNamesThatNobodyTakes(t *testing.T) {
	var s Set
	const names = 10_000
	s.addAll(1, numbered(names)...)
	s.addAll(2, "mine")
	questions := 0
	by := By{Activities, &Taker{
		Takes: func(name string) Condition {
			questions++
			if name == "mine" {
				return Always
			}
			return IfConnected
		},
		Connected: func(int64) bool { questions++; return false },
	}}
	look := func() {
		t.Helper()
		if at := s.NextDue(by, plenty); at != 0 {
			t.Errorf("due at %d", at)
		}
		if got := asked(s.Due(by, 0, 5, plenty)); len(got) != 1 || got["2/mine"] != 5 {
			t.Error(got)
		}
	}
	look()
	questions = 0
	look()
	if questions > 4 {
		t.Errorf("%d questions beside %d names that nobody takes", questions, names)
	}
}

// Tenants without an item that may become ready cost those nothing who look for work. Once they
// have one again, they do not go ahead of others.
func TestTenantsWithNothing(t *testing.T) {
	var s Set
	by := By{Activities, takes(&[]int64{}, "name")}
	const tenants = 100
	for tenant := range int64(tenants) {
		s.addAll(tenant, "name")
	}
	got := map[int64]int{}
	for range 3 * tenants / 2 {
		shares := s.Due(by, 7, 2, plenty)
		for _, q := range s.byNo {
			s.SetDue(q, inbox.Never)
		}
		if looked := len(s.view(by).tenants); looked > 0 {
			t.Fatalf("%d tenants with nothing are looked at", looked)
		}
		for _, share := range shares {
			got[share.Tenant]++
		}
		s.SetAllDue(0)
	}
	for tenant := range int64(tenants) {
		if got[tenant] != 3 {
			t.Errorf("tenant %d had %d turns, not 3", tenant, got[tenant])
		}
	}
}

// A tenant with many names gets no more than a tenant with one.
func TestTenantsShare(t *testing.T) {
	for _, test := range []struct{ most, loud, quiet int }{{64, 32, 32}, {1, 1, 0}, {3, 2, 1}} {
		var s Set
		by := By{Activities, takes(&[]int64{1, 2})}
		s.addAll(1, numbered(100)...)
		s.addAll(2, "mine")
		sums := map[int64]int{}
		for _, share := range s.Due(by, 7, test.most, plenty) {
			sums[share.Tenant] += share.Most
		}
		if sums[1] != test.loud || sums[2] != test.quiet {
			t.Errorf("of %d: %v", test.most, sums)
		}
	}
}

// All that stay due get the same over time, also if a claim takes few, or a number that the
// tenants or their queues cannot share equally.
func TestEachHasItsTurn(t *testing.T) {
	for _, test := range []struct {
		queues []int // of each tenant
		most   int
		rounds int
		each   []int // of the rounds, for each queue of the tenant
	}{
		{[]int{10}, 3, 10, []int{3}},
		{[]int{1, 1, 1}, 4, 9, []int{12, 12, 12}},
		{[]int{1, 1, 1}, 1, 9, []int{3, 3, 3}},
		{[]int{4, 2}, 2, 8, []int{2, 4}},
		{[]int{3}, 4, 9, []int{12}},
		{[]int{10, 1, 1}, 1, 30, []int{1, 10, 10}},
		{[]int{10, 1, 1}, 2, 30, []int{2, 20, 20}},
	} {
		var s Set
		by := By{Activities, takes(&[]int64{0, 1, 2})}
		for tenant, n := range test.queues {
			s.addAll(int64(tenant), numbered(n)...)
		}
		got := map[string]int{}
		for range test.rounds {
			for name, n := range asked(s.Due(by, 7, test.most, plenty)) {
				got[name] += n
			}
		}
		for tenant, n := range test.queues {
			for name := range n {
				if of := got[fmt.Sprint(tenant, "/", name)]; of != test.each[tenant] {
					t.Errorf("%v, %d at once: queue %d of tenant %d is asked for %d, not %d", test.queues, test.most, name, tenant, of, test.each[tenant])
				}
			}
		}
	}
}

// New names of a tenant do not go ahead of another tenant, nor do names that it has the code of
// count as another tenant's.
func TestNewNamesWaitTheirTurn(t *testing.T) {
	var s Set
	by := By{Activities, takes(&[]int64{1, 2}, "here", "there")}
	s.addAll(1, "here", "elsewhere")
	s.addAll(2, "mine")
	got := map[int64]int{}
	for i := range 100 {
		s.addAll(1, fmt.Sprint(i))
		for _, share := range s.Due(by, 7, 1, plenty) {
			got[share.Tenant]++
		}
	}
	if got[1] != 50 || got[2] != 50 {
		t.Error(got)
	}
}

// Tenants without room are passed over, and their queues stay due.
func TestRoom(t *testing.T) {
	var s Set
	by := By{Activities, takes(&[]int64{1, 2})}
	s.addAll(1, "a", "b")
	s.addAll(2, "c")
	full := func(tenant int64) int { return int(tenant-1) * 2 }
	if got := asked(s.Due(by, 0, 10, full)); len(got) != 1 || got["2/c"] != 2 {
		t.Error(got)
	}
	s.SetDue(s.FindID(ID{2, Activities, "c"}), 50)
	if at := s.NextDue(by, full); at != 50 {
		t.Error(at)
	}
	if at := s.NextDue(by, plenty); at != 0 {
		t.Error(at)
	}
}

// What a set says is what a look at every queue says, whatever has happened before.
func TestAgainstAllQueues(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s Set
		connected := []int64{}
		takers := []By{{Orchestrations, takes(&connected, "0", "1")}, {Activities, takes(&connected, "2")},
			{Activities, &Taker{Takes: func(name string) Condition { return Condition(len(name) % 2) }}}}
		var now int64
		for range 300 {
			now += r.Int64N(3)
			at := now + r.Int64N(20) - 5
			q := s.Find(r.Int64N(40))
			switch what := r.IntN(12); {
			case what < 3 || q == nil:
				s.Add(int64(len(s.byNo)), ID{r.Int64N(4), Kind(r.IntN(3)), fmt.Sprint(r.IntN(12))})
			case what < 6:
				s.SetDue(q, at)
			case what < 7:
				s.SetDue(q, inbox.Never)
			case what < 9:
				s.Sooner(q, at)
			case what < 10:
				s.SetAllDue(now)
			default:
				connected = nil
				for tenant := range int64(4) {
					if r.IntN(2) == 0 {
						connected = append(connected, tenant)
					}
				}
			}
			room := func(tenant int64) int { return int(tenant) }
			by, most := takers[r.IntN(len(takers))], 1+r.IntN(8)
			want, may := int64(inbox.Never), map[*Queue]bool{}
			for _, q := range s.byNo {
				if by.TakesFrom(q) && room(q.Tenant) > 0 {
					want = min(want, q.due)
					may[q] = q.due <= now
				}
			}
			if got := s.NextDue(by, room); got != want {
				t.Fatalf("seed %d: due at %d, not %d", seed, got, want)
			}
			sum := 0
			for _, share := range s.Due(by, now, most, room) {
				if !may[share.Queue] || share.Most < 1 || share.Most > room(share.Tenant) || share.due != now {
					t.Fatalf("seed %d: %d asked of %+v at %d", seed, share.Most, share.Queue, now)
				}
				sum += share.Most
				delete(may, share.Queue) // each is asked once
			}
			if sum > most || sum == 0 && want <= now {
				t.Fatalf("seed %d: %d of %d asked", seed, sum, most)
			}
		}
	}
}
