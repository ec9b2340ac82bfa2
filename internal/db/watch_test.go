package db

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A watch that begins after a read tells of each change since before the read, and of no other as
// long as these are few.
func TestWatchesTellWhatChangedSince(t *testing.T) {
	const rows = 50
	r := rand.New(rand.NewPCG(1, 2))
	s := &DB{}
	type moment struct {
		m       Moment
		changes int // of those below, so many came before
	}
	var changes []int64 // the rows; 0: all may have changed
	moments := []moment{{s.Moment(), 0}}
	told := map[bool]int{}
	for range 20_000 {
		switch r.IntN(100) {
		case 0:
			s.watches.notifyAll()
			changes = append(changes, 0)
		case 1, 2, 3:
			moments = append(moments, moment{s.Moment(), len(changes)})
		case 4, 5, 6:
			at := moments[r.IntN(len(moments))]
			if r.IntN(3) > 0 {
				at = moments[max(0, len(moments)-1-r.IntN(5))]
			}
			row := 1 + r.Int64N(rows)
			since := changes[at.changes:]
			want := slices.Contains(since, row) || slices.Contains(since, 0)
			unknown := len(since) > len(s.watches.recent)
			c, stop := s.WatchSince(at.m, row)
			got := len(c) > 0
			if got != want && (want || !unknown) {
				t.Fatalf("after %d changes, those of row %d among them: %v, told %v", len(since), row, want, got)
			}
			told[got]++
			if got {
				<-c
			}
			s.watches.notify([]int64{row})
			changes = append(changes, row)
			if len(c) != 1 {
				t.Fatal("a change after the watch began is not told")
			}
			stop()
		default:
			many := make([]int64, r.IntN(3))
			for i := range many {
				many[i] = 1 + r.Int64N(rows)
			}
			s.watches.notify(many)
			changes = append(changes, many...)
		}
	}
	if told[true] < 50 || told[false] < 50 || len(s.watches.bySeq) != 0 {
		t.Errorf("told %v, and %d watches are left", told, len(s.watches.bySeq))
	}
}
